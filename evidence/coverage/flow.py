"""The decisions of the logic as Boolean terms: when each is reached, what it answers, which conditions count in it."""

from __future__ import annotations

from dataclasses import dataclass

import z3

from compiler_kernels.policy.logic_tree import And, AtLeast, Compare, Condition, DecisionRef, Logic, Not, Or
from evidence.coverage.mcdc import Tree, children
from evidence.coverage.numbers import Numbers, Term
from evidence.coverage.structure import Node, nodes_of


@dataclass(frozen=True, slots=True)
class Traced:
    """A decision as terms: that it is reached, its outcome, and of each condition the value, that it is evaluated and
    that it is not masked."""

    reached: Term
    outcome: Term
    values: tuple[Term, ...]
    evaluated: tuple[Term, ...]
    unmasked: tuple[Term, ...]


class Flow:
    """``traced`` by probe id. With ``early`` only the guards before the inference, and nothing else is said."""

    def __init__(self, logic: Logic, numbers: Numbers, *, early: bool = False) -> None:
        self.numbers = numbers
        self.decisions: dict[str, Term] = {}
        self.traced: dict[str, Traced] = {}
        nodes = nodes_of(logic)
        reached: Term = z3.BoolVal(True)
        for guard in logic.guards:
            if guard.before:
                reached = z3.And(reached, self.trace(nodes, f"safety_guard:{guard.name}", guard.require, reached))
        self.entered = reached
        """That no guard before the inference fails."""
        if not early:
            for quantity in logic.quantities:
                numbers.number(quantity.value)
            for decision in logic.decisions:
                outcome = self.trace(nodes, f"decision_node:{decision.name}", decision.when, reached)
                self.decisions[decision.name] = outcome
            for guard in logic.guards:
                if not guard.before:
                    reached = z3.And(reached, self.trace(nodes, f"safety_guard:{guard.name}", guard.require, reached))
        self.decided = reached
        """That no guard fails."""

    def trace(self, nodes: dict[str, Node], name: str, condition: Condition, reached: Term) -> Term:
        for node in nodes.values():
            if node.kind == "at_least" and node.owner == name:
                self.traced[node.id] = self.node(node, reached)
        found = self.traced[name] = self.node(nodes[name], reached)
        return found.outcome

    def node(self, node: Node, reached: Term) -> Traced:
        values = tuple(self.truth(c) for c in node.conditions)
        count = len(values)
        evaluated, unmasked = [z3.BoolVal(False)] * count, [z3.BoolVal(False)] * count

        def visit(tree: Tree, seen: Term, free: Term) -> None:
            if isinstance(tree, int):
                evaluated[tree], unmasked[tree] = seen, z3.And(seen, free)
                return
            operands = children(tree)
            truths = [result_of(o, values) for o in operands]
            for at, operand in enumerate(operands):
                before, after = truths[:at], truths[at + 1 :]
                match tree[0]:
                    case "and":
                        rest = z3.Or(z3.Not(truths[at]), z3.And(after))
                        visit(operand, z3.And(seen, *before), z3.And(free, rest))
                    case "or":
                        rest = z3.Or(truths[at], z3.Not(z3.Or(after)))
                        visit(operand, z3.And(seen, z3.Not(z3.Or(before))), z3.And(free, rest))
                    case "not":
                        visit(operand, seen, free)
                    case _:
                        others = [(t, 1) for t in (*before, *after)]
                        wanted = int(str(tree[1])) - 1
                        visit(operand, seen, z3.And(free, z3.PbEq(others, wanted) if others else wanted == 0))

        visit(node.tree, reached, z3.BoolVal(True))
        return Traced(reached, result_of(node.tree, values), values, tuple(evaluated), tuple(unmasked))

    def truth(self, condition: Condition) -> Term:
        match condition:
            case Compare():
                return self.numbers.compare(condition)
            case DecisionRef(name):
                return self.decisions[name]
            case Not(operand):
                return z3.Not(self.truth(operand))
            case And(operands):
                return z3.And([self.truth(o) for o in operands])
            case Or(operands):
                return z3.Or([self.truth(o) for o in operands])
            case AtLeast(count, operands):
                return z3.PbGe([(self.truth(o), 1) for o in operands], count)


def result_of(tree: Tree, values: tuple[Term, ...]) -> Term:
    """The outcome of ``tree`` as a term."""
    if isinstance(tree, int):
        return values[tree]
    found = [result_of(c, values) for c in children(tree)]
    match tree[0]:
        case "and":
            return z3.And(found)
        case "or":
            return z3.Or(found)
        case "not":
            return z3.Not(found[0])
    return z3.PbGe([(f, 1) for f in found], int(str(tree[1])))
