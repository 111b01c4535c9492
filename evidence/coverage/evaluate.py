"""What the clinical logic answers for given tensors, as the generator of vectors believes; the engine decides.

Binary64, the order of docs/clinical.md. ``decide`` also says what the probes would record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.policy.logic_tree import (
    And,
    Arithmetic,
    AtLeast,
    Compare,
    Condition,
    Constant,
    Count,
    DecisionRef,
    Element,
    Logic,
    Minus,
    Not,
    Numeric,
    Or,
    Percentile,
    QuantityRef,
    Reduction,
    Region,
    Tensor,
    ThresholdRef,
)
from evidence.coverage.grids import Bounds
from evidence.coverage.mcdc import Record, evaluate
from evidence.coverage.structure import Node, nodes_of

Array = npt.NDArray[Any]
World = Mapping[tuple[str, int], Array]
"""Tensors by ``(space, index)``."""
COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


@dataclass
class Verdict:
    """``failure``: None, a failure's name or ``safety_guard:NAME``; ``records``: probe ids in order of evaluation."""

    failure: str | None = None
    decisions: dict[str, bool] = field(default_factory=dict)
    records: list[tuple[str, Record]] = field(default_factory=list)


class Evaluator:
    """Evaluates one logic; ``guards`` are those of inputs and outputs by tensor name."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds]) -> None:
        self.logic, self.guards = logic, guards
        self.nodes = nodes_of(logic)
        self.thresholds = {t.name: t.value for t in logic.thresholds}
        self.quantities = {q.name: q.value for q in logic.quantities}
        early = [g for g in logic.guards if g.before]
        names = needed(logic, [g.require for g in early])
        self.early: list[Numeric] = [QuantityRef(q.name) for q in logic.quantities if q.name in names]
        self.early += sides([g.require for g in early])
        self.all: list[Numeric] = [QuantityRef(q.name) for q in logic.quantities]
        self.all += sides([*(d.when for d in logic.decisions), *(g.require for g in logic.guards)])

    def decide(self, world: World, flags: int = 0) -> Verdict:
        """``flags``: what is pretended, as ``failures.PRETENDED``."""
        return _Run(self, world, flags).verdict


class _Run:
    def __init__(self, evaluator: Evaluator, world: World, flags: int) -> None:
        self.of, self.world = evaluator, world
        self.known: dict[Numeric, float] = {}
        self.verdict = Verdict()
        self.flows(flags)

    def flows(self, flags: int) -> None:
        logic, verdict = self.of.logic, self.verdict
        with np.errstate(all="ignore"):
            if flags & 4 or not self.within("inputs"):
                verdict.failure = "input_guard"
            elif not self.finite(self.of.early):
                verdict.failure = "not_a_number"
            elif failed := self.guard(before=True):
                verdict.failure = failed
            elif flags & 3:
                verdict.failure = "lockstep" if flags & 2 else "refusal"
            elif flags & 8 or not self.within("outputs"):
                verdict.failure = "output_guard"
            elif not self.finite(self.of.all):
                verdict.failure = "not_a_number"
            else:
                for decision in logic.decisions:
                    node = self.of.nodes[f"decision_node:{decision.name}"]
                    verdict.decisions[decision.name] = self.record(node, decision.when)
                verdict.failure = self.guard(before=False)

    def within(self, space: str) -> bool:
        for tensor in self.of.logic.tensors:
            guard = self.of.guards.get(tensor.name)
            if tensor.space != space or guard is None or not guard.any:
                continue
            values = self.values(Region(tensor, (0,) * len(tensor.shape), (None,) * len(tensor.shape)))
            low, high = _bounds(tensor, guard)
            inside = (values >= low) & (values <= high)
            if not np.all(inside & np.isfinite(values) if guard.finite else inside):
                return False
        return True

    def finite(self, numbers: list[Numeric]) -> bool:
        return all(math.isfinite(self.number(n)) for n in numbers)

    def guard(self, *, before: bool) -> str | None:
        for guard in self.of.logic.guards:
            if guard.before == before and not self.record(self.of.nodes[f"safety_guard:{guard.name}"], guard.require):
                return f"safety_guard:{guard.name}"
        return None

    # ---- conditions

    def record(self, node: Node, condition: Condition) -> bool:
        """Value of a whole decision, with its record and those of every at_least in it, which are evaluated first."""
        for counter in (n for n in self.of.nodes.values() if n.kind == "at_least" and n.owner == node.id):
            found = evaluate(counter.tree, [self.truth(o) for o in counter.conditions])
            self.verdict.records.append((counter.id, found))
        seen = values = 0
        at = 0

        def visit(part: Condition, reached: bool) -> bool:
            nonlocal seen, values, at
            match part:
                case And(operands) | Or(operands):
                    stop = isinstance(part, Or)
                    value = not stop
                    for operand in operands:
                        now = visit(operand, reached)
                        if reached:
                            value, reached = now, now != stop
                    return value
                case Not(operand):
                    return not visit(operand, reached)
            index, at = at, at + 1
            if not reached:
                return False
            value = self.truth(part)
            seen |= 1 << index
            values |= value << index
            return value

        outcome = visit(condition, True)
        self.verdict.records.append((node.id, Record(seen, values, outcome)))
        return outcome

    def truth(self, condition: Condition) -> bool:
        match condition:
            case Compare(sign, left, right):
                return bool(COMPARE[sign](self.number(left), self.number(right)))
            case DecisionRef(name):
                return self.verdict.decisions[name]
            case Not(operand):
                return not self.truth(operand)
            case And(operands):
                return all(self.truth(o) for o in operands)
            case Or(operands):
                return any(self.truth(o) for o in operands)
            case AtLeast(count, operands):
                return sum(self.truth(o) for o in operands) >= count

    # ---- numbers

    def number(self, value: Numeric) -> float:
        if value not in self.known:
            self.known[value] = self.compute(value)
        return self.known[value]

    def compute(self, value: Numeric) -> float:
        match value:
            case Constant(number, _):
                return number
            case ThresholdRef(name):
                return self.of.thresholds[name]
            case QuantityRef(name):
                return self.number(self.of.quantities[name])
            case Element(region):
                return float(self.values(region)[0])
            case Minus(operand):
                return -self.number(operand)
            case Arithmetic(sign, left, right):
                a, b = np.float64(self.number(left)), np.float64(self.number(right))
                return float({"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[sign](a, b))
            case Reduction(kind, region):
                return self.reduced(kind, self.values(region))
            case Percentile(percent, region):
                values = self.values(region)
                if np.isnan(values).any():
                    return math.nan
                return float(np.partition(values, rank_of(percent, values.size) - 1)[rank_of(percent, values.size) - 1])
            case Count(region, sign, bound, fraction):
                values, limit = self.values(region), self.number(bound)
                if math.isnan(limit) or np.isnan(values).any():
                    return math.nan
                found = float(np.count_nonzero(COMPARE[sign](values, limit)))
                return found / values.size if fraction else found

    def reduced(self, kind: str, values: Array) -> float:
        if np.isnan(values).any():
            return math.nan
        match kind:
            case "max":
                return float(values.max())
            case "min":
                return float(values.min())
            case "argmax":
                return float(values.argmax())
        total = float(np.add.accumulate(values)[-1]) + 0.0
        return total / values.size if kind == "mean" else total

    def values(self, region: Region) -> Array:
        tensor = self.world[region.tensor.space, region.tensor.index]
        box = tensor[tuple(slice(a, b) for a, b in zip(region.start, region.stop, strict=True))]
        return np.asarray(box, dtype=np.float64).reshape(-1)


def rank_of(percent: float, count: int) -> int:
    """Nearest rank, from 1: the product and the quotient are binary64 operations."""
    return max(1, math.ceil(percent * float(count) / 100.0))


def needed(logic: Logic, conditions: list[Condition]) -> set[str]:
    """Names of the quantities these conditions read, also through other quantities."""
    values = {q.name: q.value for q in logic.quantities}
    found: set[str] = set()

    def number(value: Numeric) -> None:
        match value:
            case QuantityRef(name):
                if name not in found:
                    found.add(name)
                    number(values[name])
            case Arithmetic(_, left, right):
                number(left)
                number(right)
            case Minus(operand) | Count(_, _, operand, _):
                number(operand)

    for side in sides(conditions):
        number(side)
    return found


def sides(conditions: Iterable[Condition]) -> list[Numeric]:
    """Both sides of every comparison in these conditions."""
    found: list[Numeric] = []
    for condition in conditions:
        match condition:
            case And(operands) | Or(operands) | AtLeast(_, operands):
                found += sides(operands)
            case Not(operand):
                found += sides([operand])
            case Compare(_, left, right):
                found += [left, right]
    return found


def _bounds(tensor: Tensor, guard: Bounds) -> tuple[float, float]:
    if tensor.dtype == "float32":
        return float(np.float32(guard.low)), float(np.float32(guard.high))
    return guard.low, guard.high
