"""L0 module back to ONNX (opset 21), written independently of the importer, so that onnxruntime can run both sides."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.weights import WeightStore

OPSET = 21
PLAIN = {
    name: "".join(part.capitalize() for part in name.split("_"))
    for name in (
        "relu sigmoid tanh erf exp log sqrt neg abs reciprocal floor ceil hard_swish softplus leaky_relu elu "
        "hard_sigmoid global_average_pool global_max_pool add sub mul div min max pow softmax log_softmax concat "
        "transpose batch_normalization instance_normalization gelu conv conv_transpose max_pool average_pool"
    ).split()
} | {"matmul": "MatMul", "prelu": "PRelu"}
RENAMED = {"kernel": "kernel_shape"}


class Exporter:
    """Collects nodes and the constants that ONNX wants as inputs."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, value: object, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype=dtype), name))
        return name

    def node(self, op_type: str, inputs: list[str], op: Op, **attrs: object) -> None:
        self.nodes.append(helper.make_node(op_type, inputs, [op.result], **attrs))

    def add(self, op: Op, sizes: dict[str, tuple[int, ...]]) -> None:
        x = list(op.operands)
        a = dict(op.attrs)
        kind = op.kind
        shape = op.out.dims
        if kind in PLAIN:
            attrs = {RENAMED.get(k, k): int(v) if isinstance(v, bool) else v for k, v in a.items()}
            if kind == "batch_normalization":
                attrs["training_mode"] = 0
            self.node(PLAIN[kind], x, op, **attrs)
        elif kind == "gemm":
            trans = {"transA": int(a["trans_a"]), "transB": int(a["trans_b"])}
            self.node("Gemm", x, op, alpha=a["alpha"], beta=a["beta"], **trans)
        elif kind == "clip":
            bounds = [self.const(a[k], np.float32) if k in a else "" for k in ("lo", "hi")]
            self.node("Clip", [*x, *bounds], op)
        elif kind == "layer_normalization":
            self.node("LayerNormalization", x, op, axis=a["axis"], epsilon=a["epsilon"])
        elif kind == "group_normalization":
            self.node("GroupNormalization", x, op, epsilon=a["epsilon"], num_groups=a["num_groups"])
        elif kind.startswith("reduce_"):
            name = "Reduce" + kind.removeprefix("reduce_").capitalize()
            self.node(name, [*x, self.const(a["axes"])], op, keepdims=int(a["keepdims"]))
        elif kind in ("reshape", "expand"):
            self.node(kind.capitalize(), [*x, self.const(shape)], op)
        elif kind == "pad":
            self.node("Pad", [*x, self.const(a["pads"]), self.const(a["value"], np.float32)], op, mode=a["mode"])
        elif kind == "slice":
            ends = [s + n * t for s, n, t in zip(a["starts"], shape, a["steps"], strict=True)]
            ends = [e if e >= 0 else -(2**62) for e in ends]
            args = [self.const(v) for v in (a["starts"], ends, list(range(len(shape))), a["steps"])]
            self.node("Slice", [*x, *args], op)
        else:
            assert kind == "resize", kind
            self.resize(op, sizes[op.operands[0]])

    def resize(self, op: Op, before: tuple[int, ...]) -> None:
        a = dict(op.attrs)
        roi = self.const(a["roi"], np.float32) if a["roi"] else ""
        tail = [self.const(a["scales"], np.float32)] if a["scales"] else ["", self.const(op.out.dims)]
        self.node(
            "Resize",
            [*op.operands, roi, *tail],
            op,
            mode=a["mode"],
            coordinate_transformation_mode=a["coordinate_mode"],
            nearest_mode=a["nearest_mode"],
            extrapolation_value=a["extrapolation_value"],
            exclude_outside=int(a["exclude_outside"]),
        )


def to_onnx(module: Module, store: WeightStore) -> bytes:
    """Serialized model that computes what the L0 module says."""
    graph, out = module.main, Exporter()
    sizes = {name: t.dims for name, t in graph.types().items()}
    for op in graph.ops:
        out.add(op, sizes)
    weights = [numpy_helper.from_array(store.get(w), w.id) for w in graph.weights]

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes[name])

    proto = helper.make_graph(
        out.nodes, "l0", [info(v.id) for v in graph.inputs], [info(o) for o in graph.outputs], weights + out.constants
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
