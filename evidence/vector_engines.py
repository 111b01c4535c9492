"""All vectors of CA-1 as one program: each one-node model goes through the compiler, then all are linked together.

The program reads the inputs of all vectors from standard input and writes all outputs to standard output, binary32 in
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
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.isa import SCALAR, Isa
from evidence.engine_program import engine_text, main_text, unit_text
from evidence.reference.vector_model import Expected, Vector

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Compiled:
    """One model after the compiler: its L2 module, constants, run-time inputs in the engine's order, expected bits."""

    name: str
    module: Module
    store: WeightStore
    inputs: tuple[Array, ...]
    expected: Expected


def onnx_model(vector: Vector) -> bytes:
    """The vector as a serialised one-node ONNX model."""
    parts = vector.onnx_model_parts()
    attributes = {k: v for k, v in parts.attributes.items() if v is not None}
    node = onnx.helper.make_node(parts.op_type, list(parts.inputs), [parts.output], name=vector.name, **attributes)

    def info(name: str, array: Array) -> onnx.ValueInfoProto:
        kind = onnx.TensorProto.FLOAT if array.dtype == np.float32 else onnx.TensorProto.INT64
        return onnx.helper.make_tensor_value_info(name, kind, array.shape)

    graph = onnx.helper.make_graph(
        [node],
        "vector",
        [info(n, a) for n, a in parts.graph_inputs.items()],
        [onnx.helper.make_tensor_value_info(parts.output, onnx.TensorProto.FLOAT, parts.output_shape)],
        [onnx.numpy_helper.from_array(a, n) for n, a in parts.initializers.items()],
    )
    opsets = [onnx.helper.make_opsetid("", parts.opset)]
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
    inputs = tuple(np.ascontiguousarray(given[v.name], dtype="<f4") for v in lowered.main.inputs)
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
    values = np.frombuffer(output, dtype="<f4").copy()
    values[np.isnan(values)] = np.frombuffer(b"\x00\x00\xc0\x7f", dtype="<f4")[0]
    wrong: dict[str, str] = {}
    start = 0
    for item in compiled:
        shape = item.expected.shape
        count = int(np.prod(shape, dtype=np.int64))
        got = values[start : start + count].reshape(shape)
        start += count
        if not item.expected.matches(got):
            wrong[item.name] = f"got {[hex(w) for w in got.reshape(-1)[:4].view('<u4')]}"
    if start != values.size:
        wrong["(size)"] = f"the program wrote {values.size} values, expected {start}"
    return wrong
