"""C of the numbers the clinical logic computes from tensors (docs/clinical.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from compiler_kernels.policy.logic_text import region_text
from compiler_kernels.policy.logic_tree import (
    And,
    Arithmetic,
    AtLeast,
    Compare,
    Condition,
    Constant,
    Count,
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
    ThresholdRef,
    regions,
)

_SIGN: Final = {"<": "LT", "<=": "LE", ">": "GT", ">=": "GE", "==": "EQ", "!=": "NE"}


def comparisons(condition: Condition) -> Iterator[Compare]:
    """Every comparison of ``condition`` from left to right, those within an ``at_least`` too."""
    match condition:
        case And(operands) | Or(operands) | AtLeast(_, operands):
            for operand in operands:
                yield from comparisons(operand)
        case Not(operand):
            yield from comparisons(operand)
        case Compare():
            yield condition


def is_plain(value: Numeric) -> bool:
    """Whether a side of a comparison needs no check of its own: a constant, a threshold, a quantity."""
    return isinstance(value.operand if isinstance(value, Minus) else value, Constant | ThresholdRef | QuantityRef)


def unnamed_numbers(logic: Logic) -> list[Numeric]:
    """Sides of comparisons that are computed and have no name, each once: guards in their order, then decisions."""
    conditions = [*(g.require for g in logic.guards), *(d.when for d in logic.decisions)]
    sides = (side for c in conditions for compare in comparisons(c) for side in (compare.left, compare.right))
    return list(dict.fromkeys(side for side in sides if not is_plain(side)))


def checked_numbers(logic: Logic) -> bool:
    """Whether there is a number that could be NaN or infinite."""
    return bool(logic.quantities or unnamed_numbers(logic))


def quantity_names(value: Numeric) -> Iterator[str]:
    """Names of the quantities that ``value`` reads itself."""
    match value:
        case QuantityRef(name):
            yield name
        case Arithmetic(_, left, right):
            yield from quantity_names(left)
            yield from quantity_names(right)
        case Minus(operand) | Count(_, _, operand, _):
            yield from quantity_names(operand)


def exact(value: float, text: str) -> str:
    """A binary64 number as an exact C literal, with its decimal text beside it."""
    return f"{value.hex()} /* {text} */"


def comment(text: str) -> str:
    """``text`` in one line that cannot end a comment or hide what it says (ASCII; the rest as escapes)."""
    plain = re.sub(r"\s+", " ", text).encode("ascii", "backslashreplace").decode()
    return plain.replace("*/", "* /").replace("/*", "/ *")


@dataclass
class Numbers:
    """C expressions for numbers; collects the regions they read."""

    prefix: str
    unnamed: list[Numeric]
    regions: dict[Region, str] = field(default_factory=dict)

    def read(self, value: Numeric) -> str:
        """A side of a comparison: a name or a literal."""
        if value in self.unnamed:
            return f"e_{self.unnamed.index(value)}"
        return self.expression(value)

    def expression(self, value: Numeric) -> str:
        match value:
            case Constant(number, text):
                return exact(number, text)
            case ThresholdRef(name):
                return f"t_{name}"
            case QuantityRef(name):
                return f"q_{name}"
            case Element(region):
                return f"cuvil_element({self._of(region)})"
            case Reduction(kind, region):
                return f"cuvil_{kind}({self._of(region)})"
            case Percentile(percent, region):
                return f"cuvil_percentile({self._of(region)}, {exact(percent, repr(percent))})"
            case Count(region, sign, bound, fraction):
                name = "fraction" if fraction else "area"
                return f"cuvil_{name}({self._of(region)}, CUVIL_{_SIGN[sign]}, {self.expression(bound)})"
            case Minus(operand):
                return f"(-{self.expression(operand)})"
            case Arithmetic(sign, left, right):
                return f"({self.expression(left)} {sign} {self.expression(right)})"

    def _of(self, region: Region) -> str:
        name = self.regions.setdefault(region, f"r{len(self.regions)}")
        return f"ENGINE, &{name}"

    def declarations(self) -> list[str]:
        """The regions used so far as C constants."""
        lines = []
        for region, name in self.regions.items():
            start = ", ".join(map(str, region.start)) or "0"
            stop = ", ".join("-1" if s is None else str(s) for s in region.stop) or "0"
            output = int(region.tensor.space == "outputs")
            values = f"{{{output}, {region.tensor.index}, {{{start}}}, {{{stop}}}}}"
            lines.append(f"static const cuvil_region {name} = {values}; /* {comment(region_text(region))} */")
        return lines


def inputs_only(value: Numeric, logic: Logic) -> bool:
    """Whether ``value`` can be computed before the inference."""
    pure = {q.name for q in logic.quantities if q.inputs_only}
    return all(r.tensor.space == "inputs" for r in regions(value)) and set(quantity_names(value)) <= pure
