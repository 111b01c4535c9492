"""Decides comparisons of sizes for all declared values: by form, by intervals, by trying all, or by Z3."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product as cartesian
from math import gcd, prod
from typing import Final, NoReturn

from compiler_kernels.ir.dims import Atom, Call, Expr, Size, call, evaluate, quotient, substitute, symbol, terms_of
from compiler_kernels.ir.symbols import UNKNOWN, Interval, Symbols, Unproved, polynomial_interval
from compiler_kernels.proofs.smt import Undecided, smallest

FEW: Final = 2_000
"""Up to this many combinations of sizes all are tried instead of asking the solver."""
MANY: Final = 50_000
"""Up to this many are tried where the solver does not know."""
OPPOSITE: Final = {"==": "!=", "!=": "==", "<=": ">", "<": ">=", "divides": "does not divide"}
_WORDS: Final = {"==": "{a} is not {b}", "<=": "{b} is less than {a}", "<": "{a} is not less than {b}"}


class Prover:
    """Knows the declared ``symbols``; answers are kept, so asking twice costs nothing."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = dict(symbols)
        # inside, a symbol with a step counts its steps: height = 32 * height
        self.ranges: dict[str, Interval] = {n: (b.lo // b.step, b.hi // b.step) for n, b in self.symbols.items()}
        self._steps: dict[str, Size] = {n: b.step * symbol(n) for n, b in self.symbols.items() if b.step > 1}
        self._normal: dict[str, Size] = {}
        self._shown: dict[str, Size] = {}
        self._answers: dict[tuple[str, str, str], dict[str, int] | None] = {}

    # forms -----------------------------------------------------------------------------------------------------------
    def normal(self, size: Size) -> Size:
        """``size`` in steps, with calls that the bounds decide replaced."""
        if isinstance(size, int):
            return size
        if size.text not in self._normal:
            self._normal[size.text] = self._fold(substitute(size, self._steps))
        return self._normal[size.text]

    def _fold(self, size: Size) -> Size:
        return size if isinstance(size, int) else size.rebuild(self._fold_atom)

    def _fold_atom(self, atom: Atom) -> Size:
        if isinstance(atom, str):
            return symbol(atom)
        args = [self._fold(a) for a in atom.args]
        if atom.op == "//":
            divisor = args[1]
            exact = None
            if isinstance(divisor, Expr) and polynomial_interval(divisor, self.ranges)[0] >= 1:
                exact = quotient(args[0], divisor, positive=True)
            found = call("//", args) if exact is None else exact
            low, high = polynomial_interval(found, self.ranges)
            return low if low == high else found
        sign = 1 if atom.op == "min" else -1
        kept: list[Size] = []
        for arg in args:
            if any(polynomial_interval(sign * (k - arg), self.ranges)[1] <= 0 for k in kept):
                continue
            kept = [k for k in kept if polynomial_interval(sign * (arg - k), self.ranges)[1] > 0]
            kept.append(arg)
        return call(atom.op, kept)

    def simplify(self, size: Expr) -> Size:
        """``normal``, with steps written as the symbols again."""
        if size.text not in self._shown:
            self._shown[size.text] = self._show(self.normal(size))
        return self._shown[size.text]

    def _show(self, size: Size) -> Size:
        total: Size = 0
        for monomial, factor in terms_of(size):
            part: Size = 1
            for atom in monomial:
                if isinstance(atom, Call):
                    part = part * call(atom.op, [self._show(a) for a in atom.args])
                    continue
                step = self.symbols[atom].step if atom in self.symbols else 1
                shared = gcd(factor, step)  # 24 steps of 32 are 3 * (height // 4)
                factor //= shared
                part = part * (symbol(atom) // (step // shared))
            total = total + factor * part
        return total

    # answers ---------------------------------------------------------------------------------------------------------
    def ask(self, relation: str, left: Size, right: Size) -> bool:
        """Whether the relation holds for all sizes or none; ``Unproved`` with the smallest counterexample otherwise."""
        try:
            against = self.counterexample(relation, left, right)
            if against is None:
                return True
            otherwise = self.counterexample(OPPOSITE[relation], left, right)
            if otherwise is None:
                return False
        except Undecided as error:
            raise Unproved(
                f"whether {_said(relation, left, right)} could not be proved for all sizes ({error})", {}
            ) from None
        question = _said(relation, left, right)
        raise Unproved(self.explain(relation, left, right, against), against, question, otherwise)

    def proves(self, relation: str, left: Size, right: Size) -> bool:
        """Whether the relation was proved for all sizes."""
        try:
            return self.counterexample(relation, left, right) is None
        except Undecided:
            return False

    def need(self, value: Expr) -> NoReturn:
        raise Unproved(f"the size {value} must be one number here; pin {' and '.join(sorted(value.symbols))}", {})

    def explain(self, relation: str, left: Size, right: Size, values: Mapping[str, int]) -> str:
        """What is wrong at ``values``, in numbers: "96 is not a multiple of 64"."""
        a, b = evaluate(left, values), evaluate(right, values)
        if relation == "divides":
            return f"{b} is not a multiple of {a}"
        return _WORDS[relation].format(a=a, b=b)

    def counterexample(self, relation: str, left: Size, right: Size) -> dict[str, int] | None:
        """The smallest sizes (by the order of the symbols) at which the relation fails; ``None`` if it always holds.

        ``Undecided`` when the solver gives up.
        """
        key = relation, str(left), str(right)
        if key not in self._answers:
            self._answers[key] = self._search(relation, left, right)
        return self._answers[key]

    def _search(self, relation: str, left: Size, right: Size) -> dict[str, int] | None:
        a, b = self.normal(left), self.normal(right)
        if relation in ("divides", "does not divide"):
            tested, relation = b % a, {"divides": "==", "does not divide": "!="}[relation]
            tested = self._fold(tested)
        else:
            tested = self._fold(a - b)
        low, high = polynomial_interval(tested, self.ranges)
        if _holds(relation, low, high):
            return None
        used = _symbols(left, right)
        names = [n for n in self.symbols if n in used] + sorted(used - self.symbols.keys())
        spans = [range(lo, hi + 1) for lo, hi in (self.ranges.get(n, (UNKNOWN.lo, UNKNOWN.hi)) for n in names)]
        combinations = prod(len(s) for s in spans)
        steps_found: dict[str, int] | None = None
        if combinations <= FEW:
            steps_found = _first_failure(relation, tested, names, spans)
        else:
            try:
                steps_found = smallest(relation, tested, dict(zip(names, spans, strict=True)))
            except Undecided:
                if combinations > MANY:
                    raise
                steps_found = _first_failure(relation, tested, names, spans)
        if steps_found is None:
            return None
        if _true(relation, tested, steps_found):
            raise Undecided("the solver's counterexample is none")
        return self._sizes(steps_found)

    def _sizes(self, steps: Mapping[str, int]) -> dict[str, int]:
        return {n: v * (self.symbols[n].step if n in self.symbols else 1) for n, v in steps.items()}


def _symbols(*sizes: Size) -> set[str]:
    return {name for size in sizes if isinstance(size, Expr) for name in size.symbols}


def _holds(relation: str, low: int, high: int) -> bool:
    """Whether ``x relation 0`` for every x between ``low`` and ``high``."""
    return {
        "==": low == high == 0,
        "!=": low > 0 or high < 0,
        "<=": high <= 0,
        "<": high < 0,
        ">": low > 0,
        ">=": low >= 0,
    }[relation]


def _first_failure(relation: str, size: Size, names: list[str], spans: list[range]) -> dict[str, int] | None:
    """By trying all combinations in increasing order."""
    for values in cartesian(*spans):
        steps = dict(zip(names, values, strict=True))
        if not _true(relation, size, steps):
            return steps
    return None


def _true(relation: str, size: Size, values: Mapping[str, int]) -> bool:
    try:
        number = evaluate(size, values)
    except ZeroDivisionError:
        return False  # a size that does not exist
    return _holds(relation, number, number)


def _said(relation: str, left: Size, right: Size) -> str:
    return f"{right} is a multiple of {left}" if relation == "divides" else f"{left} {relation} {right}"
