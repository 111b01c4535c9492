"""Every vector of CA-1 through the whole compiler, on every processor this machine can run or emulate."""

from __future__ import annotations

from pathlib import Path

import pytest
from vector_targets import Way, compile_program, run_program, ways

from compiler_kernels.targets.isa import SCALAR, Isa
from compiler_kernels.targets.vector import emit_vector_kernel
from evidence.reference.vectors import load_vectors
from evidence.vector_engines import Compiled, compare, compile_all, input_bytes, program

VECTORS = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "ca1.json"


@pytest.fixture(scope="session")
def compiled() -> list[Compiled]:
    done, refused = compile_all(load_vectors(VECTORS))
    assert refused == {}
    return done


def has_own_kernels(item: Compiled, isa: Isa) -> bool:
    """Whether ``isa`` gives another C text than plain code does; gcc compiles every text once more."""
    return any(emit_vector_kernel(function, isa, function.name) for function in item.module.graphs[1:])


def check_bits(way: Way, chosen: list[Compiled], directory: Path) -> None:
    product = compile_program(program(chosen, way.isa), way, directory)
    assert compare(chosen, run_program(product, way, input_bytes(chosen), directory)) == {}


def is_plain(way: Way) -> bool:
    """Plain C or a second compiler: every vector has its own text there, and compiling them all takes minutes."""
    return way.isa is SCALAR or "gcc" in way.name


@pytest.mark.parametrize("way", [w for w in ways() if not is_plain(w)], ids=lambda way: way.name)
def test_bits_of_all_vectors(way: Way, compiled: list[Compiled], tmp_path: Path) -> None:
    chosen = [item for item in compiled if has_own_kernels(item, way.isa)]
    assert len(chosen) > 500
    check_bits(way, chosen, tmp_path)


PLAIN = [w for w in ways() if is_plain(w)]


@pytest.mark.parametrize("way", PLAIN, ids=lambda way: way.name)
def test_bits_of_a_quarter_of_the_vectors(way: Way, compiled: list[Compiled], tmp_path: Path) -> None:
    """Another quarter for each way, so that together they compile every vector."""
    chosen = compiled[PLAIN.index(way) % 4 :: 4]
    assert len(chosen) > 300
    check_bits(way, chosen, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", PLAIN, ids=lambda way: way.name)
def test_bits_of_all_vectors_in_plain_code(way: Way, compiled: list[Compiled], tmp_path: Path) -> None:
    check_bits(way, compiled, tmp_path)


def test_comparison_notices_one_bit(compiled: list[Compiled], tmp_path: Path) -> None:
    """The comparison itself: one flipped bit in the output of one vector names exactly that vector."""
    way = ways()[0]
    few = compiled[:3]
    product = compile_program(program(few, way.isa), way, tmp_path)
    good = bytearray(run_program(product, way, input_bytes(few), tmp_path))
    assert compare(few, bytes(good)) == {}
    good[0] ^= 1
    assert list(compare(few, bytes(good))) == [few[0].name]
