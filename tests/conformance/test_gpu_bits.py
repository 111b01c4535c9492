"""ONNX's node tests, random operators and random networks through GPU kernels, the networks through those of a CPU too:
the bits of the independent reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from differential import Draw, drawn
from draw_recurrent import draw_recurrent
from draw_resize import draw_cubic
from draw_signal import draw_signal
from gpu_bits import compare_bits, graphs, of_draws
from onnx import TensorProto, helper, numpy_helper
from test_differential_norms import FAMILIES as NORMS
from test_differential_resize import FAMILIES as RESIZES
from test_differential_sampling import FAMILIES as SAMPLING
from test_differential_windows import FAMILIES as WINDOWS

from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.registry import resolve_target
from evidence import gpu_program
from evidence.conformance import MODES, Kind, onnx_node_cases, prepare, run_jobs
from evidence.conformance.cases import LIST_FILE
from evidence.conformance.report import read_baseline
from evidence.conformance.suite import this_target
from evidence.gpu_program import GpuText

FAMILIES: dict[str, Callable[[np.random.Generator], Draw]] = {
    **{name: draw for group in (WINDOWS, NORMS, RESIZES, SAMPLING) for name, (draw, _) in group.items()},
    "recurrent": draw_recurrent,
    "cubic": draw_cubic,
    "signal": draw_signal,
}
GPU = resolve_target("cuda-sm_90")


def _passed_on_a_cpu(part: slice) -> list[tuple[str, str]]:
    return sorted(read_baseline(LIST_FILE.with_name("onnx_node_passing.txt")))[part]


def _check_node_tests(part: slice) -> None:
    """Every node test that passes on a CPU passes."""
    cases, chosen = onnx_node_cases(), _passed_on_a_cpu(part)
    outcomes = run_jobs([(cases[name], mode) for name, mode in chosen], GPU)
    assert len(chosen) > 20 and {m for _, m in chosen} == set(MODES)
    assert [o for o in outcomes if o.kind is not Kind.PASSED] == []


def test_some_node_tests() -> None:
    _check_node_tests(slice(3, None, 71))


@pytest.mark.slow
def test_every_node_test() -> None:
    _check_node_tests(slice(None))


def _check_operators(seeds: range) -> None:
    models = [m for family, draw in FAMILIES.items() for m in of_draws(drawn(family, draw, seeds))]
    found = compare_bits(models)
    assert not found.lines + found.refused, "\n".join(found.lines + found.refused)
    assert found.same == len(models)


def test_some_operators() -> None:
    _check_operators(range(2))


@pytest.mark.slow
def test_many_operators() -> None:
    _check_operators(range(2, 60))


def _check_networks(seeds: Sequence[int], triple: str) -> None:
    """Where onnx infers another shape than Cuvil (a ragged last window), a draw may not fit together."""
    found = compare_bits(graphs(seeds), triple)
    assert not found.lines, "\n".join(found.lines)
    assert [line for line in found.refused if "is inconsistent" not in line] == []
    assert found.same > 0.97 * len(seeds)


ONCE_WRONG = (317, 790, 879, 2143)
"""A norm by channels behind a product (every target); transposed convolutions of uneven phases before a halo, a stride
along an axis of one element (GPU)."""


@pytest.mark.parametrize("triple", [this_target().triple, GPU.triple])
def test_some_networks(triple: str) -> None:
    _check_networks((*range(12), *ONCE_WRONG), triple)


@pytest.mark.slow
@pytest.mark.parametrize("triple", [this_target().triple, GPU.triple])
def test_many_networks(triple: str) -> None:
    _check_networks(range(12, 500), triple)


STORE = "*(y + i0) = "
DEFECTS = {
    "another sum": ("ca1_add_v1(", "ca1_sub_v1(", "got 0 (0x0.0p+0)"),
    "behind the end": (STORE, "*(y + i0 + 64) = ", "SIGSEGV"),
    "before the begin": (STORE, "*(y + i0 - 2048) = ", "SIGSEGV"),
    "not aligned": (STORE, "((int2 *)(y + 1))->x = 0; " + STORE, "SIGILL"),
    "what was there before": (STORE, "*(y + i0) = y[i0 + 1] + ", "nan"),
    "the order of threads": (STORE, "static float last; *(y + i0) = last++ + ", "exit code 7"),
    "before the launch before has ended": ("cuvil_grid_wait();", "/* cuvil_grid_wait() */", "exit code 5"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_is_wrong_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """x + 1 by a kernel with a planted defect."""
    old, new, sentence = DEFECTS[defect]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, 8]) for n in "xy"]
    one = numpy_helper.from_array(np.ones((), np.float32), "one")
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "g", values[:1], values[1:], [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def spoilt(kernel: CudaKernel) -> CudaKernel:
        assert old in kernel.text
        return replace(kernel, text=kernel.text.replace(old, new))

    engine = gpu_program.gpu_engine_text

    def broken(*arguments: Any) -> GpuText:
        text = engine(*arguments)
        return replace(text, kernels=tuple(map(spoilt, text.kernels)))

    monkeypatch.setattr(prepare, "gpu_engine_text", broken)
    found = compare_bits([("sum", model, {"x": np.ones((5, 8), np.float32)})])
    assert len(found.lines) == 1 and sentence in found.lines[0] and not found.same, found
