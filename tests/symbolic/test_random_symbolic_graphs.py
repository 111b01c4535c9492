"""Random small graphs with symbolic axes: the kernels over run-time sizes give the reference's bits at every size."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import TensorProto, helper, numpy_helper
from symbolic_programs import WAYS, Case, differing, ready
from vector_targets import Way

Array = npt.NDArray[Any]
Dim = int | str


class _Net:
    """A graph over inputs with symbolic axes, and the values its symbols may take."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.rng, self.seed = name, random.Random(f"{name} {seed}"), seed
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[Dim, ...]] = {}
        self.bounds: dict[str, tuple[int, int]] = {"b": (1, 3)}

    def symbol(self, name: str, low: int, most: int) -> str:
        self.bounds[name] = (low, most)
        return name

    def input(self, *dims: Dim) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = dims
        return name

    def constant(self, *shape: int) -> str:
        name = f"c{len(self.constants)}"
        rng = np.random.default_rng(self.rng.randrange(2**31))
        self.constants[name] = rng.standard_normal(shape).astype(np.float32)
        return name

    def numbers(self, *values: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        return name

    def add(self, op: str, *operands: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(operands), [name], name=name, **attrs))
        return name

    def case(self, count: int) -> Case:
        rng = self.rng
        used = [s for s in self.bounds if any(s in dims for dims in self.inputs.values())]
        sizes = [{s: self.bounds[s][0] for s in used}, {s: self.bounds[s][1] for s in used}]
        sizes += [{s: rng.randint(*self.bounds[s]) for s in used} for _ in range(count - 2)]
        runs = []
        for number, one in enumerate(sizes):
            feeds = {}
            for k, (name, dims) in enumerate(self.inputs.items()):
                shape = [one[d] if isinstance(d, str) else d for d in dims]
                values = np.random.default_rng([self.seed, number, k]).standard_normal(shape).astype(np.float32)
                if number == 2:  # signs of zero, subnormal and large numbers, infinities
                    flat = values.reshape(-1)
                    flat[::7] = np.resize(np.array([-0.0, 1e-40, 1e30, -np.inf, 0.0], np.float32), flat[::7].shape)
                feeds[name] = values
            runs.append((one, feeds))
        read = {o for n in self.nodes for o in n.input}
        outputs = [o for n in self.nodes for o in n.output if o not in read]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in self.inputs.items()],
            [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
            [numpy_helper.from_array(a, n) for n, a in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        bounds = ", ".join(f"{s}: [{self.bounds[s][0]}, {self.bounds[s][1]}]" for s in used)
        return Case(f"{self.name}{self.seed}", model, bounds, runs)


def _spatial(net: _Net, rank: int, reach: list[int]) -> list[Dim]:
    """Spatial axes, most of them symbolic, each at least ``reach`` long."""
    most = {1: 70, 2: 24, 3: 9}[rank]
    dims: list[Dim] = []
    for a in range(rank):
        low = max(1, reach[a])
        if net.rng.random() < 0.3 and (a or rank > 1):
            dims.append(low + net.rng.choice([0, 3, 16, 17]) if rank < 3 else low + 3)
        else:
            dims.append(net.symbol("dhw"[a], low, low + most))
    return dims


def _after(net: _Net, value: str, channels: int, rank: int, shape: tuple[Dim, ...] = ()) -> None:
    """What is fused behind a sum: activations, a constant per channel, a residual input."""
    rng = net.rng
    for _ in range(rng.randrange(3)):
        kind = rng.choice(["Relu", "Sigmoid", "LeakyRelu", "Floor", "constant", "scalar", "residual"])
        if kind == "constant":
            value = net.add(rng.choice(["Add", "Mul"]), value, net.constant(1, channels, *[1] * rank))
        elif kind == "scalar":
            value = net.add("Sub", value, net.constant())
        elif kind == "residual" and shape:
            value = net.add("Add", value, net.input(*shape))
        elif kind != "residual":
            value = net.add(kind, value)


def conv(seed: int) -> _Net:
    net = _Net("conv", seed)
    rng = net.rng
    rank = rng.choice([1, 2, 2, 2, 3])
    kernel = [rng.choice([1, 1, 3, 3, 2, 5]) if rank < 3 else rng.choice([1, 2, 3]) for _ in range(rank)]
    if rank == 1:
        kernel = [rng.choice([1, 3, 9, 20])]
    steps, dilations = ([rng.choice([1, 1, 1, 2, 3][:n]) for _ in range(rank)] for n in (5, 4))
    pads = [rng.randrange(0, k + 1) for k in kernel * 2]
    group = rng.choice([1, 1, 1, 2, 4])
    per, out = rng.choice([1, 2, 5, 8, 17, 24, 70]), rng.choice([1, 2, 3, 5, 9])
    if rank == 3:
        per = min(per, 17)
    dims = _spatial(net, rank, [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)])
    x = net.input("b", per * group, *dims)
    w = net.constant(out * group, per, *kernel)
    operands = [x, w] + [net.constant(out * group)] * (rng.random() < 0.6)
    y = net.add("Conv", *operands, strides=steps, dilations=dilations, pads=pads, group=group)
    same = all(s == 1 for s in steps) and all(
        pads[a] + pads[a + rank] == dilations[a] * (kernel[a] - 1) for a in range(rank)
    )
    _after(net, y, out * group, rank, ("b", out * group, *dims) if same else ())
    return net


def point(seed: int) -> _Net:
    """Convolutions of single points, which run over all spatial axes at once."""
    net = _Net("point", seed)
    rng = net.rng
    c, m = rng.choice([3, 16, 66, 130]), rng.choice([1, 8, 17])
    dims = ("b", c, net.symbol("h", 1, 20), rng.choice([net.symbol("w", 1, 20), 7]))
    y = net.add("Conv", net.input(*dims), net.constant(m, c, 1, 1), net.constant(m))
    _after(net, y, m, 2, (dims[0], m, *dims[2:]))
    return net


def transposed(seed: int) -> _Net:
    net = _Net("transposed", seed)
    rng = net.rng
    rank = rng.choice([1, 2, 2, 3])
    kernel = [rng.choice([1, 2, 3, 4]) for _ in range(rank)]
    steps = [rng.choice([1, 2, 2, 3]) for _ in range(rank)]
    if rng.random() < 0.4:
        kernel = list(steps)
    extra = [rng.randrange(s) for s in steps]
    pads = [rng.randrange(0, max(1, min(k, 2))) for k in kernel * 2]
    group, per, out = rng.choice([1, 1, 2]), rng.choice([1, 3, 8, 20, 70]), rng.choice([1, 2, 5, 9])
    dims = _spatial(net, rank, [3] * rank)
    w = net.constant(per * group, out, *kernel)
    y = net.add(
        "ConvTranspose", net.input("b", per * group, *dims), w, net.constant(out * group),
        strides=steps, pads=pads, output_padding=extra, group=group,
    )  # fmt: skip
    _after(net, y, out * group, rank)
    return net


def pool(seed: int) -> _Net:
    net = _Net("pool", seed)
    rng = net.rng
    rank = rng.choice([1, 2, 2, 3])
    kernel, steps = [rng.choice([1, 2, 3]) for _ in range(rank)], [rng.choice([1, 2, 3]) for _ in range(rank)]
    pads = [rng.randrange(0, k) for k in kernel] * 2
    x = net.input("b", rng.choice([1, 3]), *_spatial(net, rank, kernel))
    ceil = rng.randrange(2)
    kind = rng.choice(["MaxPool", "AveragePool"])
    attrs: dict[str, Any] = {} if kind == "MaxPool" else {"count_include_pad": rng.randrange(2)}
    y = net.add(kind, x, kernel_shape=kernel, strides=steps, pads=pads, ceil_mode=ceil, **attrs)
    if rng.random() < 0.5:
        net.add("Relu", y)
    return net


def product(seed: int) -> _Net:
    net = _Net("product", seed)
    rng = net.rng
    k, n = rng.choice([1, 5, 16, 64, 65, 200]), rng.choice([1, 5, 16, 33, 100])
    kind = rng.choice(["matmul", "gemm", "gemm", "self", "batch", "long"])
    t = net.symbol("t", 1, rng.choice([20, 90]))
    if kind == "matmul":
        y = net.add("MatMul", net.input("b", t, k), net.constant(k, n))
        net.add("Add", y, net.constant(n)) if rng.random() < 0.5 else None
    elif kind == "gemm":
        ta, tb = rng.randrange(2), rng.randrange(2)
        a = net.input(*((k, t) if ta else (t, k)))
        b = net.constant(*((n, k) if tb else (k, n)))
        c = [net.constant(*rng.choice([(n,), (1, n), (1, 1), (1,)]))] * rng.randrange(2)
        y = net.add("Gemm", a, b, *c, transA=ta, transB=tb, alpha=rng.choice([1.0, 0.5]), beta=rng.choice([1.0, 0.3]))
        net.add("Relu", y) if rng.random() < 0.5 else None
    elif kind == "self":
        x = net.input("b", t, k)
        turned = net.add("Transpose", x, perm=[0, 2, 1])
        net.add("MatMul", net.add("Softmax", net.add("MatMul", x, turned), axis=-1), x)
    elif kind == "batch":
        net.add("MatMul", net.input("b", 1, t, k), net.input(2, k, net.symbol("u", 1, 40)))
    else:
        net.add("MatMul", net.input(rng.choice([1, 3]), net.symbol("k", 1, 700)), net.input("k", n))
    return net


def rows(seed: int) -> _Net:
    net = _Net("rows", seed)
    rng = net.rng
    t = net.symbol("t", 1, rng.choice([30, 90]))
    x = net.input("b", t, rng.choice([6, 19, 40]))
    x = net.add("Relu", x) if rng.random() < 0.3 else x
    width = net.inputs["x0"][2]
    assert isinstance(width, int)
    kind = rng.choice(["Softmax", "LogSoftmax", "LayerNormalization", "reduce", "reduce", "chain", "last"])
    if kind in ("Softmax", "LogSoftmax"):
        net.add(kind, x, axis=rng.randrange(3))
    elif kind == "LayerNormalization":
        net.add(kind, x, net.constant(width), net.constant(width), axis=-1)
    elif kind == "reduce":
        op = rng.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"])
        axes = rng.choice([[0], [1], [2], [1, 2], [0, 1], [0, 2]])
        net.add(op, x, axes=axes, keepdims=rng.randrange(2))
    elif kind == "last":
        y = net.input("b", 3, net.symbol("u", 1, rng.choice([50, 1100])))
        net.add(rng.choice(["Softmax", "LogSoftmax"]), y, axis=2)
        net.add(rng.choice(["ReduceMean", "ReduceMax", "ReduceSumSquare"]), y, axes=[2])
    else:
        other = rng.choice([(width,), ("b", 1, width), (t, 1), ("b", t, width), (1, 1, 1)])
        y = net.add(rng.choice(["Add", "Mul", "Sub"]), x, net.input(*other))
        net.add(rng.choice(["Erf", "Tanh", "Exp", "Ceil"]), net.add("Min", y, net.constant()))
    return net


def moves(seed: int) -> _Net:
    net = _Net("moves", seed)
    rng = net.rng
    h, w = net.symbol("h", 3, 20), net.symbol("w", 3, 20)
    x = net.input("b", 4, h, w)
    kind = rng.choice(["Transpose", "Concat", "Slice", "Pad", "Tile", "where"])
    if kind == "Transpose":
        net.add(kind, x, perm=rng.sample(range(4), 4))
    elif kind == "Concat":
        axis = rng.choice([1, 2, 3])
        net.add(kind, x, net.add("Relu", x), net.add("Neg", x), axis=axis)
    elif kind == "Slice":
        numbers = [
            net.numbers(1),
            net.numbers(2**31),
            net.numbers(rng.choice([1, 2, 3])),
            net.numbers(rng.choice([1, 2])),
        ]
        net.add(kind, x, *numbers)
    elif kind == "Pad":
        pads = [0, 0, *(rng.randrange(3) for _ in range(2)), 0, 0, *(rng.randrange(3) for _ in range(2))]
        net.add(kind, x, net.numbers(*pads), mode=rng.choice(["constant", "edge", "reflect"]))
    elif kind == "Tile":
        net.add("Expand", net.add("ReduceMax", x, axes=[2]), net.add("Shape", x))
    else:
        net.add("Where", net.add("Less", x, net.constant()), x, net.add("Abs", x))
    return net


KINDS = (conv, point, transposed, pool, product, rows, moves)


def check(nets: list[_Net], way: Way, folder: Path, count: int = 5) -> None:
    items = [ready(net.case(count)) for net in nets]
    assert differing(items, [item.expected() for item in items], way, folder) == []


BEST = [w for w in WAYS if "gcc" not in w.name and w.run == ()][-1:]


@pytest.mark.parametrize("way", BEST, ids=lambda w: w.name)
def test_some_of_every_kind(way: Way, tmp_path: Path) -> None:
    check([kind(seed) for kind in KINDS for seed in range(2)], way, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.name)
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_many_of_every_kind(kind: Any, way: Way, tmp_path: Path) -> None:
    check([kind(seed) for seed in range(2, 26)], way, tmp_path, 8)
