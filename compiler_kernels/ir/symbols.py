"""Symbols of a module with their declared bounds, and the scope in which sizes are compared (docs/shapes.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from compiler_kernels.errors import IRError, UnsupportedError
from compiler_kernels.ir.decisions import ask, decide_with
from compiler_kernels.ir.dims import Atom, Call, Expr, Size, symbol, terms_of

if TYPE_CHECKING:
    from compiler_kernels.proofs.prover import Prover

PREFIX: Final = "symbol."
"""Keys of ``Module.meta`` that declare a symbol: ``meta symbol.height = "32..512 step 32"``."""
_BOUND: Final = re.compile(r"(\d+)\.\.(\d+)(?: step (\d+))?")
LARGEST_SIZE: Final = 2**31 - 1

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bound:
    """Multiples of ``step`` from ``lo`` to ``hi``, both included and both multiples of it; ``lo`` is at least 1."""

    lo: int
    hi: int
    step: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.lo <= self.hi <= LARGEST_SIZE or self.step < 1 or self.lo % self.step or self.hi % self.step:
            raise ValueError(
                f"{self} is no range of sizes: it needs 1 <= lowest <= highest <= {LARGEST_SIZE}, both multiples of "
                "the step"
            )

    def __str__(self) -> str:
        return f"{self.lo}..{self.hi}" + (f" step {self.step}" if self.step != 1 else "")

    def __contains__(self, value: int) -> bool:
        return self.lo <= value <= self.hi and value % self.step == 0

    @property
    def values(self) -> range:
        return range(self.lo, self.hi + 1, self.step)


UNKNOWN: Final = Bound(1, LARGEST_SIZE)
"""What is taken of a symbol without a declaration."""

Symbols = Mapping[str, Bound]


def parse_bound(text: str) -> Bound:
    """Inverse of ``str(bound)``; ``IRError`` for anything else."""
    match = _BOUND.fullmatch(text)
    try:
        if match:
            return Bound(int(match[1]), int(match[2]), int(match[3] or 1))
    except ValueError:
        pass
    raise IRError(f'{text!r} is not a bound; write it as "1..8" or "32..512 step 32"')


def symbols_of(meta: Mapping[str, str] | tuple[tuple[str, str], ...]) -> dict[str, Bound]:
    """The declared symbols of ``Module.meta``, in the order of their names. ``IRError`` for a malformed bound."""
    return {k.removeprefix(PREFIX): parse_bound(v) for k, v in sorted(dict(meta).items()) if k.startswith(PREFIX)}


def meta_of(symbols: Symbols) -> dict[str, str]:
    """Entries of ``Module.meta`` that declare ``symbols``."""
    return {PREFIX + name: str(bound) for name, bound in sorted(symbols.items())}


# intervals -----------------------------------------------------------------------------------------------------------
def interval(size: Size, symbols: Symbols) -> Interval:
    """Lowest and highest value ``size`` may take; sound, not always tight. An undeclared symbol is ``UNKNOWN``."""
    return polynomial_interval(size, {name: (b.lo, b.hi) for name, b in symbols.items()})


def polynomial_interval(size: Size, ranges: Mapping[str, Interval]) -> Interval:
    """The interval over symbols in ``ranges``. Where an atom occurs in several terms, the polynomial is also expanded
    around the lower ends of its atoms, which shows that ``8 * b * h - 4 * b`` is at least 4."""
    atoms: dict[Atom, Interval] = {}
    if isinstance(size, Expr):
        for atom in size.atoms():
            known = ranges.get(atom, (UNKNOWN.lo, UNKNOWN.hi)) if isinstance(atom, str) else _of_call(atom, ranges)
            atoms[atom] = known
    found = _naive(size, atoms)
    if isinstance(size, Expr) and any(sum(a in m for m, _ in size.terms) > 1 for a in atoms):
        moved = size.rebuild(lambda a: symbol(str(a)) + atoms[a][0])
        spans = {str(a): (0, high - low) for a, (low, high) in atoms.items()}
        expanded = _naive(moved, spans)
        found = max(found[0], expanded[0]), min(found[1], expanded[1])
    return found


def _naive(size: Size, atoms: Mapping[Any, Interval]) -> Interval:
    """Term by term."""
    low = high = 0
    for monomial, factor in terms_of(size):
        part = (1, 1)
        for atom in monomial:
            inner = atoms[atom]
            corners = [a * b for a in part for b in inner]
            part = (min(corners), max(corners))
        ends = (factor * part[0], factor * part[1])
        low, high = low + min(ends), high + max(ends)
    return low, high


def _of_call(atom: Call, ranges: Mapping[str, Interval]) -> Interval:
    parts = [polynomial_interval(a, ranges) for a in atom.args]
    if atom.op in ("min", "max"):
        pick = min if atom.op == "min" else max
        return pick(p[0] for p in parts), pick(p[1] for p in parts)
    (low, high), (least, most) = parts
    if least <= 0 <= most:  # a divisor that may be 0, which evaluation refuses; its quotients are at most the dividend
        widest = max(abs(low), abs(high))
        return -widest, widest
    corners = [x // d for x in (low, high) for d in (least, most)]
    return min(corners), max(corners)


def magnitude(size: Size, symbols: Symbols) -> int:
    """A bound on every intermediate value of an evaluation of ``size`` from left to right."""
    ranges = {name: (b.lo, b.hi) for name, b in symbols.items()}
    total = 0
    for monomial, factor in terms_of(size):
        part = abs(factor)
        for atom in monomial:
            if isinstance(atom, Call):
                part *= max(1, *(magnitude(a, symbols) for a in atom.args))
            else:
                part *= ranges.get(atom, (UNKNOWN.lo, UNKNOWN.hi))[1]
        total += part
    return total


# scope ---------------------------------------------------------------------------------------------------------------
class Unproved(UnsupportedError):
    """Something that does not hold for all declared sizes, or was not proved to.

    ``values`` is the smallest counterexample (empty when none was found), ``reason`` what is wrong there, in one
    clause. A comparison that holds for some sizes only also has its ``question`` and the smallest sizes at which it
    holds, ``otherwise``: only who asked knows which of the two is wrong. Importers set ``where``, the node.
    """

    def __init__(
        self, reason: str, values: Mapping[str, int], question: str = "", otherwise: Mapping[str, int] | None = None
    ) -> None:
        self.reason, self.values = reason, dict(values)
        self.question, self.otherwise = question, dict(otherwise or {})
        self.where = ""
        super().__init__(f"{listed(values)}: {reason}" if values else reason)


def listed(values: Mapping[str, int]) -> str:
    """``batch = 1, height = 34``."""
    return ", ".join(f"{k} = {v}" for k, v in values.items())


_SCOPE: ContextVar[Prover | None] = ContextVar("symbols", default=None)


@contextmanager
def scope(symbols: Symbols) -> Iterator[Prover]:
    """Compare sizes under these bounds within the ``with`` statement."""
    from compiler_kernels.proofs.prover import Prover

    prover = Prover(symbols)
    token = _SCOPE.set(prover)
    try:
        yield prover
    finally:
        _SCOPE.reset(token)


def prover() -> Prover:
    """The prover of the innermost scope; outside any, one that knows only that symbols are at least 1."""
    found = _SCOPE.get()
    if found is None:
        from compiler_kernels.proofs.prover import Prover

        found = Prover({})
    return found


decide_with(prover)


# decisions -----------------------------------------------------------------------------------------------------------
def equal(a: Size, b: Size) -> bool:
    """``a == b`` for all sizes (true) or none (false); ``Unproved`` where it depends on them."""
    return ask("==", a, b)


def proved_equal(a: Size, b: Size) -> bool:
    """Whether ``a == b`` was proved for all sizes; never raises."""
    difference = a - b
    return difference == 0 if isinstance(difference, int) else prover().proves("==", a, b)


def at_least(a: Size, n: Size) -> bool:
    """``a >= n`` for all sizes (true) or none (false); ``Unproved`` where it depends on them."""
    return ask("<=", n, a)


def divides(n: Size, a: Size) -> bool:
    """Whether ``a`` is a multiple of ``n`` for all sizes (true) or none (false); ``Unproved`` otherwise."""
    rest = a % n
    return rest == 0 if isinstance(rest, int) else prover().ask("divides", n, a)


def same_shape(a: tuple[Size, ...], b: tuple[Size, ...]) -> bool:
    """Equal rank and all sizes proved equal; never raises."""
    return len(a) == len(b) and all(proved_equal(x, y) for x, y in zip(a, b, strict=True))


def simplified(size: Size) -> Size:
    """The shortest form the bounds in scope allow: with height a multiple of 32, ``2 * (height // 2)`` is height."""
    return size if isinstance(size, int) else prover().simplify(size)


__all__ = [
    "Bound",
    "Expr",
    "Symbols",
    "Unproved",
    "at_least",
    "divides",
    "equal",
    "interval",
    "meta_of",
    "proved_equal",
    "same_shape",
    "scope",
    "simplified",
    "symbols_of",
]
