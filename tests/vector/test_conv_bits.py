"""Convolution, pooling, resize, moves and chains on blocked values: bits of all instruction sets, awkward sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graph_bits import WAYS, compiled, differing, model, tensors
from onnx import helper
from vector_targets import Way

from evidence.vector_engines import Compiled

# channels, outputs, spatial size, kernel, strides, pads, dilations, group, batch
CONVS: list[tuple[int, int, Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int], int, int]] = [
    (1, 16, (9, 11), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 1),
    (3, 20, (17, 19), (7, 7), (2, 2), (3, 3, 3, 3), (1, 1), 1, 2),
    (3, 8, (12, 31), (5, 2), (1, 3), (0, 1, 2, 0), (1, 1), 1, 1),
    (7, 33, (6, 9), (3, 3), (1, 1), (1, 1, 1, 1), (2, 1), 1, 1),
    (2, 5, (14, 14), (9, 9), (1, 1), (4, 4, 4, 4), (1, 1), 1, 1),
    (8, 12, (7, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 2),
    (12, 16, (10, 33), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1, 1),
    (16, 40, (5, 29), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 2),
    (20, 24, (8, 15), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1, 1),
    (24, 64, (7, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 1),
    (40, 20, (3, 4), (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), 1, 1),
    (72, 16, (4, 4), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 1),
    (600, 8, (2, 3), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, 1),
    (592, 16, (2, 2), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, 1),
    (9, 16, (6, 6), (2, 2), (2, 2), (0, 0, 1, 1), (1, 1), 1, 1),
    (12, 32, (50,), (15,), (2,), (7, 7), (1,), 1, 1),
    (16, 16, (41,), (3,), (1,), (4, 0), (2,), 1, 2),
    (1, 8, (300,), (80,), (4,), (3, 3), (1,), 1, 1),
    (1, 8, (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1), (1, 1, 1), 1, 1),
    (16, 17, (4, 5, 6), (3, 3, 3), (2, 1, 1), (1, 1, 1, 1, 1, 1), (1, 2, 1), 1, 1),
    (16, 16, (9, 30), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 16, 2),
    (20, 20, (11, 9), (3, 5), (2, 1), (1, 2, 1, 2), (1, 2), 20, 1),
    (24, 24, (40,), (7,), (1,), (3, 3), (1,), 24, 1),
    (32, 32, (5, 7), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, 1),
    (64, 96, (4, 9), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, 2),
    (12, 18, (5, 5), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3, 1),
]
TRANSPOSED: list[tuple[int, int, Sequence[int], Sequence[int], dict[str, Any]]] = [
    (16, 16, (5, 7), (2, 2), {"strides": [2, 2]}),
    (20, 12, (4, 9), (2, 2), {"strides": [2, 2]}),
    (8, 33, (6, 5), (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (3, 8, (6, 6), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    (12, 16, (5, 4), (3, 3), {"dilations": [2, 1]}),
    (16, 8, (4, 4), (2, 2), {"strides": [3, 3]}),
    (9, 16, (13,), (5,), {"strides": [2], "pads": [0, 3]}),
    (16, 16, (3, 4, 3), (2, 2, 2), {"strides": [2, 2, 2]}),
]


def node(op: str, operands: Sequence[str], result: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(operands), [result], **attrs)


def net(name: str, nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], constants: dict[str, Any]) -> Compiled:
    return compiled(name, model(nodes, inputs, constants, ["y"]), inputs)


def convolutions() -> Iterator[Compiled]:
    for seed, (c, o, size, kernel, strides, pads, dilations, group, batch) in enumerate(CONVS):
        x = tensors(seed, (batch, c, *size), special=seed % 2 == 1)
        constants = {"w": tensors(seed + 100, (o, c // group, *kernel))}
        if seed % 3:
            constants["b"] = tensors(seed + 200, (o,))
        attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "kernel_shape": kernel}
        nodes = [node("Conv", ["x", *constants], "y", **attrs)]
        yield net(f"conv{seed}_{c}_{o}", nodes, {"x": x}, constants)


def transposed() -> Iterator[Compiled]:
    for seed, (c, o, size, kernel, attrs) in enumerate(TRANSPOSED):
        x = tensors(seed, (1 + seed % 2, c, *size), special=seed % 2 == 0)
        constants = {"w": tensors(seed + 100, (c, o, *kernel)), "b": tensors(seed + 200, (o,))}
        yield net(f"transposed{seed}", [node("ConvTranspose", ["x", "w", "b"], "y", **attrs)], {"x": x}, constants)


def around(name: str, seed: int, channels: int, middle: Sequence[onnx.NodeProto], out: int, **more: Any) -> Compiled:
    """Convolution -> ``middle`` (t to u) -> convolution, so that ``middle`` works on blocked values with halos."""
    x = tensors(seed, (more.pop("batch", 1), 5, *more.pop("size", (9, 14))), special=True)
    constants = {
        "w0": tensors(seed + 1, (channels, 5, 3, 3)),
        "b0": tensors(seed + 2, (channels,)),
        "w1": tensors(seed + 3, (13, out, 3, 3)),
        **more,
    }
    first = node("Conv", ["x", "w0", "b0"], "t", pads=[1, 1, 1, 1])
    last = node("Conv", ["u", "w1"], "y", pads=[1, 2, 1, 0])
    return net(name, [first, *middle, last], {"x": x}, constants)


def chains() -> Iterator[Compiled]:
    kinds = "Relu Sigmoid Tanh Exp Erf Softplus HardSwish Floor Ceil Neg Abs Sqrt Reciprocal HardSigmoid Elu LeakyRelu"
    for seed, op in enumerate(kinds.split()):
        yield around(op, seed, 20, [node(op, ["t"], "u")], 20)
    channel, scalar = tensors(1, (24, 1, 1)), tensors(2, (1,))
    for op in ("Add", "Sub", "Mul", "Div", "Pow"):
        yield around(f"{op}_channel", 3, 24, [node(op, ["t", "k"], "u")], 24, k=channel)
        yield around(f"{op}_scalar", 4, 12, [node(op, ["k", "t"], "u")], 12, k=scalar)
    yield around("prelu", 5, 24, [node("PRelu", ["t", "k"], "u")], 24, k=channel, batch=2)
    clip = [node("Clip", ["t", "lo", "hi"], "u")]
    yield around("clip", 6, 8, clip, 8, lo=np.float32(-0.5), hi=np.float32(2.0))
    residual = [
        node("Conv", ["t", "w2"], "r", pads=[1, 1, 1, 1]),
        node("Add", ["r", "t"], "s"),
        node("Relu", ["s"], "u"),
    ]
    yield around("residual", 7, 40, residual, 40, w2=tensors(8, (40, 40, 3, 3)), batch=2)
    after = [node("Relu", ["t"], "v"), node("Add", ["v", "t"], "u")]
    yield around("relu_add_twice", 9, 16, after, 16)
    yield around(
        "gelu",
        10,
        12,
        [
            node("Div", ["t", "c"], "e"),
            node("Erf", ["e"], "f"),
            node("Add", ["f", "one"], "g"),
            node("Mul", ["t", "g"], "u"),
        ],
        12,
        c=np.float32(1.4142135),
        one=np.float32(1.0),
    )
    gate = [
        node("GlobalAveragePool", ["t"], "p"),
        node("Conv", ["p", "w2"], "q"),
        node("Sigmoid", ["q"], "s"),
        node("Mul", ["t", "s"], "u"),
    ]
    yield around("squeeze_excitation", 11, 20, gate, 20, w2=tensors(12, (20, 20, 1, 1)), batch=2)
    attention = [node("Conv", ["t", "w2"], "q"), node("Sigmoid", ["q"], "s"), node("Mul", ["t", "s"], "u")]
    yield around("spatial_attention", 13, 20, attention, 20, w2=tensors(14, (1, 20, 1, 1)), batch=2)
    norm = [
        node("BatchNormalization", ["t", "a", "b", "m", "v"], "n"),
        node("Relu", ["n"], "s"),
        node("Add", ["t", "s"], "u"),
    ]
    parameters = {k: np.abs(tensors(15 + i, (20,))) for i, k in enumerate("abmv")}
    yield around("affine", 16, 20, norm, 20, **parameters)
    yield around(
        "two_halos",
        17,
        16,
        [node("Conv", ["t", "w2"], "v", pads=[3, 3, 3, 3]), node("Add", ["v", "t"], "u")],
        16,
        w2=tensors(18, (16, 16, 7, 7)),
    )


def pools() -> Iterator[Compiled]:
    for seed, (op, attrs) in enumerate(
        [
            ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
            ("MaxPool", {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]}),
            ("AveragePool", {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}),
            ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
            ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
            ("AveragePool", {"kernel_shape": [9, 9]}),
            ("GlobalAveragePool", {}),
            ("GlobalMaxPool", {}),
        ]
    ):
        for channels in (12, 32):
            size = (9, 90) if "Global" in op else (9, 14)
            name = f"{op}{seed}_{channels}"
            yield around(name, seed, channels, [node(op, ["t"], "u", **attrs)], channels, size=size, batch=1 + seed % 2)
    relu = [node("AveragePool", ["t"], "v", kernel_shape=[2, 2]), node("Relu", ["v"], "u")]
    yield around("pool_relu", 20, 12, relu, 12)


def movements() -> Iterator[Compiled]:
    for seed, (mode, extra) in enumerate(
        [
            ("nearest", {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}),
            ("linear", {"coordinate_transformation_mode": "half_pixel"}),
            ("linear", {"coordinate_transformation_mode": "align_corners"}),
        ]
    ):
        for channels in (12, 16):
            nodes = [node("Resize", ["t", "", "scales"], "u", mode=mode, **extra)]
            scales = np.array([1, 1, 2, 1.5], np.float32)
            yield around(f"resize{seed}_{channels}", seed, channels, nodes, channels, scales=scales, batch=1 + seed % 2)
    for seed, (a, b, batch) in enumerate([(16, 16, 1), (32, 16, 2), (16, 12, 1), (12, 16, 1)]):
        nodes = [node("Conv", ["t", "w2"], "v", pads=[1, 1, 1, 1]), node("Concat", ["t", "v"], "u", axis=1)]
        yield around(f"concat{seed}", seed + 5, a, nodes, a + b, w2=tensors(seed, (b, a, 3, 3)), batch=batch)
    dense = [
        node("Conv", ["t", "w2"], "v0"),
        node("Concat", ["t", "v0"], "c0", axis=1),
        node("Relu", ["c0"], "r0"),
        node("Conv", ["r0", "w3"], "v1"),
        node("Concat", ["c0", "v1"], "c1", axis=1),
        node("Sigmoid", ["c1"], "r1"),
        node("Conv", ["r1", "w4"], "v2"),
        node("Concat", ["c1", "v2"], "u", axis=1),
    ]
    sizes = {"w2": tensors(1, (16, 32, 1, 1)), "w3": tensors(2, (32, 48, 1, 1)), "w4": tensors(3, (16, 80, 1, 1))}
    yield around("dense_block", 30, 32, dense, 96, **sizes)
    for seed, (begins, ends, mode) in enumerate(
        [((2, 1), (0, 3), "constant"), ((3, 0), (2, 4), "reflect"), ((1, 2), (1, 0), "edge")]
    ):
        pads = np.array([0, 0, *begins, 0, 0, *ends], np.int64)
        nodes = [node("Pad", ["t", "pads", "value"], "u", mode=mode)]
        yield around(f"pad_{mode}", 40 + seed, 12, nodes, 12, pads=pads, value=np.float32(0.75), batch=2)
    for seed, (start, stop, step) in enumerate([((1, 2), (8, 13), (1, 3)), ((8, 13), (-100, 0), (-2, -1))]):
        cut = {"s": np.array(start, np.int64), "e": np.array(stop, np.int64), "ax": np.array([2, 3], np.int64)}
        nodes = [node("Slice", ["t", "s", "e", "ax", "st"], "u")]
        yield around(f"slice{seed}", 43 + seed, 20, nodes, 20, **cut, st=np.array(step, np.int64))
    for axis in (2, 3):
        nodes = [node("Sigmoid", ["t"], "v"), node("Concat", ["t", "v", "t"], "u", axis=axis)]
        yield around(f"concat_axis{axis}", 46 + axis, 12, nodes, 12, batch=2)
    twice = [node("Relu", ["t"], "r"), node("Concat", ["t", "r", "t"], "u", axis=1)]
    yield around("concat_twice", 31, 16, twice, 48)
    kept = [
        node("Relu", ["t"], "r"),
        node("Concat", ["t", "r"], "c", axis=1),
        node("Sigmoid", ["t"], "s"),
        node("Conv", ["c", "w2"], "v", pads=[1, 1, 1, 1]),
        node("Add", ["v", "s"], "p"),
        node("Mul", ["p", "r"], "u"),
    ]
    yield around("concat_parts_read_later", 32, 16, kept, 16, w2=tensors(4, (16, 32, 3, 3)))
    u_net = [
        node("MaxPool", ["t"], "d", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["d", "w2"], "e", pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["e", "w3"], "f", strides=[2, 2]),
        node("Concat", ["t", "f"], "u", axis=1),
    ]
    weights = {"w2": tensors(5, (32, 16, 3, 3)), "w3": tensors(6, (32, 16, 2, 2))}
    yield around("u_net", 33, 16, u_net, 32, size=(8, 14), **weights)
    x = tensors(34, (2, 20, 4, 6), special=True)
    shaped = [node("Conv", ["x", "w"], "t", pads=[1, 1, 1, 1]), node("Flatten", ["t"], "f"), node("Relu", ["f"], "y")]
    yield net("flatten", shaped, {"x": x}, {"w": tensors(35, (12, 20, 3, 3))})
    mean = [
        node("Conv", ["x", "w"], "t"),
        node("ReduceMean", ["t"], "m", axes=[2, 3], keepdims=0),
        node("Exp", ["m"], "y"),
    ]
    yield net("mean", mean, {"x": x}, {"w": tensors(36, (32, 20, 1, 1))})
    plain = [node("Mul", ["x", "k"], "p"), node("Add", ["p", "x"], "y")]
    yield net("plain_channel", plain, {"x": x}, {"k": tensors(37, (20, 1, 1))})


GROUPS = {
    "convolutions": convolutions,
    "transposed": transposed,
    "chains": chains,
    "pools": pools,
    "movements": movements,
}


@lru_cache(maxsize=1)
def nets(group: str) -> tuple[Compiled, ...]:
    return tuple(GROUPS[group]())


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.name)
@pytest.mark.parametrize("group", GROUPS)
def test_blocked_kernels_give_the_reference_bits(group: str, way: Way, tmp_path: Path) -> None:
    assert differing(nets(group), way, tmp_path) == {}


def test_the_nets_really_use_blocked_layouts() -> None:
    for group, least in (("convolutions", 0.9), ("chains", 1.0), ("pools", 1.0)):
        blocked = [any("c16" in t.layout for t in c.module.main.types().values()) for c in nets(group)]
        assert sum(blocked) >= least * len(blocked), group
