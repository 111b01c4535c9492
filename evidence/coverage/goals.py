"""What test vectors are to reach: every outcome, condition and independence of every decision, and its boundaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from compiler_kernels.policy.logic_tree import Compare
from evidence.coverage.mcdc import Record, independent, unmasked
from evidence.coverage.structure import Node

Kind = Literal["outcome", "condition", "masking", "unique_cause", "boundary"]
Side = Literal["equal", "above", "below"]


@dataclass(frozen=True, slots=True)
class Goal:
    """``value``: the outcome or the condition's value wanted. Boundary goals are no coverage: they place a vector where
    the two sides of a comparison are equal or next to each other."""

    kind: Kind
    probe: str
    index: int = -1
    value: bool = True
    side: Side = "equal"

    def __str__(self) -> str:
        match self.kind:
            case "outcome":
                return f"{self.probe} {str(self.value).lower()}"
            case "condition":
                return f"{self.probe} condition {self.index} {str(self.value).lower()}"
            case "masking":
                return f"{self.probe} condition {self.index} {str(self.value).lower()} and not masked"
            case "unique_cause":
                return f"{self.probe} condition {self.index} unique-cause pair"
        return f"{self.probe} condition {self.index} {self.side} its limit"


def coverage_goals(node: Node) -> Iterator[Goal]:
    """The goals of one decision, those first that bring others with them."""
    for index in range(len(node.conditions)):
        for value in (True, False):
            yield Goal("masking", node.id, index, value)
    for value in (True, False):
        yield Goal("outcome", node.id, value=value)
        for index in range(len(node.conditions)):
            yield Goal("condition", node.id, index, value)
    for index in range(len(node.conditions)):
        yield Goal("unique_cause", node.id, index)


def boundary_goals(node: Node) -> Iterator[Goal]:
    """For each comparison a vector on either side and one where both sides are equal."""
    for index, condition in enumerate(node.conditions):
        if isinstance(condition, Compare):
            for side in ("equal", "above", "below"):
                yield Goal("boundary", node.id, index, side=side)


def reached(goal: Goal, node: Node, records: Sequence[Record]) -> bool:
    """Whether the records of the goal's decision reach it (never for boundary goals: they are sought once)."""
    match goal.kind:
        case "outcome":
            return any(r.outcome == goal.value for r in records)
        case "condition":
            return any(r.value(goal.index) == goal.value for r in records)
        case "masking":
            return any(r.value(goal.index) == goal.value and unmasked(node.tree, r) >> goal.index & 1 for r in records)
        case "unique_cause":
            return any(independent(a, b, goal.index) for a in records for b in records)
    return False
