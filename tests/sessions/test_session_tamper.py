"""Verifying an archive: every kind of tampering has its own name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from session_case import Maker, image, lines_of, rechained, write_lines

from evidence.keys import KeySet, init_keys
from evidence.sessions.archive import Archive
from evidence.sessions.check import SessionReport, check_archive
from evidence.sessions.seal import make_seal
from evidence.verifier.errors import UsageError
from evidence.verifier.files import write_new

TIME = ("2026-01-31T08:00:00Z", "test")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeySet:
    return init_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def whole(maker: Maker, tmp_path_factory: pytest.TempPathFactory, keys: KeySet) -> dict[str, bytes]:
    """The files of an archive of six records, sealed after four and after five."""
    folder = tmp_path_factory.mktemp("archive") / "s"
    for seed in range(6):
        maker().infer(folder, image(folder.parent, seed))
        if seed in (3, 4):
            make_seal(Archive(folder), keys.signers, TIME)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def archive(whole: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in whole.items():
        write_new(tmp_path / name, data, 0o600)
    return tmp_path


def check(folder: Path, keys: KeySet, against: bytes | None = None) -> SessionReport:
    return check_archive(Archive(folder), keys.trust_root, None, against)


def changed(line: bytes, **fields: object) -> bytes:
    return json.dumps(json.loads(line) | fields, sort_keys=True, separators=(",", ":")).encode()


def test_an_untouched_archive_holds(archive: Path, keys: KeySet) -> None:
    report = check(archive, keys)
    assert report.ok and (report.records, report.seals, report.sealed) == (6, 2, 5)
    assert report.last_seal == TIME[0]


Edit = Callable[[list[bytes]], Sequence[bytes]]
EDITS: dict[str, tuple[Edit, str, int]] = {
    "edited": (lambda x: [*x[:2], changed(x[2], status="refused"), *x[3:]], "session-edited", 2),
    "a space": (lambda x: [*x[:2], x[2].replace(b'"index":2', b'"index": 2'), *x[3:]], "session-record", 2),
    "not JSON": (lambda x: [*x[:2], x[2][:-1], *x[3:]], "session-record", 2),
    "removed": (lambda x: [*x[:2], *x[3:]], "session-removed", 2),
    "removed at the start": (lambda x: x[1:], "session-removed", 0),
    "two removed": (lambda x: [*x[:1], *x[3:]], "session-removed", 1),
    "swapped": (lambda x: [x[0], x[2], x[1], *x[3:]], "session-swapped", 1),
    "replayed": (lambda x: [*x, x[1]], "session-replayed", 6),
    "replayed inside": (lambda x: [*x[:3], x[1], *x[3:]], "session-replayed", 3),
    "replayed and changed": (lambda x: [*x[:3], changed(x[1], status="refused"), *x[3:]], "session-replayed", 3),
    "truncated": (lambda x: x[:4], "session-truncated", 4),
    "all removed": (lambda x: [], "session-truncated", 0),
    "rewritten": (lambda x: rechained([*x[:2], changed(x[2], status="refused"), *x[3:]]), "session-rewritten", 3),
    "removed and rewritten": (lambda x: rechained([*x[:2], *x[3:]]), "session-rewritten", 3),
    "one rewritten that the last seal alone covers": (
        lambda x: rechained([*x[:4], changed(x[4], kept=True), x[5]]), "session-rewritten", 4
    ),
    "one put in": (lambda x: rechained([*x[:1], changed(x[1], kept=True), *x[1:]]), "session-rewritten", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_every_tampering_has_its_name(archive: Path, keys: KeySet, name: str) -> None:
    edit, check_name, record = EDITS[name]
    write_lines(archive, edit(lines_of(archive)))
    report = check(archive, keys)
    assert (report.check, report.record) == (check_name, record), report.sentence
    assert not report.ok and report.sentence


def test_a_torn_end_is_named(archive: Path, keys: KeySet) -> None:
    path = archive / "session.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert check(archive, keys).check == "session-torn"
    path.write_bytes(path.read_bytes()[:-4000])  # and what a seal covers
    assert check(archive, keys).check == "session-truncated"


def test_seals_cannot_be_changed_dropped_or_made_by_others(archive: Path, keys: KeySet, tmp_path: Path) -> None:
    path = archive / "seals.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(second + b"\n")
    assert check(archive, keys).check == "session-seal"
    path.write_bytes(second + b"\n" + first + b"\n")
    assert check(archive, keys).check == "session-seal"
    path.write_bytes(first + b"\n" + first + b"\n")
    assert check(archive, keys).check == "session-seal"
    path.write_bytes(first + b"\n" + second[:-9])
    assert check(archive, keys).check == "session-seal"
    path.write_bytes(first + b"\n" + second + b"\n")
    assert check(archive, keys).ok
    other = init_keys(tmp_path / "other")
    assert check(archive, other).check == "session-seal"
    assert check_archive(Archive(archive), None).check == "session-seal"


def test_a_seal_kept_elsewhere_finds_what_the_archive_alone_does_not(archive: Path, keys: KeySet) -> None:
    """The last seal and the records behind the one before it are cut off: nothing left in the archive says so."""
    kept = (archive / "seals.jsonl").read_bytes().splitlines()
    (archive / "seals.jsonl").write_bytes(kept[0] + b"\n")
    assert check(archive, keys).ok
    assert check(archive, keys, kept[1]).check == "session-seal"
    write_lines(archive, lines_of(archive)[:4])
    assert check(archive, keys).ok
    assert check(archive, keys, kept[1] + b"\n").check == "session-truncated"
    assert check(archive, keys, b"{}").check == "session-seal"


def test_sealing_needs_something_new(archive: Path, keys: KeySet, tmp_path: Path) -> None:
    assert make_seal(Archive(archive), keys.signers, TIME).count == 6
    with pytest.raises(UsageError, match="already covers all 6"):
        make_seal(Archive(archive), keys.signers, TIME)
    with pytest.raises(UsageError, match="no session archive"):
        Archive(tmp_path / "nothing").records()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_changed_byte_is_found(
    whole: dict[str, bytes], keys: KeySet, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """In every record that a seal covers; those after the last seal rest on the chain, all but the last of them."""
    folder = tmp_path_factory.mktemp("flip")
    text = bytearray(whole["session.jsonl"])
    end = whole["session.jsonl"].rindex(b"\n", 0, -1)
    place = data.draw(st.integers(0, end))
    value = data.draw(st.integers(0, 255).filter(lambda v: v != text[place]))
    text[place] = value
    for name, content in {**whole, "session.jsonl": bytes(text)}.items():
        (folder / name).write_bytes(content)
    report = check(folder, keys)
    assert not report.ok and report.check.startswith("session-")
