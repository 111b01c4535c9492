"""The vectors of CA-1 through the GPU generator, emulated: every operator has the expected bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import emulation
import pytest
from needs import needs_nvcc

from benchmarks.gpu_vectors import Group, check_group, groups
from compiler_kernels.ir.extents import SUFFIX
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.plan import emit_cuda, outputs_of, plan
from compiler_kernels.toolchain.emulator import Emulator
from evidence.reference.vectors import load_vectors
from evidence.vector_engines import compare, compile_all

VECTORS = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "ca1.json"
AT_ONCE = 60


def _check(vectors, emit):
    """Number of vectors that ran; all must have the expected bits."""
    compiled, _ = compile_all(vectors)
    for start in range(0, len(compiled), AT_ONCE):
        part, launches = [], []
        for number, item in enumerate(compiled[start : start + AT_ONCE]):
            launches.append(plan(item.module, SM_90, f"v{number}", emit))
            part.append(item)
        emulator = Emulator([launch.kernel for found in launches for launch in found])
        produced = b""
        for item, found in zip(part, launches, strict=True):
            memory = emulation.memory_of(item.module, item.store, item.inputs)
            for launch in found:
                emulator.launch(launch.kernel.name, memory.pointers(launch), seed=start)
            for n, op in enumerate(outputs_of(item.module.main)):
                if not op.str_("output").endswith(SUFFIX):
                    produced += memory.of("output", n)[: op.out.nbytes].tobytes()
        wrong = compare(part, produced)
        assert not wrong, f"{len(wrong)} of {len(part)} vectors differ, first {next(iter(wrong.items()))}"
    return len(compiled)


@pytest.mark.parametrize("emit", [emit_fallback, emit_cuda])
def test_a_sample_of_the_vectors(emit):
    assert _check(load_vectors(VECTORS)[::24], emit) > 20


@pytest.mark.slow
@pytest.mark.parametrize("emit", [emit_fallback, emit_cuda])
def test_every_vector(emit):
    vectors = load_vectors(VECTORS)
    assert _check(vectors, emit) == len(vectors)


def test_every_vector_is_in_one_group_of_its_operator_set():
    vectors = load_vectors(VECTORS)
    found = list(groups(vectors))
    assert sorted(v.name for g in found for v in g.vectors) == sorted(v.name for v in vectors)
    assert len({g.name for g in found}) == len(found)
    for group in found:
        parts = [v.onnx_model_parts() for v in group.vectors]
        assert len({(p.domain, p.opset) for p in parts}) == 1 and sum(len(p.graph_inputs) for p in parts) <= 64


@needs_nvcc
def test_vectors_go_through_one_engine_and_a_wrong_bit_is_found(tmp_path):
    chosen = [v for v in load_vectors(VECTORS) if v.onnx_model_parts().opset == 17]
    products = [v for v in chosen if v.op_type in ("Conv", "Gemm")]
    some = [
        *products[:2],
        *[v for v in products if v.arithmetic][:1],
        next(v for v in chosen if v.op_type == "Softmax"),
    ]
    other = replace(some[1].expected, words="3f800001" + some[1].expected.words[8:])
    group = Group("some", (some[0], replace(some[1], expected=other), *some[2:]))
    found = check_group(group, "cuda-sm_90", tmp_path, emulate=True)
    assert found["run"] == len(some) == 4 and not found["refused"]
    assert list(found["wrong"]) == [some[1].name]


@needs_nvcc
def test_nvcc_makes_no_approximation_of_the_resizes_in_128_bits(tmp_path):
    """A division of 128 bits would be one: nvcc begins it with an approximate reciprocal."""
    some = tuple(v for v in load_vectors(VECTORS) if v.name in ("resize_by_region_linear", "resize_by_cubic_0.6"))
    found = check_group(Group("resizes", some), "cuda-sm_90", tmp_path, emulate=True)
    assert found["run"] == 2 and not found["wrong"] and not found["refused"]
