"""Convolutions on a GPU, emulated: every bit of the scalar section's kernels, halo included, for any tile and split."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from emulation import check_model, lowered
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.ir.graph import Graph
from compiler_kernels.policy import Numerics
from compiler_kernels.targets.cuda.families import conv_tiles
from compiler_kernels.targets.cuda.families.conv_tiles import Tile
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90

conv_family = importlib.import_module("compiler_kernels.targets.cuda.families.conv")
DIRECT = Numerics(winograd="forbid")


def conv_model(
    batch: int,
    channels: int,
    outputs: int,
    size: Sequence[int],
    kernel: Sequence[int],
    kind: str = "Conv",
    relu: bool = True,
    residual: bool = False,
    **attributes: Any,
) -> bytes:
    """The convolution between two of 1x1, so that its operands and its result are blocked."""
    rng = np.random.default_rng(7)
    group = attributes.get("group", 1)
    shape = (channels, outputs // group, *kernel) if kind == "ConvTranspose" else (outputs, channels // group, *kernel)
    unit = [1] * len(size)
    scale = np.float32((2.0 / (channels * np.prod(kernel))) ** 0.5)
    constants = {
        "w0": rng.standard_normal((channels, channels, *unit)).astype(np.float32) * np.float32(0.3),
        "b0": rng.standard_normal(channels).astype(np.float32),
        "w": rng.standard_normal(shape).astype(np.float32) * scale,
        "b": rng.standard_normal(outputs).astype(np.float32),
        "w2": rng.standard_normal((16, outputs, *unit)).astype(np.float32) * np.float32(0.3),
    }
    attributes.setdefault("pads", [k // 2 for k in kernel] * 2)
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], name="before"),
        helper.make_node(kind, ["a", "w", "b"], ["t"], name="tested", kernel_shape=list(kernel), **attributes),
    ]
    last = "t"
    if residual:
        nodes.append(helper.make_node("Add", [last, "a"], ["s"]))
        last = "s"
    if relu:
        nodes.append(helper.make_node("Relu", [last], ["u"]))
        last = "u"
    nodes.append(helper.make_node("Conv", [last, "w2"], ["y"], name="after"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, channels, *size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


CASES: dict[str, bytes] = {
    "3x3": conv_model(1, 32, 32, (9, 11), (3, 3), residual=True),
    "stride, batch, last block not full": conv_model(2, 16, 40, (7, 7), (3, 3), strides=[2, 2]),
    "channels not full, uneven kernel": conv_model(1, 20, 33, (9, 6), (5, 3), strides=[1, 2], dilations=[2, 1]),
    "one axis, leaves cut": conv_model(1, 16, 16, (40,), (15,), strides=[2]),
    "three axes": conv_model(1, 32, 32, (5, 6, 7), (3, 3, 3)),
    "wide dilation": conv_model(1, 16, 16, (20, 20), (3, 3), dilations=[9, 9], pads=[9, 9, 9, 9]),
    "groups": conv_model(1, 32, 64, (8, 8), (3, 3), group=2),
    "transposed 2x2": conv_model(1, 32, 16, (5, 6), (2, 2), "ConvTranspose", strides=[2, 2], pads=[0] * 4),
    "transposed 3x3": conv_model(1, 24, 32, (5, 6), (3, 3), "ConvTranspose", strides=[2, 2], pads=[1] * 4),
    "two nodes": conv_model(1, 144, 32, (4, 5), (3, 3)),
    "two nodes, 1x1": conv_model(1, 600, 32, (2, 3), (1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_bits(case):
    own = check_model(CASES[case], numerics=DIRECT, seeds=(1,))
    assert len(own) == 3, "all three convolutions have kernels of this family"


TILES = [
    Tile(4, 1, 1, 2, 1, 4),
    Tile(8, 1, 2, 2, 2, 2),
    Tile(8, 2, 4, 1, 1, 5),
    Tile(8, 1, 8, 1, 1, 8),
    Tile(4, 1, 8, 1, 2, 4, split=2),
    Tile(8, 1, 4, 2, 1, 7, split=2),
]


@pytest.mark.parametrize("case", ["two nodes", "one axis, leaves cut"])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tile_and_split_change_no_bit(case, tile, monkeypatch):
    def forced(shape, gpu):
        return tile if tile.fits(shape, gpu) else choose(shape, gpu)

    choose = conv_tiles.choose_tile
    monkeypatch.setattr(conv_family, "choose_tile", forced)
    check_model(CASES[case], numerics=DIRECT, seeds=(1,))


def test_smaller_chip_gets_tiles_that_fit():
    module, _ = lowered(CASES["two nodes"], numerics=DIRECT)
    functions: list[Graph] = [f for f in module.graphs[1:] if f.ops[0].kind == "conv"]
    for gpu in (SM_80, SM_90):
        for function in functions:
            kernel = conv_family.conv(function, gpu, "k")
            assert kernel is not None and kernel.shared_bytes <= gpu.shared_bytes
            assert kernel.dependent == gpu.clusters
