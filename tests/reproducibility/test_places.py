"""Places of a difference, against changes whose place is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rebuild_case import Delivered

from compiler_kernels.toolchain import elf
from evidence.reproducibility.places import byte_places, engine_places, source_file, spans, symbol_map, text_places


@given(st.binary(min_size=1, max_size=300), st.sets(st.integers(0, 299), min_size=1, max_size=12))
def test_spans_cover_every_changed_byte_and_begin_and_end_with_one(data: bytes, at: set[int]) -> None:
    changed = bytearray(data)
    places = {n for n in at if n < len(data)}
    for n in places:
        changed[n] ^= 0x55
    found = spans(data, bytes(changed))
    covered = {n for start, size in found for n in range(start, start + size)}
    assert places <= covered
    assert {start for start, _ in found} <= places
    assert {start + size - 1 for start, size in found} <= places


@given(st.binary(max_size=50), st.binary(min_size=1, max_size=50))
def test_a_longer_file_differs_after_the_end_of_the_other(data: bytes, more: bytes) -> None:
    assert spans(data, data + more) == spans(data + more, data) == [(len(data), len(more))]


def test_lines_name_the_c_function_around_them() -> None:
    old = "#include <x.h>\n\nstatic void cuvil_k1(float *a)\n{\n    a[0] = 1;\n}\n\nint last;\n"
    places, count = text_places(old, old.replace("= 1", "= 2").replace("last", "first"))
    assert count == 2
    assert places == [
        {"line": 5, "expected": "    a[0] = 1;", "found": "    a[0] = 2;", "function": "cuvil_k1"},
        {"line": 8, "expected": "int last;", "found": "int first;"},
    ]


def test_many_places_are_counted_and_the_first_listed() -> None:
    places, count = byte_places(bytes(4000), b"".join(b"\1" + bytes(39) for _ in range(100)))
    assert (count, len(places)) == (100, 20)


def test_objects_lead_back_to_their_sources() -> None:
    known = ["engine.c", "kernels.c", "weights.S", "cuvil_isa.c", "cuvil_main.c"]
    names = ("kernels_avx512.o", "engine.c.o", "weights.S.o", "cuvil_isa.c.o", "cuvil_main.o", "memcpy.o")
    assert [source_file(name, known) for name in names] == [
        "kernels.c", "engine.c", "weights.S", "cuvil_isa.c", "cuvil_main.c", "memcpy.o"
    ]  # fmt: skip


def test_a_changed_weight_and_a_changed_instruction_are_named(delivered: Delivered) -> None:
    names = delivered.recorded.expected["generated_source"]
    generated = {name: delivered.store.find(digest) or b"" for name, digest in names.items()}
    symbols = symbol_map(generated, "x86_64-linux-musl")
    assert symbols is not None
    engine = delivered.engine.read_bytes()
    weight = engine.find(generated["engine_weights.bin"]) + 5
    text = next(s for s in elf.read_sections(engine) if s.name == ".text")
    kernels = [s for s in symbols.symbols if s.name.startswith("cuvil_k") and s.file == "kernels.c"]
    function = next(s for s in kernels if text.address <= s.address < text.address + text.size and s.size > 90)
    instruction = function.address - text.address + text.offset + 80
    changed = bytearray(engine)
    changed[weight] ^= 1
    changed[instruction] ^= 1
    places, count = engine_places(engine, bytes(changed), symbols)
    assert count == 2
    first, second = places
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["offset"], first["source"], first["object"]) == (weight, "weights.S", "weights.S.o")
    assert second["section"] == ".text"
    assert (second["symbol"], second["source"]) == (f"{function.name}+0x50", "kernels.c")


def test_headers_and_the_end_of_the_file_are_no_section(delivered: Delivered) -> None:
    engine = delivered.engine.read_bytes()
    changed = bytearray(engine)
    changed[8] ^= 1
    places, _ = engine_places(engine, bytes(changed) + b"more", None)
    assert [place["section"] for place in places if isinstance(place, dict)] == ["ELF header", "after the end"]
