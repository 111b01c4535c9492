"""Just enough of ELF64 (System V ABI, gabi 4+): sections and symbols of a linked file, and stripping it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from compiler_kernels.errors import CuvilError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_SHT_SYMTAB, _SHT_STRTAB, _SHT_NOBITS = 2, 3, 8
_SHF_ALLOC = 2
_STT_OBJECT, _STT_FUNC, _STT_FILE = 1, 2, 4
_STB_LOCAL = 0


@dataclass(frozen=True)
class Section:
    """One section header; ``size``, ``offset`` and ``address`` in bytes."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int

    @property
    def loaded(self) -> bool:
        """Whether the section takes part in the running program (SHF_ALLOC)."""
        return bool(self.flags & _SHF_ALLOC)


def _defect(what: str) -> CuvilError:
    return CuvilError(f"the linker wrote an unreadable ELF file ({what}): this is a defect of Cuvil, please report it")


def read_sections(data: bytes) -> tuple[Section, ...]:
    """All sections of a little-endian ELF64 file, the null section first. Raises ``CuvilError`` for anything else."""
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        raise _defect("no ELF64 header")
    fields = _HEADER.unpack_from(data)
    table, entry_size, count, names_index = fields[6], fields[11], fields[12], fields[13]
    if entry_size != _SECTION.size or table + count * entry_size > len(data) or names_index >= count:
        raise _defect("no section table")
    raw = [_SECTION.unpack_from(data, table + i * entry_size) for i in range(count)]
    names = data[raw[names_index][4] : raw[names_index][4] + raw[names_index][5]]
    return tuple(
        Section(names[r[0] : names.find(b"\0", r[0])].decode(), r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9])
        for r in raw
    )


@dataclass(frozen=True)
class Symbol:
    """A function or object of a symbol table; ``address`` and ``size`` in bytes.

    ``file``: the source file of a local one (its STT_FILE entry), empty for a global one.
    """

    name: str
    address: int
    size: int
    file: str


def read_symbols(data: bytes) -> frozenset[str]:
    """Names in the symbol table (.symtab) of a linked file; empty when it is stripped."""
    return frozenset(name for name, *_ in _symbols(data)) - {""}


def symbol_table(data: bytes) -> tuple[Symbol, ...]:
    """Functions and objects of a linked file that have a size, by address; empty when it is stripped."""
    found, file = [], ""
    for name, info, address, size in _symbols(data):
        if info & 15 == _STT_FILE:
            file = name
        elif info & 15 in (_STT_OBJECT, _STT_FUNC) and size:
            found.append(Symbol(name, address, size, file if info >> 4 == _STB_LOCAL else ""))
    return tuple(sorted(found, key=lambda item: (item.address, item.size)))


def _symbols(data: bytes) -> Iterator[tuple[str, int, int, int]]:
    """``(name, info, value, size)`` of every entry."""
    sections = read_sections(data)
    for table in sections:
        if table.kind != _SHT_SYMTAB:
            continue
        strings = sections[table.link]
        text = data[strings.offset : strings.offset + strings.size]
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            start, info, _, _, value, size = _SYMBOL.unpack_from(data, at)
            yield text[start : text.find(b"\0", start)].decode(), info, value, size


def section_sizes(data: bytes) -> dict[str, int]:
    """Size in bytes of every loaded section, in file order."""
    return {s.name: s.size for s in read_sections(data) if s.loaded}


def strip(data: bytes) -> bytes:
    """The same program without symbols, comments and debug sections; every loaded byte keeps its place.

    The file is cut after the last segment; a new section table lists the loaded sections only.
    """
    sections = read_sections(data)
    header = list(_HEADER.unpack_from(data))
    segments = [_SEGMENT.unpack_from(data, header[5] + i * _SEGMENT.size) for i in range(header[10])]
    ends = [s[2] + s[5] for s in segments]
    ends += [s.offset + s.size for s in sections if s.loaded and s.kind != _SHT_NOBITS]
    end = max([header[5] + header[10] * _SEGMENT.size, *ends])

    kept = [0] + [i for i, s in enumerate(sections) if s.loaded]
    renumbered = {old: new for new, old in enumerate(kept)}
    names = b"\0"
    rows: list[bytes] = []
    for old in kept:
        s = sections[old]
        start = 0 if old == 0 else len(names)
        names += b"" if old == 0 else s.name.encode() + b"\0"
        link = renumbered.get(s.link, 0)
        rows.append(
            _SECTION.pack(start, s.kind, s.flags, s.address, s.offset, s.size, link, s.info, s.align, s.entry_size)
        )
    own_name = len(names)
    names += b".shstrtab\0"
    rows.append(_SECTION.pack(own_name, _SHT_STRTAB, 0, 0, end, len(names), 0, 0, 1, 0))
    body = data[:end] + names
    body += bytes(-len(body) % 8)
    header[6], header[12], header[13] = len(body), len(rows), len(rows) - 1
    return _HEADER.pack(*header) + body[_HEADER.size :] + b"".join(rows)
