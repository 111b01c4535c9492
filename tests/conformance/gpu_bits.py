"""Models through the kernels of a target, a GPU's emulated where none is here, beside the reference's bits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from differential import Array, Draw
from draw_graphs import draw_graph

from compiler_kernels.targets.cuda.gpu import BY_NAME
from compiler_kernels.targets.isa import VARIANTS, Isa
from compiler_kernels.targets.registry import resolve_target, runner
from evidence.conformance.build import build
from evidence.conformance.cases import Case
from evidence.conformance.compare import bit_difference
from evidence.conformance.execute import execute
from evidence.conformance.outcome import Kind
from evidence.conformance.prepare import Prepared, Stopped, prepare

AT_ONCE = 40
Model = tuple[str, onnx.ModelProto, Mapping[str, Array]]


@dataclass
class Found:
    """``lines``: what is wrong. ``same``: models whose every output has the reference's bits."""

    lines: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    same: int = 0


def of_draws(draws: Sequence[tuple[str, Draw]]) -> list[Model]:
    return [(name, draw.model(), draw.inputs) for name, draw in draws]


def graphs(seeds: Iterable[int]) -> list[Model]:
    """Random networks by seed."""
    return [(f"graph-{s}", *draw_graph(np.random.default_rng([77, s]))) for s in seeds]


def compare_bits(models: Sequence[Model], triple: str = "cuda-sm_90", isa: Isa | None = None) -> Found:
    """Every output of every model against the reference on the same frozen graph; ``isa`` of a CPU target."""
    target, found = resolve_target(triple), Found()
    kernels = BY_NAME[target.gpu] if target.gpu else isa or VARIANTS[target.machine][-1]
    words = () if target.gpu else runner(target) or ()
    ready: list[Prepared] = []
    for name, model, inputs in models:
        test = prepare(Case(name, "", model, dict(inputs), {}), model.SerializeToString(), inputs, kernels)
        if not isinstance(test, Stopped):
            ready.append(test)
        elif test.kind is Kind.REFUSED:
            found.refused.append(f"{name}: {test.detail}")
        else:
            found.lines.append(f"{name}: {test.detail}")
    for start in range(0, len(ready), AT_ONCE):
        with tempfile.TemporaryDirectory() as root:
            for built in build(ready[start : start + AT_ONCE], target, kernels, Path(root)):
                if built.program is None:
                    found.lines.append(f"{built.tests[0].case.name}: {built.message}")
                    continue
                outputs = execute(built.program, built.tests, words, timeout=600)
                for test, got in zip(built.tests, outputs, strict=True):
                    _one(test, got, found)
    return found


def _one(test: Prepared, got: Mapping[str, Array] | Stopped, found: Found) -> None:
    name = test.case.name
    if isinstance(got, Stopped) or isinstance(test.reference, str):
        found.lines.append(f"{name}: {got.detail if isinstance(got, Stopped) else test.reference}")
        return
    wrong = [text for n, array in got.items() if (text := bit_difference(n, array, test.reference.get(n)))]
    found.lines += [f"{name}: {text}" for text in wrong]
    found.same += not wrong
