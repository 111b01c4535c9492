"""All files of a build appear together, or everything stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler_kernels.errors import UsageError
from cuvil_assets.delivery import check_output, deliver, planned

TOO_LONG = "x" * 300


def listing(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_files_and_folders_replace_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "new" / "deeper"
    for text in (b"one", b"two"):
        deliver({out / "e.bin": (text, 0o755), out / "e.src": ({"a.c": text, f"{text.decode()}.c": text}, 0o644)})
    assert listing(out) == {"e.bin": b"two", "e.src/a.c": b"two", "e.src/two.c": b"two"}
    assert (out / "e.bin").stat().st_mode & 0o777 == 0o755


def test_failure_at_the_last_file_leaves_the_old_ones(tmp_path: Path) -> None:
    (tmp_path / "e.bin").write_bytes(b"old")
    with pytest.raises(UsageError, match="cannot be written"):
        deliver({tmp_path / "e.bin": (b"new", 0o755), tmp_path / TOO_LONG: (b"new", 0o644)})
    assert listing(tmp_path) == {"e.bin": b"old"}


def test_failure_removes_the_folders_it_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        deliver({tmp_path / "a" / "b" / "e.bin": (b"new", 0o755), tmp_path / "a" / "b" / TOO_LONG: (b"new", 0o644)})
    assert list(tmp_path.iterdir()) == []


def test_interruption_between_renames_puts_the_old_files_back(tmp_path: Path) -> None:
    """The second destination becomes impossible after both files are staged: its folder is a file by then."""
    (tmp_path / "e.bin").write_bytes(b"old")
    victim = tmp_path / "sub"
    victim.mkdir()

    class Vanishing(dict[Path, object]):
        def items(self):  # type: ignore[no-untyped-def]
            yield tmp_path / "e.bin", (b"new", 0o755)
            yield victim / "e.proof.json", (b"new", 0o644)
            for path in victim.iterdir():
                path.unlink()
            victim.rmdir()

    contents = Vanishing({tmp_path / "e.bin": None, victim / "e.proof.json": None})
    with pytest.raises(UsageError, match="cannot be written"):
        deliver(contents)  # type: ignore[arg-type]
    assert listing(tmp_path) == {"e.bin": b"old"}


def test_names_beside_the_engine(tmp_path: Path) -> None:
    names = {kind: path.name for kind, path in planned(tmp_path / "inference-engine.bin", ("so", "lib", "src")).items()}
    assert names == {
        "bin": "inference-engine.bin",
        "proof": "inference-engine.proof.json",
        "equivalence": "inference-engine.equivalence.json",
        "so": "inference-engine.so",
        "lib": "inference-engine.a",
        "src": "inference-engine.src",
        "header": "inference-engine.h",
    }


def test_engine_named_like_another_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="another output"):
        check_output(tmp_path / "e.so", ("so",), {})


def test_checking_writes_nothing(tmp_path: Path) -> None:
    check_output(tmp_path / "a" / "b" / "e.bin", ("src",), {"model": tmp_path / "m.onnx"})
    assert list(tmp_path.iterdir()) == []
