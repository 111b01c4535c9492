"""C of the conditions of decisions and guards (docs/clinical.md)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.policy.logic_tree import And, AtLeast, Compare, Condition, DecisionRef, Not, Or
from compiler_kernels.targets.c.numbers import Numbers


@dataclass
class Expression:
    """One C boolean expression; ``probed`` wraps each atomic condition so that the trace notes it."""

    numbers: Numbers
    leaf: int = 0
    count: int = 0

    def probed(self, condition: Condition, indent: str = "", negated: bool = False) -> str:
        """``indent``: one operand a line. Negations stand before atomic conditions alone, by De Morgan's laws, which
        keep what is evaluated and in which order: clang counts no MC/DC of a decision with ``!(a && b)`` in it."""
        between = f"\n{indent}" if indent else " "
        match condition:
            case And(operands) | Or(operands):
                sign = "&&" if isinstance(condition, And) != negated else "||"
                return f"({f'{between}{sign} '.join(self.probed(o, negated=negated) for o in operands)})"
            case Not(operand):
                return self.probed(operand, negated=not negated)
        index = self.leaf
        self.leaf += 1
        before = "!" if negated else ""
        if isinstance(condition, AtLeast):
            self.count += 1
            return f"{before}cuvil_condition(&t, {index}, n{self.count} >= {condition.count})"
        return f"{before}cuvil_condition(&t, {index}, {self.plain(condition)})"

    def plain(self, condition: Condition) -> str:
        match condition:
            case And(operands):
                return f"({' && '.join(self.plain(o) for o in operands)})"
            case Or(operands):
                return f"({' || '.join(self.plain(o) for o in operands)})"
            case Not(operand):
                return f"!({self.plain(operand)})"
            case DecisionRef(name):
                return f"d_{name}"
            case Compare(sign, left, right):
                return f"{self.numbers.read(left)} {sign} {self.numbers.read(right)}"
        raise AssertionError("an at_least stands within an at_least")
