"""Sizes that depend on named symbols: integer expressions in canonical form (docs/shapes.md).

An :class:`Expr` is a polynomial with integer coefficients over atoms: symbols, and the calls ``a // b``, ``min`` and
``max`` of expressions. Remainders and rounded-up quotients are written with ``//``, so that fewer forms mean the same.
An expression that turns out constant is a plain ``int``: :data:`Size` is ``int | Expr``. Symbols stand for integers of
at least 1. Building an expression uses no bounds; what bounds add is in ``ir/symbols.py``.

Comparisons and truth of an ``Expr`` are *decisions for all sizes*: true, false, or ``Unproved`` where it depends on the
size. Code written for integers therefore stays sound on expressions: it can refuse, but not take a wrong branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import gcd
from operator import mul
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np

from compiler_kernels.ir.decisions import Decided

CALLS: Final = ("//", "min", "max")


class Call:
    """``op`` is one of ``CALLS``; ``//`` rounds down, as Python's does. Compared by its text."""

    __slots__ = ("args", "op", "text")

    def __init__(self, op: str, args: tuple[Size, ...]) -> None:
        self.op, self.args = op, args
        if op == "//":
            left, right = ("(" + str(a) + ")" if _compound(a) else str(a) for a in args)
            self.text = f"{left} // {right}"
        else:
            self.text = f"{op}({', '.join(str(a) for a in args)})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


Atom: TypeAlias = str | Call
Monomial: TypeAlias = tuple[Atom, ...]
Terms: TypeAlias = tuple[tuple[Monomial, int], ...]


class Expr(Decided):
    """Immutable; build with operators, :func:`symbol`, :func:`minimum`, :func:`maximum` or ``parse_dim``.

    The hash is that of the form, so two forms that a proof finds equal may have different hashes.
    """

    __slots__ = ("terms", "text")
    terms: Terms
    text: str

    def __init__(self, terms: Terms) -> None:
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "text", _format(terms))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("Expr is immutable")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        """Inside a larger text an expression stands in parentheses, unless it is a symbol."""
        return format(f"({self.text})" if _compound(self) else self.text, spec)

    def __hash__(self) -> int:
        return hash(self.text)

    def same(self, other: object) -> bool:
        """Equal in form, which needs no proof."""
        return isinstance(other, Expr) and self.text == other.text

    # arithmetic ------------------------------------------------------------------------------------------------------
    def _with(self, other: object, op: Callable[[Size, Size], Size], swap: bool = False) -> Any:
        right = _operand(other)
        if right is None:
            return NotImplemented
        return op(right, self) if swap else op(self, right)

    def __add__(self, other: Size) -> Size:
        return self._with(other, _sum)  # type: ignore[no-any-return]

    __radd__ = __add__

    def __neg__(self) -> Size:
        return _difference(0, self)

    def __pos__(self) -> Expr:
        return self

    def __sub__(self, other: Size) -> Size:
        return self._with(other, _difference)  # type: ignore[no-any-return]

    def __rsub__(self, other: Size) -> Size:
        return self._with(other, _difference, swap=True)  # type: ignore[no-any-return]

    def __mul__(self, other: Size) -> Size:
        return self._with(other, _product)  # type: ignore[no-any-return]

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return self._with(other, floordiv)  # type: ignore[no-any-return]

    def __rfloordiv__(self, other: Size) -> Size:
        return self._with(other, floordiv, swap=True)  # type: ignore[no-any-return]

    def __mod__(self, other: Size) -> Size:
        return self._with(other, remainder)  # type: ignore[no-any-return]

    def __rmod__(self, other: Size) -> Size:
        return self._with(other, remainder, swap=True)  # type: ignore[no-any-return]

    # reading ---------------------------------------------------------------------------------------------------------
    def atoms(self) -> Iterator[Atom]:
        """Atoms of the polynomial itself, each once, not those inside calls."""
        return iter(dict.fromkeys(atom for monomial, _ in self.terms for atom in monomial))

    @property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols, inside calls too."""
        found: set[str] = set()
        for atom in self.atoms():
            if isinstance(atom, str):
                found.add(atom)
            else:
                found.update(*(a.symbols for a in atom.args if isinstance(a, Expr)))
        return frozenset(found)

    def rebuild(self, leaf: Callable[[Atom], Size]) -> Size:
        """The polynomial with every atom replaced."""
        values = {atom: leaf(atom) for atom in self.atoms()}
        total: Size = 0
        for monomial, factor in self.terms:
            total = total + reduce(mul, (values[a] for a in monomial), factor)
        return total

    def substitute(self, values: Mapping[str, Size]) -> Size:
        """Symbols in ``values`` replaced, all at once; the result in canonical form."""

        def leaf(atom: Atom) -> Size:
            if isinstance(atom, str):
                return values.get(atom, symbol(atom))
            return call(atom.op, [substitute(a, values) for a in atom.args])

        return self.rebuild(leaf)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The number at these sizes; ``KeyError`` names a symbol without one."""
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                factor *= values[atom] if isinstance(atom, str) else _number(atom, values)
            total += factor
        return total


Size: TypeAlias = int | Expr


def _number(atom: Call, values: Mapping[str, int]) -> int:
    numbers = [evaluate(a, values) for a in atom.args]
    return numbers[0] // numbers[1] if atom.op == "//" else min(numbers) if atom.op == "min" else max(numbers)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    return size if isinstance(size, int) else size.evaluate(values)


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    return size if isinstance(size, int) else size.substitute(values)


def symbol(name: str) -> Expr:
    return Expr((((name,), 1),))


def _compound(size: Size) -> bool:
    """Whether ``size`` needs parentheses as an operand of ``//``: all but numbers, symbols, ``min`` and ``max``."""
    if isinstance(size, int):
        return size < 0
    (monomial, factor), *rest = size.terms
    return bool(rest) or factor != 1 or len(monomial) != 1 or getattr(monomial[0], "op", "") == "//"


def _format(terms: Terms) -> str:
    parts: list[str] = []
    for monomial, factor in terms:
        alone = len(monomial) == 1 and abs(factor) == 1
        names = [f"({a})" if isinstance(a, Call) and a.op == "//" and not alone else str(a) for a in monomial]
        text = " * ".join([str(abs(factor))] * (abs(factor) != 1 or not monomial) + names)
        if alone and factor < 0 and isinstance(monomial[0], Call) and monomial[0].op == "//":
            text = f"({text})"
        parts.append((" - " if factor < 0 else " + ") + text if parts else ("-" if factor < 0 else "") + text)
    return "".join(parts) or "0"


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return -len(monomial), tuple(str(a) for a in monomial)


def _collect(terms: Mapping[Monomial, int]) -> Size:
    kept = {m: f for m, f in terms.items() if f}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    return Expr(tuple(sorted(kept.items(), key=lambda item: _order(item[0]))))


def terms_of(size: Size) -> Terms:
    return ((((), size),) if size else ()) if isinstance(size, int) else size.terms


def _operand(other: object) -> Size | None:
    """``other`` where it is a size; NumPy's integers become plain ones."""
    if isinstance(other, int | Expr):
        return other
    return int(other) if isinstance(other, np.integer) else None


def _sum(a: Size, b: Size, sign: int = 1) -> Size:
    found = dict(terms_of(a))
    for monomial, factor in terms_of(b):
        found[monomial] = found.get(monomial, 0) + sign * factor
    return _collect(found)


def _difference(a: Size, b: Size) -> Size:
    return _sum(a, b, -1)


def remainder(a: Size, b: Size) -> Size:
    """``a % b``, written ``a - b * (a // b)``."""
    return a - b * floordiv(a, b)


def _product(a: Size, b: Size) -> Size:
    found: dict[Monomial, int] = {}
    for ma, fa in terms_of(a):
        for mb, fb in terms_of(b):
            monomial = tuple(sorted(ma + mb, key=str))
            found[monomial] = found.get(monomial, 0) + fa * fb
    return _collect(found)


def call(op: str, args: Sequence[Size]) -> Size:
    """The canonical form of ``op`` applied to ``args``."""
    return floordiv(*args) if op == "//" else minimum(*args) if op == "min" else maximum(*args)


def floordiv(a: Size, b: Size) -> Size:
    """``a // b`` rounded down. ``ZeroDivisionError`` for the constant divisor 0; a symbolic one is taken as not 0."""
    if isinstance(b, Expr):
        exact = quotient(a, b)
        return exact if exact is not None else _atom("//", (a, b))
    if b < 0:
        return floordiv(-a, -b)
    if isinstance(a, int):
        return a // b
    whole = _collect({m: f // b for m, f in a.terms})
    rest = _collect({m: f % b for m, f in a.terms})
    if isinstance(rest, int):
        return whole  # 0 <= rest < b
    shared = gcd(b, *(f for m, f in rest.terms if m))
    rest, b = _collect({m: f // shared for m, f in rest.terms}), b // shared
    if b == 1:
        return whole + rest
    inner = _inner_quotient(rest)
    if inner is not None:  # (x // c + y) // b == (x + c * y) // (b * c)
        (x, c), y = inner
        return whole + floordiv(x + c * y, b * c)
    return whole + _atom("//", (rest, b))


def _inner_quotient(size: Size) -> tuple[tuple[Size, int], Size] | None:
    """``((x, c), y)`` where ``size`` is ``x // c + y`` with a constant c, for the first such term."""
    for monomial, factor in terms_of(size):
        atom = monomial[0] if len(monomial) == 1 and factor == 1 else None
        if isinstance(atom, Call) and atom.op == "//":
            x, c = atom.args
            if isinstance(c, int):
                return (x, c), size - Expr(((monomial, 1),))
    return None


def _atom(op: str, args: tuple[Size, ...]) -> Expr:
    return Expr((((Call(op, args),), 1),))


def quotient(a: Size, b: Expr, positive: bool = False) -> Size | None:
    """``a / b`` where the division of polynomials is exact and ``b`` is not 0: said to be ``positive``, or a sum of
    positive multiples of symbols."""
    if not positive and any(f < 0 or any(isinstance(atom, Call) for atom in m) for m, f in b.terms):
        return None  # it could be 0
    lead, factor = b.terms[0]
    found: Size = 0
    while not isinstance(a, int):
        # the term of ``a`` that comes first among those the leading term of ``b`` divides
        monomial, f = a.terms[0]
        rest = list(monomial)
        for atom in lead:
            if atom not in rest:
                return None
            rest.remove(atom)
        if f % factor:
            return None
        term = _collect({tuple(rest): f // factor})
        found, a = found + term, a - term * b
    return found if a == 0 else None


def ceildiv(a: Size, b: Size) -> Size:
    """``a / b`` rounded up."""
    return -floordiv(-a, b)


def minimum(*args: Size) -> Size:
    return _extreme("min", args)


def maximum(*args: Size) -> Size:
    return _extreme("max", args)


def _extreme(op: str, args: Iterable[Size]) -> Size:
    """Nested calls flattened, duplicates dropped, constants merged, sorted by text."""
    flat: dict[str, Size] = {}
    numbers: list[int] = []
    for arg in args:
        inner = arg.terms[0][0][0] if isinstance(arg, Expr) and len(arg.terms) == 1 and arg.terms[0][0] else None
        if isinstance(arg, int):
            numbers.append(arg)
        elif isinstance(inner, Call) and inner.op == op and arg.same(_atom(op, inner.args)):
            numbers += [a for a in inner.args if isinstance(a, int)]
            flat.update({str(a): a for a in inner.args if isinstance(a, Expr)})
        else:
            flat[str(arg)] = arg
    kept = [flat[text] for text in sorted(flat)]
    if numbers:
        kept.append(min(numbers) if op == "min" else max(numbers))
    return kept[0] if len(kept) == 1 else _atom(op, tuple(kept))


def product(shape: Iterable[Size]) -> Size:
    """Number of elements of a shape."""
    return reduce(mul, shape, 1)


def as_dim(size: object) -> int | str:
    """A size as an entry of ``TensorType.shape``: a number, or the text of an expression.

    ``TypeError`` for anything that is neither an integer nor an ``Expr``.
    """
    if isinstance(size, Expr):
        return size.text
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f"not a size: {size!r}")
    return int(size.__index__())
