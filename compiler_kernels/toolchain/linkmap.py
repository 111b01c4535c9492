"""What was truly linked into an engine, from the map the linker prints (lld's ``--print-map`` table).

Every line of that table places one input section: address, size, and the object file (and archive) it came from.
Sections the linker dropped are not in it, so the result is what is in the engine and nothing else. An object's digests
are taken over the bytes it contributes to the linked file, in address order: object files themselves hold paths of the
machine in their debug sections, which never reach an engine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from compiler_kernels.errors import CuvilError
from compiler_kernels.stage import Json
from compiler_kernels.toolchain import elf

# VMA, LMA, size (hexadecimal), alignment (decimal), then eight columns more for an input section; the last group is
# FILE:(SECTION+OFFSET) or ARCHIVE(MEMBER):(SECTION).
_LINE = re.compile(r" *([0-9a-f]+) +[0-9a-f]+ +([0-9a-f]+) +\d+ {9}(\S.*):\(([^()]*)\)$")
_ARCHIVE = re.compile(r"(.*\.a)\((.*)\)$")
_HEADER = re.compile(r" *VMA +LMA +Size +Align +Out +In +Symbol$", re.MULTILINE)
_NOT_LOADED = (".debug_", ".comment", ".symtab", ".shstrtab", ".strtab")
_SHT_NOBITS = 8

MUSL, ZIG_LIBC, COMPILER_RT, OBJECT, LINKER = "musl", "zig-libc", "compiler-rt", "object", "linker"
GLIBC = "glibc"
"""Start files and stubs of a program that the GNU system's C library is loaded for (GPU targets)."""
# zig 0.17 brings its own Zig code for a part of musl's functions (libzigc.a) and for LLVM's compiler-rt.
_STUBS = "libc_nonshared.a"
_ARCHIVES = {"libc.a": MUSL, "libzigc.a": ZIG_LIBC, "libcompiler_rt.a": COMPILER_RT, _STUBS: GLIBC}
_START_FILES = frozenset({"crt1.o", "rcrt1.o", "Scrt1.o", "crti.o", "crtn.o"})


@dataclass(frozen=True)
class Placed:
    """One input section in the engine: ``address`` and ``size`` in bytes."""

    origin: str
    name: str
    section: str
    address: int
    size: int


def read_map(text: str) -> tuple[Placed, ...]:
    """The input sections of an lld map, in its order. Raises ``CuvilError`` when ``text`` holds no such map."""
    if _HEADER.search(text) is None:
        raise CuvilError("the linker printed no map of what it linked: this is a defect of Cuvil")
    found = []
    system = GLIBC if _STUBS in text else MUSL
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and int(match[2], 16) > 0 and not match[4].startswith(_NOT_LOADED):
            origin, name = _origin(match[3], system)
            found.append(Placed(origin, name, match[4].partition("+")[0], int(match[1], 16), int(match[2], 16)))
    return tuple(found)


def _origin(path: str, system: str) -> tuple[str, str]:
    archive = _ARCHIVE.match(path)
    if archive is not None:
        library = PurePosixPath(archive[1]).name
        if library not in _ARCHIVES:
            raise CuvilError(f"the linker took {library}, which no engine may contain: this is a defect of Cuvil")
        return _ARCHIVES[library], PurePosixPath(archive[2]).name
    if path == "<internal>":
        return LINKER, "merged constants and tables"
    name = PurePosixPath(path).name
    return (system if name in _START_FILES else OBJECT), name


def linked_objects(text: str, image: bytes) -> list[Json]:
    """What each object contributes to ``image`` (the linked file before stripping), sorted by origin and name.

    Entries ``{"origin", "name", "bytes", "zeroed", "ranges", "sections", "sha256", "sha3_512"}``: bytes in the file and
    of zeroed memory, where in the file they are (``[offset, size]``, which stripping does not change), sections where
    one object holds a whole library (compiler-rt, zig-libc), digests over the bytes.
    Raises ``CuvilError`` for a map that does not fit the file.
    """
    loaded = [s for s in elf.read_sections(image) if s.loaded and s.size]
    groups: dict[tuple[str, str], list[Placed]] = {}
    for item in read_map(text):
        groups.setdefault((item.origin, item.name), []).append(item)
    found: list[Json] = []
    for (origin, name), items in sorted(groups.items()):
        ranges, zeroed = _contribution(items, loaded)
        data = b"".join(image[start : start + size] for start, size in ranges)
        if not data and not zeroed:
            continue
        entry: dict[str, Json] = {
            "origin": origin,
            "name": name,
            "bytes": len(data),
            "zeroed": zeroed,
            "ranges": [[start, size] for start, size in ranges],
            "sha256": hashlib.sha256(data).hexdigest(),
            "sha3_512": hashlib.sha3_512(data).hexdigest(),
        }
        if origin in (COMPILER_RT, ZIG_LIBC):
            entry["sections"] = [*sorted({item.section for item in items})]
        found.append(entry)
    return found


def _contribution(items: Iterable[Placed], loaded: list[elf.Section]) -> tuple[list[tuple[int, int]], int]:
    """File ranges in address order, neighbours joined, and the number of zeroed bytes."""
    ranges: list[tuple[int, int]] = []
    zeroed = 0
    for item in sorted(items, key=lambda i: (i.address, i.size)):
        end = item.address + item.size
        home = next((s for s in loaded if s.address <= item.address and end <= s.address + s.size), None)
        if home is None:
            raise CuvilError(f"the linker's map places {item.name} outside the engine: this is a defect of Cuvil")
        if home.kind == _SHT_NOBITS:
            zeroed += item.size
            continue
        start = home.offset + item.address - home.address
        if ranges and sum(ranges[-1]) == start:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + item.size)
        else:
            ranges.append((start, item.size))
    return ranges, zeroed
