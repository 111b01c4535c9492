"""The files of a release, complete: regular files only, no link, no path out of the folder, from a folder or a zip."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import Digests, digest_blocks
from evidence.verifier.errors import UsageError
from evidence.verifier.subjects import file_name

MAX_FILES = 4096
MAX_BYTES = 4 << 30
_SMALL = 64 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Listing:
    """Every file by relative POSIX path with its digests; small contents are read again on demand and compared."""

    where: str
    digests: Mapping[str, Digests]
    faults: tuple[str, ...]
    archive: Path | None = None
    prefix: str = ""

    def read(self, name: str) -> bytes:
        """Content of ``name``, as it was hashed; ``MalformedError`` when missing, changed since, or over 64 MiB."""
        digests = self.digests.get(name)
        if digests is None:
            raise MalformedError(f"{name} is missing")
        if digests.size > _SMALL:
            raise MalformedError(f"{name} is larger than {_SMALL} bytes")
        if self.archive is None:
            try:
                data = (Path(self.where) / name).read_bytes()
            except OSError as error:
                raise MalformedError(f"{name} cannot be read ({error.strerror})") from None
        else:
            with zipfile.ZipFile(self.archive) as package:
                data = package.read(self.prefix + name)
        if digest_blocks([data]) != digests:
            raise MalformedError(f"{name} was changed while it was verified")
        return data


def list_release(path: Path) -> Listing:
    """The files of the release at ``path``, a folder or a bundle (zip); ``UsageError`` when it cannot be read.

    Links, special files and names outside the portable characters are noted as faults; they are never followed.
    """
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        raise UsageError(f"{path}: is not a release folder or bundle; give the folder that was delivered")
    return _folder(path) if path.is_dir() else _bundle(path)


def _folder(path: Path) -> Listing:
    digests: dict[str, Digests] = {}
    faults: list[str] = []
    try:
        for name, entry in _walk(path, ""):
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode) or not stat.S_ISREG(mode):
                faults.append(f"{name} is a link or a special file, which a release never holds")
            elif _portable(name, faults):
                with os.fdopen(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
                    digests[name] = digest_blocks(_blocks(stream))
            if len(digests) > MAX_FILES:
                raise UsageError(f"{path}: holds more than {MAX_FILES} files; give the folder of one release")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a readable release folder") from None
    return Listing(str(path), digests, tuple(faults))


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every entry that is no folder, with its relative path; an empty folder counts as an entry."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda item: item.name)
    for entry in entries:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            inside = list(_walk(Path(entry.path), name + "/"))
            yield from inside or [(name, entry)]
        else:
            yield name, entry


def _bundle(path: Path) -> Listing:
    digests: dict[str, Digests] = {}
    faults: list[str] = []
    try:
        with zipfile.ZipFile(path) as package:
            entries = package.infolist()
            total = sum(item.file_size for item in entries)
            if len(entries) > MAX_FILES or total > MAX_BYTES:
                raise UsageError(
                    f"{path}: holds more than {MAX_FILES} files or {MAX_BYTES} bytes; not a release bundle"
                )
            heads = {item.filename.partition("/")[0] for item in entries}
            prefix = f"{next(iter(heads))}/" if len(heads) == 1 else ""
            for item in entries:
                name = item.filename.removeprefix(prefix)
                kind = stat.S_IFMT(item.external_attr >> 16)
                if kind not in (0, stat.S_IFREG) or item.is_dir():
                    faults.append(f"{name} is a link, folder entry or special file, which a bundle never holds")
                elif name in digests:
                    faults.append(f"{name} is twice in the bundle")
                elif _portable(name, faults):
                    with package.open(item) as stream:
                        digests[name] = digest_blocks(_blocks(stream))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a readable release bundle") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error):
        raise UsageError(f"{path}: is not an intact zip file; give the bundle that was delivered") from None
    return Listing(str(path), digests, tuple(faults), path, prefix)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _portable(name: str, faults: list[str]) -> bool:
    try:
        file_name(name, "the release")
    except MalformedError as error:
        faults.append(str(error))
        return False
    return True
