"""Kernels that compare run-time values with what the engine was compiled for; a mismatch is a refusal, not a result.

Item 0 makes the comparison, whatever the other items do: the values pass through, so that nothing reads outside its
buffers before the refusal is reported.
"""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, c_number, c_string, root_of

REFUSING: Final = frozenset("checked by_axes resize_by slice_at pad_by range col2im".split())
"""Operations whose kernels may refuse."""


def refuse(code: Code, condition: str, message: str) -> None:
    """Record ``message`` where ``condition`` holds."""
    code.add(f"if ({condition}) CA1_REFUSE({c_string(message)});")


def items(function: Graph) -> int:
    """At least one, which checks: the value may be empty."""
    return max(1, root_of(function).out.count)


def checked(function: Graph, code: Code) -> None:
    """Every element of s is one of its allowed values; at most one may be the wildcard instead."""
    op = root_of(function)
    value, steering = op.operands
    stype = function.types()[steering]
    allowed = op.attr("expected")
    assert isinstance(allowed, tuple)
    each = len(allowed) // stype.count
    wildcard = c_number(op.number("wildcard"), stype.dtype) if op.has("wildcard") else ""
    with code.block("if (i == 0)"):
        code.add("int bad = 0;", *(["int open = 0;"] if wildcard else []))
        for k in range(stype.count):
            found = dict.fromkeys(c_number(float(a) if "float" in stype.dtype else int(a), stype.dtype)
                                  for a in allowed[k * each : (k + 1) * each])  # fmt: skip
            good = " || ".join(f"{steering}[{k}] == {a}" for a in found)
            code.add(f"if (!({good})) {f'{steering}[{k}] == {wildcard} ? open++ : bad++' if wildcard else 'bad++'};")
        refuse(code, "bad || open > 1" if wildcard else "bad", op.str_("message"))
    _through(op.out.count, f"{value}[i]", code)


def by_axes(function: Graph, code: Code) -> None:
    """The set of axes as bits; an axis outside the rank is no set. Every item finds the choice by itself."""
    op = root_of(function)
    steering, values = op.operands[0], op.operands[1:]
    rank, picks = op.int_("rank"), op.ints("picks")
    count = prod(function.types()[steering].dims)
    code.add("unsigned mask = 0;", "int outside = 0;")
    with code.block(f"for (int k = 0; k < {count}; k++)"):
        code.add(
            f"const int64_t axis = {steering}[k] < 0 ? (int64_t){steering}[k] + {rank} : (int64_t){steering}[k];",
            f"if (axis < 0 || axis >= {rank}) outside = 1;",
            "else mask |= 1u << axis;",
        )
    tests = [f"mask == {m}u" for m in op.ints("masks")]
    refuse(code, f"i == 0 && (outside || !({' || '.join(tests)}))", op.str_("message"))
    chosen = f"{values[picks[-1]]}[i]"
    for test, pick in zip(reversed(tests[:-1]), reversed(picks[:-1]), strict=True):
        chosen = f"{test} ? {values[pick]}[i] : {chosen}" if f"{values[pick]}[i]" != chosen else chosen
    _through(op.out.count, chosen, code)


def _through(count: int, expression: str, code: Code) -> None:
    if count:
        code.add(f"y[i] = {expression};")
