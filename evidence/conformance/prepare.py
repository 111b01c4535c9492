"""One test through the compiler and, independently, through the reference."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.isa import Isa
from evidence.conformance.cases import Case
from evidence.conformance.outcome import Kind
from evidence.engine_program import EngineText, engine_text
from evidence.gpu_program import GpuText, gpu_engine_text
from evidence.reference import load_graph, run
from evidence.reference.errors import ReferenceError

Array = npt.NDArray[Any]
_serial = itertools.count()


@dataclass(frozen=True)
class Prepared:
    """A test ready to be compiled: C text (CUDA C++ for a GPU), run-time inputs in the engine's order, the reference's
    outputs by name.

    ``reference`` is a sentence where the reference cannot evaluate the frozen graph.
    """

    case: Case
    engine: EngineText | GpuText
    inputs: tuple[Array, ...]
    reference: Mapping[str, Array] | str


@dataclass(frozen=True)
class Stopped:
    """Why a test does not get as far as C: refused with a sentence, or an exception no user should meet."""

    kind: Kind
    detail: str


def prepare(case: Case, model: bytes, inputs: Mapping[str, object], isa: Isa | Gpu) -> Prepared | Stopped:
    """Import, freeze, evaluate by the reference, lower and generate ``model``; never raises for what the test holds."""
    try:
        return _prepare(case, model, inputs, isa)
    except CuvilError as error:
        return Stopped(Kind.REFUSED, str(error))
    except Exception as error:
        return Stopped(Kind.CRASH, f"in the compiler: {_where(error)}")


def _prepare(case: Case, model: bytes, inputs: Mapping[str, object], isa: Isa | Gpu) -> Prepared:
    module, store = import_onnx(model, filename=case.name, pins=_pins(case, inputs))
    for name, value in inputs.items():
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"input {name!r} is given a {type(value).__name__}; engines take tensors only")
    arrays = {name: value for name, value in inputs.items() if isinstance(value, np.ndarray)}
    frozen, _ = freeze(module, store)
    reference = _reference(frozen, store, arrays)
    lowered = lower_to_l2(frozen, store)
    prefix = f"e{next(_serial)}"
    text: EngineText | GpuText
    if isinstance(isa, Gpu):
        text = gpu_engine_text(lowered, store, prefix, isa)
    else:
        text = engine_text(case.name, lowered, store, prefix, isa)
    return Prepared(case, text, tuple(arrays[v.name] for v in lowered.main.inputs), reference)


def _pins(case: Case, inputs: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    """Shapes for the inputs whose shape the test's model leaves open."""
    found: dict[str, tuple[int, ...]] = {}
    for info in case.model.graph.input:
        value = inputs.get(info.name)
        tensor = info.type.tensor_type
        fixed = tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim)
        if isinstance(value, np.ndarray) and not fixed:
            found[info.name] = value.shape
    return found


def _reference(frozen: Module, store: WeightStore, inputs: Mapping[str, Array]) -> Mapping[str, Array] | str:
    try:
        graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
        values = run(graph, inputs)
        return {name: _typed(values[value_id]) for value_id, name in graph.outputs}
    except ReferenceError as error:
        return str(error)
    except Exception as error:
        return _where(error)


def _typed(value: Array) -> Array:
    """The reference keeps bfloat16 as two opaque bytes; onnx has a NumPy type for it."""
    return value.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)) if value.dtype == "V2" else value


def _where(error: Exception) -> str:
    """Type, message and innermost place of an exception: enough to find it without the traceback."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = "/".join(frame.filename.rsplit("/", 2)[-2:])
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} ({file}:{frame.lineno} in {frame.name})"
