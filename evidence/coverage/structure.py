"""The decisions of a clinical logic as trees over indexed conditions: what probes record and what goals are about."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.policy.logic_tree import And, Condition, Logic, Not, Or, leaves
from compiler_kernels.targets.c.probes import Kind, at_least_owner, counted
from evidence.coverage.mcdc import Tree


@dataclass(frozen=True, slots=True)
class Node:
    """A decision of the logic. ``id`` is its probe's; ``conditions[i]`` has index ``i`` in ``tree``."""

    id: str
    kind: str
    name: str
    conditions: tuple[Condition, ...]
    tree: Tree
    owner: str
    """The decision or guard it stands in: its own name but for ``at_least``."""


def nodes_of(logic: Logic) -> dict[str, Node]:
    """By probe id: every decision, every safety guard, every at_least in them (its operands are its conditions)."""
    found: dict[str, Node] = {}
    whole: list[tuple[Kind, str, Condition]] = [("decision_node", d.name, d.when) for d in logic.decisions]
    whole += [("safety_guard", g.name, g.require) for g in logic.guards]
    for kind, name, condition in whole:
        conditions = tuple(leaves(condition))
        owner = f"{kind}:{name}"
        for place, inner in enumerate(counted(condition), 1):
            count = f"{at_least_owner(kind, name)}:{place}"
            operands = tuple(range(len(inner.operands)))
            node = Node(
                f"at_least:{count}",
                "at_least",
                count,
                inner.operands,
                ("at_least", inner.count, *operands),
                owner,
            )
            found[node.id] = node
        found[owner] = Node(owner, kind, name, conditions, tree_of(condition), owner)
    return found


def tree_of(condition: Condition) -> Tree:
    """The tree of ``condition`` over its leaves, numbered from left to right."""
    counter = iter(range(len(list(leaves(condition)))))

    def visit(node: Condition) -> Tree:
        match node:
            case And(operands):
                return ("and", *(visit(o) for o in operands))
            case Or(operands):
                return ("or", *(visit(o) for o in operands))
            case Not(operand):
                return ("not", visit(operand))
        return next(counter)

    return visit(condition)
