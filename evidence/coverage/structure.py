"""The decisions of a clinical logic as trees over indexed conditions: what probes record and what goals are about."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.policy.logic_tree import And, AtLeast, Condition, Logic, Not, Or, leaves
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
    """By probe id: every decision, every safety guard, and every at_least within them (whole conditions as operands)."""
    found: dict[str, Node] = {}
    whole = [("decision_node", d.name, d.when) for d in logic.decisions]
    whole += [("safety_guard", g.name, g.require) for g in logic.guards]
    for kind, name, condition in whole:
        conditions = tuple(leaves(condition))
        owner = f"{kind}:{name}"
        for number, inner in enumerate(c for c in conditions if isinstance(c, AtLeast)):
            operands = tuple(range(len(inner.operands)))
            node = Node(
                f"at_least:{name}:{number}",
                "at_least",
                f"{name}:{number}",
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
