"""Writes the files of a build next to each other: all of them or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from compiler_kernels.errors import UsageError
from cuvil_assets.files import sync_folder, write_temporary

Content = bytes | Mapping[str, bytes]
"""A file, or a folder of files by name."""


def planned(output: Path, emit: tuple[str, ...]) -> dict[str, Path]:
    """What a build writes, by kind: ``bin``, ``proof``, ``equivalence`` and what ``emit`` adds (``so``, ``lib``,
    ``src``, ``memory``, ``header`` with either library, ``picture`` with ``memory``)."""
    stem = output.with_name(output.stem)
    names = {"bin": output, "proof": _beside(stem, ".proof.json"), "equivalence": _beside(stem, ".equivalence.json")}
    extra = {"so": ".so", "lib": ".a", "src": ".src", "memory": ".memory.json"}
    names.update({kind: _beside(stem, extra[kind]) for kind in emit})
    if "so" in emit or "lib" in emit:
        names["header"] = _beside(stem, ".h")
    if "memory" in emit:
        names["picture"] = _beside(stem, ".memory.svg")
    return names


def _beside(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def check_output(output: Path, emit: tuple[str, ...], inputs: Mapping[str, Path]) -> None:
    """Before the long work: ``UsageError`` when the outputs cannot be written or would replace an input."""
    if not output.name or output.name in (".", "..") or output.is_dir():
        raise UsageError(f"--output {output}: is a directory; give the name of the engine file in it")
    paths = planned(output, emit)
    if len(set(paths.values())) != len(paths):
        raise UsageError(f"--output {output}: its name is also that of another output; choose a name ending in .bin")
    for kind, path in paths.items():
        if kind != "src" and path.is_dir():
            raise UsageError(f"{path}: is a directory, where the build would write a file; move it away")
        if kind == "src" and path.exists() and not path.is_dir():
            raise UsageError(f"{path}: is a file, where the build would write a folder; move it away")
        for role, other in inputs.items():
            if _same(path, other):
                raise UsageError(f"{path}: is the {role}, which the build would overwrite; choose another --output")
    folder = _existing(output.parent)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(output, error) from None


def _same(path: Path, other: Path) -> bool:
    with suppress(OSError):
        return path.samefile(other)
    return path.absolute() == other.absolute()


def _existing(folder: Path) -> Path:
    """The nearest folder above that exists; ``UsageError`` when that is a file."""
    for candidate in (folder, *folder.absolute().parents):
        if candidate.is_dir():
            return candidate
        if candidate.exists() or candidate.is_symlink():
            raise UsageError(f"{candidate}: is not a directory, so nothing can be written below it; change --output")
    return Path("/")


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: cannot be written ({error.strerror or error}); choose another --output")


def deliver(contents: Mapping[Path, tuple[Content, int]]) -> None:
    """Write every path with its content and mode, or leave everything as it was. ``UsageError`` when that fails.

    Files are first written completely beside their destinations. Between the renames an interruption can leave a new
    file beside an old one; ``cuvil verify`` then names the difference.
    """
    made = _make_folders({path.parent for path in contents})
    staged: dict[Path, Path] = {}
    backups: dict[Path, Path] = {}
    placed: list[Path] = []
    current = Path()
    try:
        for current, (content, mode) in contents.items():
            staged[current] = (
                write_temporary(current, content, mode)
                if isinstance(content, bytes)
                else _write_folder(current, content, mode)
            )
        for current, temporary in staged.items():
            if current.exists() or current.is_symlink():
                backups[current] = current.with_name(f".{current.name}.{os.getpid()}.old")
                current.rename(backups[current])
            temporary.rename(current)
            placed.append(current)
    except BaseException as error:
        for path in placed:
            _remove(path)
        for path, backup in backups.items():
            with suppress(OSError):
                backup.rename(path)
        for temporary in staged.values():
            _remove(temporary)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise _unwritable(current, error) from None
        raise
    for backup in backups.values():
        _remove(backup)
    for folder in {path.parent for path in contents}:
        sync_folder(folder)


def _make_folders(folders: set[Path]) -> list[Path]:
    """Make what is missing; the folders made, outermost first."""
    made: list[Path] = []
    for folder in sorted(folders):
        missing = [p for p in (folder, *folder.parents) if not p.exists()]
        for path in reversed(missing):
            try:
                path.mkdir()
            except OSError as error:
                for done in reversed(made):
                    with suppress(OSError):
                        done.rmdir()
                raise _unwritable(path, error) from None
            made.append(path)
    return made


def _write_folder(path: Path, files: Mapping[str, bytes], mode: int) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        for name, data in files.items():
            written = write_temporary(temporary / name, data, mode)
            written.rename(temporary / name)
        temporary.chmod(0o755)
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
