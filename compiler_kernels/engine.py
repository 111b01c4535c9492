"""Running a compiled ``.so`` engine on NumPy arrays, through the interface in runtime/cuvil_engine.h."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.answer import NUMBER, Answer, RawClinical, read_answer
from compiler_kernels.errors import RefusedError, UnsupportedError, UsageError
from compiler_kernels.ir.dtypes import BY_ONNX, DTYPES, numpy_dtype
from compiler_kernels.targets.registry import host_runs, resolve_target

Array = NDArray[Any]
_RUN_STEP = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.c_long * 8),
        ("count", ctypes.c_long),
        ("finite", ctypes.c_int),
        ("has_lo", ctypes.c_int),
        ("has_hi", ctypes.c_int),
        ("lo", ctypes.c_double),
        ("hi", ctypes.c_double),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("axes", ctypes.POINTER(ctypes.c_char_p)),
    )


class _Symbol(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("lowest", ctypes.c_int64),
        ("highest", ctypes.c_int64),
        ("step", ctypes.c_int64),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p),
        ("items", ctypes.c_int),
        ("kernel", ctypes.c_char_p),
        ("node", ctypes.c_char_p),
    )


class _Variant(ctypes.Structure):
    _fields_ = (
        ("isa", ctypes.c_char_p),
        ("supported", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("steps", ctypes.POINTER(_Step)),
        ("prepare_steps", ctypes.POINTER(_Step)),
    )


class _Device(ctypes.Structure):
    _fields_ = (
        ("chip", ctypes.c_char_p),
        ("memory_bytes", ctypes.c_ulong),
        ("open", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("erase", ctypes.CFUNCTYPE(None)),
        ("time", ctypes.CFUNCTYPE(ctypes.c_double)),
        ("name", ctypes.CFUNCTYPE(ctypes.c_char_p)),
    )


_STRINGS = ("model", "model_version", "arithmetic", "frozen_graph", "config_digest", "weights_digest", "target")


class _Instance(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_char_p) for name in _STRINGS),
        ("input_count", ctypes.c_int),
        ("output_count", ctypes.c_int),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("weights", ctypes.c_void_p),
        ("weights_size", ctypes.c_ulong),
        ("arena_bytes", ctypes.c_ulong),
        ("input_buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("output_buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("variant_count", ctypes.c_int),
        ("variants", ctypes.POINTER(_Variant)),
        ("step_count", ctypes.c_int),
        ("prepare_count", ctypes.c_int),
        ("scratch", ctypes.c_void_p),
        ("scratch_floats", ctypes.c_long),
        ("max_threads", ctypes.c_int),
        ("infer", ctypes.CFUNCTYPE(None)),
        ("refusal", ctypes.POINTER(ctypes.c_char_p)),
        ("bind", ctypes.CFUNCTYPE(ctypes.c_char_p)),
        ("symbols", ctypes.POINTER(_Symbol)),
        ("symbol_count", ctypes.c_int),
        ("arena", ctypes.c_void_p),
        ("checker", ctypes.c_void_p),
        ("mismatch", ctypes.POINTER(ctypes.c_char_p)),
        ("held", ctypes.c_void_p),
        ("held_count", ctypes.c_int),
        ("clinical", ctypes.POINTER(RawClinical)),
        ("device", ctypes.POINTER(_Device)),
    )


@dataclass(frozen=True)
class EngineTensor:
    """One input or output: name in the model, static shape, the policy's guards (bounds ``None`` = unbounded) and the
    element type (NumPy name; ``bfloat16`` arrays are those of ml_dtypes). ``bounded``: the shape is what the size of an
    inference, which symbols or the data decide, does not exceed. ``axes``: where symbols do, every axis as a number or
    as the text of an expression over :attr:`Engine.symbols`."""

    name: str
    shape: tuple[int, ...]
    finite: bool
    low: float | None
    high: float | None
    dtype: str = "float32"
    bounded: bool = False
    axes: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One kernel call of an inference: C function, independent work items, the model's nodes it computes."""

    kernel: str
    items: int
    node: str


class Recorder(Protocol):
    """Puts inferences on record; what it raises ends the call of :meth:`Engine.run`, which then gives no output."""

    def begin(self, engine: Engine) -> None:
        """The inputs are in the engine's buffers."""
        ...

    def record(self, engine: Engine, answer: Answer | None, failure: str, outputs: Mapping[str, Array]) -> None:
        """The inference has ended: with ``answer`` where the engine has clinical logic; ``failure`` is empty or one of
        ``FAILURES``; ``outputs`` are what the network computed, canonical, even where a guard withholds them."""
        ...


class Engine:
    """A loaded engine.

    The engine's memory is static: one loaded file is one instance. Loading the same file twice gives the same
    instance, and it must not be called from two threads at once. It computes on the calling thread with the best
    instruction set the processor supports.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path.resolve()))
            raw = _Instance.in_dll(self._library, "cuvil_engine_instance")
        except (OSError, ValueError) as error:
            reason = "it does not exist" if not path.exists() else str(error)
            raise UsageError(
                f"{path}: cannot be loaded as an engine ({reason}); give a .so made by compile_model for this machine"
            ) from None
        self._raw = raw
        texts = {name: bytes(getattr(raw, name) or b"").decode("utf-8", "replace") for name in _STRINGS}
        self.model = texts["model"]
        self.version = texts["model_version"]
        self.arithmetic = texts["arithmetic"]
        self.frozen_graph = texts["frozen_graph"]
        self.config_digest = texts["config_digest"]
        self.weights_digest = texts["weights_digest"]
        self.target = texts["target"]
        target = resolve_target(self.target)
        if not host_runs(target):
            raise UnsupportedError(f"{path}: is compiled for {target.cpu}, which this processor does not support")
        self.inputs = tuple(_describe(raw.inputs[i]) for i in range(raw.input_count))
        self.outputs = tuple(_describe(raw.outputs[i]) for i in range(raw.output_count))
        self.weights_bytes = int(raw.weights_size)
        self.arena_bytes = int(raw.arena_bytes)
        self.isas = tuple(bytes(raw.variants[v].isa).decode() for v in range(raw.variant_count))
        chosen = next((v for v in range(raw.variant_count) if raw.variants[v].supported()), -1)
        if chosen < 0:
            raise UnsupportedError(f"{path}: has kernels for {', '.join(self.isas)} only, and this processor has none")
        self.isa = self.isas[chosen]
        self.steps = tuple(_step(raw.variants[chosen].steps[s]) for s in range(raw.step_count))
        self.symbols = {
            bytes(s.name).decode(): range(s.lowest, s.highest + 1, s.step) for s in raw.symbols[: raw.symbol_count]
        }
        """Sizes that each open symbol may take."""
        self._step_calls = [_RUN_STEP(s.run) for s in raw.variants[chosen].steps[: raw.step_count] if s.run]
        self._input_views = [_view(raw.input_buffers[i], t) for i, t in enumerate(self.inputs)]
        self._output_views = [_view(raw.output_buffers[i], t) for i, t in enumerate(self.outputs)]
        self._infer = raw.infer
        without = raw.device[0].open() if raw.device else None
        if without:
            raise UnsupportedError(f"{path}: {without.decode('utf-8', 'replace')}")
        self.device = raw.device[0].name().decode("utf-8", "replace") if raw.device else ""
        """The GPU that computes, its driver and the code it runs; empty where the processor computes."""
        self.lockstep = bool(raw.checker)
        """Whether every inference is computed twice and compared (docs/lockstep.md)."""

    def run(
        self, inputs: Mapping[str, NDArray[Any]] | NDArray[Any], session: Recorder | None = None
    ) -> dict[str, Array]:
        """Outputs by name for ``inputs`` by name (or one array where the engine has one input).

        Arrays are of exactly the compiled types and shapes. NaN in the outputs is canonical. ``session`` records the
        inference before this returns or raises (``evidence.sessions.recorder``). ``UsageError`` for a missing, unknown
        or misshapen array, ``RefusedError`` when a guard of the policy refuses a value, an input gives another shape,
        set of axes or count than the engine was compiled for, or the two runs of lockstep differ.
        """
        if self.decides:
            answer = self.decide(inputs, session)
            if answer.failure is not None:
                raise RefusedError(f"{answer.failure.sentence}; no output is given, and decide() gives the answer")
            return dict(answer.outputs)
        self.set_inputs(inputs)
        if session is not None:
            session.begin(self)
        failure = "input_guard"
        try:
            self._guard_inputs()
            self.infer()
            failure = "lockstep" if self.mismatch else "refusal"
            self._check_refusal()
            failure = "output_guard"
            outputs = self._guard_outputs()
        except RefusedError:
            if session is not None:
                session.record(self, None, failure, self.get_outputs() if failure == "output_guard" else {})
            raise
        if session is not None:
            session.record(self, None, "", outputs)
        return outputs

    @property
    def decides(self) -> bool:
        """Whether the engine has clinical logic: decisions or safety guards of its policy."""
        return bool(self._raw.clinical)

    def decide(self, inputs: Mapping[str, NDArray[Any]] | NDArray[Any], session: Recorder | None = None) -> Answer:
        """One inference with the clinical logic of the policy (docs/clinical.md).

        Inputs, ``session`` and ``UsageError`` are as of :meth:`run`. A guard that does not hold, or a refusal, is an
        answer here and raises nothing. ``UsageError`` when the engine has no clinical logic.
        """
        if not self.decides:
            raise UsageError(f"{self.path}: decides nothing; its policy has no decisions and no safety guards")
        self.set_inputs(inputs)
        if session is not None:
            session.begin(self)
        logic = self._raw.clinical[0]
        logic.begin()
        outputs: dict[str, Array] = {}
        failure = "input_guard"
        try:
            self._guard_inputs()
            if logic.before():
                self.infer()
                failure = "lockstep" if self.mismatch else "refusal"
                self._check_refusal()
                failure = "output_guard"
                outputs = self._guard_outputs(canonical=True)
                logic.after()
        except RefusedError as error:
            self._sentence = str(error).encode()  # the engine keeps the pointer
            logic.fail(NUMBER[failure], self._sentence)
        answer = read_answer(logic, outputs)
        if session is not None:
            computed = self.get_outputs() if failure == "output_guard" else {}
            session.record(self, answer, answer.failure.kind if answer.failure else "", computed)
        return answer

    def present_inputs(self) -> dict[str, Array]:
        """Copies of what the input buffers hold, by name, at the sizes of this inference."""
        return {tensor.name: self._input(index).copy() for index, tensor in enumerate(self.inputs)}

    def _guard_inputs(self) -> None:
        for index, tensor in enumerate(self.inputs):
            _guard("input", tensor, self._input(index))

    def _check_refusal(self) -> None:
        if self.mismatch:
            raise RefusedError(self.mismatch)
        if self.refusal:
            raise RefusedError(self.refusal)

    def _guard_outputs(self, canonical: bool = False) -> dict[str, Array]:
        """The outputs within their guards; ``canonical``: the engine's buffers get the canonical NaN, too."""
        found = self.get_outputs()
        for index, tensor in enumerate(self.outputs):
            if canonical:
                flat = self._output_views[index].reshape(-1)
                flat[: found[tensor.name].size] = found[tensor.name].reshape(-1)
            _guard("output", tensor, found[tensor.name])
        return found

    def set_inputs(self, inputs: Mapping[str, NDArray[Any]] | NDArray[Any]) -> None:
        """Copy ``inputs`` into the engine's buffers; all are checked before the first is copied."""
        if not isinstance(inputs, Mapping):
            if len(self.inputs) != 1:
                raise UsageError(f"the engine has {len(self.inputs)} inputs ({self._names()}): give a mapping by name")
            inputs = {self.inputs[0].name: inputs}
        unknown = [name for name in inputs if name not in {t.name for t in self.inputs}]
        if unknown:
            raise UsageError(f"the engine has no input {unknown[0]!r}: its inputs are {self._names()}")
        arrays = []
        for tensor in self.inputs:
            if tensor.name not in inputs:
                raise UsageError(f"input {tensor.name!r} is missing: give an array of shape {tensor.shape}")
            array = np.asarray(inputs[tensor.name])
            fits = array.shape == tensor.shape or (tensor.bounded and _fits(array.shape, tensor.shape))
            if array.dtype != numpy_dtype(tensor.dtype) or not fits:
                raise UsageError(
                    f"input {tensor.name!r} is {array.dtype} {array.shape} where the engine takes {tensor.dtype} "
                    f"{'at most ' * tensor.bounded}{tensor.shape}: convert it, or compile the model for this shape"
                )
            arrays.append(array)
        self._bind([array.shape for array in arrays])
        for index, array in enumerate(arrays):
            self._input(index)[...] = array

    def _bind(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Tell the engine the sizes of this inference; ``UsageError`` with its sentence when it does not take them."""
        if not self._raw.bind:
            return
        for index, (tensor, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            for axis, size in enumerate(shape if tensor.bounded else ()):
                self._raw.inputs[index].extents[axis] = size
        problem = self._raw.bind()
        if problem:
            raise UsageError(f"{problem.decode('utf-8', 'replace')}; resample or crop the array")

    def _input(self, index: int) -> Array:
        """The part of an input's buffer that its present sizes use."""
        view = self._input_views[index]
        return _actual(self._raw.inputs[index], view) if self.inputs[index].bounded else view

    def infer(self) -> None:
        """One inference from the input buffers into the output buffers: no check, no guard, no copy."""
        self._infer()

    def device_times(self, runs: int) -> list[float]:
        """Microseconds of the kernels alone by the GPU's own clock, on what lies in its memory, ``runs`` times.

        ``UsageError`` for an engine that computes on the processor, ``UnsupportedError`` when the GPU fails.
        """
        if not self._raw.device:
            raise UsageError(f"{self.path}: computes on the processor; measure it with --bench")
        found: list[float] = []
        while len(found) < runs and min(found, default=0.0) >= 0:
            found.append(float(self._raw.device[0].time()))
        if min(found, default=0.0) < 0:
            raise UnsupportedError(f"{self.path}: {self.refusal}")
        return found

    @property
    def device_bytes(self) -> int:
        """Memory the engine holds on its GPU; 0 where the processor computes."""
        return int(self._raw.device[0].memory_bytes) if self._raw.device else 0

    @property
    def refusal(self) -> str:
        """Why the last inference is worth nothing (a run-time shape the engine is not compiled for), or nothing."""
        found = self._raw.refusal[0] if self._raw.refusal else None
        return found.decode("utf-8", "replace") if found else ""

    @property
    def mismatch(self) -> str:
        """How the two runs of lockstep differed in the last inference, whose outputs must not be used, or nothing."""
        found = self._raw.mismatch[0] if self._raw.mismatch else None
        return found.decode("utf-8", "replace") if found else ""

    def erase(self) -> None:
        """Overwrite with zeros what the engine's memory holds of inputs and results (docs/erasure.md).

        Arrays that were given to or came from the engine are the caller's own and stay. The next :meth:`run` works as
        the first did.
        """
        self._library.cuvil_erase()

    def run_step(self, number: int) -> None:
        """Step ``number`` of an inference alone, on what the steps before it left in memory; for measurements.

        ``UsageError`` for a GPU engine, whose launches are one graph.
        """
        if self._raw.device:
            raise UsageError(f"{self.path}: the launches of a GPU engine run together; measure it with --bench")
        self._step_calls[number](0, self.steps[number].items, self._raw.scratch)

    def get_outputs(self) -> dict[str, Array]:
        """Copies of the output buffers by name, NaN canonical."""
        found: dict[str, Array] = {}
        for index, (tensor, view) in enumerate(zip(self.outputs, self._output_views, strict=True)):
            value = _actual(self._raw.outputs[index], view).copy() if tensor.bounded else view.copy()
            if DTYPES[tensor.dtype].kind == "float":
                value[np.isnan(value)] = np.nan  # NumPy's and ml_dtypes' NaN are the canonical ones
            found[tensor.name] = value
        return found

    def _names(self) -> str:
        return ", ".join(repr(t.name) for t in self.inputs)


def load_engine(path: str | os.PathLike[str]) -> Engine:
    """Load an engine made by ``compile_model(..., kind="so")``.

    One loaded file is one instance and not re-entrant: see :class:`Engine`. ``UsageError`` when the file is no engine
    for this machine, ``UnsupportedError`` when the processor lacks what it was compiled for.
    """
    return Engine(Path(path))


def _actual(raw: _Tensor, view: Array) -> Array:
    """The part of a buffer that its extents say is in use."""
    shape = tuple(int(raw.extents[axis]) for axis in range(view.ndim))
    return view.reshape(-1)[: int(np.prod(shape, dtype=np.int64))].reshape(shape)


def _fits(shape: tuple[int, ...], most: tuple[int, ...]) -> bool:
    return len(shape) == len(most) and all(1 <= size <= bound for size, bound in zip(shape, most, strict=True))


def _describe(raw: _Tensor) -> EngineTensor:
    low = float(raw.lo) if raw.has_lo else None
    high = float(raw.hi) if raw.has_hi else None
    shape, dtype = tuple(raw.shape[: raw.rank]), BY_ONNX[raw.dtype].name
    texts = [bytes(raw.axes[a]).decode() for a in range(raw.rank)] if raw.axes else []
    axes = tuple(int(t) if t.isdigit() else t for t in texts)
    return EngineTensor(bytes(raw.name).decode(), shape, bool(raw.finite), low, high, dtype, bool(raw.extents), axes)


def _step(raw: _Step) -> Step:
    return Step(bytes(raw.kernel).decode(), int(raw.items), bytes(raw.node).decode("utf-8", "replace"))


def _view(address: int, tensor: EngineTensor) -> Array:
    """The engine's buffer as an array without a copy."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    buffer = (ctypes.c_ubyte * (max(count, 1) * DTYPES[tensor.dtype].nbytes)).from_address(address)
    flat: Array = np.ctypeslib.as_array(buffer).view(numpy_dtype(tensor.dtype))
    return flat[:count].reshape(tensor.shape)


def _guard(kind: str, tensor: EngineTensor, values: Array) -> None:
    """The guards of runtime/cuvil_guard.c: bounds are inclusive, and NaN lies in no range."""
    broken = np.zeros(values.shape, bool)
    if tensor.finite:
        broken |= ~np.isfinite(values.astype(np.float64))
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
        if tensor.low is not None:
            broken |= ~(wide >= tensor.low)
        if tensor.high is not None:
            broken |= ~(wide <= tensor.high)
    if broken.any():
        first = tuple(int(i) for i in np.argwhere(broken)[0])
        raise RefusedError(
            f"{kind} {tensor.name!r} is refused by the policy's guard: value {values[first]!r} at index {first} "
            f"({int(broken.sum())} of {values.size} break the guard); correct the {kind}, or the guard in the policy"
        )
