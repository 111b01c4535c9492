"""Proof that no access leaves its tensor: for every operation, every element, and every declared size.

For each index that ``reads.py`` describes, the smallest and the largest value over all coordinates are expressions in
the symbols, because indices are affine in each coordinate; they are compared with the extent by the prover
(``prover.py``: intervals, all sizes, Z3). A static graph needs integer arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from compiler_kernels.errors import IRError, UnsupportedError
from compiler_kernels.ir.dims import Call, Expr, Monomial, Size, evaluate
from compiler_kernels.ir.graph import Graph, Module, Op, TensorType
from compiler_kernels.ir.symbols import Unproved, scope, symbols_of
from compiler_kernels.proofs.prover import Prover
from compiler_kernels.proofs.reads import RESULT, Space, Touch, describe
from compiler_kernels.proofs.smt import Undecided


@dataclass(frozen=True, slots=True)
class AccessReport:
    """What was proved: how many operations and how many bounds, and the kinds that have no description."""

    operations: int
    bounds: int
    undescribed: tuple[str, ...]


def prove_accesses(module: Module) -> AccessReport:
    """Prove every access of every operation in every graph or function, and that calls pass what functions expect.

    ``Unproved`` (exit code 4) with the smallest sizes at which an access leaves its tensor, or saying that no proof was
    found; ``UnsupportedError`` for an operation with symbolic sizes that has no description; ``IRError`` for a call
    whose types are not those of the function.
    """
    operations = bounds = 0
    missing: set[str] = set()
    with scope(symbols_of(module.meta)) as prover:
        for graph in module.graphs:
            _calls(module, graph)
            for op, operands in statements(graph):
                space = describe(op, operands)
                if space is None:
                    _undescribed(op, operands)
                    missing.add(op.kind)
                    continue
                operations += 1
                bounds += prove_space(space, prover)
    return AccessReport(operations, bounds, tuple(sorted(missing)))


def statements(graph: Graph) -> Iterator[tuple[Op, list[TensorType | None]]]:
    """Operations with the logical types of their operands, those in bodies of fused statements included."""
    types = dict(graph.types())
    for op in graph.ops:
        for inner in op.body or (op,):
            if inner.type is not None and inner.name.partition(".")[0] in ("op", "view"):
                found = [types.get(o) if o else None for o in inner.operands]
                yield inner, [None if t is None else t.logical for t in found]
            if inner.type is not None:
                types[inner.result] = inner.type


def _undescribed(op: Op, operands: Sequence[TensorType | None]) -> None:
    if not all(t is None or t.is_static for t in (*operands, op.type)):
        raise UnsupportedError(
            f"{_where(op)} has symbolic sizes, and its accesses have no description to prove them by; pin its sizes"
        )


def _where(op: Op) -> str:
    return f"node {op.node!r} ({op.name})" if op.node else op.name


def _calls(module: Module, graph: Graph) -> None:
    """A function is proved once, for its parameters' types: every call must pass exactly those."""
    functions = {g.name: g for g in module.graphs[1:]}
    types = graph.types()
    for op in graph.ops:
        if not op.name.startswith("call."):
            continue
        function = functions.get(op.kind)
        if function is None:
            raise IRError(f"{op.name} calls a function that the module lacks")
        given = [types[o] for o in op.operands if o]
        wanted = [v.type for v in function.inputs]
        if given != wanted:
            raise IRError(f"{op.name} is called with {given} where its accesses were proved for {wanted}")
        made = function.types()[function.outputs[0]]
        if op.type is not None and op.type != made:
            raise IRError(f"{op.name} gives {made}, but its caller takes it as {op.type}")


def prove_space(space: Space, prover: Prover) -> int:
    """Prove all bounds of one operation; how many there were. ``Unproved`` otherwise."""
    count = 0
    for a, b in space.equalities:
        _demand(space, prover, "==", a, b, "counts elements")
        count += 1
    for touch in space.touches:
        shape = space.out if touch.operand == RESULT else space.shape(touch.operand)
        if len(touch.index) != len(shape):
            raise Unproved(f"{_where(space.op)} indexes {len(shape)} axes with {len(touch.index)} numbers", {})
        for axis, (index, extent) in enumerate(zip(touch.index, shape, strict=True)):
            before = touch.before[axis] if touch.before else 0
            after = touch.after[axis] if touch.after else 0
            what = _words(touch, axis)
            _demand(space, prover, "<=", -before, extreme(index, space.counts, prover, -1), what)
            _demand(space, prover, "<=", extreme(index, space.counts, prover, 1), extent + after - 1, what)
            count += 2
    return count


def _words(touch: Touch, axis: int) -> str:
    target = "writes the result" if touch.operand == RESULT else f"reads operand {touch.operand}"
    border = " (with its border)" if touch.before else ""
    return f"{target} outside axis {axis}{border}"


def extreme(index: Size, counts: Mapping[str, Size], prover: Prover, sign: int) -> Size:
    """The largest (``sign`` 1) or smallest (-1) value of ``index`` over all variables, an expression in symbols.

    ``Unproved`` where it is not affine in a variable or the sign of a factor is not known.
    """
    for name in counts:
        if isinstance(index, int):
            break
        factor, rest = _split(index, name)
        if isinstance(factor, Expr) and any(s in counts for s in factor.symbols):
            raise Unproved(f"the index {index} multiplies two coordinates", {})
        if isinstance(factor, int):
            rising = sign * factor >= 0
        elif prover.proves("<=", 0, sign * factor):
            rising = True
        elif prover.proves("<=", sign * factor, 0):
            rising = False
        else:
            raise Unproved(f"the direction of the index {index} could not be proved", {})
        index = rest + (factor * (counts[name] - 1) if rising else 0)
    return index


def _split(index: Expr, name: str) -> tuple[Size, Size]:
    """``index`` as ``factor * name + rest``."""
    factor: Size = 0
    rest: Size = 0
    for monomial, number in index.terms:
        if any(
            isinstance(a, Call) and any(isinstance(x, Expr) and name in x.symbols for x in a.args) for a in monomial
        ):
            raise Unproved(f"the index {index} is not affine", {})
        powers = monomial.count(name)
        if powers > 1:
            raise Unproved(f"the index {index} is not affine", {})
        left: Monomial = tuple(a for a in monomial if a != name)
        term: Size = Expr(((left, number),)) if left else number
        factor, rest = (factor + term, rest) if powers else (factor, rest + term)
    return factor, rest


def _demand(space: Space, prover: Prover, relation: str, a: Size, b: Size, what: str) -> None:
    difference = a - b
    if isinstance(difference, int) and (difference == 0 if relation == "==" else difference <= 0):
        return
    where = _where(space.op)
    try:
        against = prover.counterexample(relation, a, b)
    except Undecided as error:
        raise Unproved(f"{where} {what}: not proved for all sizes ({error})", {}) from None
    if against is None:
        return
    numbers = f"{evaluate(a, against)} against {evaluate(b, against)}"
    at = ", ".join(f"{k} = {v}" for k, v in against.items())
    raise Unproved(f"{where} {what}: {numbers}" + (f" at {at}" if at else ""), against)
