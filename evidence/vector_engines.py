"""All vectors of CA-1 as one program: each one-node model goes through the compiler, then all are linked together.

The program reads the inputs of all vectors from standard input and writes all outputs to standard output in
vector order, so one run per target checks everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.isa import SCALAR, Isa
from evidence.engine_program import engine_text, main_text, unit_text
from evidence.reference.graph import storage, type_name
from evidence.reference.vector_model import Expected, Vector, array_to_words

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Compiled:
    """One model after the compiler: its L2 module, constants, run-time inputs in the engine's order, expected bits."""

    name: str
    module: Module
    store: WeightStore
    inputs: tuple[Array, ...]
    expected: Expected


def onnx_array(array: Array) -> Array:
    """A reference array as the onnx package takes it: bfloat16, two opaque bytes there, in the type of ml_dtypes."""
    return array.view(numpy_dtype("bfloat16")) if array.dtype.kind == "V" else array


def onnx_model(vector: Vector) -> bytes:
    """The vector as a serialised one-node ONNX model; outputs before the one it holds are not asked for."""
    parts = vector.onnx_model_parts()
    attributes = {k: v for k, v in parts.attributes.items() if v is not None}
    least = onnx.defs.get_schema(parts.op_type, parts.opset, parts.domain).min_output
    if attributes.get("training_mode"):
        least = 3  # BatchNormalization must then name its statistics
    outputs = [f"unused{n}" for n in range(max(least, parts.output_index + 1))]
    outputs[parts.output_index] = parts.output
    node = onnx.helper.make_node(
        parts.op_type, list(parts.inputs), outputs, name=vector.name, domain=parts.domain, **attributes
    )

    def info(name: str, shape: Sequence[int], dtype: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, DTYPES[dtype].onnx, shape)

    graph = onnx.helper.make_graph(
        [node],
        "vector",
        [info(n, a.shape, type_name(a.dtype)) for n, a in parts.graph_inputs.items()],
        [info(parts.output, parts.output_shape, parts.output_dtype)],
        [onnx.numpy_helper.from_array(onnx_array(a), n) for n, a in parts.initializers.items()],
    )
    opsets = [onnx.helper.make_opsetid(parts.domain, parts.opset)]
    return bytes(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def compile_vector(vector: Vector, plain: bool = False) -> Compiled:
    """Importer, numerics passes, lowering (``plain``: row-major); a convolution in the arithmetic the vector names.

    ``CuvilError`` when the compiler refuses the vector's model.
    """
    module, store = import_onnx(onnx_model(vector), filename=vector.name, pins={})
    frozen, _ = freeze(module, store, Numerics(winograd="forbid"))
    if vector.arithmetic:
        graph = frozen.main
        ops = tuple(op.with_attrs(arithmetic=vector.arithmetic) for op in graph.ops)
        frozen = replace(frozen, graphs=(replace(graph, ops=ops),))
        verify(frozen)
    lowered = lower_to_l2(frozen, store, plain)
    given = vector.onnx_model_parts().graph_inputs
    inputs = tuple(np.ascontiguousarray(given[v.name]) for v in lowered.main.inputs)
    return Compiled(vector.name, lowered, store, inputs, vector.expected)


def compile_all(vectors: Sequence[Vector], plain: bool = False) -> tuple[list[Compiled], dict[str, str]]:
    """Every vector that compiles, and the refusal of every one that does not."""
    done, refused = [], {}
    for vector in vectors:
        try:
            done.append(compile_vector(vector, plain))
        except CuvilError as error:
            refused[vector.name] = str(error)
    return done, refused


_MAIN = """int main(void) {
    for (unsigned e = 0; e < engine_count; e++) {
        const cuvil_engine *engine = engines[e];
        for (int n = 0; n < engine->input_count; n++) {
            const size_t count = (size_t)engine->inputs[n].count, size = element_bytes(engine->inputs[n].dtype);
            if (fread(engine->input_buffers[n], size, count, stdin) != count) return 2;
        }
        engine->infer();
        for (int n = 0; n < engine->output_count; n++) {
            const size_t count = (size_t)engine->outputs[n].count, size = element_bytes(engine->outputs[n].dtype);
            if (fwrite(engine->output_buffers[n], size, count, stdout) != count) return 3;
        }
    }
    return fflush(stdout) ? 3 : 0;
}
"""


def program(compiled: Sequence[Compiled], isa: Isa = SCALAR) -> dict[str, bytes]:
    """Source files of the program: ``vectors.c`` and ``main.c`` (weights included as arrays: they are small)."""
    engines = [engine_text(item.name, item.module, item.store, f"v{n}", isa) for n, item in enumerate(compiled)]
    return {"vectors.c": unit_text(engines, isa), "main.c": main_text((e.prefix for e in engines), _MAIN)}


def input_bytes(compiled: Sequence[Compiled]) -> bytes:
    return b"".join(array.tobytes() for item in compiled for array in item.inputs)


def compare(compiled: Sequence[Compiled], output: bytes) -> dict[str, str]:
    """Vectors whose bits differ: name -> first difference. NaN is canonicalised as the runtime does."""
    wrong: dict[str, str] = {}
    start = 0
    for item in compiled:
        shape, kept = item.expected.shape, storage(item.expected.dtype).newbyteorder("<")
        count = int(np.prod(shape, dtype=np.int64))
        if start + count * kept.itemsize > len(output):
            break
        got = canonical_nan(np.frombuffer(output, kept, count, start)).reshape(shape)
        start += count * kept.itemsize
        if not item.expected.matches(got):
            wrong[item.name] = f"got {array_to_words(got.reshape(-1)[:4])}"
    if start != len(output) or len(output) != sum(_bytes(item) for item in compiled):
        wrong["(size)"] = f"the program wrote {len(output)} bytes, expected {sum(_bytes(i) for i in compiled)}"
    return wrong


def _bytes(item: Compiled) -> int:
    return int(np.prod(item.expected.shape, dtype=np.int64)) * storage(item.expected.dtype).itemsize


def canonical_nan(values: Array) -> Array:
    """A copy in which every NaN is the one of its type that outputs have; bfloat16 as two opaque bytes."""
    if values.dtype.kind == "V":
        words = values.view("<u2")
        return np.where((words & 0x7FFF) > 0x7F80, np.uint16(0x7FC0), words).astype("<u2").view(values.dtype)
    if values.dtype.kind != "f":
        return values.copy()
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)
