"""CPU time to verify and lower large random graphs, from L0 to L2, and to print and parse them.

    python -m benchmarks.lowering [--ops 1000] [--repeats 5] [--shape NAME] [--profile]

Prints the median of every shape. Weights are small: what is timed is the compiler's work per statement, not packing.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from compiler_kernels.ir.graph import Attr, Graph, Module, Op, TensorType, Value, Weight, make_attrs
from compiler_kernels.ir.ops import infer
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze

CHANNELS: Final = 16
IMAGE: Final = (1, CHANNELS, 6, 6)
ROWS: Final = (4, 16)


@dataclass
class Builder:
    """Appends statements with inferred types."""

    rng: np.random.Generator
    types: dict[str, TensorType] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    store: WeightStore = field(default_factory=WeightStore)

    def weight(self, *shape: int, positive: bool = False) -> str:
        """A seeded constant of its own."""
        array = (self.rng.standard_normal(shape) / 4).astype(np.float32)
        found = self.store.weight(f"w{len(self.weights)}", np.abs(array) + np.float32(0.5) if positive else array)
        self.weights.append(found)
        self.types[found.id] = found.type
        return found.id

    def op(self, kind: str, *operands: str, shape: tuple[int, ...] = (), **attrs: Attr) -> str:
        """One statement; ``shape`` where the operation does not determine its own."""
        declared = TensorType(shape) if shape else None
        found = infer(kind, [self.types[o] for o in operands], attrs, declared)
        name = f"v{len(self.ops)}"
        statement = Op(f"op.{kind}", operands, name, found, make_attrs(attrs), node=f"n{len(self.ops)}", tensor=name)
        self.ops.append(statement)
        self.types[name] = found
        return name

    def conv(self, x: str, size: int = 3) -> str:
        w, b = self.weight(CHANNELS, CHANNELS, size, size), self.weight(CHANNELS)
        pads = (size // 2,) * 4
        return self.op("conv", x, w, b, group=1, strides=(1, 1), dilations=(1, 1), pads=pads)

    def norm(self, x: str) -> str:
        parts = [self.weight(CHANNELS), self.weight(CHANNELS), self.weight(CHANNELS)]
        return self.op("batch_normalization", x, *parts, self.weight(CHANNELS, positive=True), epsilon=1e-5)

    def module(self, inputs: dict[str, tuple[int, ...]], outputs: list[str]) -> Module:
        values = tuple(Value(name, TensorType(shape), name) for name, shape in inputs.items())
        graph = Graph("random", values, tuple(self.weights), tuple(self.ops), tuple(outputs), tuple(outputs))
        return Module("l0", (graph,))

    def start(self, shape: tuple[int, ...] = IMAGE) -> str:
        self.types["x"] = TensorType(shape)
        return "x"


def chain(build: Builder, count: int) -> Module:
    """Convolution, normalisation, activation, over and over."""
    value = build.start()
    while len(build.ops) < count:
        value = build.op("relu", build.norm(build.conv(value, int(build.rng.choice([1, 3])))))
        value = build.op(str(build.rng.choice(["sigmoid", "tanh", "neg", "softplus"])), value)
    return build.module({"x": IMAGE}, [value])


def wide(build: Builder, count: int) -> Module:
    """Many short branches from one input, all alive until they are joined."""
    x = build.start()
    ends: list[str] = []
    while len(build.ops) < count * 7 // 8:
        value = build.conv(x, 1)
        for kind in build.rng.choice(["relu", "tanh", "exp", "abs"], int(build.rng.integers(1, 5))):
            value = build.op(str(kind), value)
        ends.append(value)
    joined = build.op("concat", *ends[: len(ends) // 2], axis=1)
    value = ends[len(ends) // 2]
    for other in ends[len(ends) // 2 + 1 :]:
        value = build.op("add", value, other)
    return build.module({"x": IMAGE}, [joined, value])


def residual(build: Builder, count: int) -> Module:
    """Blocks with a sum, and one long connection from every tenth block to the end."""
    value, kept = build.start(), []
    while len(build.ops) < count:
        body = build.op("relu", build.norm(build.conv(value)))
        value = build.op("relu", build.op("add", build.norm(build.conv(body)), value))
        if len(build.ops) % 10 == 0:
            kept.append(value)
    for other in kept:
        value = build.op("add", value, other)
    return build.module({"x": IMAGE}, [value])


def attention(build: Builder, count: int) -> Module:
    """Products, moves, softmax and layer normalisation on rows."""
    value = build.start(ROWS)
    heads, width = ROWS
    while len(build.ops) < count:
        scale, shift = build.weight(width), build.weight(width)
        normal = build.op("layer_normalization", value, scale, shift, axis=1, epsilon=1e-5)
        q, k, v = (build.op("matmul", normal, build.weight(width, width)) for _ in range(3))
        q, k, v = (build.op("reshape", t, shape=(heads, 4, width // 4)) for t in (q, k, v))
        score = build.op("matmul", build.op("transpose", q, perm=(1, 0, 2)), build.op("transpose", k, perm=(1, 2, 0)))
        mixed = build.op("matmul", build.op("softmax", score, axis=2), build.op("transpose", v, perm=(1, 0, 2)))
        back = build.op("reshape", build.op("transpose", mixed, perm=(1, 0, 2)), shape=ROWS)
        value = build.op("add", value, build.op("gelu", back, approximate="none"))
    return build.module({"x": ROWS}, [value])


def elementwise(build: Builder, count: int) -> Module:
    """Long runs of arithmetic, in a third of which every value is also read at the end."""
    value, kept = build.start(), []
    while len(build.ops) < count * 5 // 6:
        kind = str(build.rng.choice(["relu", "abs", "tanh", "add", "mul"]))
        value = build.op(kind, value, value) if kind in ("add", "mul") else build.op(kind, value)
        if len(build.ops) > count // 2:
            kept.append(value)
    joined = build.op("concat", *kept, axis=1)
    while len(build.ops) < count:
        value = build.op("neg", value)
    return build.module({"x": IMAGE}, [value, joined])


def dense(build: Builder, count: int) -> Module:
    """Concatenations of concatenations, as in a densely connected network, in runs of 12 layers."""
    value = build.start()
    while len(build.ops) < count:
        for _ in range(12):
            width = build.types[value].dims[1]
            w, b = build.weight(CHANNELS, width, 1, 1), build.weight(CHANNELS)
            new = build.op("conv", value, w, b, group=1, strides=(1, 1), dilations=(1, 1), pads=(0,) * 4)
            value = build.op("concat", value, build.op("relu", new), axis=1)
        w = build.weight(CHANNELS, build.types[value].dims[1], 1, 1)
        value = build.op("conv", value, w, group=1, strides=(1, 1), dilations=(1, 1), pads=(0,) * 4)
    return build.module({"x": IMAGE}, [value])


def mixed(build: Builder, count: int) -> Module:
    """Whatever fits, reading any earlier value: long lifetimes, fan-out, views, constants that fold."""
    pool = [build.start()]
    rng = build.rng
    while len(build.ops) < count:
        x = pool[int(rng.integers(max(0, len(pool) - 40), len(pool)))]
        kind = str(rng.choice(["conv", "unary", "binary", "norm", "fold", "view", "move", "pow", "channels"]))
        if kind == "conv":
            x = build.conv(x, int(rng.choice([1, 3])))
        elif kind == "unary":
            x = build.op(str(rng.choice(["relu", "sigmoid", "tanh", "abs", "floor"])), x)
        elif kind == "binary":
            x = build.op(str(rng.choice(["add", "sub", "mul", "max"])), x, pool[int(rng.integers(len(pool)))])
        elif kind == "norm":
            x = build.norm(x)
        elif kind == "fold":
            x = build.op("mul", x, build.op("add", build.weight(1), build.weight(1)))
        elif kind == "view":
            x = build.op("relu", build.op("reshape", x, shape=(1, CHANNELS, 36)))
            x = build.op("reshape", x, shape=IMAGE)
        elif kind == "move":
            x = build.op("transpose", build.op("exp", x), perm=(0, 1, 3, 2))
        elif kind == "pow":
            x = build.op("pow", x, build.weight(1, positive=True))
        else:
            half = build.op("slice", x, shape=(1, CHANNELS // 2, 6, 6), starts=(0,) * 4, steps=(1,) * 4)
            x = build.op("concat", half, half, axis=1)
        pool.append(x)
    return build.module({"x": IMAGE}, [pool[-1], pool[len(pool) // 2]])


SHAPES: Final[dict[str, Callable[[Builder, int], Module]]] = {
    "chain": chain,
    "wide": wide,
    "residual": residual,
    "attention": attention,
    "elementwise": elementwise,
    "dense": dense,
    "mixed": mixed,
}


def random_graph(shape: str, count: int, seed: int = 0) -> tuple[Module, WeightStore]:
    """A graph of about ``count`` operations; ``shape`` is a key of ``SHAPES``."""
    build = Builder(np.random.default_rng(seed))
    return SHAPES[shape](build, count), build.store


def lower(module: Module, store: WeightStore) -> Module:
    """Verify, all passes before the freeze, the freeze, all passes after it; a verifier runs after each pass."""
    verify(module)
    frozen, _ = freeze(module, store)
    return lower_to_l2(frozen, store)


def measured(shape: str, count: int, repeats: int) -> tuple[int, float, float]:
    """Operations, median CPU seconds of :func:`lower`, and of printing and parsing the module."""
    lowering, text = [], []
    module, _ = random_graph(shape, count)
    for _ in range(repeats):
        module, store = random_graph(shape, count)
        start = time.process_time()
        lower(module, store)
        lowering.append(time.process_time() - start)
        start = time.process_time()
        parse_module(print_module(module))
        text.append(time.process_time() - start)
    return len(module.main.ops), statistics.median(lowering), statistics.median(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shape", choices=sorted(SHAPES), action="append")
    parser.add_argument("--profile", action="store_true", help="print the functions that take longest instead")
    args = parser.parse_args()
    shapes = args.shape or list(SHAPES)
    if args.profile:
        for shape in shapes:
            module, store = random_graph(shape, args.ops)
            profile = cProfile.Profile()
            profile.runcall(lower, module, store)
            print(shape)
            pstats.Stats(profile).sort_stats("cumulative").print_stats(35)
        return
    print(f"{'graph':10} {'ops':>6} {'lowered [CPU s]':>16} {'printed, parsed':>16}")
    for shape in shapes:
        count, lowered, text = measured(shape, args.ops, args.repeats)
        print(f"{shape:10} {count:6} {lowered:16.3f} {text:16.3f}")


if __name__ == "__main__":
    main()
