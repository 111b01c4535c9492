"""Where two files differ, in terms a reader can look up: line and function, or section and symbol."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler_kernels.errors import CuvilError
from compiler_kernels.stage import Json
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import elf
from compiler_kernels.toolchain.engines import build_engine
from compiler_kernels.toolchain.sources import host_sources

MOST = 20
"""Places listed in full; their number is always given."""
_CONTEXT = 16
_LONGEST = 200
_C_FUNCTION = re.compile(r"^[A-Za-z_][A-Za-z0-9_ *]*?\b([A-Za-z_][A-Za-z0-9_]*)\(.*\)? *\{?$")
_OBJECT_SUFFIX = re.compile(r"(_[a-z0-9]+)?(\.[cS])?\.o$")


@dataclass(frozen=True)
class SymbolMap:
    """Where functions and object files lie in an engine; ``ranges``: file offset, size, object file."""

    symbols: tuple[elf.Symbol, ...]
    ranges: tuple[tuple[int, int, str], ...]

    def symbol(self, address: int) -> elf.Symbol | None:
        """The function or object that holds ``address``."""
        index = bisect_right(self.symbols, address, key=lambda item: item.address) - 1
        for item in self.symbols[max(0, index - 3) : index + 1][::-1]:
            if item.address <= address < item.address + item.size:
                return item
        return None

    def object_file(self, offset: int) -> str:
        """The object file that contributed the byte at ``offset``; empty for the linker's own."""
        return next((name for start, size, name in self.ranges if start <= offset < start + size), "")


def symbol_map(generated: Mapping[str, bytes], target: str) -> SymbolMap | None:
    """Symbols of the engine of ``generated`` (the files of stage ``generated_source``): an engine is delivered without
    them, so it is linked once more. ``None`` when that fails, since a difference is to be reported either way."""
    sources = {name: data for name, data in generated.items() if not name.endswith(".json")}
    try:
        built = build_engine(sources, resolve_target(target))
    except CuvilError:
        return None
    ranges = []
    listed = built.report["linked"]
    for item in listed if isinstance(listed, list) else []:
        assert isinstance(item, dict)
        pieces = item["ranges"]
        for span in pieces if isinstance(pieces, list) else []:
            assert isinstance(span, list)
            ranges.append((int(str(span[0])), int(str(span[1])), str(item["name"])))
    return SymbolMap(elf.symbol_table(built.linked), tuple(ranges))


def source_file(object_name: str, known: Sequence[str]) -> str:
    """The source an object was compiled from (``kernels_avx2.o`` from ``kernels.c``); the object's name otherwise."""
    for stem in (_OBJECT_SUFFIX.sub("", object_name), object_name.removesuffix(".o")):
        for name in (stem, f"{stem}.c", f"{stem}.S"):
            if name in known:
                return name
    return object_name


def spans(expected: bytes, found: bytes) -> list[tuple[int, int]]:
    """``(offset, length)`` of every run of differing bytes; what one file has beyond the other's end is the last run.

    Runs less than 8 bytes apart count as one.
    """
    common = min(len(expected), len(found))
    unequal = np.flatnonzero(
        np.frombuffer(expected[:common], dtype=np.uint8) != np.frombuffer(found[:common], dtype=np.uint8)
    )
    runs: list[tuple[int, int]] = []
    if unequal.size:
        breaks = np.flatnonzero(np.diff(unequal) > 8)
        starts = unequal[np.concatenate(([0], breaks + 1))]
        ends = unequal[np.concatenate((breaks, [unequal.size - 1]))]
        runs = [(int(a), int(b - a + 1)) for a, b in zip(starts, ends, strict=True)]
    if len(expected) != len(found):
        runs.append((common, abs(len(expected) - len(found))))
    return runs


def engine_places(expected: bytes, found: bytes, symbols: SymbolMap | None) -> tuple[list[Json], int]:
    """Differing bytes of two engines with section, symbol, object and source file; the second value is their number."""
    sections = elf.read_sections(expected)
    known = [*host_sources(gpu=True), "engine.c", "kernels.c", "weights.S"]
    runs = spans(expected, found)
    places: list[Json] = []
    for offset, length in runs[:MOST]:
        home = next(
            (s for s in sections if s.kind != _NOBITS and s.size and s.offset <= offset < s.offset + s.size), None
        )
        place: dict[str, Json] = {
            "offset": offset,
            "length": length,
            "expected": expected[offset : offset + min(length, _CONTEXT)].hex(),
            "found": found[offset : offset + min(length, _CONTEXT)].hex(),
            "section": home.name if home is not None else _outside(offset, expected),
        }
        if home is not None and home.loaded:
            address = home.address + offset - home.offset
            place["address"] = f"0x{address:x}"
            if symbols is not None:
                symbol, piece = symbols.symbol(address), symbols.object_file(offset)
                place |= {
                    "symbol": "" if symbol is None else f"{symbol.name}+0x{address - symbol.address:x}",
                    "object": piece,
                    "source": symbol.file if symbol is not None and symbol.file else source_file(piece, known),
                }
        places.append(place)
    return places, len(runs)


_NOBITS = 8


def _outside(offset: int, data: bytes) -> str:
    if offset < 64:
        return "ELF header"
    return "after the end" if offset >= len(data) else "program or section headers"


def text_places(expected: str, found: str) -> tuple[list[Json], int]:
    """Differing lines of two texts with the C function around them; the second value is their number."""
    old, new = expected.splitlines(), found.splitlines()
    numbers = [n for n in range(max(len(old), len(new))) if old[n : n + 1] != new[n : n + 1]]
    places: list[Json] = []
    for number in numbers[:MOST]:
        place: dict[str, Json] = {
            "line": number + 1,
            "expected": _clip(old, number),
            "found": _clip(new, number),
        }
        function = _function_before(new if number < len(new) else old, number)
        if function:
            place["function"] = function
        places.append(place)
    return places, len(numbers)


def _clip(lines: Sequence[str], number: int) -> str:
    return lines[number][:_LONGEST] if number < len(lines) else ""


def _function_before(lines: Sequence[str], number: int) -> str:
    """Name of the C function that line ``number`` lies in, or empty; functions begin in the first column."""
    for line in reversed(lines[: min(number, len(lines) - 1) + 1]):
        if line.startswith("}"):
            return ""
        match = _C_FUNCTION.match(line)
        if match is not None:
            return match[1]
    return ""


def byte_places(expected: bytes, found: bytes) -> tuple[list[Json], int]:
    """Differing bytes of two other files; the second value is their number."""
    runs = spans(expected, found)
    return [
        {
            "offset": offset,
            "length": length,
            "expected": expected[offset : offset + min(length, _CONTEXT)].hex(),
            "found": found[offset : offset + min(length, _CONTEXT)].hex(),
        }
        for offset, length in runs[:MOST]
    ], len(runs)
