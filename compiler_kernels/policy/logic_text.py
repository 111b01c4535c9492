"""The clinical logic as text of the policy's expression language, for reports; reading it again gives the same tree."""

from __future__ import annotations

import re
from typing import Final

from compiler_kernels.policy.expressions import RESERVED
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
    Minus,
    Not,
    Numeric,
    Or,
    Percentile,
    QuantityRef,
    Reduction,
    Region,
    ThresholdRef,
)

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRENGTH: Final = {"+": 1, "-": 1, "*": 2, "/": 2}


def condition_text(condition: Condition) -> str:
    """``condition`` with the parentheses it needs and no others."""
    match condition:
        case And(operands):
            return " and ".join(_operand(o, (And, Or)) for o in operands)
        case Or(operands):
            return " or ".join(_operand(o, (Or,)) for o in operands)
        case Not(operand):
            return f"not {_operand(operand, (And, Or))}"
        case AtLeast(count, operands):
            return f"at_least({', '.join([str(count), *map(condition_text, operands)])})"
        case DecisionRef(name):
            return name
        case Compare(sign, left, right):
            return f"{number_text(left)} {sign} {number_text(right)}"


def _operand(condition: Condition, weaker: tuple[type, ...]) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, weaker) else text


def number_text(value: Numeric) -> str:
    """``value`` with the parentheses it needs and no others; tensors are written ``inputs.NAME``, ``outputs.NAME``."""
    match value:
        case Constant(_, text):
            return text
        case ThresholdRef(name) | QuantityRef(name):
            return name
        case Element(region):
            return region_text(region)
        case Reduction(kind, region):
            return f"{kind}({region_text(region)})"
        case Percentile(percent, region):
            return f"percentile({region_text(region)}, {percent!r})"
        case Count(region, sign, bound, fraction):
            return f"{'fraction' if fraction else 'area'}({region_text(region)} {sign} {number_text(bound)})"
        case Minus(operand):
            return f"-{_factor(operand, 3)}"
        case Arithmetic(sign, left, right):
            strength = _STRENGTH[sign]
            return f"{_factor(left, strength)} {sign} {_factor(right, strength + 1)}"


def _factor(value: Numeric, least: int) -> str:
    text = number_text(value)
    return f"({text})" if isinstance(value, Arithmetic) and _STRENGTH[value.sign] < least else text


def region_text(region: Region) -> str:
    """The tensor's name, with positions unless all of it is taken."""
    tensor = region.tensor
    name = tensor.name if _PLAIN.fullmatch(tensor.name) and tensor.name not in RESERVED else f"`{tensor.name}`"
    axes = []
    whole = True
    for low, high, size, fixed in zip(region.start, region.stop, tensor.shape, tensor.fixed, strict=True):
        if low == 0 and high in (None, size):
            axes.append(":" if size != 1 or not fixed else "0")
        else:
            axes.append(str(low) if high == low + 1 else f"{low}:{high}")
            whole = False
    return f"{tensor.space}.{name}" + ("" if whole or not axes else f"[{', '.join(axes)}]")
