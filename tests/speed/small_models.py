"""Small ONNX models with seeded weights for the tests of this folder."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def _model(nodes, weights, shapes, outputs) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def _weights(rng, **shapes):
    return {n: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]) or 1)).astype("<f4") for n, s in shapes.items()}


def residual() -> bytes:
    """x (1, 3, 12, 12) -> probabilities (1, 5): convolutions, a skip, a concat, pooling, a matrix product, softmax."""
    rng = np.random.default_rng(5)
    weights = _weights(
        rng, w1=(20, 3, 3, 3), b1=(20,), w2=(20, 20, 3, 3), b2=(20,), w3=(8, 20, 1, 1), wf=(28, 5), bf=(5,)
    )
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("Add", ["c2", "r1"], ["a2"], "skip"),
        helper.make_node("Relu", ["a2"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], "conv3"),
        helper.make_node("Sigmoid", ["c3"], ["s3"], "sigmoid"),
        helper.make_node("Concat", ["r2", "s3"], ["cat"], "cat", axis=1),
        helper.make_node("MaxPool", ["cat"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "wf", "bf"], ["z"], "fc"),
        helper.make_node("Softmax", ["z"], ["p"], "softmax", axis=1),
    ]
    return _model(nodes, weights, {"x": [1, 3, 12, 12]}, ["p"])


def two_inputs() -> bytes:
    """a, b (2, 3) -> y = a * b + a; b symbolic in its first dimension."""
    nodes = [helper.make_node("Mul", ["a", "b"], ["t"], "mul"), helper.make_node("Add", ["t", "a"], ["y"], "add")]
    return _model(nodes, {}, {"a": [2, 3], "b": ["N", 3]}, ["y"])


def long_chain(nodes: int, changed: int | None = None, seed: int = 9) -> bytes:
    """x (1, 8, 6, 6) through Conv, Tanh, Add, LeakyRelu and again; ``changed`` flips one bit of that Conv's weights."""
    rng = np.random.default_rng(seed)
    weights, made, previous, skip = {}, [], "x", "x"
    for i in range(nodes):
        name = f"t{i}"
        if i % 4 == 0:
            w = (rng.standard_normal((8, 8, 3, 3)) / 9).astype("<f4")
            if i == changed:
                w.view("<u4")[3, 2, 1, 1] ^= np.uint32(1 << 10)
            weights[f"w{i}"] = w
            made.append(helper.make_node("Conv", [previous, f"w{i}"], [name], f"conv{i}", pads=[1] * 4))
        elif i % 4 == 1:
            made.append(helper.make_node("Tanh", [previous], [name], f"tanh{i}"))
        elif i % 4 == 2:
            made.append(helper.make_node("Add", [previous, skip], [name], f"add{i}"))
        else:
            made.append(helper.make_node("LeakyRelu", [previous], [name], f"relu{i}", alpha=0.1))
            skip = name
        previous = name
    return _model(made, weights, {"x": [1, 8, 6, 6]}, [previous])


def blocks() -> bytes:
    """x (1, 16, 10, 10) -> y (1, 32, 10, 10): a value with two readers, a pooled and upsampled branch, softmax last."""
    rng = np.random.default_rng(6)
    weights = _weights(
        rng, w1=(16, 16, 3, 3), w2=(16, 16, 3, 3), w3=(32, 16, 3, 3), wt=(16, 16, 2, 2), wd=(16, 1, 3, 3)
    )
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["c1", "w2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("MaxPool", ["r1"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["m", "wt"], ["u"], "up", strides=[2, 2]),
        helper.make_node("Conv", ["u", "wd"], ["d"], "depthwise", pads=[1] * 4, group=16),
        helper.make_node("Add", ["c2", "d"], ["s"], "sum"),
        helper.make_node("Conv", ["s", "w3"], ["c3"], "conv3", pads=[1] * 4),
        helper.make_node("Softmax", ["c3"], ["y"], "softmax", axis=-1),
    ]
    return _model(nodes, weights, {"x": [1, 16, 10, 10]}, ["y"])


def moves() -> bytes:
    """x (2, 9, 12) -> y (2, 9, 12): one attention head, with transposes, a run-time product and layer normalisation."""
    rng = np.random.default_rng(8)
    weights = _weights(rng, wq=(12, 12), wk=(12, 12), wv=(12, 12))
    weights["scale"], weights["shift"] = np.ones(12, "<f4"), np.zeros(12, "<f4")
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], "norm", axis=-1),
        *(helper.make_node("MatMul", ["n", f"w{c}"], [c], f"to_{c}") for c in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["a"], "scores"),
        helper.make_node("Softmax", ["a"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"], "mix"),
        helper.make_node("Tanh", ["o"], ["g"], "tanh"),
        helper.make_node("Add", ["g", "x"], ["y"], "skip"),
    ]
    return _model(nodes, weights, {"x": [2, 9, 12]}, ["y"])


def lines() -> bytes:
    """x (1, 16, 40) -> y (1, 32, 20): one-dimensional convolutions of width 15 and 7, the last with stride 2."""
    rng = np.random.default_rng(10)
    weights = _weights(rng, w1=(32, 16, 15), b1=(32,), w2=(32, 32, 7))
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[7, 7]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["y"], "conv2", pads=[3, 3], strides=[2]),
    ]
    return _model(nodes, weights, {"x": [1, 16, 40]}, ["y"])


def recurrent() -> bytes:
    """x (5, 2, 6) -> y (5, 2, 2, 8) of a bidirectional LSTM and z (5, 1, 2, 8) of a GRU behind it."""
    rng = np.random.default_rng(11)
    weights = _weights(rng, w=(2, 32, 6), r=(2, 32, 8), b=(2, 64), wg=(1, 24, 16), rg=(1, 24, 8), bg=(1, 48))
    weights["shape"] = np.array([5, 2, 16], "<i8")
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "lstm", hidden_size=8, direction="bidirectional"),
        helper.make_node("Transpose", ["y"], ["t"], "turn", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["s"], "join"),
        helper.make_node("GRU", ["s", "wg", "rg", "bg"], ["z"], "gru", hidden_size=8, linear_before_reset=1),
    ]
    return _model(nodes, weights, {"x": [5, 2, 6]}, ["y", "z"])


def classifier() -> bytes:
    """x (1, 3, 20, 20) -> p (1, 48): convolutions to 32 channels, both poolings, a matrix product, softmax."""
    rng = np.random.default_rng(12)
    weights = _weights(rng, w1=(32, 3, 3, 3), b1=(32,), w2=(32, 32, 3, 3), b2=(32,), wf=(32, 48), bf=(48,))
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["m"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", "w2", "b2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("Sigmoid", ["c2"], ["s2"], "sigmoid"),
        helper.make_node("GlobalAveragePool", ["s2"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "wf", "bf"], ["z"], "fc"),
        helper.make_node("Softmax", ["z"], ["p"], "softmax", axis=1),
    ]
    return _model(nodes, weights, {"x": [1, 3, 20, 20]}, ["p"])
