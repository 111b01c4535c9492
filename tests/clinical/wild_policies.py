"""Random clinical logic that uses all of the language on tensors of every kind, and random tensors for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.policy.logic_tree import Tensor

Array = npt.NDArray[Any]
INPUTS = (
    Tensor("inputs", 0, "image", "float32", (1, 2, 3, 4), (True,) * 4),
    Tensor("inputs", 1, "x", "float64", (3,), (True,)),
    Tensor("inputs", 2, "codes", "int64", (4,), (True,)),
    Tensor("inputs", 3, "odd name", "float16", (5,), (True,)),
)
OUTPUTS = (
    Tensor("outputs", 0, "prob", "float32", (1, 3), (True,) * 2),
    Tensor("outputs", 1, "x", "bfloat16", (2, 2), (True,) * 2),
    Tensor("outputs", 2, "mask", "uint8", (1, 4, 4), (True,) * 3),
    Tensor("outputs", 3, "flag", "bool", (), ()),
)
SIGNS = ("<", "<=", ">", ">=", "==", "!=")
POOL = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.0)
HARD = (-0.0, 5e-324, 1e-45, 1e-310, -1.5, 1e38, -1e308, 0.1, 0.30000000000000004, 65504.0, 2.0**53 + 1)


class _Draw:
    def __init__(
        self, rng: random.Random, tensors: Sequence[Tensor], shared: set[str], names: dict[str, list[str]]
    ) -> None:
        self.rng, self.tensors, self.shared, self.names = rng, tensors, shared, names

    def number(self, depth: int = 2) -> str:
        pick = self.rng.random()
        if depth == 0 or pick < 0.35:
            return self.rng.choice([self.literal, self.reduction, self.element, self.named])()
        if pick < 0.5:
            return f"-{self.number(0)}" if self.rng.random() < 0.5 else f"-({self.number(depth - 1)})"
        if pick < 0.7:
            left, right = self.number(depth - 1), self.number(depth - 1)
            return f"({left}) {self.rng.choice('+-*/')} ({right})" if pick < 0.6 else f"{left} + {right}"
        return self.reduction()

    def literal(self) -> str:
        return self.rng.choice(["0", "1", "0.5", ".25", "2.", "1e-3", "3e2", "007", "0.1", "1e300"])

    def named(self) -> str:
        names = [*self.names["thresholds"], *self.names["quantities"]]
        return self.rng.choice(names) if names else self.literal()

    def tensor(self) -> tuple[str, Tensor]:
        tensor = self.rng.choice(self.tensors)
        plain = tensor.name if tensor.name.isidentifier() else f"`{tensor.name}`"
        return (f"{tensor.space}.{plain}" if tensor.name in self.shared or self.rng.random() < 0.3 else plain), tensor

    def region(self) -> str:
        text, tensor = self.tensor()
        if not tensor.shape or self.rng.random() < 0.4:
            return text
        axes = []
        for size in tensor.shape:
            low = self.rng.randrange(size)
            high = self.rng.randint(low + 1, size)
            axes.append(self.rng.choice([":", f"{low}", f"{low}:{high}", f":{high}", f"{low}:"]))
        return f"{text}[{', '.join(axes)}]"

    def element(self) -> str:
        text, tensor = self.tensor()
        if not tensor.shape:
            return text
        return f"{text}[{','.join(str(self.rng.randrange(size)) for size in tensor.shape)}]"

    def reduction(self) -> str:
        kind = self.rng.choice(["max", "min", "sum", "mean", "argmax", "percentile", "area", "fraction"])
        if kind in ("area", "fraction"):
            bound = self.rng.choice([self.literal(), self.named(), f"{self.literal()} / {self.named()}"])
            return f"{kind}({self.region()} {self.rng.choice(SIGNS)} {bound})"
        if kind == "percentile":
            percent = self.rng.choice(["0", "100", "50", "95", "33.3", "12.5", "66.6666"])
            return f"percentile({self.region()}, {percent})"
        return f"{kind}({self.region()})"

    def condition(self, depth: int = 2, counted: bool = True) -> str:
        pick = self.rng.random()
        if depth == 0 or pick < 0.35:
            if self.names["decisions"] and self.rng.random() < 0.3:
                return self.rng.choice(self.names["decisions"])
            return f"{self.number(1)} {self.rng.choice(SIGNS)} {self.number(1)}"
        if pick < 0.5:
            return f"not ({self.condition(depth - 1, counted)})"
        if pick < 0.62 and counted:
            parts = [self.condition(depth - 1, False) for _ in range(self.rng.randint(1, 4))]
            return f"at_least({self.rng.randint(1, len(parts))}, {', '.join(parts)})"
        word = self.rng.choice([" and ", " or "])
        return word.join(f"({self.condition(depth - 1, counted)})" for _ in range(self.rng.randint(2, 3)))


def wild_policy(
    rng: random.Random, inputs: Sequence[Tensor] = INPUTS, outputs: Sequence[Tensor] = OUTPUTS
) -> dict[str, Any]:
    """Clinical sections, as from YAML, that fit the tensors: every kind of expression, guard and fallback."""
    names: dict[str, list[str]] = {"thresholds": [], "quantities": [], "decisions": []}
    shared = {t.name for t in inputs} & {t.name for t in outputs}
    draw = _Draw(rng, [*inputs, *outputs], shared, names)
    early = _Draw(rng, inputs, shared, {"thresholds": names["thresholds"], "quantities": [], "decisions": []})
    policy: dict[str, Any] = {"version": 1, "model": {"name": "random", "version": "1"}}
    words = ["lambda", "is", "class", "q", "alpha", "Beta", "none", "z9", "t", "values", "answer", "In"]
    rng.shuffle(words)

    def named(kind: str, most: int) -> list[str]:
        return [f"{words.pop()}{kind[0]}" for _ in range(rng.randint(0, most))]

    policy["thresholds"] = {}
    for name in named("thresholds", 3):
        policy["thresholds"][name] = rng.choice([*POOL, *HARD, -1])
        names["thresholds"].append(name)
    policy["quantities"] = {}
    for name in named("quantities", 3):
        policy["quantities"][name] = (early if rng.random() < 0.4 else draw).number()
        names["quantities"].append(name)
    policy["decisions"] = {}
    for name in [f"{w}d" for w in rng.sample(["first", "not_a", "or1", "zz", "mid"], rng.randint(1, 4))]:
        policy["decisions"][name] = draw.condition()
        names["decisions"].append(name)

    def fallback() -> Any:
        if rng.random() < 0.4:
            return "refuse"
        decisions = {name: rng.random() < 0.5 for name in names["decisions"]}
        return {"action": "answer", "decisions": decisions, "message": rng.choice(["", "see a doctor", 'a "quote"'])}

    guards: dict[str, Any] = {}
    for number in range(rng.randint(0, 3)):
        guard: dict[str, Any] = {"require": (early if rng.random() < 0.5 else draw).condition(1)}
        if rng.random() < 0.5:
            guard["fallback"] = fallback()
        guards[f"{rng.choice('abc')}{number}"] = guard
    policy["safety"] = {"guards": guards}
    kinds = ("default", "input_guard", "output_guard", "safety_guard", "not_a_number", "refusal", "lockstep")
    policy["fallbacks"] = {kind: fallback() for kind in kinds if rng.random() < 0.6}
    if rng.random() < 0.6:
        policy["coverage"] = {}
    for space, tensors in (("inputs", inputs), ("outputs", outputs)):
        for tensor in tensors:
            if rng.random() < 0.2:
                section = {"finite": rng.random() < 0.5, "range": (-2.0, rng.choice([0.1, 1.0, 3.0, 1e9]))}
                policy.setdefault(space, {})[tensor.name] = section
    return policy


def wild_values(rng: random.Random, tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Arrays by name, bfloat16 as two-byte words: ties, and sometimes NaN, infinities and denormals."""
    hard = rng.random()

    def one() -> float:
        if hard < 0.2 and rng.random() < 0.1:
            return rng.choice([float("nan"), float("inf"), float("-inf")])
        if hard < 0.5 and rng.random() < 0.2:
            return rng.choice(HARD)
        return rng.choice(POOL) if rng.random() < 0.7 else rng.random()

    found = {}
    for tensor in tensors:
        count = int(np.prod(tensor.shape, dtype=np.int64))
        numbers = np.array([one() for _ in range(count)])
        if tensor.dtype == "bfloat16":
            with np.errstate(over="ignore"):
                single = numbers.astype(np.float32)
            words = (single.view(np.uint32) >> 16).astype("<u2")
            values: Array = words.view("V2")
        elif tensor.dtype == "bool":
            values = numbers > 0.5
        elif tensor.dtype.startswith(("int", "uint")):
            info = np.iinfo(tensor.dtype)
            least, most = max(info.min, -(2**62)), min(info.max, 2**62)
            wide = [rng.randint(0, 3) if rng.random() < 0.8 else rng.randint(least, most) for _ in range(count)]
            values = np.array(wide, tensor.dtype)
        else:
            with np.errstate(over="ignore"):
                values = numbers.astype(tensor.dtype)
        found[tensor.name] = values.reshape(tensor.shape)
    return found
