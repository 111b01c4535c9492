"""Passes and memory plan at size: the same result as the plain definition, whatever makes them fast."""

from __future__ import annotations

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
from compiler_kernels.passes.memory import Lifetime, lower_bound, place

lifetimes = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 12), st.integers(0, 6)),
    max_size=12,
).map(lambda rows: [Lifetime(f"b{i}", 64 * s, begin, begin + d) for i, (s, begin, d) in enumerate(rows)])


def greedy(buffers: list[Lifetime]) -> dict[str, int]:
    """Greedy by size, every placed buffer looked at: the definition."""
    placed: list[tuple[Lifetime, int]] = []
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.begin, b.id)):
        offset = 0
        for other, start in sorted(placed, key=lambda item: item[1]):
            together = buffer.begin <= other.end and other.begin <= buffer.end
            if together and offset < start + other.size and start < offset + buffer.size:
                offset = start + other.size
        placed.append((buffer, offset))
    return {b.id: o for b, o in placed}


@settings(max_examples=200, deadline=None)
@given(lifetimes)
def test_plan_is_the_greedy_one(buffers: list[Lifetime]) -> None:
    offsets, arena = place(buffers)
    assert offsets == greedy(buffers)
    assert arena == max((offsets[b.id] + b.size for b in buffers), default=0)
    moments = range(20)
    assert lower_bound(buffers) == max(sum(b.size for b in buffers if b.begin <= t <= b.end) for t in moments)


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
