"""What an expression of a policy reads, in which order definitions follow each other, and how a part is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compiler_kernels.policy import expressions as syntax
from compiler_kernels.policy.logic_tree import (
    And,
    Arithmetic,
    AtLeast,
    Condition,
    Count,
    DecisionRef,
    Minus,
    Not,
    Numeric,
    Or,
    QuantityRef,
)

Path = tuple[str | int, ...]


class LogicError(ValueError):
    """An expression that means nothing: ``path`` is the field of the policy, the message follows its name."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def quantity_refs(value: Numeric) -> set[str]:
    match value:
        case QuantityRef(name):
            return {name}
        case Arithmetic(_, left, right):
            return quantity_refs(left) | quantity_refs(right)
        case Minus(operand) | Count(_, _, operand, _):
            return quantity_refs(operand)
    return set()


def decision_refs(condition: Condition) -> set[str]:
    return {c.name for c in nested(condition) if isinstance(c, DecisionRef)}


def nested(condition: Condition) -> list[Condition]:
    """The condition and everything below it."""
    match condition:
        case And(operands) | Or(operands) | AtLeast(_, operands):
            return [condition, *(n for o in operands for n in nested(o))]
        case Not(operand):
            return [condition, *nested(operand)]
    return [condition]


def occurrences(condition: Condition) -> int:
    """Atomic conditions, those inside an at_least not counted (it is one)."""
    match condition:
        case And(operands) | Or(operands):
            return sum(occurrences(o) for o in operands)
        case Not(operand):
            return occurrences(operand)
    return 1


def ordered(names: Iterable[str], refs: Callable[[str], set[str]], section: str) -> list[str]:
    """Names so that each comes after what it reads, else in their own order. ``LogicError`` for a cycle."""
    done: list[str] = []
    open_: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in open_:
            circle = " -> ".join([*open_[open_.index(name) :], name])
            raise LogicError((section, name), f"is defined by itself: {circle}")
        open_.append(name)
        for needed in sorted(refs(name)):
            visit(needed)
        open_.pop()
        done.append(name)

    for name in names:
        visit(name)
    return done


def shown(tree: syntax.Tree) -> str:
    match tree:
        case syntax.Number(text):
            return text
        case syntax.Name():
            return str(tree)
        case syntax.Index(name):
            return f"{name}[...]"
        case syntax.Call(function):
            return f"{function}(...)"
        case syntax.Comparison(sign):
            return f"'... {sign} ...'"
        case syntax.Binary(sign):
            return f"'... {sign} ...'"
        case syntax.Negative():
            return "'- ...'"
        case syntax.Negation():
            return "'not ...'"
        case syntax.Junction(word):
            return f"'... {word} ...'"
