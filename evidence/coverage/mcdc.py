"""Statement, decision, condition and MC/DC coverage of one decision, from records of its evaluations.

Definitions (docs/coverage.md). A decision is a tree over indexed conditions, evaluated left to right with short
circuit. A *record* says which conditions were evaluated, their values, and the outcome.

* Unique cause: two records with different outcomes in which condition ``i`` differs and no other condition that both
  evaluated differs (DO-178C's unique-cause MC/DC, a condition that was not evaluated counting as either value; this is
  also what LLVM counts).
* Masking: a record in which ``i`` is true and one in which it is false, ``i`` not masked in either, that is, its change
  alone would change the outcome for some values of the conditions that were not evaluated (CAST-6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

Tree = int | tuple["Tree | str | int", ...]
"""A condition's index, or ``("and", t, ...)``, ``("or", t, ...)``, ``("not", t)``, ``("at_least", count, t, ...)``."""


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluation: bit ``i`` of ``evaluated`` and of ``values`` belongs to condition ``i``."""

    evaluated: int
    values: int
    outcome: bool

    def value(self, index: int) -> bool | None:
        """Value of condition ``index``; ``None`` where it was not evaluated."""
        return bool(self.values >> index & 1) if self.evaluated >> index & 1 else None


@dataclass(frozen=True, slots=True)
class Pair:
    """Numbers of the vectors that show a condition's independence: it is true in the first, false in the second."""

    true: int
    false: int


@dataclass(frozen=True, slots=True)
class ConditionCoverage:
    """First vectors with the condition true and false, and its independence pairs; ``None`` where there is none."""

    true: int | None
    false: int | None
    unique_cause: Pair | None
    masking: Pair | None


@dataclass(frozen=True, slots=True)
class DecisionCoverage:
    """First vectors with each outcome, how often the decision was evaluated, and its conditions."""

    hits: int
    true: int | None
    false: int | None
    conditions: tuple[ConditionCoverage, ...]


def children(tree: Tree) -> tuple[Tree, ...]:
    """Operands of an inner node."""
    assert isinstance(tree, tuple)
    return tuple(t for t in tree[2 if tree[0] == "at_least" else 1 :] if not isinstance(t, str))


def indices(tree: Tree) -> Iterator[int]:
    """The conditions of ``tree`` from left to right."""
    if isinstance(tree, int):
        yield tree
    else:
        for child in children(tree):
            yield from indices(child)


def evaluate(tree: Tree, values: Sequence[bool]) -> Record:
    """The record of evaluating ``tree`` with these values of its conditions."""
    seen = 0

    def visit(node: Tree) -> bool:
        nonlocal seen
        if isinstance(node, int):
            seen |= 1 << node
            return values[node]
        match node[0]:
            case "and":
                return all(visit(c) for c in children(node))
            case "or":
                return any(visit(c) for c in children(node))
            case "not":
                return not visit(children(node)[0])
        found = [visit(c) for c in children(node)]  # at_least evaluates every operand
        return sum(found) >= _count(node)

    outcome = visit(tree)
    return Record(seen, sum(1 << i for i, v in enumerate(values) if v) & seen, outcome)


def result(tree: Tree, record: Record) -> bool | None:
    """Outcome of ``tree`` by the values in ``record``; ``None`` where they leave it open."""
    if isinstance(tree, int):
        return record.value(tree)
    found = [result(c, record) for c in children(tree)]
    match tree[0]:
        case "and":
            return False if False in found else None if None in found else True
        case "or":
            return True if True in found else None if None in found else False
        case "not":
            return None if found[0] is None else not found[0]
    if found.count(True) >= _count(tree):
        return True
    return None if found.count(True) + found.count(None) >= _count(tree) else False


def unmasked(tree: Tree, record: Record) -> int:
    """Bits of the evaluated conditions whose change alone could change the outcome."""
    if isinstance(tree, int):
        return 1 << tree & record.evaluated
    operands = children(tree)
    found = [result(c, record) for c in operands]
    mask = 0
    for at, child in enumerate(operands):
        others = found[:at] + found[at + 1 :]
        match tree[0]:
            case "and":
                free = False not in others
            case "or":
                free = True not in others
            case "not":
                free = True
            case _:
                free = others.count(True) <= _count(tree) - 1 <= others.count(True) + others.count(None)
        if free:
            mask |= unmasked(child, record)
    return mask


def measure(tree: Tree, count: int, records: Iterable[tuple[int, Record]]) -> DecisionCoverage:
    """Coverage of one decision with ``count`` conditions by ``(number of the vector, record)`` in order."""
    first: dict[Record, int] = {}
    hits = 0
    for vector, record in records:
        first.setdefault(record, vector)
        hits += 1
    outcome = {r.outcome: v for r, v in reversed(first.items())}
    covered = []
    for index in range(count):
        of = {True: [r for r in first if r.value(index) is True], False: [r for r in first if r.value(index) is False]}
        free = {v: [r for r in rs if unmasked(tree, r) >> index & 1] for v, rs in of.items()}
        masking = next(
            (Pair(first[a], first[b]) for a in free[True] for b in free[False] if a.outcome != b.outcome), None
        )
        covered.append(
            ConditionCoverage(
                first[of[True][0]] if of[True] else None,
                first[of[False][0]] if of[False] else None,
                next(
                    (Pair(first[a], first[b]) for a in of[True] for b in of[False] if independent(a, b, index)),
                    None,
                ),
                masking,
            )
        )
    return DecisionCoverage(hits, outcome.get(True), outcome.get(False), tuple(covered))


def independent(first: Record, second: Record, index: int) -> bool:
    """Whether the two records are an independence pair of condition ``index`` by unique cause."""
    both = first.evaluated & second.evaluated
    return first.outcome != second.outcome and both & (first.values ^ second.values) == 1 << index


def _count(tree: Tree) -> int:
    assert isinstance(tree, tuple) and isinstance(tree[1], int)
    return tree[1]
