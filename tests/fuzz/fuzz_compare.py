"""Accepted mutations as engines: bits of the reference, and values of onnxruntime where it takes the file too."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from fuzz_mutate import Mutant
from fuzz_structure import graphs
from fuzz_workers import Ended, run_all
from onnx import numpy_helper

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.isa import VARIANTS
from evidence.conformance.build import build
from evidence.conformance.cases import Case
from evidence.conformance.compare import bit_difference
from evidence.conformance.execute import execute
from evidence.conformance.prepare import Prepared, Stopped
from evidence.conformance.suite import this_target
from evidence.engine_program import engine_text
from evidence.reference import load_graph, run
from evidence.steering_inputs import steering_inputs
from evidence.test_inputs import make_inputs

Array = np.ndarray
TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-4}
BATCH = 50
QUANTISING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}


@dataclass(frozen=True)
class Compared:
    """``kind``: passed, no peer (onnxruntime does not take it), refused, or what is wrong."""

    mutant: Mutant
    kind: str
    text: str = ""

    @property
    def defect(self) -> bool:
        return self.kind not in ("passed", "passed without peer", "refused", "compiler refused", "known deviation")


@dataclass(frozen=True)
class Made:
    """A prepared engine with its inputs and onnxruntime's outputs by name (a sentence where there are none)."""

    prepared: Prepared | None
    problem: str = ""
    feeds: Mapping[str, Array] = field(default_factory=dict)


def prepare(mutant: Mutant) -> Made:
    try:
        return _prepare(mutant)
    except CuvilError as error:
        return Made(None, str(error))
    except Exception:
        return Made(None, "traceback " + traceback.format_exc()[-2000:])


def _prepare(mutant: Mutant) -> Made:
    module, store = import_onnx(mutant.data, filename="mutant.onnx", pins=dict(mutant.seed.pins))
    frozen, _ = freeze(module, store)
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    shapes = {t.name: t.shape for t in graph.inputs}
    dtypes = {t.name: t.dtype for t in graph.inputs}
    feeds = {**make_inputs(shapes, {}, 1, mutant.number, dtypes)[0], **steering_inputs(graph)}
    values: Mapping[str, Array] | str
    try:
        with np.errstate(all="ignore"):
            found = run(graph, feeds)
        values = {name: _typed(found[value]) for value, name in graph.outputs}
    except Exception as error:
        values = f"{type(error).__name__}: {error}"
    lowered = lower_to_l2(frozen, store)
    isa = VARIANTS[this_target().machine][-1]
    text = engine_text("m", lowered, store, f"m{mutant.number}", isa)
    case = Case(str(mutant.number), "", onnx.ModelProto(), {}, {})
    inputs = tuple(np.ascontiguousarray(feeds[v.name]) for v in lowered.main.inputs)
    return Made(Prepared(case, text, inputs, values), "", feeds)


def _typed(value: Array) -> Array:
    return value.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)) if value.dtype == "V2" else value


def ask_peer(task: tuple[bytes, Mapping[str, Array], Mapping[str, tuple[int, ...]]]) -> dict[str, Array] | str:
    """onnxruntime's outputs, or its refusal."""
    import onnxruntime

    data, feeds, _ = task
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        bf16 = onnx.TensorProto.BFLOAT16
        typed = {n: v for n, v in feeds.items() if v.dtype.kind != "V"}
        if len(typed) < len(feeds):
            return f"inputs of element type {bf16} cannot be given"
        names = [o.name for o in session.get_outputs()]
        found = session.run(names, typed)
        return {n: np.asarray(v) for n, v in zip(names, found, strict=True) if isinstance(v, np.ndarray)}
    except Exception as error:
        return " ".join(str(error).split())[:300] or "refused"


def compare(mutants: Sequence[Mutant], seconds: float = 60.0, workers: int = 2) -> list[Compared]:
    """Compile all together, run, and compare; in the order given."""
    made = {m.number: (m, result) for m, result in run_all(prepare, mutants, seconds, workers)}
    found: dict[int, Compared] = {}
    ready: list[tuple[Mutant, Made]] = []
    for number, (one, result) in made.items():
        if isinstance(result, Ended):
            found[number] = Compared(one, result.kind, result.text)
        elif result.prepared is None:
            kind = "traceback" if result.problem.startswith("traceback") else "compiler refused"
            found[number] = Compared(one, kind, result.problem)
        else:
            ready.append((one, result))
    peers: dict[int, dict[str, Array] | str] = {}
    tasks = [((m.data, r.feeds, {}), m.number) for m, r in ready]
    numbers = {id(task): number for task, number in tasks}
    for task, answer in run_all(ask_peer, [t for t, _ in tasks], seconds, 1):
        peers[numbers[id(task)]] = f"onnxruntime {answer.kind}" if isinstance(answer, Ended) else answer
    with tempfile.TemporaryDirectory(prefix="cuvil-fuzz-") as root:
        for begin in range(0, len(ready), BATCH):
            part = ready[begin : begin + BATCH]
            for one, kind, text in _executed(part, peers, Path(root) / str(begin)):
                found[one.number] = Compared(one, kind, text)
    return [found[m.number] for m in mutants]


def _executed(
    part: Sequence[tuple[Mutant, Made]], peers: Mapping[int, dict[str, Array] | str], folder: Path
) -> list[tuple[Mutant, str, str]]:
    target = this_target()
    by_case = {str(m.number): m for m, _ in part}
    tests = [r.prepared for _, r in part if r.prepared is not None]
    found = []
    for built in build(tests, target, VARIANTS[target.machine][-1], folder):
        if built.program is None:
            found += [(by_case[t.case.name], "C refused", built.message) for t in built.tests]
            continue
        for test, result in zip(built.tests, execute(built.program, built.tests), strict=True):
            one = by_case[test.case.name]
            found.append((one, *judge(test, result, peers[one.number], one.data)))
    return found


def judge(
    test: Prepared, got: Mapping[str, Array] | Stopped, peer: dict[str, Array] | str, data: bytes = b""
) -> tuple[str, str]:
    """Kind and text of one execution."""
    if isinstance(got, Stopped):
        if got.kind.value == "refused" and isinstance(test.reference, str):
            return "refused", got.detail
        return got.kind.value + " at run time", f"{got.detail}; reference: {test.reference}"
    if isinstance(test.reference, str):
        return "reference fails", test.reference
    for name, values in got.items():
        if text := bit_difference(name, values, test.reference.get(name)):
            return "other bits", text
    if isinstance(peer, str):
        return "passed without peer", peer
    seen = 0
    step = quantisation_step(data)
    for name, values in got.items():
        if name in peer:
            text, finite = value_difference(values, peer[name], step)
            seen += finite
            if text:
                reason = known_deviation(data, values, peer[name])
                return ("known deviation", reason) if reason else ("other values", f"{name}: {text}")
    return ("passed", "") if seen else ("passed without peer", "nothing finite to compare")


def known_deviation(data: bytes, ours: Array, theirs: Array) -> str:
    """Why onnxruntime's value is not what ONNX's text says, or the empty string."""
    model = onnx.ModelProto.FromString(data)
    used = {n.op_type for g in graphs(model) for n in g.node}
    if "DynamicQuantizeLinear" in used and ours.size == 1 and ours.item() == 0 and theirs.item() == 1:
        return "y_scale = (maximum(0, max(x)) - minimum(0, min(x))) / (qmax - qmin) is 0 for x = 0; onnxruntime gives 1"
    strange = [
        a.name for g in graphs(model) for n in g.node for a in n.attribute if not np.isfinite([a.f, *a.floats]).all()
    ]
    if strange and ours.dtype.kind == "f" and np.isnan(ours).any():
        return f"{strange[0]} is not finite, and the operator's formula on it NaN; onnxruntime leaves that step out"
    if "Attention" in used and ours.shape == theirs.shape and ours.dtype.kind == "f":
        masked = np.isneginf(ours) & (theirs < np.finfo(theirs.dtype).min / 2)
        if masked.any() and not value_difference(ours[~masked], theirs[~masked])[0]:
            return "what a mask leaves out is negative infinity; onnxruntime gives the lowest finite number"
    if "NonZero" in used and ours.ndim == theirs.ndim == 2 and (len(ours), len(theirs)) == (0, 1):
        return "for a scalar, NonZero produces the shape (0, N) instead of (1, N); onnxruntime gives (1, N)"
    return ""


def quantisation_step(data: bytes) -> float:
    """The largest scale of a model that quantises: a sum that lies halfway between two steps is rounded to either,
    depending on the order of its terms. 0 for other models."""
    model = onnx.ModelProto.FromString(data)
    used = {n.op_type for g in graphs(model) for n in g.node}
    if not used & QUANTISING:
        return 0.0
    scales = [numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    values = [float(np.max(np.abs(s))) for s in scales if 0 < s.size <= 64 and np.isfinite(s).all()]
    return max([0.01, *values])


def value_difference(ours: Array, theirs: Array, step: float = 0.0) -> tuple[str, int]:
    """How the values differ beyond rounding, and how many were compared: those where onnxruntime's are finite.

    ``step``: what a model that quantises may differ by; its 8-bit integers by three, as a step may be quantised again.
    """
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)} where onnxruntime gives {theirs.dtype}{list(theirs.shape)}", 1
    if ours.size == 0:
        return "", 1
    kind = ours.dtype.name
    a, b = (v.astype(np.float64) if kind != "bool" else v.astype(np.int64) for v in (ours, theirs))
    finite = np.isfinite(b)
    if not finite.any():
        return "", 0
    scale = float(np.max(np.abs(b[finite])))
    limit = TOLERANCE.get(kind, 1e-3) if kind.startswith(("float", "bfloat")) else 0.0
    with np.errstate(all="ignore"):
        allowed = limit * np.maximum(np.abs(b), min(scale, 1.0) * 1e-2 + 1e-30)
        if kind in ("float16", "bfloat16"):  # each node rounds, and what cancels keeps the roundings
            allowed = allowed + 2 * limit * scale
        if step:
            allowed = allowed + (3 if kind in ("int8", "uint8") else 1.01 * step if kind.startswith("float") else 0)
        wrong = finite & ~(np.abs(a - b) <= allowed)
    count = int(np.count_nonzero(wrong))
    if not count:
        return "", int(finite.sum())
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{kind}{list(ours.shape)} at {list(place)}: {ours[place]} for {theirs[place]} ({count} of {ours.size})", 1
