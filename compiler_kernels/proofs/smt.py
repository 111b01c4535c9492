"""Questions to Z3 (SMT-LIB theory of integers), imported only when one is asked.

A model that Z3 returns is evaluated in Python before anybody relies on it; that a relation always holds rests on Z3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from compiler_kernels.ir.dims import Call, Size, terms_of
from compiler_kernels.ir.symbols import Interval, polynomial_interval

RESOURCES: Final = 3_000_000
"""Z3's own count of steps for one question, a few seconds; what needs more counts as unproved. Not a time, so that what
is proved does not depend on the machine."""


class Undecided(Exception):
    """The solver's limit passed, or the question lies outside what is translated."""


class Question:
    """Integer variables in ranges, and translation of sizes over them."""

    def __init__(self, ranges: Mapping[str, Interval]) -> None:
        import z3

        self.z3: Any = z3
        self.context = z3.Context()
        self.ranges = dict(ranges)
        self.variables = {name: z3.Int(name, self.context) for name in ranges}
        self.constraints: list[Any] = []
        for name, (low, high) in ranges.items():
            self.constraints += [self.variables[name] >= low, self.variables[name] <= high]
        self._calls: dict[Call, Any] = {}

    def term(self, size: Size) -> Any:
        """``size`` as a Z3 integer."""
        total = self.z3.IntVal(0, self.context)
        for monomial, factor in terms_of(size):
            part = self.z3.IntVal(factor, self.context)
            for atom in monomial:
                part = part * (self.variables[atom] if isinstance(atom, str) else self._call(atom))
            total = total + part
        return total

    def _call(self, atom: Call) -> Any:
        if atom in self._calls:
            return self._calls[atom]
        args = [self.term(a) for a in atom.args]
        if atom.op == "//":
            # a quotient is the q with a = q * b + r, 0 <= r < b, for positive divisors
            if polynomial_interval(atom.args[1], self.ranges)[0] < 1:
                raise Undecided(f"the divisor of {atom} may be below 1")
            q, r = (self.z3.FreshInt(ctx=self.context) for _ in "qr")
            self.constraints += [args[0] == q * args[1] + r, r >= 0, r < args[1]]
            found = q
        else:
            found = args[0]
            for arg in args[1:]:
                found = self.z3.If(found <= arg if atom.op == "min" else found >= arg, found, arg)
        self._calls[atom] = found
        return found

    def relation(self, relation: str, size: Size) -> Any:
        """``size relation 0``."""
        x = self.term(size)
        return {"==": x == 0, "!=": x != 0, "<=": x <= 0, "<": x < 0, ">": x > 0, ">=": x >= 0}[relation]

    def smallest(self, wanted: Any, order: list[str]) -> dict[str, int] | None:
        """Values of ``order`` that satisfy ``wanted``, the first as small as possible, then the second, ...; ``None``
        when there are none. ``Undecided`` when the limit passes before that is known."""
        solver = self.z3.Solver(ctx=self.context)
        solver.set("rlimit", RESOURCES)
        solver.add(*self.constraints, wanted)
        found = self._model(solver, order)
        if found is None:
            return None
        for name in order:
            low = self.ranges[name][0]
            while low < found[name]:
                middle = (low + found[name]) // 2
                solver.push()
                solver.add(self.variables[name] <= middle)
                try:
                    smaller = self._model(solver, order)
                except Undecided:
                    smaller = None  # a counterexample all the same, perhaps not the smallest
                solver.pop()
                if smaller is None:
                    low = middle + 1
                else:
                    found = smaller
            solver.add(self.variables[name] == found[name])
        return found

    def _model(self, solver: Any, order: list[str]) -> dict[str, int] | None:
        answer = solver.check()
        if answer == self.z3.unsat:
            return None
        if answer != self.z3.sat:
            raise Undecided("the solver gave up")
        model = solver.model()
        return {n: model.eval(self.variables[n], model_completion=True).as_long() for n in order}


def smallest(relation: str, size: Size, spans: Mapping[str, range]) -> dict[str, int] | None:
    """The smallest values in ``spans`` at which ``size relation 0`` fails, ``None`` if it never does.

    ``Undecided`` when Z3 does not know within its limit.
    """
    question = Question({name: (span[0], span[-1]) for name, span in spans.items()})
    wanted = question.relation(relation, size)
    return question.smallest(question.z3.Not(wanted), list(spans))
