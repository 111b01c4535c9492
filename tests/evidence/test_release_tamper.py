"""Every change to a release folder is caught, and under the right name."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from release_case import RELEASE, STEM, Case, changed, checked, copy_of, failed

KEYS = {"unknown-key", "self-embedded-key"}
FORM = {"release-readable", "release-encoding", "payload-type"}
SIGNED = {"signature-sm2", "signature-p384"}
CERTIFICATES = {"certificate-path", "certificate-expired", "certificate-revoked", "certificate-purpose", *KEYS}


def flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def expected_in_release(text: str, at: int) -> set[str]:
    """Which checks may name a change at ``at`` in the release statement's file."""
    line_start = text.rfind("\n", 0, at) + 1
    line = text[line_start : text.find("\n", at)]
    inside = line_start + line.find('": "') + 4 <= at < line_start + len(line.rstrip('",')) if '": "' in line else False
    if '"payload": ' in line and inside:
        return FORM | SIGNED
    if '"keyid": ' in line and inside:
        return FORM | KEYS
    if '"sig": ' in line and inside:
        return FORM | SIGNED | {"timestamp"}
    if line.startswith("      ") and line.strip().startswith('"') and '": ' not in line:
        return FORM | CERTIFICATES | {"timestamp", "clock-before-issue"}
    return FORM


def files_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def own(full_release: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A copy that tests of this module may change and restore."""
    return full_release.at(copy_of(full_release.folder, tmp_path_factory.mktemp("tamper") / "release"))


def test_the_release_is_good_before_anything_is_changed(own: Case) -> None:
    report = checked(own.folder, own.trust_root)
    assert report.ok, report.to_json()


def test_a_flipped_bit_anywhere_is_caught(own: Case) -> None:
    draw = random.Random(5)
    names = files_of(own.folder)
    for number in range(60):
        name = names[number % len(names)] if number % 3 else RELEASE
        path = own.folder / name
        data = path.read_bytes()
        at = draw.randrange(len(data))
        with changed(path, flip(data, at, draw.randrange(8))):
            found = failed(checked(own.folder, own.trust_root))
        if name == RELEASE:
            allowed = expected_in_release(data.decode(), at)
            assert found and found <= allowed, f"{name} byte {at}: {found}, expected some of {allowed}"
        else:
            assert "files-complete" in found, f"{name} byte {at}: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_every_byte_of_every_small_file(own: Case, part: int) -> None:
    draw = random.Random(part)
    for name in files_of(own.folder):
        data = (own.folder / name).read_bytes()
        step = 8 if name == RELEASE else max(8, len(data) // 64)
        for at in range(part, len(data), step):
            with changed(own.folder / name, flip(data, at, draw.randrange(8))):
                found = failed(checked(own.folder, own.trust_root))
            assert found, f"{name} byte {at}"
            if name != RELEASE:
                assert "files-complete" in found


def removed(folder: Path, name: str, _: str) -> None:
    (folder / name).unlink()


def renamed(folder: Path, name: str, _: str) -> None:
    (folder / name).rename(folder / f"x{Path(name).name}")


def truncated(folder: Path, name: str, _: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])


def extended(folder: Path, name: str, _: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")


def emptied(folder: Path, name: str, _: str) -> None:
    (folder / name).write_bytes(b"")


def swapped(folder: Path, name: str, other: str) -> None:
    a, b = (folder / name).read_bytes(), (folder / other).read_bytes()
    (folder / name).write_bytes(b)
    (folder / other).write_bytes(a)


def linked(folder: Path, name: str, _: str) -> None:
    """The same content, but behind a link."""
    target = folder.parent / "elsewhere"
    (folder / name).rename(target)
    (folder / name).symlink_to(target)


def doubled(folder: Path, name: str, _: str) -> None:
    shutil.copyfile(folder / name, folder / ("copy-" + Path(name).name))


CHANGES: list[Callable[[Path, str, str], None]] = [
    removed, renamed, truncated, extended, emptied, swapped, linked, doubled,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_every_file_removed_renamed_swapped_or_linked(
    change: Callable[[Path, str, str], None], full_release: Case, tmp_path: Path
) -> None:
    names = files_of(full_release.folder)
    first = CHANGES.index(change)
    for index, name in list(enumerate(names))[first % 3 :: 1 if change is removed else 3]:
        folder = copy_of(full_release.folder, tmp_path / str(index) / "release")
        change(folder, name, names[index - 1])
        found = failed(checked(folder, full_release.trust_root))
        if name == RELEASE or (change is swapped and names[index - 1] == RELEASE):
            wanted = FORM | {"files-complete"}
        else:
            wanted = {"files-complete"}
        assert found & wanted, f"{change.__name__} {name}: {found}"
        shutil.rmtree(folder.parent)


@pytest.mark.parametrize(
    "name", ["extra.txt", ".hidden", "certs/extra.der", f"{STEM}.coverage.json", "second.release.json", "ü.txt", "a b"]
)
def test_an_added_file(full_release: Case, tmp_path: Path, name: str) -> None:
    folder = copy_of(full_release.folder, tmp_path / "release")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"{}")
    wanted = "release-readable" if name.endswith("release.json") else "files-complete"
    assert wanted in failed(checked(folder, full_release.trust_root))


def test_an_added_empty_folder_fifo_or_link(full_release: Case, tmp_path: Path) -> None:
    for name in ("folder", "fifo", "link"):
        folder = copy_of(full_release.folder, tmp_path / name)
        if name == "folder":
            (folder / "empty").mkdir()
        if name == "fifo":
            os.mkfifo(folder / "pipe")
        if name == "link":
            (folder / "up").symlink_to("..", target_is_directory=True)
        assert failed(checked(folder, full_release.trust_root)) == {"files-complete"}, name


def test_the_tail_bits_of_base64(own: Case) -> None:
    """Base64 whose last character carries bits that no byte holds decodes to the same bytes elsewhere."""
    path = own.folder / RELEASE
    text = path.read_text()
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    tried = 0
    for line in text.splitlines():
        value = line.strip().rstrip(",").rsplit('"', 2)[-2] if line.count('"') >= 2 else ""
        if not value.endswith("="):
            continue
        last = value.rstrip("=")[-1]
        other = value.rstrip("=")[:-1] + alphabet[alphabet.index(last) ^ 1] + "=" * value.count("=")
        assert base64.b64decode(other) == base64.b64decode(value)
        with changed(path, text.replace(value, other).encode()):
            assert failed(checked(own.folder, own.trust_root)) == {"release-readable"}
        tried += 1
    assert tried


@pytest.mark.parametrize(
    "respell",
    [
        lambda text: text + "\n",
        lambda text: text[:-1],
        lambda text: " " + text,
        lambda text: text.replace('": "', '":  "', 1),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace('"payload"', '"\\u0070ayload"'),
        lambda text: json.dumps(json.loads(text)) + "\n",
        lambda text: json.dumps(json.loads(text), indent=2, sort_keys=False)[:-2].replace("{\n", '{\n  "a": 1,\n', 1),
        lambda text: text.replace('  "payloadType"', '  "payloadType": "x",\n  "payloadType"'),
        lambda text: "\ufeff" + text,
    ],
)
def test_white_space_and_spelling(own: Case, respell: Callable[[str], str]) -> None:
    path = own.folder / RELEASE
    with changed(path, respell(path.read_text()).encode()):
        found = failed(checked(own.folder, own.trust_root))
    assert found and found <= {"release-encoding", "release-readable"}


def test_what_travels_beside_the_signatures_can_neither_go_nor_come(own: Case) -> None:
    path = own.folder / RELEASE
    envelope = json.loads(path.read_text())
    material = envelope.get("verificationMaterial")
    assert material and material["certificates"] and material["crls"] and material["timestamps"]

    def encoded(changed_material: object) -> bytes:
        return (json.dumps({**envelope, "verificationMaterial": changed_material}, indent=2) + "\n").encode()

    for kind, entries in material.items():
        for index in range(len(entries)):
            with changed(path, encoded({**material, kind: entries[:index] + entries[index + 1 :]})):
                assert failed(checked(own.folder, own.trust_root)), f"without {kind}[{index}]"
        if len(entries) > 1:
            with changed(path, encoded({**material, kind: entries[::-1]})):
                assert failed(checked(own.folder, own.trust_root)) == {"release-readable"}
    for name in ("root", "stranger"):
        extra = base64.b64encode(own.other_certificates[name]).decode()
        with changed(path, encoded({**material, "certificates": sorted([*material["certificates"], extra])})):
            assert failed(checked(own.folder, own.trust_root)), f"with the {name} certificate"
