"""The probes of the clinical logic, their numbers, and the artefact ``probes.json`` (docs/clinical.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

from compiler_kernels.policy.clinical import FAILURES
from compiler_kernels.policy.logic_text import condition_text
from compiler_kernels.policy.logic_tree import (
    And,
    AtLeast,
    Condition,
    Logic,
    NamedDecision,
    NamedGuard,
    Not,
    Or,
    leaves,
)
from compiler_kernels.stage import Json, as_json
from compiler_kernels.targets.c.numbers import checked_numbers

FORMAT: Final = "cuvil-probes/1"
Kind = Literal["entry", "fallback_handler", "safety_guard", "decision_node", "at_least"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One place of ``clinical.c`` that says that it was reached.

    ``conditions``: the texts of the atomic conditions in the order of their bits; ``tree``: their indices nested as
    ``["and", 0, ["not", 1]]``, of an ``at_least`` ``["at_least", count, 0, 1...]``; ``function``: the C function.
    """

    number: int
    kind: Kind
    name: str
    conditions: tuple[str, ...] = ()
    tree: Json = None
    requirements: tuple[str, ...] = ()
    clauses: tuple[str, ...] = ()
    text: str = ""
    function: str = ""

    @property
    def id(self) -> str:
        """Depends on names and kind alone, so that it outlives changes of anything else."""
        return f"{self.kind}:{self.name}"


def probes_of(logic: Logic) -> tuple[Probe, ...]:
    """Every probe of ``logic`` in the order of its number."""
    found = [Probe(0, "entry", "inference", function="begin")]
    for failure in used_fallbacks(logic):
        requirements = logic.fallbacks[failure].requirements
        found.append(
            Probe(len(found), "fallback_handler", failure, requirements=requirements, function=f"fallback_{failure}")
        )
    for guard in logic.guards:
        if has_own_fallback(logic, guard):
            name, requirements = f"safety_guard:{guard.name}", guard.fallback.requirements
            function = f"fallback_of_{guard.name}"
            found.append(Probe(len(found), "fallback_handler", name, requirements=requirements, function=function))
    for guard in logic.guards:
        found += _nodes(len(found), "safety_guard", guard, guard.require, f"guard_{guard.name}")
    for decision in logic.decisions:
        found += _nodes(len(found), "decision_node", decision, decision.when, f"decide_{decision.name}")
    return tuple(found)


def used_fallbacks(logic: Logic) -> list[str]:
    """The failures whose fallback is compiled in: those a host may report, and what the logic itself can find."""
    never = set()
    if not checked_numbers(logic):
        never.add("not_a_number")
    if all(has_own_fallback(logic, guard) for guard in logic.guards):
        never.add("safety_guard")
    return [failure for failure in FAILURES if failure not in never]


def has_own_fallback(logic: Logic, guard: NamedGuard) -> bool:
    return guard.fallback != logic.fallbacks["safety_guard"]


def counted(when: Condition) -> list[AtLeast]:
    """The ``at_least`` of a decision or guard from left to right."""
    return [leaf for leaf in leaves(when) if isinstance(leaf, AtLeast)]


def at_least_owner(kind: Kind, name: str) -> str:
    """Decisions and guards may share a name; the probes of their ``at_least`` do not."""
    return name if kind == "decision_node" else f"{kind}.{name}"


def _nodes(number: int, kind: Kind, section: NamedDecision | NamedGuard, when: Condition, function: str) -> list[Probe]:
    found = []
    for place, leaf in enumerate(counted(when), 1):
        name = f"{at_least_owner(kind, section.name)}:{place}"
        operands = tuple(condition_text(o) for o in leaf.operands)
        tree = as_json(["at_least", leaf.count, *range(len(operands))])
        text = condition_text(leaf)
        found.append(
            Probe(number, "at_least", name, operands, tree, section.requirements, section.clauses, text, function)
        )
        number += 1
    conditions = tuple(condition_text(leaf) for leaf in leaves(when))
    tree = _tree(when, iter(range(len(conditions))))
    text, requirements, clauses = section.text, section.requirements, section.clauses
    return [*found, Probe(number, kind, section.name, conditions, tree, requirements, clauses, text, function)]


def _tree(condition: Condition, indices: Iterator[int]) -> Json:
    match condition:
        case And(operands):
            return ["and", *(_tree(o, indices) for o in operands)]
        case Or(operands):
            return ["or", *(_tree(o, indices) for o in operands)]
        case Not(operand):
            return ["not", _tree(operand, indices)]
    return next(indices)


def probes_json(
    probes: tuple[Probe, ...], lines: Mapping[str, tuple[int, int]], compiled_in: bool, config: str
) -> bytes:
    """The artefact: ``lines`` are first and last line of each function of ``clinical.c``."""
    listed: list[Json] = []
    for probe in probes:
        row = {"number": probe.number, "id": probe.id, **asdict(probe)}
        row["conditions"] = [{"index": i, "text": text} for i, text in enumerate(probe.conditions)]
        row["lines"] = list(lines[probe.function])
        listed.append(as_json(row))
    document = {"format": FORMAT, "config_digest": config, "compiled_in": compiled_in, "probes": listed}
    return (json.dumps(document, indent=1) + "\n").encode()
