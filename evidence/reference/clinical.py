"""The clinical logic of a policy, evaluated from its texts (docs/clinical.md) without any code of the compiler.

Expressions are read by Python's own parser, and numbers are computed with NumPy in binary64.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from evidence.reference.clinical_numbers import Array, compared, holds, measure, part
from evidence.reference.errors import ReferenceError

_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_WORDS: Final = {"and", "or", "not"}
_TOKEN = re.compile(r"`([^`]+)`|([A-Za-z_]\w*)|((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)", re.ASCII)


@dataclass
class Found:
    """The answer: ``status`` is ``decided``, ``fallback`` or ``refused``; ``failure`` and ``guard`` are empty where
    there is none; the numbers and truth values that were computed, by name."""

    status: str = "open"
    failure: str = ""
    guard: str = ""
    message: str = ""
    quantities: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, bool] = field(default_factory=dict)
    guards: dict[str, bool] = field(default_factory=dict)


class _Fails(Exception):
    def __init__(self, failure: str, guard: str = "") -> None:
        self.failure, self.guard = failure, guard


def decide(
    policy: Mapping[str, Any],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    pretended: Sequence[str] = (),
) -> Found:
    """What an engine of ``policy`` (``policy.json`` as a mapping) answers on these inputs and outputs.

    Arrays have the engine's element types, bfloat16 as ``V2``. ``pretended`` names failures that the engine itself
    would find: ``lockstep``, ``refusal``, or guards. ``ReferenceError`` for a policy that does not fit the tensors.
    """
    return _Inference(policy, inputs, outputs, frozenset(pretended)).answer()


class _Inference:
    def __init__(
        self,
        policy: Mapping[str, Any],
        inputs: Mapping[str, Array],
        outputs: Mapping[str, Array],
        pretended: frozenset[str],
    ) -> None:
        self.policy = policy
        self.tensors = {"inputs": inputs, "outputs": outputs}
        self.pretended = pretended
        self.found = Found()
        self.thresholds = {n: float(t["value"]) for n, t in policy.get("thresholds", {}).items()}
        self.quantities = {n: _read(q["value"]) for n, q in policy.get("quantities", {}).items()}
        self.decisions = {n: _read(d["when"]) for n, d in policy.get("decisions", {}).items()}
        self.guards = {n: _read(g["require"]) for n, g in (policy.get("safety") or {}).get("guards", {}).items()}

    def answer(self) -> Found:
        try:
            self.whole()
            self.found.status = "decided"
        except _Fails as failed:
            self.fall_back(failed.failure, failed.guard)
        return self.found

    def whole(self) -> None:
        early = [n for n in sorted(self.guards) if self.of_inputs_alone(self.guards[n])]
        self.tensor_guards("inputs", "input_guard")
        self.numbers([self.guards[n] for n in early], {q for n in early for q in self.needed(self.guards[n])})
        self.hold(early)
        for failure in ("lockstep", "refusal"):
            if failure in self.pretended:
                raise _Fails(failure)
        self.tensor_guards("outputs", "output_guard")
        self.numbers([*self.decisions.values(), *self.guards.values()], set(self.quantities))
        for name in sorted(self.decisions):
            self.decision(name)
        self.hold([n for n in sorted(self.guards) if n not in early])

    def hold(self, names: Sequence[str]) -> None:
        for name in names:
            self.found.guards[name] = self.true(self.guards[name])
            if not self.found.guards[name]:
                raise _Fails("safety_guard", name)

    def fall_back(self, failure: str, guard: str) -> None:
        own = self.policy["safety"]["guards"][guard].get("fallback") if guard else None
        section = self.policy.get("fallbacks") or {}
        chosen = own or section.get(failure) or section.get("default") or {"action": "refuse"}
        answers = chosen["action"] == "answer"
        self.found.failure, self.found.guard = failure, guard
        self.found.status = "fallback" if answers else "refused"
        self.found.message = chosen.get("message", "")
        self.found.decisions = dict(chosen.get("decisions", {})) if answers else {}

    # ---- guards of tensors, and what must be a number

    def tensor_guards(self, space: str, failure: str) -> None:
        for name, section in self.policy.get(space, {}).items():
            if name in self.tensors[space] and not holds(self.tensors[space][name], section):
                raise _Fails(failure)
        if failure in self.pretended:
            raise _Fails(failure)

    def numbers(self, conditions: Sequence[ast.expr], quantities: set[str]) -> None:
        """Compute ``quantities`` and all sides of comparisons; a failure unless every one is finite."""
        with np.errstate(all="ignore"):
            values = [self.quantity(name) for name in sorted(quantities)]
            values += [self.number(s) for c in conditions for side in _comparisons(c) for s in _sides(side)]
        if not np.all(np.isfinite(np.array(values, np.float64))):
            raise _Fails("not_a_number")

    def quantity(self, name: str) -> float:
        if name not in self.found.quantities:
            value = self.number(self.quantities[name])
            self.found.quantities[name] = math.nan if math.isnan(value) else value  # the canonical NaN
        return self.found.quantities[name]

    # ---- what is read

    def needed(self, tree: ast.expr) -> set[str]:
        """Quantities that ``tree`` reads, and those that they read."""
        direct = {name for name in _names(tree) if name in self.quantities}
        return direct.union(*(self.needed(self.quantities[name]) for name in direct))

    def of_inputs_alone(self, tree: ast.expr) -> bool:
        if any(name in self.decisions for name in _names(tree)):
            return False
        trees = [tree, *(self.quantities[name] for name in self.needed(tree))]
        return all(space == "inputs" for one in trees for space, _ in self.read_tensors(one))

    def read_tensors(self, tree: ast.expr) -> Iterator[tuple[str, str]]:
        named = {*self.thresholds, *self.quantities, *self.decisions}
        for node in _references(tree):
            if not isinstance(node, ast.Name) or _plain(node.id) not in named:
                yield self.tensor(node)

    def tensor(self, tree: ast.expr) -> tuple[str, str]:
        """Space and name of a tensor."""
        if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
            return _plain(tree.value.id), _plain(tree.attr)
        if isinstance(tree, ast.Name):
            name = _plain(tree.id)
            spaces = [space for space in self.tensors if name in self.tensors[space]]
            if len(spaces) == 1:
                return spaces[0], name
        raise ReferenceError(f"{ast.dump(tree)} is no tensor")

    # ---- evaluation

    def decision(self, name: str) -> bool:
        if name not in self.found.decisions:
            value = self.true(self.decisions[name])
            self.found.decisions[name] = value
        return self.found.decisions[name]

    def true(self, tree: ast.expr) -> bool:
        match tree:
            case ast.BoolOp(ast.And(), values):
                return all(self.true(v) for v in values)
            case ast.BoolOp(ast.Or(), values):
                return any(self.true(v) for v in values)
            case ast.UnaryOp(ast.Not(), operand):
                return not self.true(operand)
            case ast.Name(name):
                return self.decision(_plain(name))
            case ast.Call(ast.Name(_), [count, *conditions]):
                return sum(self.true(c) for c in conditions) >= int(_number(count))
            case ast.Compare(left, [sign], [right]):
                return bool(compared(_SIGNS[type(sign)], np.float64(self.number(left)), np.float64(self.number(right))))
        raise ReferenceError(f"{ast.dump(tree)} is no condition")

    def number(self, tree: ast.expr) -> float:
        with np.errstate(all="ignore"):
            return float(self.binary64(tree))

    def binary64(self, tree: ast.expr) -> np.float64:
        match tree:
            case ast.Constant():
                return np.float64(_number(tree))
            case ast.UnaryOp(ast.USub(), operand):
                return -self.binary64(operand)
            case ast.BinOp(left, operator, right):
                return _OPERATIONS[type(operator)](self.binary64(left), self.binary64(right))
            case ast.Call(ast.Name(function), arguments):
                return self.measured(_plain(function), arguments)
            case ast.Name(name) if _plain(name) in self.thresholds:
                return np.float64(self.thresholds[_plain(name)])
            case ast.Name(name) if _plain(name) in self.quantities:
                return np.float64(self.quantity(_plain(name)))
        return measure("element", self.region(tree))

    def measured(self, function: str, arguments: Sequence[ast.expr]) -> np.float64:
        if function in ("area", "fraction"):
            compare = arguments[0]
            assert isinstance(compare, ast.Compare)
            sign, bound = _SIGNS[type(compare.ops[0])], self.binary64(compare.comparators[0])
            return measure(function, self.region(compare.left), sign=sign, bound=bound)
        percent = _number(arguments[1]) if function == "percentile" else 0.0
        return measure(function, self.region(arguments[0]), percent=percent)

    def region(self, tree: ast.expr) -> Array:
        """Elements of a tensor or of a part of it, flat, in row-major order, as binary64."""
        axes: list[slice] | None = None
        if isinstance(tree, ast.Subscript):
            given = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
            axes = [_axis(one) for one in given]
            tree = tree.value
        space, name = self.tensor(tree)
        return part(self.tensors[space][name], axes)


_OPERATIONS: Final[dict[type[ast.operator], Callable[[np.float64, np.float64], np.float64]]] = {
    ast.Add: lambda a, b: np.float64(a + b),
    ast.Sub: lambda a, b: np.float64(a - b),
    ast.Mult: lambda a, b: np.float64(a * b),
    ast.Div: lambda a, b: np.float64(a / b),
}


def _read(text: str) -> ast.expr:
    """The syntax tree of a policy's text. Names are encoded, since some are Python's keywords, and numbers become text,
    since Python writes some otherwise."""

    def protected(match: re.Match[str]) -> str:
        quoted, name, number = match.groups()
        if number:
            return f" '{number}' "
        if name in _WORDS:
            return f" {name} "
        return f"v_{(quoted or name).encode().hex()}"

    try:
        return ast.parse(f"({_TOKEN.sub(protected, text)})", mode="eval").body
    except SyntaxError as error:
        raise ReferenceError(f"{text!r} is no expression: {error}") from None


def _plain(name: str) -> str:
    return bytes.fromhex(name.removeprefix("v_")).decode()


def _number(tree: ast.expr) -> float:
    assert isinstance(tree, ast.Constant)
    return float(str(tree.value))


def _references(tree: ast.AST) -> Iterator[ast.Name | ast.Attribute]:
    """Everything named in ``tree`` but functions."""
    match tree:
        case ast.Attribute() | ast.Name():
            yield tree
        case ast.Call(_, arguments):
            for one in arguments:
                yield from _references(one)
        case _:
            for child in ast.iter_child_nodes(tree):
                yield from _references(child)


def _names(tree: ast.expr) -> set[str]:
    return {_plain(node.id) for node in _references(tree) if isinstance(node, ast.Name)}


def _axis(tree: ast.expr) -> slice:
    if isinstance(tree, ast.Slice):
        start = int(_number(tree.lower)) if tree.lower is not None else 0
        return slice(start, int(_number(tree.upper)) if tree.upper is not None else None)
    start = int(_number(tree))
    return slice(start, start + 1)


def _comparisons(condition: ast.expr) -> Iterator[ast.Compare]:
    """Comparisons of two numbers, not those within ``area`` and ``fraction``."""
    match condition:
        case ast.Compare():
            yield condition
        case ast.BoolOp(_, values):
            for value in values:
                yield from _comparisons(value)
        case ast.UnaryOp(ast.Not(), operand):
            yield from _comparisons(operand)
        case ast.Call(ast.Name(_), [_, *conditions]):
            for one in conditions:
                yield from _comparisons(one)


def _sides(compare: ast.Compare) -> tuple[ast.expr, ast.expr]:
    return compare.left, compare.comparators[0]
