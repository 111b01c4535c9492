"""The gate on PTX: floating-point instructions of a GPU engine are those of IEEE 754, rounded to nearest even.

PTX ISA, sections "Floating Point Instructions" and "Warp Level Matrix Instructions". An instruction that is not on the
list below is refused, so that a compiler's new idea is looked at before it is believed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_F: Final = r"\.f(?:32|64)"
_ALLOWED: Final = re.compile(
    "|".join(
        (
            rf"(?:fma|add|sub|mul|div)\.rn{_F}",
            rf"sqrt\.rn{_F}",
            rf"rcp\.rn{_F}",
            rf"(?:neg|abs|copysign){_F}",
            # without .NaN and .ftz: the number where one operand is NaN; selects beside it decide on NaN
            rf"(?:min|max){_F}",
            rf"(?:setp|set)\.(?:eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan)(?:\.(?:and|or|xor))?(?:\.u32|\.s32)?{_F}",
            rf"selp{_F}",
            rf"slct\.\w+{_F}",
            rf"testp\.\w+{_F}",
            rf"mov{_F}",
            rf"(?:ld|st)(?:\.\w+)*{_F}",
            rf"cvt\.r[nzmp]i{_F}{_F}",  # to a whole number in the same format
            rf"cvt\.rn{_F}\.\w+",  # from a wider or an integer type
            r"cvt\.f64\.f32",  # exact
            r"cvt\.r[nzmp]i(?:\.sat)?\.[us](?:8|16|32|64)\.f(?:32|64)",  # to an integer
        )
    )
)
_FORBIDDEN: Final = (
    (re.compile(r"\.ftz\b"), "flushes subnormals to zero"),
    (re.compile(r"\.approx\b"), "is an approximation"),
    (re.compile(r"\bdiv\.full"), "is no correctly rounded division"),
    (re.compile(r"\b(?:w?mma|wgmma|tcgen05)\b"), "is a matrix instruction, whose order of sums is not defined"),
    (re.compile(r"\.(?:b?f16(?:x\d+)?|tf32|u?e\d+m\d+\w*)\b"), "is arithmetic in half precision or less"),
    (re.compile(r"^(?:atom|red)\.(?!.*\.u32$)|^(?:multimem|cp\.reduce)\."), "is an atomic operation on data"),
    (re.compile(r"^(?:fma|add|sub|mul|div|sqrt|rcp)\.r[zmp]\."), "rounds in another direction"),
)
# Conversions between bit patterns of half floats and binary32 are written with integers (runtime/ca1_typed.h).
_FLOATING: Final = re.compile(r"\.(?:[bt]?f\d+(?:x\d+)?|u?e\d+m\d+\w*)\b")
_ATOMIC: Final = re.compile(r"^(?:atom|red)\.")
_TICKET: Final = re.compile(r"^atom(?:\.\w+)*\.(?:add|exch|inc)\.u32$")
# Behind labels, braces and a predicate, whose register inline assembly may have given a name of its own.
_INSTRUCTION: Final = re.compile(r"^(?:\s|[{}]|[\w$%]+:(?!:)|@!?[\w$%]+)*?([a-z]\w*(?:(?:\.|::)\w+)+)(?![\w.:])")
_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class GateReport:
    """How often each floating-point, atomic and asynchronous instruction stands in the PTX, and what is not allowed."""

    counts: Mapping[str, int]
    violations: tuple[str, ...]


def gate(ptx: str) -> GateReport:
    """Every instruction of ``ptx`` against the list; inline assembly is PTX too and is seen like the rest."""
    counts: Counter[str] = Counter()
    violations: list[str] = []
    text = _COMMENT.sub(lambda found: " " + "\n" * found[0].count("\n"), ptx)
    for number, line in enumerate(text.splitlines(), 1):
        for part in line.split(";"):
            found = _INSTRUCTION.match(part)
            if found is None or found[1].startswith("."):
                continue
            name = found[1]
            problem = _problem(name)
            if problem:
                violations.append(f"{name} in line {number}, which {problem}")
            if _FLOATING.search(name) or _ATOMIC.match(name):
                counts[name] += 1
    return GateReport(dict(sorted(counts.items())), tuple(violations))


def _problem(name: str) -> str:
    for pattern, why in _FORBIDDEN:
        if pattern.search(name):
            return why
    if _ATOMIC.match(name) and not _TICKET.match(name):
        return "is an atomic operation on data"
    if _FLOATING.search(name) and not _ALLOWED.fullmatch(name):
        return "is not on the list of allowed floating-point instructions"
    return ""
