"""Models drawn from a seed, through compiled engines, beside the reference's bits and other runtimes' values."""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.targets.registry import runner
from evidence.conformance.build import build
from evidence.conformance.cases import Case
from evidence.conformance.compare import bit_difference
from evidence.conformance.execute import execute
from evidence.conformance.prepare import Prepared, Stopped, prepare
from evidence.conformance.suite import BATCH, this_target

Array = np.ndarray[Any, Any]
Values = dict[str, Array]
Torch = Callable[[Values], Sequence[Array] | None]


@dataclass(frozen=True)
class Draw:
    """One node with its tensors. ``constants`` are initialisers, ``inputs`` run-time inputs; an absent output is "".

    ``torch`` computes the outputs that are present from all tensors (``None``: torch cannot). ``without`` maps a peer
    that is not asked to the reason. ``tolerance`` is relative to the largest magnitude of the output (at least 1);
    ``element`` is the element type of the outputs.
    """

    op: str
    opset: int
    attributes: dict[str, Any]
    operands: tuple[str, ...]
    inputs: Values
    constants: Values
    outputs: tuple[str, ...] = ("y",)
    torch: Torch | None = None
    without: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 2e-5
    element: int = TensorProto.FLOAT

    @property
    def present(self) -> list[str]:
        return [name for name in self.outputs if name]

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(self.op, list(self.operands), list(self.outputs), name="drawn", **self.attributes)
        graph = helper.make_graph(
            [node],
            "drawn",
            [_info(n, a) for n, a in self.inputs.items()],
            [helper.make_tensor_value_info(n, self.element, None) for n in self.present],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def split_operands(
    rng: np.random.Generator,
    tensors: Mapping[str, Array | None],
    always_input: Sequence[str] = ("x",),
    keep: float = 0.6,
) -> tuple[tuple[str, ...], Values, Values]:
    """Operand names (absent ones empty, trailing ones dropped), run-time inputs, constants: each by chance ``keep``."""
    operands = [name if value is not None else "" for name, value in tensors.items()]
    while operands and not operands[-1]:
        operands.pop()
    present = {n: v for n, v in tensors.items() if v is not None}
    constant = {n for n in present if n not in always_input and rng.random() < keep}
    return (
        tuple(operands),
        {n: v for n, v in present.items() if n not in constant},
        {n: v for n, v in present.items() if n in constant},
    )


def _onnxruntime(draw: Draw, data: bytes) -> Sequence[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(draw.present, draw.inputs))


def _onnx_reference(draw: Draw, data: bytes) -> Sequence[Array]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(onnx.load_from_string(data)).run(draw.present, draw.inputs))


try:
    import torch
except ImportError:
    torch = None  # an extra: where it is not installed the other peers are compared alone


def _torch(draw: Draw, data: bytes) -> Sequence[Array] | None:
    return draw.torch({**draw.inputs, **draw.constants}) if draw.torch is not None else None


PEERS: dict[str, Callable[[Draw, bytes], Sequence[Array] | None]] = {
    "onnxruntime": _onnxruntime,
    "onnx.reference": _onnx_reference,
    **({"torch": _torch} if torch is not None else {}),
}


def peer_values(draw: Draw) -> Iterator[tuple[str, list[Array]]]:
    """Every peer that computes the model, with its outputs; one that raises an error does not."""
    data = bytes(draw.model().SerializeToString())
    for peer, run in PEERS.items():
        if peer in draw.without:
            continue
        try:
            found = run(draw, data)
        except Exception:  # each peer has exceptions of its own for what it does not implement
            continue
        if found is not None:
            yield peer, [np.asarray(a) for a in found]


@dataclass
class Comparison:
    """``lines``: each refusal, difference of bits or of values. ``answered``: models each peer computed."""

    lines: list[str] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)


def compare(draws: Sequence[tuple[str, Draw]]) -> Comparison:
    """Compile all, forty to a program, and compare each with the reference's bits and the peers' values."""
    isa = VARIANTS[this_target().machine][-1]
    result = Comparison()
    ready: list[tuple[Draw, Prepared]] = []
    for name, draw in draws:
        model = draw.model()
        case = Case(name, draw.op, model, draw.inputs, {})
        found = prepare(case, bytes(model.SerializeToString()), draw.inputs, isa)
        if isinstance(found, Stopped):
            result.lines.append(f"{name} {draw.op} {draw.attributes}: {found.kind.value}: {found.detail}")
        else:
            ready.append((draw, found))
    for start in range(0, len(ready), BATCH):
        _compare_program(ready[start : start + BATCH], result)
    return result


def _compare_program(ready: Sequence[tuple[Draw, Prepared]], result: Comparison) -> None:
    target = this_target()
    draws = {test.case.name: draw for draw, test in ready}
    with tempfile.TemporaryDirectory() as root:
        for built in build([test for _, test in ready], target, VARIANTS[target.machine][-1], Path(root)):
            if built.program is None:
                result.lines.append(f"{built.tests[0].case.name}: {built.message}")
                continue
            outputs = execute(built.program, built.tests, runner(target) or ())
            for test, got in zip(built.tests, outputs, strict=True):
                _compare_one(draws[test.case.name], test, got, result)


def _compare_one(draw: Draw, test: Prepared, got: Mapping[str, Array] | Stopped, result: Comparison) -> None:
    shapes = {n: v.shape for n, v in (draw.inputs | draw.constants).items()}
    name = f"{test.case.name} {draw.op} {draw.attributes} {shapes}"
    if isinstance(got, Stopped) or isinstance(test.reference, str):
        why = got.detail if isinstance(got, Stopped) else f"the reference: {test.reference}"
        result.lines.append(f"{name}: {why}")
        return
    for output in draw.present:
        text = bit_difference(output, got[output], test.reference.get(output))
        if text:
            result.lines.append(f"{name}: bits: {text}")
    asked = 0
    for peer, values in peer_values(draw):
        asked += 1
        result.answered[peer] += 1
        for output, want in zip(draw.present, values, strict=True):
            text = far(got[output], want, draw.tolerance)
            if text:
                result.lines.append(f"{name}: {peer}: {output}: {text}")
    if not asked and (torch is not None or draw.torch is None):
        result.lines.append(f"{name}: no peer computes it")


def far(got: Array, want: Array, tolerance: float) -> str:
    """What is wrong with ``got``: its shape, or its largest difference, relative to the magnitude of ``want``."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "other elements are finite"
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "other infinities or NaN"
    if not finite.any():
        return ""
    scale = max(1.0, float(np.abs(b[finite]).max()))
    worst = float(np.abs(a[finite] - b[finite]).max()) / scale
    return f"largest difference {worst:.3g} of {scale:.3g}" if worst > tolerance else ""


def drawn(family: str, draw: Callable[[np.random.Generator], Draw], seeds: range) -> list[tuple[str, Draw]]:
    """Models of ``family`` by name; each seed stands for itself, whatever other seeds are drawn."""
    number = sum(family.encode())
    return [(f"{family}-{seed}", draw(np.random.default_rng([number, seed]))) for seed in seeds]


def check(family: str, draw: Callable[[np.random.Generator], Draw], seeds: range) -> None:
    """No draw disagrees with anything; onnxruntime computes half of them, and of many, every peer a tenth."""
    found = compare(drawn(family, draw, seeds))
    assert not found.lines, "\n".join(found.lines)
    assert 2 * found.answered["onnxruntime"] >= len(seeds)
    for peer in PEERS if len(seeds) >= 40 else ():
        assert 10 * found.answered[peer] >= len(seeds), f"{peer} computed {found.answered[peer]} of {len(seeds)}"
