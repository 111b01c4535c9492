"""The key over files and folders, the command, and the test vectors of docs/keygen.md."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygen_case import key_of, write

from compiler_kernels.errors import UsageError
from cuvil_assets.cli import main
from evidence.keygen.key import cache_key
from evidence.keygen.kinds import KINDS, canonical_form, kind_of

VECTORS = Path(__file__).parents[2] / "docs" / "vectors" / "keygen.json"
FILES = {"Dockerfile": "FROM a\n", "src/main.go": "package p\n", "src/a.py": "x = 1\n", "data.bin": b"\0\xff"}


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "big") + data


def by_the_book(files: list[dict[str, Any]]) -> str:
    """The key as docs/keygen.md says, from names, modes, kinds and canonical forms; shares no code with the command."""
    text = framed(b"cuvil-cachekey/1")
    for item in sorted(files, key=lambda f: f["name"].encode()):
        form = framed(b"cuvil-canonical/1") + framed(item["kind"].encode()) + base64.b64decode(item["canonical"])
        for part in (
            item["name"].encode(),
            item["mode"].encode(),
            item["kind"].encode(),
            hashlib.sha256(form).digest(),
        ):
            text += framed(part)
    return "sha256:" + hashlib.sha256(text).hexdigest()


def test_vectors(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    document = json.loads(VECTORS.read_text())
    for number, vector in enumerate(document["keys"]):
        folder = write(tmp_path / str(number), {f["name"]: base64.b64decode(f["data"]) for f in vector["files"]})
        for item in vector["files"]:
            (folder / item["name"]).chmod(0o755 if item["mode"] == "x" else 0o644)
        key = cache_key([folder], [folder / name for name in vector["raw"]])
        found = {e.name: e for e in key.entries}
        for item in vector["files"]:
            entry = found[item["name"]]
            form = entry.canonical if entry.canonical is not None else base64.b64decode(item["data"])
            item |= {"kind": entry.kind, "canonical": base64.b64encode(form).decode(), "sha256": entry.sha256}
            item["canonical_sha256"] = entry.form_sha256
        vector["key"] = key.key
        assert by_the_book(vector["files"]) == key.key
    text = json.dumps(document, indent=1) + "\n"
    if request.config.getoption("--regenerate"):
        VECTORS.write_text(text)
    assert text == VECTORS.read_text(), "a key changed: that needs a new format name (docs/keygen.md)"
    kinds = {f["kind"] for vector in document["keys"] for f in vector["files"]}
    assert kinds == set(KINDS)


def test_order_of_arguments_place_and_spelling_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = write(tmp_path / "one", FILES), write(tmp_path / "deep" / "other", FILES)
    names = [one / name for name in FILES]
    keys = {
        cache_key(names).key,
        cache_key(names[::-1]).key,
        cache_key([one]).key,
        cache_key([one / "src", one, one / "Dockerfile"]).key,
        cache_key([other]).key,
        cache_key([other / "src", other / "Dockerfile", other / "data.bin"]).key,
    }
    monkeypatch.chdir(one)
    keys |= {cache_key([Path()]).key, cache_key([Path("src/../src"), Path("Dockerfile"), Path("./data.bin")]).key}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"Dockerfile": "FROM b\n"},
        {"src/main.go": "package q\n"},
        {"data.bin": b"\0\xfe"},
        {"src/b.py": ""},
        {"data.bin": b""},
    ],
)
def test_content_counts(change: dict[str, str | bytes]) -> None:
    assert key_of({**FILES, **change}) != key_of(FILES)


def test_names_and_modes_count(tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    before = cache_key([folder]).key
    (folder / "data.bin").chmod(0o755)
    executable = cache_key([folder]).key
    (folder / "data.bin").chmod(0o644)
    assert cache_key([folder]).key == before
    (folder / "data.bin").rename(folder / "other.bin")
    assert len({before, executable, cache_key([folder]).key}) == 3


def test_comments_do_not_count_but_the_exact_digest_is_recorded(tmp_path: Path) -> None:
    one = cache_key([write(tmp_path / "a", FILES)])
    other = cache_key([write(tmp_path / "b", {**FILES, "Dockerfile": "# c\nFROM a\n", "src/a.py": "x = 1 # c\n"})])
    assert one.key == other.key
    exact = [[e.sha256 for e in key.entries if e.name in ("Dockerfile", "src/a.py")] for key in (one, other)]
    assert not set(exact[0]) & set(exact[1])
    assert exact[0][0] == hashlib.sha256(b"FROM a\n").hexdigest()


def test_version_control_and_bytecode_are_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path, FILES)
    before = cache_key([folder]).key
    write(folder, {".git/HEAD": "x", "src/__pycache__/a.pyc": "x", "src/.hg": "x"})
    (folder / "empty").mkdir()
    assert cache_key([folder]).key == before
    write(folder, {".gitignore": "x"})
    assert cache_key([folder]).key != before


def test_links_in_folders_are_not_followed_and_as_arguments_are(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", FILES)
    (folder / "link").symlink_to("data.bin")
    (folder / "loop").symlink_to(".")
    one = cache_key([folder])
    assert {e.name: e.kind for e in one.entries if e.mode == "l"} == {"link": "link", "loop": "link"}
    (folder / "link").unlink()
    (folder / "link").symlink_to("Dockerfile")
    assert cache_key([folder]).key != one.key
    (tmp_path / "model.py").symlink_to(folder / "src" / "a.py")
    (entry,) = cache_key([tmp_path / "model.py"]).entries
    assert (entry.name, entry.kind) == ("model.py", "python")


def test_raw_takes_files_by_their_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path, {**FILES, "bad.json": "{// c\n}"})
    with pytest.raises(UsageError, match=r"bad\.json:1: .*--raw"):
        cache_key([folder])
    kinds = {e.name: e.kind for e in cache_key([folder], [folder / "bad.json", folder / "src"]).entries}
    assert kinds.pop("Dockerfile") == "dockerfile"
    assert set(kinds.values()) == {"raw"}
    with pytest.raises(UsageError, match="not among"):
        cache_key([folder / "src"], [folder / "bad.json"])


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone: cannot be read"):
        cache_key([tmp_path / "gone"])
    with pytest.raises(UsageError, match="no file"):
        cache_key([tmp_path])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe"):
        cache_key([tmp_path])
    (tmp_path / "pipe").unlink()
    (tmp_path / os.fsdecode(b"\xff")).write_text("x")
    with pytest.raises(UsageError, match="UTF-8"):
        cache_key([tmp_path])


def test_two_names_that_unicode_makes_one(tmp_path: Path) -> None:
    write(tmp_path, {"é": "a"})
    alone = cache_key([tmp_path]).key
    (tmp_path / "é").rename(tmp_path / "e\u0301")
    assert cache_key([tmp_path]).key == alone
    write(tmp_path, {"é": "a"})
    with pytest.raises(UsageError, match="NFC"):
        cache_key([tmp_path])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Dockerfile.gpu", "dockerfile"),
        ("Dockerfile.dockerignore", "raw"),
        ("Cargo.lock", "lock"),
        ("package-lock.json", "json"),
        ("requirements-dev.txt", "requirements"),
        ("pyproject.toml", "toml"),
        ("x.c", "raw"),
        ("yarn.lock", "raw"),
        ("go.work", "go-module"),
    ],
)
def test_kinds_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@given(st.sampled_from(sorted(set(KINDS) - {"raw"})), st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_have_a_form_or_one_error(kind: str, data: bytes) -> None:
    from evidence.keygen.text import Unreadable

    try:
        form = canonical_form(kind, data, Path("nowhere"))
    except Unreadable as error:
        assert str(error)
    else:
        assert isinstance(form, bytes)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, FILES)
    assert main(["keygen", "-f", str(folder / "Dockerfile"), "-f", str(folder / "src")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line == cache_key([folder / "Dockerfile", folder / "src"]).key
    assert main(["keygen", "--file", str(folder), "--explain"]) == 0
    out = capsys.readouterr().out
    assert "FROM a" in out and "== src/main.go  kind go  mode -" in out
    assert main(["keygen", "-f", str(folder), "--json", "--explain"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["key"] == cache_key([folder]).key
    assert [f["name"] for f in document["files"]] == sorted(FILES)
    assert document["files"][0]["canonical"] == "FROM a"
    write(folder, {"bad.toml": "a = 1\na = 2\n"})
    assert main(["keygen", "-f", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "bad.toml:2:" in captured.err and len(captured.err.splitlines()) == 1
