"""Whole graphs through the compiler, on every processor this machine can run or emulate: the reference's bits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from evidence.reference import load_graph, run
from evidence.reference.vector_model import Expected
from evidence.vector_engines import Compiled, compare, input_bytes, program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vectors"))

from vector_targets import Way, compile_program, run_program, ways

Array = npt.NDArray[Any]
WAYS = [w for w in ways() if w.name != "wasm32 with soft fma" and "gcc" not in w.name]
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, -3e-39, 1e30, -1e30], dtype=np.float32)


def tensors(seed: int, shape: Sequence[int], special: bool = False) -> Array:
    """Random float32, in places replaced by NaN, infinities, zeros, subnormal and large numbers."""
    rng = np.random.default_rng(seed)
    found = rng.standard_normal(shape).astype(np.float32)
    if special:
        flat = found.reshape(-1)
        places = rng.choice(flat.size, max(1, flat.size // 40), replace=False)
        flat[places] = rng.choice(SPECIAL, places.size)
    return found


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int = 17,
) -> bytes:
    """A serialised model; the shapes of its outputs are left open."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()
    )


def compiled(name: str, data: bytes, inputs: Mapping[str, Array]) -> Compiled:
    """The net of one output after the compiler, with the reference's bits of its result for ``inputs``."""
    module, store = import_onnx(data, filename=name, pins={})
    frozen, _ = freeze(module, store)
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    result = run(graph, dict(inputs))[graph.outputs[0][0]]
    lowered = lower_to_l2(frozen, store)
    given = tuple(np.ascontiguousarray(inputs[v.name], dtype="<f4") for v in lowered.main.inputs)
    return Compiled(name, lowered, store, given, Expected.of(result))


def differing(nets: Sequence[Compiled], way: Way, directory: Path) -> dict[str, str]:
    """Nets whose bits on ``way`` are not the reference's."""
    product = compile_program(program(nets, way.isa), way, directory)
    return compare(nets, run_program(product, way, input_bytes(nets), directory))
