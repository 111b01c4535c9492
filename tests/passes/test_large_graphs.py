"""Passes and memory plan at size: the same result as the plain definition, whatever makes them fast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lowering import IMAGE, SHAPES, Builder, lower, random_graph
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.passes.fold_batch_norm import FoldBatchNorm
from compiler_kernels.passes.fold_constants import FoldConstants
from compiler_kernels.passes.memory import Lifetime, Piece, lower_bound, place


@st.composite
def _lifetime(draw: st.DrawFn, number: int) -> Lifetime:
    """A buffer as a whole, or of parts that begin one by one and end together."""
    begin, end = sorted((draw(st.integers(0, 12)), draw(st.integers(0, 12))))
    sizes = draw(st.lists(st.integers(0, 3).map(lambda n: 64 * n), min_size=1, max_size=3))
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    first = draw(st.integers(0, len(sizes) - 1))
    begins = [begin if n == first else draw(st.integers(begin, end)) for n in range(len(sizes))]
    pieces = tuple(Piece(a, s, t, end) for a, s, t in zip(starts, sizes, begins, strict=True))
    return Lifetime(f"b{number}", sum(sizes), begin, end, pieces if len(sizes) > 1 else ())


lifetimes = st.integers(0, 12).flatmap(lambda n: st.tuples(*(_lifetime(i) for i in range(n)))).map(list)
MOMENTS = range(14)


def _alive(buffers: list[Lifetime], moment: int) -> int:
    return sum(p.size for b in buffers for p in b.parts if p.begin <= moment <= p.end)


def greedy(order: list[Lifetime]) -> dict[str, int]:
    """Every buffer at the lowest multiple of 64 where no byte it needs is needed by another: the definition."""
    taken: list[set[int]] = [set() for _ in MOMENTS]
    found = {}
    for buffer in order:
        needed = [
            {at for p in buffer.parts if p.begin <= t <= p.end for at in range(p.start, p.start + p.size, 64)}
            for t in MOMENTS
        ]
        offset = 0
        while any({at + offset for at in needed[t]} & taken[t] for t in MOMENTS):
            offset += 64
        found[buffer.id] = offset
        for t in MOMENTS:
            taken[t] |= {at + offset for at in needed[t]}
    return found


@settings(max_examples=200, deadline=None)
@given(lifetimes)
def test_plan_is_the_better_of_two_greedy_ones(buffers: list[Lifetime]) -> None:
    offsets, arena = place(buffers)
    most = {b.id: max(_alive(buffers, t) for t in range(b.begin, b.end + 1)) for b in buffers}
    by_size = sorted(buffers, key=lambda b: (-b.size, b.begin, b.id))
    plans = [greedy(by_size), greedy(sorted(by_size, key=lambda b: -most[b.id]))]
    arenas = [max((plan[b.id] + b.size for b in buffers), default=0) for plan in plans]
    assert arena == min(arenas) and offsets == plans[arenas.index(arena)]
    assert lower_bound(buffers) == max(_alive(buffers, t) for t in MOMENTS) <= arena


@settings(max_examples=20, deadline=None)
@given(lifetimes)
def test_a_search_finds_a_valid_plan_that_is_no_worse(small: list[Lifetime]) -> None:
    """Large buffers, for which both orders may waste more than is accepted."""
    scale = 1 << 12
    large = [
        replace(
            b,
            size=b.size * scale,
            pieces=tuple(replace(p, start=p.start * scale, size=p.size * scale) for p in b.pieces),
        )
        for b in small
    ]
    offsets, arena = place(large)
    assert (offsets, arena) == place(large) and lower_bound(large) <= arena <= place(small)[1] * scale
    for n, one in enumerate(large):
        for other in large[:n]:
            for p in one.parts:
                for q in other.parts:
                    first, second = offsets[one.id] + p.start, offsets[other.id] + q.start
                    together = p.size and q.size and p.begin <= q.end and q.begin <= p.end
                    assert not (together and first < second + q.size and second < first + p.size)


@pytest.mark.parametrize("shape", SHAPES)
def test_graphs_of_the_benchmark_are_valid_at_every_level(shape: str) -> None:
    module, store = random_graph(shape, 200, seed=3)
    lowered = lower(module, store)
    for found in (module, lowered):
        text = print_module(found)
        assert parse_module(text) == found
        verify(parse_module(text))
    assert sum(op.name.startswith("call.") for op in lowered.main.ops) > 10


def test_constants_made_of_folded_constants_fold_too() -> None:
    build = Builder(np.random.default_rng(0))
    x = build.start()
    left = build.op("add", build.weight(1), build.weight(1))
    right = build.op("sub", build.weight(1), build.weight(1))
    module = build.module({"x": IMAGE}, [build.op("mul", x, build.op("mul", left, right))])
    folded = FoldConstants().run(module, build.store)
    verify(folded.module)
    assert [op.kind for op in folded.module.main.ops] == ["mul"]
    assert [note["op"] for note in folded.notes] == ["add", "sub", "mul"]
    arrays = [build.store.get(w).astype(np.float64) for w in build.weights]
    sums = [(arrays[0] + arrays[1]).astype(np.float32), (arrays[2] - arrays[3]).astype(np.float32)]
    expected = (sums[0].astype(np.float64) * sums[1]).astype(np.float32)
    constant = folded.module.main.weight(folded.module.main.ops[0].operands[1])
    assert constant is not None
    assert build.store.get(constant) == expected


def test_two_norms_after_a_convolution_fold_one_after_the_other() -> None:
    build = Builder(np.random.default_rng(1))
    first = build.norm(build.conv(build.start()))
    module = build.module({"x": IMAGE}, [build.op("relu", build.norm(first))])
    folded = FoldBatchNorm().run(module, build.store)
    verify(folded.module)
    assert [op.kind for op in folded.module.main.ops] == ["conv", "relu"]
    assert len(folded.notes) == 2
    assert len(folded.module.main.weights) == 2


def test_a_norm_whose_convolution_is_read_twice_stays() -> None:
    build = Builder(np.random.default_rng(2))
    conv = build.conv(build.start())
    module = build.module({"x": IMAGE}, [build.op("add", build.norm(conv), conv)])
    assert not FoldBatchNorm().run(module, build.store).modified
