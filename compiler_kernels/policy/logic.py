"""Resolve the expressions of a policy against the tensors of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from compiler_kernels.ir.extents import model_outputs
from compiler_kernels.ir.graph import Module, TensorType
from compiler_kernels.ir.symbols import interval, symbols_of
from compiler_kernels.policy import expressions as syntax
from compiler_kernels.policy.clinical import FAILURES, Fallback, Fallbacks, Safety
from compiler_kernels.policy.logic_order import (
    LogicError,
    Path,
    decision_refs,
    nested,
    occurrences,
    ordered,
    quantity_refs,
    shown,
)
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
    Logic,
    Minus,
    NamedDecision,
    NamedGuard,
    NamedQuantity,
    NamedThreshold,
    Not,
    Numeric,
    Or,
    Percentile,
    QuantityRef,
    Reduction,
    Region,
    Sign,
    Space,
    Tensor,
    ThresholdRef,
    regions,
)
from compiler_kernels.policy.schema import Policy

MOST_OPERANDS = 32
"""Most conditions of one decision or guard, and operands of one at_least: a probe records them in 32 bits."""


def check_names(policy: Policy) -> None:
    """What can be told without the model: names, cycles, kinds. ``LogicError`` for the first thing that is wrong."""
    _Resolver(policy, None).logic()


def resolve(policy: Policy, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Logic:
    """The clinical logic of ``policy`` for a model with these tensors. ``LogicError`` for what does not fit."""
    return _Resolver(policy, (*inputs, *outputs)).logic()


class _Resolver:
    def __init__(self, policy: Policy, tensors: Sequence[Tensor] | None) -> None:
        self.policy = policy
        self.tensors = tensors
        self.path: Path = ()
        self.kinds: dict[str, str] = {}

    def logic(self) -> Logic:
        policy = self.policy
        for kind, names in (
            ("thresholds", policy.thresholds),
            ("quantities", policy.quantities),
            ("decisions", policy.decisions),
        ):
            for name in cast(Mapping[str, object], names):
                if name in self.kinds:
                    raise LogicError(
                        (kind, name), f"has the name of one of the {self.kinds[name]}; names are shared by both"
                    )
                self.kinds[name] = kind
        # By name, not as written: policy.json keeps no order, and equal policies give equal engines.
        quantities = {n: self.quantity(n) for n in sorted(policy.quantities)}
        decisions = {n: self.decision(n) for n in sorted(policy.decisions)}
        quantity_order = ordered(quantities, lambda n: quantity_refs(quantities[n].value), "quantities")
        decision_order = ordered(decisions, lambda n: decision_refs(decisions[n].when), "decisions")
        pure = self.inputs_only(quantities, quantity_order)
        fallbacks = self.fallbacks(policy.fallbacks or Fallbacks())
        return Logic(
            tuple(self.tensors or ()),
            tuple(NamedThreshold(n, t.value, t.source, t.requirements) for n, t in sorted(policy.thresholds.items())),
            tuple(_with_purity(quantities[n], n in pure) for n in quantity_order),
            tuple(decisions[n] for n in decision_order),
            tuple(self.guard(n, pure, fallbacks["safety_guard"]) for n in sorted((policy.safety or Safety()).guards)),
            fallbacks,
        )

    # ---- sections

    def quantity(self, name: str) -> NamedQuantity:
        section = self.policy.quantities[name]
        self.path = ("quantities", name, "value")
        value = self.number(syntax.parse_expression(section.value))
        return NamedQuantity(name, value, section.value, section.unit, section.requirements, False)

    def decision(self, name: str) -> NamedDecision:
        section = self.policy.decisions[name]
        self.path = ("decisions", name, "when")
        when = self.whole_condition(section.when)
        return NamedDecision(name, when, section.when, section.description, section.requirements, section.clauses)

    def guard(self, name: str, pure: set[str], default: Fallback) -> NamedGuard:
        section = (self.policy.safety or Safety()).guards[name]
        self.path = ("safety", "guards", name, "require")
        require = self.whole_condition(section.require)
        before = self.reads_inputs_only(require, pure)
        if section.fallback is not None:
            self.check_fallback(section.fallback, ("safety", "guards", name, "fallback"))
        return NamedGuard(
            name,
            require,
            section.require,
            section.description,
            before,
            section.fallback or default,
            section.requirements,
            section.clauses,
        )

    def fallbacks(self, section: Fallbacks) -> dict[str, Fallback]:
        self.check_fallback(section.default, ("fallbacks", "default"))
        found = {}
        for failure in FAILURES:
            given = cast("Fallback | None", getattr(section, failure))
            if given is not None:
                self.check_fallback(given, ("fallbacks", failure))
            found[failure] = given or section.default
        return found

    def check_fallback(self, fallback: Fallback, path: Path) -> None:
        wanted = set(self.policy.decisions)
        if fallback.action == "refuse":
            return
        for name in fallback.decisions:
            if name not in wanted:
                raise LogicError((*path, "decisions", name), "is no decision of the policy")
        missing = sorted(wanted - set(fallback.decisions))
        if missing:
            raise LogicError(
                (*path, "decisions"), f"does not give the decision {missing[0]}; a fallback answers all of them"
            )

    # ---- conditions

    def whole_condition(self, text: str) -> Condition:
        condition = self.condition(syntax.parse_expression(text))
        count = occurrences(condition)
        if count > MOST_OPERANDS:
            raise self.error(f"has {count} conditions and may have {MOST_OPERANDS}; name parts of it as decisions")
        return condition

    def condition(self, tree: syntax.Tree) -> Condition:
        match tree:
            case syntax.Negation(operand):
                return Not(self.condition(operand))
            case syntax.Junction(word, operands):
                made = tuple(self.condition(o) for o in operands)
                return And(made) if word == "and" else Or(made)
            case syntax.Comparison(sign, left, right):
                return Compare(cast(Sign, sign), self.number(left), self.number(right))
            case syntax.Call("at_least", arguments):
                return self.at_least(arguments)
            case syntax.Name(text, "") if self.kinds.get(text) == "decisions":
                return DecisionRef(text)
        raise self.error(f"needs a condition, and {shown(tree)} is a number; compare it, as in p >= 0.5")

    def at_least(self, arguments: tuple[syntax.Tree, ...]) -> AtLeast:
        count, *operands = arguments
        if (
            not isinstance(count, syntax.Number)
            or not count.text.isdigit()
            or not 1 <= int(count.text) <= len(operands)
        ):
            raise self.error(
                "has an at_least whose first argument is no whole number from 1 to the number of conditions"
            )
        if len(operands) > MOST_OPERANDS:
            raise self.error(f"has an at_least of {len(operands)} conditions and may have {MOST_OPERANDS}")
        made = tuple(self.condition(o) for o in operands)
        if any(isinstance(o, AtLeast) for m in made for o in nested(m)):
            raise self.error("has an at_least within an at_least; name the inner one as a decision")
        return AtLeast(int(count.text), made)

    # ---- numbers

    def number(self, tree: syntax.Tree) -> Numeric:
        match tree:
            case syntax.Number(text):
                return Constant(tree.value, text)
            case syntax.Negative(operand):
                return Minus(self.number(operand))
            case syntax.Binary(sign, left, right):
                return Arithmetic(sign, self.number(left), self.number(right))  # type: ignore[arg-type]
            case syntax.Name(text, "") if self.kinds.get(text) == "thresholds":
                return ThresholdRef(text)
            case syntax.Name(text, "") if self.kinds.get(text) == "quantities":
                return QuantityRef(text)
            case syntax.Name() | syntax.Index():
                return Element(self.element(tree))
            case syntax.Call(function, arguments):
                return self.reduction(function, arguments)
        raise self.error(f"needs a number, and {shown(tree)} is a condition")

    def reduction(self, function: str, arguments: tuple[syntax.Tree, ...]) -> Numeric:
        wanted = 2 if function == "percentile" else 1
        if function == "at_least":
            raise self.error("needs a number, and at_least(...) is a condition")
        if len(arguments) != wanted:
            raise self.error(f"gives {function} {len(arguments)} arguments, and it takes {wanted}")
        first = arguments[0]
        if function in ("area", "fraction"):
            if not isinstance(first, syntax.Comparison):
                raise self.error(f"needs a comparison in {function}, such as {function}(mask > 0.5)")
            bound = self.number(first.right)
            if any(True for _ in regions(bound)):
                raise self.error(
                    f"compares with a tensor in {function}; the right side is a number, threshold or quantity"
                )
            return Count(self.region(first.left), cast(Sign, first.sign), bound, function == "fraction")
        region = self.region(first)
        if function != "percentile":
            return Reduction(function, region)  # type: ignore[arg-type]
        percent = arguments[1]
        if not isinstance(percent, syntax.Number) or not 0 <= percent.value <= 100:
            raise self.error("has a percentile that is no number from 0 to 100")
        return Percentile(percent.value, region)

    def element(self, tree: syntax.Name | syntax.Index) -> Region:
        region = self.region(tree)
        if self.tensors is not None and region.count() != 1:
            name = region.tensor.name
            raise self.error(
                f"uses {shown(tree)} as a number, and it is {region.count()} elements of {name!r} with the shape "
                f"{list(region.tensor.shape)}; give one position for each axis or use max, mean, area..."
            )
        return region

    def region(self, tree: syntax.Tree) -> Region:
        match tree:
            case syntax.Name():
                name, axes = tree, None
            case syntax.Index(name, axes):
                pass
            case _:
                raise self.error(f"needs a tensor, and {shown(tree)} is none; reduce tensors one by one")
        tensor = self.tensor(name)
        if self.tensors is None or axes is None:
            rank = len(tensor.shape)
            return Region(
                tensor,
                (0,) * rank,
                tuple(None if not f else s for s, f in zip(tensor.shape, tensor.fixed, strict=True)),
            )
        if len(axes) != len(tensor.shape):
            raise self.error(
                f"gives {len(axes)} positions for {tensor.name!r}, whose shape is {list(tensor.shape)}; "
                "give one for each axis"
            )
        stops: list[int | None] = []
        for axis, size, fixed in zip(axes, tensor.shape, tensor.fixed, strict=True):
            last = size if axis.stop is None else axis.stop
            if last > size or axis.start >= size:
                raise self.error(
                    f"goes past {tensor.name!r}, whose shape is {list(tensor.shape)}; positions count from 0"
                )
            if not fixed and (axis.start > 0 or axis.stop is not None):
                raise self.error(f"takes positions of an axis of {tensor.name!r} whose size varies; write ':' there")
            stops.append(None if not fixed else last)
        return Region(tensor, tuple(a.start for a in axes), tuple(stops))

    def tensor(self, name: syntax.Name) -> Tensor:
        if not name.space and name.text in self.kinds:
            raise self.error(f"uses {name.text} as a tensor, and it is one of the {self.kinds[name.text]}")
        if self.tensors is None:  # without the model every other name may be a tensor
            return Tensor("outputs" if name.space != "inputs" else "inputs", 0, name.text, "float32", (), ())
        found = [t for t in self.tensors if t.name == name.text and name.space in ("", t.space)]
        if len(found) == 2:
            raise self.error(
                f"names {name.text!r}, which is an input and an output; write inputs.{name.text} or outputs.{name.text}"
            )
        if not found:
            known = [*self.kinds, *(t.name for t in self.tensors)]
            raise self.error(
                f"names {str(name)!r}, which is nothing the policy or the model defines; known are {', '.join(known)}"
            )
        return found[0]

    # ---- order and purity

    def inputs_only(self, quantities: Mapping[str, NamedQuantity], order: Iterable[str]) -> set[str]:
        pure: set[str] = set()
        for name in order:
            value = quantities[name].value
            if all(r.tensor.space == "inputs" for r in regions(value)) and quantity_refs(value) <= pure:
                pure.add(name)
        return pure

    def reads_inputs_only(self, condition: Condition, pure: set[str]) -> bool:
        match condition:
            case And(operands) | Or(operands) | AtLeast(_, operands):
                return all(self.reads_inputs_only(o, pure) for o in operands)
            case Not(operand):
                return self.reads_inputs_only(operand, pure)
            case DecisionRef():
                return False
            case Compare(_, left, right):
                sides = (left, right)
                return all(r.tensor.space == "inputs" for s in sides for r in regions(s)) and all(
                    quantity_refs(s) <= pure for s in sides
                )

    def error(self, message: str) -> LogicError:
        return LogicError(self.path, message)


def _with_purity(quantity: NamedQuantity, pure: bool) -> NamedQuantity:
    return NamedQuantity(quantity.name, quantity.value, quantity.text, quantity.unit, quantity.requirements, pure)


def tensors_of(module: Module) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and outputs of ``module`` (L0 or frozen) as the engine numbers them."""
    graph, symbols = module.main, symbols_of(module.meta)
    types = graph.types()

    def made(space: Space, index: int, name: str, ttype: TensorType, varies: bool) -> Tensor:
        shape = tuple(d if isinstance(d, int) else interval(d, symbols)[1] for d in ttype.extents)
        fixed = tuple(isinstance(d, int) and not varies for d in ttype.extents)
        return Tensor(space, index, name, ttype.dtype, shape, fixed)

    inputs = [made("inputs", n, v.name or v.id, v.type, False) for n, v in enumerate(graph.inputs)]
    outputs = [
        made("outputs", n, name, types[value], bool(sizes))
        for n, (name, value, sizes) in enumerate(model_outputs(graph))
    ]
    return inputs, outputs
