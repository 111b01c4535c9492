"""Winograd forms on blocked values: bits on all instruction sets, awkward sizes, chains, any division of items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_bits import WAYS, Array, model, tensors
from onnx import helper
from vector_targets import Way, compile_program, run_program

from compiler_kernels.arithmetic.winograd import WINOGRAD, fits
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Op
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from evidence.reference import load_graph, run
from evidence.reference.vector_model import Expected
from evidence.vector_engines import Compiled, compare, input_bytes, program

# form, channels, outputs, spatial size, kernel, pads, batch
CONVS: list[tuple[str, int, int, Sequence[int], Sequence[int], Sequence[int], int]] = [
    ("W23/32", 8, 16, (2, 2), (3, 3), (1, 1, 1, 1), 1),
    ("W23/32", 16, 16, (1, 1), (3, 3), (1, 1, 1, 1), 2),
    ("W23/16", 16, 48, (7, 7), (3, 3), (1, 1, 1, 1), 1),
    ("W23/32", 20, 17, (9, 6), (3, 3), (1, 1, 1, 1), 1),
    ("W23/16", 24, 5, (6, 9), (3, 3), (0, 0, 0, 0), 2),
    ("W23/32", 33, 40, (5, 31), (3, 3), (2, 0, 0, 2), 1),
    ("W23/16", 64, 80, (13, 12), (3, 3), (1, 1, 1, 1), 1),
    ("W23/32", 64, 32, (30, 30), (3, 3), (1, 1, 1, 1), 1),
    ("W23/32", 72, 272, (8, 8), (3, 3), (1, 1, 1, 1), 1),
    ("W23/16", 280, 16, (4, 4), (3, 3), (1, 1, 1, 1), 1),
    ("W23/32", 16, 16, (3, 3), (3, 3), (0, 0, 0, 0), 1),
    ("W1-23/32", 8, 16, (2,), (3,), (1, 1), 1),
    ("W1-23/32", 32, 32, (61,), (15,), (7, 7), 1),
    ("W1-23/16", 20, 17, (50,), (15,), (7, 7), 2),
    ("W1-23/32", 12, 40, (33,), (7,), (0, 5), 1),
    ("W1-23/16", 64, 64, (130,), (9,), (4, 4), 1),
    ("W1-23/32", 16, 16, (70,), (31,), (15, 15), 1),
    ("W1-23/32", 300, 16, (9,), (5,), (2, 2), 1),
    ("W1-23/32", 48, 33, (400,), (4,), (1, 2), 1),
    ("W1-23/16", 16, 24, (40,), (1,), (0, 0), 1),
]


def forced(name: str, data: bytes, inputs: Mapping[str, Array], leaf: int) -> Compiled:
    """The net with every convolution that a form of this leaf fits in that form, and the reference's bits of it."""

    def named(op: Op) -> Op:
        if (
            op.kind != "conv"
            or op.int_("group") > 1
            or any(s != 1 for s in (*op.ints("strides"), *op.ints("dilations")))
        ):
            return op
        kernel = types[op.operands[1]].dims[2:]
        found = [n for n, form in WINOGRAD.items() if form.leaf == leaf and fits(n, kernel)]
        return op.with_attrs(arithmetic=found[0]) if found else op

    module, store = import_onnx(data, filename=name, pins={})
    frozen, _ = freeze(module, store, Numerics(winograd="forbid"))
    types = frozen.main.types()
    frozen = replace(frozen, graphs=(replace(frozen.main, ops=tuple(named(op) for op in frozen.main.ops)),))
    verify(frozen)
    assert any(op.has("arithmetic") for op in frozen.main.ops)
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    result = run(graph, dict(inputs))[graph.outputs[0][0]]
    lowered = lower_to_l2(frozen, store)
    given = tuple(np.ascontiguousarray(inputs[v.name], dtype="<f4") for v in lowered.main.inputs)
    return Compiled(name, lowered, store, given, Expected.of(result))


def single(seed: int) -> Compiled:
    form, c, o, size, kernel, pads, batch = CONVS[seed]
    x = tensors(seed, (batch, c, *size), special=seed % 3 == 2)
    constants = {"w": tensors(seed + 100, (o, c, *kernel))}
    if seed % 2:
        constants["b"] = tensors(seed + 200, (o,))
    node = helper.make_node("Conv", ["x", *constants], ["y"], pads=pads, kernel_shape=kernel)
    return forced(f"w{seed}_{c}_{o}", model([node], {"x": x}, constants, ["y"]), {"x": x}, WINOGRAD[form].leaf)


def chains() -> Iterator[Compiled]:
    """Residual blocks, pooling and joins between Winograd convolutions: halos, fused operations, reused buffers."""

    def conv(x: str, y: str, w: str, pad: int = 1) -> onnx.NodeProto:
        return helper.make_node("Conv", [x, w, f"{w}b"], [y], pads=[pad] * 4, kernel_shape=[3, 3])

    def make(op: str, operands: Sequence[str], y: str, **attrs: object) -> onnx.NodeProto:
        return helper.make_node(op, list(operands), [y], **attrs)

    for leaf, (c, height, width) in ((32, (24, 9, 14)), (16, (32, 8, 11))):
        x = tensors(leaf, (2, c, height, width), special=leaf == 16)
        constants = {k: tensors(i, (c, c, 3, 3)) * np.float32(0.1) for i, k in enumerate("pqrs")}
        constants |= {f"{k}b": tensors(40 + i, (c,)) for i, k in enumerate("pqrs")}
        constants["t"], constants["tb"] = tensors(90, (20, 2 * c, 3, 3)), tensors(91, (20,))
        nodes = [
            conv("x", "a", "p"), make("Relu", ["a"], "b"), conv("b", "c", "q"), make("Add", ["c", "x"], "d"),
            make("Relu", ["d"], "e"), conv("e", "f", "r"), make("Sigmoid", ["f"], "g"), conv("g", "h", "s"),
            make("LeakyRelu", ["h"], "i", alpha=0.25), make("Add", ["i", "e"], "j"),
            make("Concat", ["j", "e"], "k", axis=1), conv("k", "l", "t"),
            make("MaxPool", ["l"], "m", kernel_shape=[2, 2], strides=[2, 2]), make("HardSwish", ["m"], "y"),
        ]  # fmt: skip
        yield forced(f"chain{leaf}", model(nodes, {"x": x}, constants, ["y"]), {"x": x}, leaf)


@lru_cache(maxsize=1)
def nets() -> tuple[Compiled, ...]:
    return (*(single(seed) for seed in range(len(CONVS))), *chains())


def test_forms_run_on_blocked_values() -> None:
    for net in nets():
        layouts = [t.layout for f in net.module.graphs[1:] for t in f.types().values()]
        assert any(layout.startswith("packed w") for layout in layouts), net.name


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits(way: Way, tmp_path: Path) -> None:
    product = compile_program(program(nets(), way.isa), way, tmp_path)
    assert compare(nets(), run_program(product, way, input_bytes(nets()), tmp_path)) == {}


@pytest.mark.parametrize("way", [w for w in WAYS if "AVX" in w.name][:2], ids=lambda way: way.name)
def test_items_are_independent(way: Way, tmp_path: Path) -> None:
    """One item at a time, the last first, with other numbers in the scratch before each: what threads may do."""
    files = program(nets(), way.isa)
    text = files["vectors.c"].decode()
    call, number = "steps[s].run(0, steps[s].items, ", text.count("steps[s].run(0, steps[s].items, ")
    assert number == len(nets())
    lines = []
    for line in text.splitlines():
        if call in line:
            scratch = line.split(call)[1].split(")")[0]
            line = (
                "    for (int s = 0; s < STEPS; s++) for (int i = steps[s].items - 1; i >= 0; i--) { "
                f"__builtin_memset({scratch}, 0x41 + i % 7, sizeof {scratch}); steps[s].run(i, i + 1, {scratch}); }}"
            ).replace("STEPS", line.split("s < ")[1].split(";")[0])
        lines.append(line)
    files["vectors.c"] = "\n".join(lines).encode()
    product = compile_program(files, way, tmp_path)
    assert compare(nets(), run_program(product, way, input_bytes(nets()), tmp_path)) == {}
