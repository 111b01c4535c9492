"""Seeded random convolution networks: all instruction sets give the reference's bits, whatever meets whatever."""

from __future__ import annotations

from collections.abc import Iterator
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

CHANNELS = (1, 3, 8, 12, 16, 20, 24, 32, 40)
UNARY = ("Relu", "Sigmoid", "Tanh", "HardSwish", "Neg", "Abs", "Exp")
NETS = 24


class Builder:
    """Grows a network; ``values`` are (name, channels, height, width) that later nodes may read, the newest first."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.batch = int(self.rng.integers(1, 3))
        c, h, w = int(self.rng.choice(CHANNELS)), int(self.rng.integers(6, 17)), int(self.rng.integers(6, 33))
        self.input = tensors(seed, (self.batch, c, h, w), special=seed % 2 == 0)
        self.values: list[tuple[str, int, int, int]] = [("x", c, h, w)]

    def pick(self) -> tuple[str, int, int, int]:
        """Mostly the newest value, sometimes an older one."""
        index = 0 if self.rng.random() < 0.7 else int(self.rng.integers(len(self.values)))
        return self.values[index]

    def constant(self, *shape: int) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = tensors(self.seed * 1000 + len(self.constants), shape) * np.float32(0.5)
        return name

    def add(self, op: str, operands: list[str], c: int, h: int, w: int, **attrs: Any) -> None:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [result], **attrs))
        self.values.insert(0, (result, c, h, w))

    def convolution(self) -> None:
        x, c, h, w = self.pick()
        o, kind = int(self.rng.choice(CHANNELS)), self.rng.random()
        k, stride = int(self.rng.choice((1, 2, 3, 5))), int(self.rng.choice((1, 1, 2)))
        begin, end = (int(self.rng.integers(0, k)) for _ in range(2))
        size = [(n + begin + end - k) // stride + 1 for n in (h, w)]
        if min(size) < 1:
            return
        group = c if kind < 0.25 else 1
        o = c if group > 1 else o
        weights = [self.constant(o, c // group, k, k)] + ([self.constant(o)] if kind < 0.7 else [])
        pads = [begin, begin, end, end]
        self.add("Conv", [x, *weights], o, *size, pads=pads, strides=[stride, stride], group=group)

    def transposed(self) -> None:
        x, c, h, w = self.pick()
        if h * w > 200:
            return
        o, k = int(self.rng.choice(CHANNELS)), int(self.rng.choice((2, 3)))
        self.add("ConvTranspose", [x, self.constant(c, o, k, k)], o, 2 * h + k - 2, 2 * w + k - 2, strides=[2, 2])

    def pool(self) -> None:
        x, c, h, w = self.pick()
        if min(h, w) < 3:
            return
        op, pad = str(self.rng.choice(("MaxPool", "AveragePool"))), int(self.rng.integers(0, 2))
        size = [(n + 2 * pad - 3) // 2 + 1 for n in (h, w)]
        self.add(op, [x], c, *size, kernel_shape=[3, 3], strides=[2, 2], pads=[pad] * 4)

    def unary(self) -> None:
        x, c, h, w = self.pick()
        self.add(str(self.rng.choice(UNARY)), [x], c, h, w)

    def binary(self) -> None:
        x, c, h, w = self.pick()
        same = [v[0] for v in self.values if v[1:] == (c, h, w)]
        other = str(self.rng.choice(same)) if self.rng.random() < 0.6 else self.constant(c, 1, 1)
        self.add(str(self.rng.choice(("Add", "Mul", "Sub"))), [x, other], c, h, w)

    def gate(self) -> None:
        x, c, h, w = self.pick()
        self.add("GlobalAveragePool", [x], c, 1, 1)
        self.add("Sigmoid", [self.values[0][0]], c, 1, 1)
        self.add("Mul", [x, self.values[0][0]], c, h, w)

    def join(self) -> None:
        _, _, h, w = self.pick()
        same = [v for v in self.values if v[2:] == (h, w)]
        chosen = [same[int(self.rng.integers(len(same)))] for _ in range(int(self.rng.integers(2, 4)))]
        self.add("Concat", [v[0] for v in chosen], sum(v[1] for v in chosen), h, w, axis=1)

    def build(self) -> Compiled:
        steps = [self.convolution] * 4 + [self.pool, self.unary, self.unary, self.binary, self.binary, self.join]
        steps += [self.transposed, self.gate]
        while len(self.nodes) < 9:
            self.rng.choice(np.array(steps, dtype=object))()
        read = {operand for n in self.nodes for operand in n.input}
        last = self.nodes[-1].output[0]
        live = [n for n in self.nodes if n.output[0] in read or n.output[0] == last]
        data = model(live, {"x": self.input}, self.constants, [last])
        return compiled(f"net{self.seed}", data, {"x": self.input})


def networks() -> Iterator[Compiled]:
    for seed in range(NETS):
        yield Builder(seed).build()


@lru_cache(maxsize=1)
def nets() -> tuple[Compiled, ...]:
    return tuple(networks())


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.name)
def test_random_networks_give_the_reference_bits(way: Way, tmp_path: Path) -> None:
    assert differing(nets(), way, tmp_path) == {}


def test_most_random_networks_use_blocked_layouts() -> None:
    blocked = [any("c16" in t.layout for t in c.module.main.types().values()) for c in nets()]
    assert sum(blocked) >= 0.8 * NETS
