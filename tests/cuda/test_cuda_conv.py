"""Convolutions on a GPU, emulated: every bit of the scalar section's kernels, halo included, for any tile and split."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulation import check_model, check_module, lowered, random_input
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_builder import Builder

from compiler_kernels.arithmetic.winograd import WINOGRAD, fits
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.cuda.families import conv_tiles, winograd_tiles
from compiler_kernels.targets.cuda.families.conv_tiles import Tile
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90

conv_family = importlib.import_module("compiler_kernels.targets.cuda.families.conv")
winograd_family = importlib.import_module("compiler_kernels.targets.cuda.families.winograd")
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
    first: bool = False,
    **attributes: Any,
) -> bytes:
    """The convolution between two of 1x1, so that its operands and its result are blocked; ``first``: without the one
    before it."""
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
        *([] if first else [helper.make_node("Conv", ["x", "w0", "b0"], ["a"], name="before")]),
        helper.make_node(
            kind, ["x" if first else "a", "w", "b"], ["t"], name="tested", kernel_shape=list(kernel), **attributes
        ),
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
    "one axis, wide dilation": conv_model(1, 32, 24, (100,), (3,), dilations=[20], pads=[20, 20]),
    "three axes": conv_model(1, 32, 32, (5, 6, 7), (3, 3, 3)),
    "wide dilation": conv_model(1, 16, 16, (20, 20), (3, 3), dilations=[9, 9], pads=[9, 9, 9, 9]),
    "groups": conv_model(1, 32, 64, (8, 8), (3, 3), group=2),
    "transposed 2x2": conv_model(1, 32, 16, (5, 6), (2, 2), "ConvTranspose", strides=[2, 2], pads=[0] * 4),
    "transposed 3x3": conv_model(1, 24, 32, (5, 6), (3, 3), "ConvTranspose", strides=[2, 2], pads=[1] * 4),
    "two nodes": conv_model(1, 144, 32, (4, 5), (3, 3)),
    "depthwise": conv_model(2, 24, 24, (9, 10), (3, 3), group=24, strides=[2, 2]),
    "depthwise, one axis": conv_model(1, 16, 16, (30,), (9,), group=16, dilations=[2], pads=[8, 8]),
    "two nodes, 1x1": conv_model(1, 600, 32, (2, 3), (1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_bits(case):
    own = check_model(CASES[case], numerics=DIRECT, seeds=(1,))
    assert len([name for name in own if "_conv" in name]) == 3, "all three convolutions have kernels of this family"


STEMS: dict[str, bytes] = {
    "planes": conv_model(2, 3, 40, (20, 22), (7, 7), first=True, strides=[2, 2]),
    "three axes": conv_model(1, 3, 32, (6, 6, 7), (3, 3, 3), first=True),
    "blocked": conv_model(1, 12, 32, (60,), (15,), first=True, strides=[2]),
}


@pytest.mark.parametrize("case", STEMS)
def test_few_channels(case):
    own = check_model(STEMS[case], numerics=DIRECT, seeds=(1,))
    assert len([name for name in own if "_conv" in name]) == 2


TILES = [
    Tile(4, 1, 1, 2, 1, 4),
    Tile(8, 1, 2, 2, 2, 2),
    Tile(8, 2, 4, 1, 1, 5),
    Tile(8, 1, 8, 1, 1, 8),
    Tile(4, 1, 8, 1, 2, 4, split=2),
    Tile(8, 1, 4, 2, 1, 7, split=3),
]


def force(monkeypatch: pytest.MonkeyPatch, family: Any, tiles: Any, tile: Any) -> list[Any]:
    """The family uses ``tile`` wherever it fits; the shapes where it did."""
    used: list[Any] = []

    def forced(shape, gpu):
        if not tile.fits(shape, gpu):
            return choose(shape, gpu)
        used.append(shape)
        return tile

    choose = tiles.choose_tile
    monkeypatch.setattr(family, "choose_tile", forced)
    return used


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_tile_and_split_change_no_bit(tile, monkeypatch):
    used = force(monkeypatch, conv_family, conv_tiles, tile)
    check_model(CASES["two nodes"], numerics=DIRECT, seeds=(1,))
    assert any(shape.kernel == (1, 3, 3) for shape in used)


def lowered_in_form(model: bytes, leaf: int) -> tuple[Module, Module, WeightStore]:
    """Frozen and L2 module with every convolution in the Winograd form of this leaf that fits it, and the constants."""

    def named(op: Op) -> Op:
        if op.kind != "conv" or op.int_("group") > 1:
            return op
        kernel = types[op.operands[1]].dims[2:]
        found = [n for n, form in WINOGRAD.items() if form.leaf == leaf and fits(n, kernel)]
        return op.with_attrs(arithmetic=found[0]) if found else op

    module, store = import_onnx(model, filename="model.onnx", pins={})
    frozen, _ = freeze(module, store, DIRECT)
    types = frozen.main.types()
    frozen = replace(frozen, graphs=(replace(frozen.main, ops=tuple(named(op) for op in frozen.main.ops)),))
    return frozen, lower_to_l2(frozen, store), store


def in_form(model: bytes, leaf: int) -> list[str]:
    """Check ``model`` in that form."""
    _, module, store = lowered_in_form(model, leaf)
    inputs = [random_input(v.type, n) for n, v in enumerate(module.main.inputs)]
    return check_module(module, store, inputs, seeds=(1,))


WINOGRADS: dict[str, tuple[bytes, int]] = {
    "plane, odd ends, residual": (conv_model(1, 64, 64, (5, 7), (3, 3), residual=True), 32),
    "plane, batch, channels not full": (conv_model(2, 20, 17, (6, 4), (3, 3), pads=[2, 0, 0, 2]), 16),
    "plane, two nodes": (conv_model(1, 264, 32, (4, 4), (3, 3)), 16),
    "line": (conv_model(1, 32, 40, (61,), (15,)), 32),
    "line, batch": (conv_model(2, 72, 16, (30,), (4,), pads=[1, 2]), 16),
}


@pytest.mark.parametrize("case", WINOGRADS)
def test_winograd_bits(case):
    model, leaf = WINOGRADS[case]
    assert "g_k2_conv" in "".join(in_form(model, leaf))


@pytest.mark.parametrize(
    ("case", "tile"),
    [
        ("plane, two nodes", winograd_tiles.Tile(1, 4, 3, 8, 1, 4, buffers=2)),
        ("plane, two nodes", winograd_tiles.Tile(2, 2, 1, 4, 1, 2)),
        ("plane, odd ends, residual", winograd_tiles.Tile(4, 1, 1, 8, 2, 2)),
        ("plane, odd ends, residual", winograd_tiles.Tile(1, 2, 1, 8, 1, 1)),
        ("line", winograd_tiles.Tile(4, 4, 1, 4, 1, 3)),
    ],
    ids=str,
)
def test_winograd_tile_and_split_change_no_bit(case, tile, monkeypatch):
    used = force(monkeypatch, winograd_family, winograd_tiles, tile)
    in_form(*WINOGRADS[case])
    assert used


@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_shapes_and_tiles(data):
    draw = data.draw
    kernel = draw(st.sampled_from([(1, 1), (3, 3), (2, 5), (4, 3)]))
    channels, outputs = draw(st.sampled_from([16, 24, 48, 80])), draw(st.sampled_from([5, 16, 48]))
    size = [draw(st.integers(k, 9)) for k in kernel]
    strides, dilations = [draw(st.integers(1, 2)) for _ in kernel], [draw(st.integers(1, 2)) for _ in kernel]
    pads = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)] * 2
    model = conv_model(
        draw(st.integers(1, 2)), channels, outputs, size, kernel, strides=strides, dilations=dilations, pads=pads
    )

    def drawn(shape, gpu):
        return draw(st.sampled_from([t for t in conv_tiles.candidates(shape) if t.fits(shape, gpu)]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_family, "choose_tile", drawn)
        check_model(model, numerics=DIRECT, seeds=(1,))


def test_smaller_chip_gets_tiles_that_fit():
    module, _ = lowered(CASES["two nodes"], numerics=DIRECT)
    functions: list[Graph] = [f for f in module.graphs[1:] if f.ops[0].kind == "conv"]
    for gpu in (SM_80, SM_90):
        for function in functions:
            kernel = conv_family.conv(function, gpu, "k")
            assert kernel is not None and kernel.shared_bytes <= gpu.shared_bytes
            assert kernel.dependent == gpu.clusters


def test_strides_and_dilations_along_axes_of_one_element():
    b = Builder()
    for channels in (3, 20):
        for strides in ((2, 1), (3, 2), (1, 2)):
            for width in (1, 3, 40):
                kernel, pads = b.constant(18, channels, 1, width), [0, 1, 0, 2]
                x = b.input(2, channels, 1, 60)
                b.output(b.op("Conv", x, kernel, strides=list(strides), dilations=[2, 1], pads=pads))
            b.output(b.op("Conv", b.input(1, channels, 2, 30), b.constant(18, channels, 1, 3), strides=list(strides)))
    assert sum("conv" in name for name in check_model(b.model())) > 20


def test_every_phase_of_a_transposed_convolution_leaves_a_whole_halo():
    b = Builder()
    up = b.op("ConvTranspose", b.input(2, 16, 8, 3), b.constant(16, 13, 3, 3), strides=[2, 2], pads=[1, 0, 1, 0])
    b.output(b.op("Conv", up, b.constant(13, 1, 3, 3), group=13, pads=[1, 1, 1, 1]))
    assert any("transpose" in name for name in check_model(b.model()))
