"""What was linked: the map the linker prints, and what it says about an engine."""

from __future__ import annotations

import hashlib
from functools import cache

import pytest
import runtime_sample as sample

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain import elf
from compiler_kernels.toolchain.driver import BuildOutput
from compiler_kernels.toolchain.linkmap import linked_objects, read_map
from compiler_kernels.toolchain.sources import RUNTIME_UNITS, SESSION_UNITS
from compiler_kernels.toolchain.zig import ZigDriver

TRIPLES = sorted(TARGETS)
HEADER = "             VMA              LMA     Size Align Out     In      Symbol\n"


@cache
def built(triple: str) -> BuildOutput:
    return ZigDriver().build(sample.two_inputs(triple), TARGETS[triple])


@pytest.mark.parametrize("triple", TRIPLES)
def test_names_every_source_file_and_library(triple: str) -> None:
    linked = built(triple).report["linked"]
    names = {(e["origin"], e["name"]) for e in linked}
    assert len(names) == len(linked)
    units = {name.removesuffix(".o").removesuffix(".c") for origin, name in names if origin == "object"}
    assert units == {name.removesuffix(".c") for name in RUNTIME_UNITS if name not in SESSION_UNITS} | {
        "engine",
        "weights.S",
    }
    assert {"crt1.o", "pthread_create.o", "__libc_start_main.o"} <= {n for o, n in names if o == "musl"}
    assert {o for o, _ in names} == {"musl", "zig-libc", "compiler-rt", "object", "linker"}


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_objects_make_up_the_engine(triple: str) -> None:
    """All but alignment between sections is attributed, and nothing twice."""
    out = built(triple)
    sections = {s.name: s for s in elf.read_sections(out.data) if s.loaded}
    stored = sum(s.size for name, s in sections.items() if name not in (".bss", ".relro_padding", ".tbss"))
    attributed = sum(e["bytes"] for e in out.report["linked"])
    assert 0.98 * stored < attributed <= stored
    zeroed = sum(e["zeroed"] for e in out.report["linked"])
    assert 0.98 * sections[".bss"].size < zeroed <= sections[".bss"].size


def test_digests_are_of_the_bytes_in_the_engine() -> None:
    """The weights object contributes exactly the weights, which lie in the engine as they are."""
    out = built("x86_64-linux-musl")
    entry = next(e for e in out.report["linked"] if e["name"] == "weights.S.o")
    assert sample.WEIGHTS in out.data
    assert entry["bytes"] == len(sample.WEIGHTS) == sum(size for _, size in entry["ranges"])
    ((start, size),) = entry["ranges"]
    assert out.data[start : start + size] == sample.WEIGHTS
    assert entry["sha256"] == hashlib.sha256(sample.WEIGHTS).hexdigest()
    assert entry["sha3_512"] == hashlib.sha3_512(sample.WEIGHTS).hexdigest()


def test_two_builds_say_the_same_and_no_path() -> None:
    again = ZigDriver().build(sample.two_inputs("x86_64-linux-musl"), TARGETS["x86_64-linux-musl"])
    assert again.report["linked"] == built("x86_64-linux-musl").report["linked"]
    assert not any("/" in e["name"] for e in again.report["linked"])


def test_libraries_have_no_map() -> None:
    assert (
        ZigDriver().build(sample.two_inputs("x86_64-linux-musl"), TARGETS["x86_64-linux-musl"], "lib").report["linked"]
        is None
    )


def test_lines_of_a_map() -> None:
    text = HEADER + (
        "         1000190          1000190     1a90    16 .rodata\n"
        "         1000498          1000498      170     8         c/libc.a(c/o/vfprintf.o):(.rodata.printf_core)\n"
        "         10006a0          10006a0      1d0     1                 states\n"
        "         10006a0          10006a0        0     1         lc/o/a.o:(.text)\n"
        "         1001e08          1001e08       28     1         lc/o/a.o:(.eh_frame+0x18)\n"
        "               0                0       13     1         <internal>:(.comment)\n"
        "         1000190          1000190       49     1         <internal>:(.rodata.str1.1)\n"
    )
    assert [(p.origin, p.name, p.section, p.address, p.size) for p in read_map(text)] == [
        ("musl", "vfprintf.o", ".rodata.printf_core", 0x1000498, 0x170),
        ("object", "a.o", ".eh_frame", 0x1001E08, 0x28),
        ("linker", "merged constants and tables", ".rodata.str1.1", 0x1000190, 0x49),
    ]


def test_what_is_no_map_or_does_not_fit_is_refused() -> None:
    with pytest.raises(CuvilError, match="printed no map"):
        read_map("ld.lld: nothing here\n")
    row = "         1000190          1000190       10     1         "
    with pytest.raises(CuvilError, match=r"took libevil\.a, which no engine may contain"):
        read_map(f"{HEADER}{row}/x/libevil.a(/x/evil.o):(.text)\n")
    with pytest.raises(CuvilError, match=r"places a\.o outside the engine"):
        linked_objects(
            f"{HEADER}               1                1       10     1         a.o:(.text)\n", built(TRIPLES[1]).data
        )
