"""Mutations that often leave a valid model: another number, constant, size, type, or operator of the same form."""

from __future__ import annotations

import random

import numpy as np
from fuzz_structure import Change, graphs
from onnx import ModelProto, TensorProto, helper, numpy_helper

UNARY = (
    "Relu Sigmoid Tanh Erf Exp Log Sqrt Neg Abs Reciprocal Floor Ceil Softplus Softsign Sin Cos Tan Asin Acos Atan "
    "Sinh Cosh Asinh Acosh Atanh Round Sign HardSwish Mish Gelu Elu Selu Celu LeakyRelu ThresholdedRelu HardSigmoid "
    "Identity Softmax LogSoftmax Hardmax Not IsNaN IsInf Shape Size NonZero Transpose "
    "Flatten Squeeze GlobalAveragePool GlobalMaxPool ReduceSum ReduceMean ReduceMax ReduceL2 ReduceLogSumExp ArgMax "
    "ArgMin LpNormalization Det MeanVarianceNormalization"
).split()
BINARY = (
    "Add Sub Mul Div Pow Min Max Mod PRelu MatMul Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor BitwiseAnd "
    "BitShift Sum Mean Gemm Gather GatherElements Concat Expand Reshape Tile"
).split()
TYPES = (
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64,
    TensorProto.INT32, TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL, TensorProto.INT16, TensorProto.UINT32,
    TensorProto.UINT64,
)  # fmt: skip


def number(model: ModelProto, rng: random.Random) -> None:
    """One number of one attribute, to a near one."""
    found = [a for g in graphs(model) for n in g.node for a in n.attribute if a.type in (1, 2, 6, 7)]
    if not found:
        return
    attr = rng.choice(found)
    if attr.type == 2:
        attr.i += rng.choice((-1, 1, 1, 2))
    elif attr.type == 1:
        attr.f = rng.choice((attr.f * 2, -attr.f, attr.f + 1, 0.0, 1.0, 1e-3))
    elif attr.type == 7 and attr.ints:
        attr.ints[rng.randrange(len(attr.ints))] += rng.choice((-1, 1, 1, 2))
    elif attr.type == 6 and attr.floats:
        attr.floats[rng.randrange(len(attr.floats))] *= rng.choice((2.0, -1.0, 0.5))


def constant(model: ModelProto, rng: random.Random) -> None:
    """One value of a constant, by one step; of a float, another number."""
    found = [t for g in graphs(model) for t in g.initializer]
    found += [a.t for g in graphs(model) for n in g.node for a in n.attribute if a.type == 4]
    if not found:
        return
    proto = rng.choice(found)
    try:
        array = np.array(numpy_helper.to_array(proto))
        flat = array.reshape(-1)
        place = rng.randrange(max(1, flat.size))
        with np.errstate(all="ignore"):
            if array.dtype.kind in "iu" and flat.size:
                flat[place] += np.array(rng.choice((-1, 1, 1, 2))).astype(array.dtype)
            elif array.dtype.kind == "f" and flat.size:
                flat[place] = rng.choice((0.0, 1.0, -1.5, 3.0, 100.0, 1e-30))
        proto.CopyFrom(numpy_helper.from_array(array, proto.name))
    except Exception:  # strings, or a tensor damaged before
        return


def size(model: ModelProto, rng: random.Random) -> None:
    """One dimension of an input; the declared shapes of the outputs go."""
    dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
    if dims:
        dim = rng.choice(dims)
        dim.dim_value = max(0, dim.dim_value + rng.choice((-1, 1, 1, 2)))
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def element_type(model: ModelProto, rng: random.Random) -> None:
    """All floats, inputs, outputs and constants, become another type."""
    to = rng.choice(TYPES)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = to
    for proto in model.graph.initializer:
        if proto.data_type == TensorProto.FLOAT:
            with np.errstate(all="ignore"):
                array = numpy_helper.to_array(proto).astype(helper.tensor_dtype_to_np_dtype(to))
            proto.CopyFrom(numpy_helper.from_array(array, proto.name))


def same_form(model: ModelProto, rng: random.Random) -> None:
    """Another operator of one or of two operands."""
    nodes = [n for g in graphs(model) for n in g.node if len(n.input) in (1, 2) and len(n.output) == 1 and all(n.input)]
    if nodes:
        node = rng.choice(nodes)
        node.op_type = rng.choice(UNARY if len(node.input) == 1 else BINARY)
        del node.attribute[:]
        if node.op_type == "BitShift":
            node.attribute.append(helper.make_attribute("direction", "LEFT"))
        if node.op_type == "Concat":
            node.attribute.append(helper.make_attribute("axis", rng.choice((0, 1, -1))))


def earlier(model: ModelProto, rng: random.Random) -> None:
    """A node reads another tensor, one that is defined before it."""
    graph = model.graph
    if not graph.node:
        return
    place = rng.randrange(len(graph.node))
    node = graph.node[place]
    known = [i.name for i in (*graph.input, *graph.initializer)] + [
        o for n in graph.node[:place] for o in n.output if o
    ]
    if node.input and known:
        node.input[rng.randrange(len(node.input))] = rng.choice(known)


def append(model: ModelProto, rng: random.Random) -> None:
    """A further node on some tensor, whose result becomes an output too."""
    graph = model.graph
    known = [i.name for i in (*graph.input, *graph.initializer)] + [o for n in graph.node for o in n.output if o]
    if not known:
        return
    kind = rng.random() < 0.5
    label = f"extra_{len(graph.node)}"
    words = [rng.choice(known) for _ in range(1 if kind else 2)]
    node = helper.make_node(rng.choice(UNARY if kind else BINARY), words, [label], name=label)
    graph.node.append(node)
    graph.output.append(helper.make_tensor_value_info(label, TensorProto.FLOAT, None))


def opset(model: ModelProto, rng: random.Random) -> None:
    """Another version of the operator set."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = rng.randrange(7, 28)


TWEAKS: tuple[Change, ...] = (
    number,
    number,
    constant,
    constant,
    size,
    element_type,
    same_form,
    same_form,
    earlier,
    append,
    opset,
)
