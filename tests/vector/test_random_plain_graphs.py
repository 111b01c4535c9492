"""Random graphs of products, moves, rows and elementwise operations: bits of all kernels against the reference."""

from __future__ import annotations

import random
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_bits import WAYS, compiled, differing, model, tensors
from onnx import helper
from vector_targets import Way

from evidence.vector_engines import Compiled


class _Net:
    """A graph grown operation by operation; every value stays small."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        shape = self.rng.choice([(1, 9, 16), (2, 5, 24), (3, 4, 7, 16), (1, 17, 33), (20, 12)])
        self.given = {"x": tensors(seed, shape, special=seed % 4 == 0)}
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}

    def add(self, op: str, operands: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attrs))
        self.shapes[name] = shape
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def grow(self) -> None:
        rng = self.rng
        name = rng.choice(list(self.shapes)[-3:])
        shape = self.shapes[name]
        kind = rng.choice(["product", "self", "transpose", "reshape", "slice", "unary", "binary", "same", "rows"])
        if kind == "product" and len(shape) > 1:
            columns = rng.choice([5, 16, 20, 40])
            w = self.constant(tensors(len(self.nodes), (shape[-1], columns)))
            self.add("MatMul", [name, w], (*shape[:-1], columns))
        elif kind == "self" and len(shape) > 1:
            perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
            turned = self.add("Transpose", [name], (*shape[:-2], shape[-1], shape[-2]), perm=perm)
            pair = [name, turned] if rng.random() < 0.5 else [turned, name]
            edge = shape[-2] if pair[0] == name else shape[-1]
            self.add("MatMul", pair, (*shape[:-2], edge, edge))
        elif kind == "transpose":
            perm = rng.sample(range(len(shape)), len(shape))
            self.add("Transpose", [name], tuple(shape[p] for p in perm), perm=perm)
        elif kind == "reshape":
            axis = rng.randrange(len(shape))
            parts = [k for k in range(2, shape[axis]) if shape[axis] % k == 0]
            if len(shape) > 1 and (not parts or rng.random() < 0.5):
                axis = rng.randrange(len(shape) - 1)
                after = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
            elif parts and len(shape) < 5:
                part = rng.choice(parts)
                after = (*shape[:axis], part, shape[axis] // part, *shape[axis + 1 :])
            else:
                return
            self.add("Reshape", [name, self.constant(np.array(after))], after)
        elif kind == "slice":
            axis = rng.randrange(len(shape))
            start, step = rng.randrange(shape[axis]), rng.choice([1, 1, 2])
            after = (*shape[:axis], len(range(start, shape[axis], step)), *shape[axis + 1 :])
            numbers = [self.constant(np.array([v])) for v in (start, 10**6, axis, step)]
            self.add("Slice", [name, *numbers], after)
        elif kind == "unary":
            self.add(rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Erf"]), [name], shape)
        elif kind == "binary":
            other = (1,) * rng.randint(0, len(shape) - 1)
            row = (*other, shape[-1]) if rng.random() < 0.6 else (*shape[:-1], 1)
            self.add(rng.choice(["Add", "Mul"]), [name, self.constant(tensors(len(self.nodes), row))], shape)
        elif kind == "same":
            alike = [n for n, s in self.shapes.items() if s == shape]
            self.add(rng.choice(["Add", "Mul"]), [name, rng.choice(alike)], shape)
        elif kind == "rows":
            self.add("Softmax", [name], shape, axis=-1)


def net(seed: int) -> Compiled:
    found = _Net(seed)
    while len(found.nodes) < 9:
        found.grow()
        last = list(found.shapes.values())[-1]
        if prod(last) > 6000:
            break
    found.nodes[-1].output[0] = "y"
    return compiled(f"net{seed}", model(found.nodes, found.given, found.constants, ["y"]), found.given)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits_of_random_graphs(way: Way, tmp_path: Path) -> None:
    few = way.run not in ((), None)  # emulated
    assert differing([net(seed) for seed in range(25 if few else 60)], way, tmp_path) == {}
