"""Random models through all passes: every level verified and printed, memory plan sound, engine bits right."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from random_models import random_model

from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import pack
from compiler_kernels.passes.infra import run_passes
from compiler_kernels.passes.memory import lifetimes, lower_bound, place
from compiler_kernels.stages.backend import L1_PASSES, L2_PASSES
from compiler_kernels.stages.frontend import freeze
from evidence.reference import load_graph, run
from evidence.reference.vector_model import Expected
from evidence.vector_engines import Compiled, compare, input_bytes, program

sys.path.append(str(Path(__file__).resolve().parents[1] / "vectors"))
from vector_targets import Way, compile_program, run_program, ways

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_level_verifies_and_round_trips(seed: int) -> None:
    module, store = import_onnx(random_model(seed), filename="random.onnx")
    levels = [module]
    module, _ = freeze(module, store)
    levels.append(module)
    module, _ = run_passes(module, store, L1_PASSES)
    levels.append(module)
    buffers = lifetimes(module.main)
    offsets, arena = place(buffers)
    for a, b in combinations(buffers, 2):
        apart = offsets[a.id] + a.size <= offsets[b.id] or offsets[b.id] + b.size <= offsets[a.id]
        assert apart or a.end < b.begin or b.end < a.begin
    assert lower_bound(buffers) <= arena <= sum(b.size for b in buffers)
    module, _ = run_passes(module, store, L2_PASSES)
    levels.append(module)
    for level in levels:
        verify(level)
        assert parse_module(print_module(level)) == level


def _compiled(seed: int) -> Compiled:
    """The random model with its first output's expected bits; the other outputs follow as models of their own."""
    module, store = import_onnx(random_model(seed), filename="random.onnx")
    frozen, _ = freeze(module, store)
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    x = np.random.default_rng(1000 + seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    if seed % 5 == 0:
        x.reshape(-1)[:3] = [np.nan, np.inf, np.float32(1e-42)]
    values = run(graph, {"x": x})
    flat = np.concatenate([values[vid].reshape(-1) for vid, _ in graph.outputs])
    lowered, _ = run_passes(frozen, store, (*L1_PASSES, *L2_PASSES))
    return Compiled(f"random{seed}", lowered, store, (x,), Expected.of(flat))


@pytest.mark.parametrize("way", [w for w in ways() if w.run is not None], ids=lambda way: way.name)
@pytest.mark.parametrize("seeds", [SEEDS[::2], pytest.param(SEEDS, marks=pytest.mark.slow)], ids=["half", "all"])
def test_engine_bits_of_random_models(way: Way, seeds: range, tmp_path: Path) -> None:
    compiled = [_compiled(seed) for seed in seeds]
    product = compile_program(program(compiled, way.isa), way, tmp_path)
    assert compare(compiled, run_program(product, way, input_bytes(compiled), tmp_path)) == {}
