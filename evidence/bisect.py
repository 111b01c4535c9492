"""``bisect A B MODEL``: the first node at which two systems differ, by how much, and why.

    from evidence.bisect import bisect
    print("\\n".join(report(bisect("cuvil", "onnxruntime", model_bytes))))

Two runtimes, instruction sets, targets, numbers of threads, or two copies of a model (``model_b``) are compared tensor
by tensor in the order of the graph. All inputs of the first tensor that differs are equal, so its node makes the
difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from evidence.bisect_explain import explain
from evidence.bisect_systems import Subject, System, Trace, subject, system
from evidence.reference import RefGraph, RefNode, run
from evidence.test_inputs import make_inputs

Array = npt.NDArray[Any]
FORMAT: Final = "cuvil-bisect/1"


@dataclass(frozen=True)
class Difference:
    """The first tensor that differs. Values in binary32; ``ulp`` and ``absolute`` are the largest over the tensor."""

    node: str
    op: str
    tensor: str
    number: int
    index: tuple[int, ...]
    a: float
    b: float
    absolute: float
    ulp: int
    count: int
    size: int
    why: str
    rms_error: Mapping[str, float] = field(default_factory=dict)
    """Root mean square error of each system at this tensor against binary64, relative to its largest magnitude."""


@dataclass(frozen=True)
class Bisection:
    """``compared`` tensors were visible in both systems, of ``nodes`` in the graph; ``note`` limits the result."""

    a: str
    b: str
    nodes: int
    compared: int
    outputs_differ: bool
    difference: Difference | None
    note: str = ""

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {
            "format": FORMAT, "a": self.a, "b": self.b, "nodes": self.nodes, "compared": self.compared,
            "outputs_differ": self.outputs_differ, "note": self.note, "difference": None,
        }  # fmt: skip
        d = self.difference
        if d is not None:
            found["difference"] = {
                "node": d.node, "op": d.op, "tensor": d.tensor, "number": d.number, "index": list(d.index),
                "a": d.a, "b": d.b, "absolute": d.absolute, "ulp": d.ulp, "count": d.count, "size": d.size,
                "why": d.why, "rms_error": dict(d.rms_error),
            }  # fmt: skip
        return found


def bisect(
    a: str,
    b: str,
    model: bytes,
    *,
    model_b: bytes | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 1,
) -> Bisection:
    """Compare systems ``a`` and ``b`` (names as in ``bisect_systems.system``) on one input, a seeded one if not given.

    ``model_b`` is what ``b`` runs, if not the same file. Raises the errors of the importer, of the systems, and
    ``UsageError`` when the two models have no tensor in common.
    """
    first, second = system(a), system(b)
    left = subject(model, input_shapes)
    right = subject(model_b, input_shapes) if model_b is not None else left
    x = dict(inputs) if inputs is not None else dict(make_inputs(left.shapes, {}, 1, seed)[0])
    names = (a, b) if a != b else (f"{a} (first model)", f"{b} (second model)")
    plain = [_single(first.plain(left, x)), _single(second.plain(right, x))]
    shared = [name for name in plain[0] if name in plain[1]]
    outputs_differ = any(_differs(plain[0][n], plain[1][n]) for n in shared)
    traces = (_single(first.trace(left, x)), _single(second.trace(right, x)))
    order = [n for n in left.source.nodes if n.tensor in traces[0] and n.tensor in traces[1]]
    if not order:
        raise UsageError(f"{a} and {b} show no tensor of the same name: are these two copies of one model?")
    found = next((n for n in order if _differs(traces[0][n.tensor], traces[1][n.tensor])), None)
    note = ""
    if found is None and outputs_differ:
        traces, found = _one_by_one(first, second, left, right, x, order, traces)
        note = (
            "the outputs differ, yet no tensor does once all are exposed: a system computes several nodes as one "
            "(fusion) or keeps tensors in a layout of its own, which exposing them prevents"
        )
        if found is not None:
            note += f"; exposing '{found.tensor}' alone shows it"
    difference = None
    if found is not None:
        difference = _describe(found, order.index(found), names, traces, left, right, x, note)
    return Bisection(*names, len(left.source.nodes), len(order), outputs_differ, difference, note)


def _one_by_one(
    first: System, second: System, left: Subject, right: Subject, x: Mapping[str, Array], order: Sequence[RefNode],
    traces: tuple[Trace, Trace],
) -> tuple[tuple[Trace, Trace], RefNode | None]:  # fmt: skip
    """Where exposing everything hides a difference: by halving, the first tensor that differs when exposed alone."""

    def values(node: RefNode) -> list[Array]:
        pairs = zip((first, second), (left, right), traces, strict=True)
        shown = [s.single(m, x, node.tensor) if s.single else t[node.tensor] for s, m, t in pairs]
        return [np.asarray(v, np.float32) for v in shown]

    low, high, seen = 0, len(order) - 1, None
    while low <= high:
        middle = (low + high) // 2
        pair = values(order[middle])
        if _differs(*pair):
            seen, high = (order[middle], pair), middle - 1
        else:
            low = middle + 1
    if seen is None:
        return traces, None
    node, (one, two) = seen
    return ({**traces[0], node.tensor: one}, {**traces[1], node.tensor: two}), node


def _single(values: Mapping[str, Array]) -> Trace:
    with np.errstate(all="ignore"):
        return {name: np.asarray(value).astype(np.float32) for name, value in values.items()}


def _bits(value: Array) -> npt.NDArray[np.uint32]:
    return np.where(np.isnan(value), np.float32(np.nan), value).astype(np.float32).view(np.uint32).reshape(-1)


def _differs(a: Array, b: Array) -> bool:
    return a.shape != b.shape or not np.array_equal(_bits(a), _bits(b))


def _ordered(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Integers whose distance is the number of representable values between two binary32 numbers."""
    wide = bits.astype(np.int64)
    return np.where(wide >> 31, 0x80000000 - wide, wide)


def _describe(
    node: RefNode, number: int, names: tuple[str, str], traces: tuple[Trace, Trace], left: Subject, right: Subject,
    x: Mapping[str, Array], note: str,
) -> Difference:  # fmt: skip
    one, two = traces[0][node.tensor], traces[1][node.tensor]
    if one.shape != two.shape:
        why = f"the shapes are {list(one.shape)} and {list(two.shape)}"
        return Difference(node.node, node.op, node.tensor, number, (), 0.0, 0.0, 0.0, 0, one.size, one.size, why)
    bits = _bits(one), _bits(two)
    wrong = np.flatnonzero(bits[0] != bits[1])
    with np.errstate(all="ignore"):
        gap = np.abs(one.astype(np.float64) - two).reshape(-1)
    worst = int(wrong[np.argmax(np.nan_to_num(gap[wrong], nan=np.inf))])
    why = _changed_constant(node, left.source, right.source)
    if not why and note:
        why = f"fusion: {note}"
    if not why:
        some = [worst, *(int(i) for i in wrong[:: max(1, wrong.size // 7)] if i != worst)][:8]
        why = explain(node, _operands(node, left, x, traces[0]), some, dict(zip(names, (one, two), strict=True)))
        why += _named_form(node, left, names)
    exact = {n.tensor: v for n, v in _exact(left.source, x)}.get(node.tensor)
    return Difference(
        node.node, node.op, node.tensor, number, tuple(int(i) for i in np.unravel_index(worst, one.shape)),
        float(one.reshape(-1)[worst]), float(two.reshape(-1)[worst]), float(gap[worst]),
        int(np.max(np.abs(_ordered(bits[0]) - _ordered(bits[1])))), int(wrong.size), int(one.size), why,
        {} if exact is None else {n: _rms(v, exact) for n, v in zip(names, (one, two), strict=True)},
    )  # fmt: skip


def _named_form(node: RefNode, s: Subject, names: tuple[str, str]) -> str:
    """The named arithmetic our systems compute the node in, where it is not the direct sum."""
    frozen = next((n for n in s.graph.nodes if n.tensor == node.tensor), None)
    form = frozen.attrs.get("arithmetic", "direct") if frozen is not None else "direct"
    ours = [name for name in names if name.startswith(("cuvil", "reference"))]
    return f"; {ours[0]} computes this node in the Winograd form {form}" if ours and form != "direct" else ""


def _changed_constant(node: RefNode, left: RefGraph, right: RefGraph) -> str:
    """A constant of the node that the two models do not share, if there is one."""
    other = next((n for n in right.nodes if n.tensor == node.tensor), None)
    if right is left or other is None:
        return ""
    for position, (mine, theirs) in enumerate(zip(node.inputs, other.inputs, strict=False)):
        if mine not in left.weights or theirs not in right.weights:
            continue
        a, b = left.weights[mine], right.weights[theirs]
        if a.shape != b.shape:
            return f"operand {position} is a constant of another shape in the second model"
        wrong = np.flatnonzero(_bits(a) != _bits(b))
        if wrong.size:
            at = int(wrong[0])
            index = [int(i) for i in np.unravel_index(at, a.shape)]
            return (
                f"the models differ: operand {position}, a constant of shape {list(a.shape)}, has {wrong.size} other "
                f"value(s), the first at {index} (0x{int(_bits(a)[at]):08x} and 0x{int(_bits(b)[at]):08x})"
            )
    if dict(node.attrs) != dict(other.attrs) or node.op != other.op:
        return "the models differ: the node has another operator or other attributes in the second one"
    return ""


def _operands(node: RefNode, s: Subject, x: Mapping[str, Array], trace: Trace) -> list[Array | None]:
    """The node's inputs: constants, graph inputs, or tensors both systems have in common."""
    tensors = {n.output: n.tensor for n in s.source.nodes}
    inputs = {t.id: t.name for t in s.source.inputs}
    values: Trace | None = None
    found: list[Array | None] = []
    for name in node.inputs:
        if not name:
            found.append(None)
        elif name in s.source.weights:
            found.append(s.source.weights[name])
        elif name in inputs:
            found.append(np.asarray(x[inputs[name]]))
        elif tensors.get(name) in trace:
            found.append(trace[tensors[name]])
        else:  # a tensor the importer made, or one that a system does not show
            values = values if values is not None else run(s.source, x, "ca1", keep="all")
            found.append(values[name])
    return found


def _exact(graph: RefGraph, x: Mapping[str, Array]) -> list[tuple[RefNode, Array]]:
    values = run(graph, x, "float64", keep="all")
    return [(n, values[n.output]) for n in graph.nodes if n.output in values]


def _rms(value: Array, exact: Array) -> float:
    with np.errstate(all="ignore"):
        scale = float(np.max(np.abs(exact), initial=0.0)) or 1.0
        return float(np.sqrt(np.mean((value.astype(np.float64) - exact) ** 2)) / scale)


def report(result: Bisection) -> list[str]:
    """The result as lines of text."""
    head = f"{result.a} against {result.b}: {result.compared} tensors compared of {result.nodes} nodes"
    d = result.difference
    if d is None:
        text = result.note if result.outputs_differ else "every tensor and every output has the same bits"
        return [head, text]
    place = f"'{d.node}' ({d.op}), tensor '{d.tensor}', number {d.number} of those compared"
    lines = [
        head,
        f"first difference at node {place}",
        f"  {d.count} of {d.size} values; largest {d.absolute:.6g}, {d.ulp} ulp; "
        f"at {list(d.index)}: {d.a!r} and {d.b!r}",
        f"  why: {d.why}",
    ]
    if d.rms_error:
        errors = ", ".join(f"{name} {value:.3g}" for name, value in d.rms_error.items())
        lines.append(f"  error against binary64 (rms, relative to the largest value): {errors}")
    if not result.outputs_differ:
        lines.append("  the model's outputs are equal: the difference disappears on the way")
    return lines
