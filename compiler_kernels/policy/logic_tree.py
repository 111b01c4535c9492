"""The clinical logic after resolution: typed trees over tensors of known rank.

Every number is binary64. Tensor elements convert exactly, except 64-bit integers past 2**53, which round to nearest
even.
Reductions run over a region in row-major order; a NaN anywhere in the region makes the result NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from compiler_kernels.policy.clinical import Fallback

Space = Literal["inputs", "outputs"]
Sign = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Input or output ``index`` of the engine; ``shape``: sizes, or the largest ones where symbols leave them open."""

    space: Space
    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    fixed: tuple[bool, ...]
    """Whether the size of each axis is known at compile time."""


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a tensor: positions ``start[i]`` to before ``stop[i]``; ``None`` is the actual end of the axis."""

    tensor: Tensor
    start: tuple[int, ...]
    stop: tuple[int | None, ...]

    def count(self) -> int:
        """Elements at the largest sizes."""
        total = 1
        for low, high, size in zip(self.start, self.stop, self.tensor.shape, strict=True):
            total *= (size if high is None else high) - low
        return total


@dataclass(frozen=True, slots=True)
class Constant:
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Element:
    """The one element of a region."""

    region: Region


@dataclass(frozen=True, slots=True)
class Reduction:
    """``max``, ``min``, ``sum`` (one chain of additions from +0), ``mean`` (the sum divided by the count), ``argmax``
    (row-major position within the region of the first largest element)."""

    kind: Literal["max", "min", "sum", "mean", "argmax"]
    region: Region


@dataclass(frozen=True, slots=True)
class Percentile:
    """Nearest rank: the element of rank ``max(1, ceil(percent / 100 * count))`` in ascending order."""

    percent: float
    region: Region


@dataclass(frozen=True, slots=True)
class Count:
    """``area``: elements for which ``element SIGN bound`` holds; ``fraction``: that divided by the count."""

    region: Region
    sign: Sign
    bound: Numeric
    fraction: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One IEEE 754 binary64 operation, rounded to nearest even."""

    sign: Literal["+", "-", "*", "/"]
    left: Numeric
    right: Numeric


@dataclass(frozen=True, slots=True)
class Minus:
    operand: Numeric


@dataclass(frozen=True, slots=True)
class QuantityRef:
    name: str


@dataclass(frozen=True, slots=True)
class ThresholdRef:
    name: str


Numeric = Constant | Element | Reduction | Percentile | Count | Arithmetic | Minus | QuantityRef | ThresholdRef


@dataclass(frozen=True, slots=True)
class Compare:
    sign: Sign
    left: Numeric
    right: Numeric


@dataclass(frozen=True, slots=True)
class DecisionRef:
    name: str


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    """Short-circuit, left to right."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Short-circuit, left to right."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AtLeast:
    """Whether at least ``count`` operands are true; all are evaluated."""

    count: int
    operands: tuple[Condition, ...]


Condition = Compare | DecisionRef | Not | And | Or | AtLeast


@dataclass(frozen=True, slots=True)
class NamedThreshold:
    name: str
    value: float
    source: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedQuantity:
    name: str
    value: Numeric
    text: str
    unit: str
    requirements: tuple[str, ...]
    inputs_only: bool


@dataclass(frozen=True, slots=True)
class NamedDecision:
    name: str
    when: Condition
    text: str
    description: str
    requirements: tuple[str, ...]
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedGuard:
    """``before``: it reads inputs alone and is checked before the inference, the others after the decisions."""

    name: str
    require: Condition
    text: str
    description: str
    before: bool
    fallback: Fallback
    requirements: tuple[str, ...]
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """The clinical logic of one policy and one model.

    All stand in the order of their names; quantities and decisions after those that they read.
    ``fallbacks`` has one entry for each of ``FAILURES``.
    """

    tensors: tuple[Tensor, ...]
    thresholds: tuple[NamedThreshold, ...]
    quantities: tuple[NamedQuantity, ...]
    decisions: tuple[NamedDecision, ...]
    guards: tuple[NamedGuard, ...]
    fallbacks: dict[str, Fallback] = field(default_factory=dict)

    def any(self) -> bool:
        """Whether there is anything to compile: a decision or a guard."""
        return bool(self.decisions or self.guards)


def leaves(condition: Condition) -> Iterator[Condition]:
    """The atomic conditions of a tree from left to right: comparisons, references and whole ``AtLeast``."""
    match condition:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from leaves(operand)
        case Not(operand):
            yield from leaves(operand)
        case _:
            yield condition


def regions(value: Numeric) -> Iterator[Region]:
    """The regions a quantity reads itself, not through references."""
    match value:
        case Element(region) | Reduction(_, region) | Percentile(_, region):
            yield region
        case Count(region, _, bound, _):
            yield region
            yield from regions(bound)
        case Arithmetic(_, left, right):
            yield from regions(left)
            yield from regions(right)
        case Minus(operand):
            yield from regions(operand)
        case _:
            return
