"""Find a world for each goal, or prove that there is none.

Two encodings close in from both sides: what ``Numbers`` satisfies is turned into tensors and counts only when the
evaluation of those tensors reaches the goal; what ``Relaxed`` cannot satisfy is infeasible. What is neither stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import z3

from compiler_kernels.policy.logic_tree import Compare, Logic, NamedGuard
from compiler_kernels.targets.c.probes import has_own_fallback
from evidence.coverage.cells import Array, Cells
from evidence.coverage.evaluate import Evaluator, Verdict
from evidence.coverage.failures import failing_worlds
from evidence.coverage.flow import Flow, Traced
from evidence.coverage.goals import Goal, boundary_goals, coverage_goals, reached
from evidence.coverage.grids import Bounds
from evidence.coverage.intervals import Intervals
from evidence.coverage.mcdc import Record
from evidence.coverage.numbers import Divided, Numbers, Term, rational
from evidence.coverage.relaxed import Relaxed

EFFORT: Final = 20_000_000
"""Z3's resource limit for one question: unlike a time, it is the same on every machine. About ten seconds."""
WIDE, NARROW, NONE, DYADIC = 0, 1, 2, 3
LADDER: Final = (WIDE, NARROW, NONE, DYADIC)
"""How a solution is sought: sides of rounded comparisons apart by a wide margin, a narrow one, none; or all elements
multiples of 2**-12, whose sums are exact, for numbers that must be equal."""
WorldArrays = dict[tuple[str, int], Array]


@dataclass(frozen=True)
class Vector:
    """Tensors, what is simulated (bit 0 a refusal, bit 1 a lockstep difference), and what it was made for."""

    world: WorldArrays
    flags: int
    purpose: str


@dataclass
class Search:
    """Vectors found; goals proved infeasible with the reason; goals left open."""

    vectors: list[Vector] = field(default_factory=list)
    infeasible: dict[Goal, str] = field(default_factory=dict)
    open: list[Goal] = field(default_factory=list)


class Finder:
    """One search over one logic; a later one ends it. ``guards`` are those of the tensors by name."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds]) -> None:
        # a context of its own: what Z3 finds depends on what its context has seen, and a policy has one report
        z3.z3._main_ctx = None
        self.logic, self.guards = logic, guards
        self.evaluator = Evaluator(logic, guards)
        self.nodes = self.evaluator.nodes
        self.early = {f"safety_guard:{g.name}" for g in logic.guards if g.before}
        self.cells = Cells(logic)
        self.real = _Side(logic, Numbers(logic, guards, self.cells), early=False)
        self._relaxed: dict[bool, _Side] = {}
        self.found = Search()
        self.records: dict[str, list[Record]] = {name: [] for name in self.nodes}
        self.seen: dict[str, set[Record]] = {name: set() for name in self.nodes}

    def search(self, progress: Callable[[int, int], None] = lambda done, total: None) -> Search:
        """Vectors for every coverage goal, every boundary and every failure."""
        goals = [g for node in self.nodes.values() for g in coverage_goals(node)]
        goals += [g for node in self.nodes.values() for g in boundary_goals(node)]
        self.attempt([self.real.flow.decided], [], "no failure", lambda verdict: verdict.failure is None)
        for done, goal in enumerate(goals):
            progress(done, len(goals))
            self.pursue(goal)
        for vector in failing_worlds(self.logic, self.guards, self.base()):
            self.add(Vector(*vector))
        self.divide_by_zero()
        progress(len(goals), len(goals))
        return self.found

    def base(self) -> WorldArrays:
        """A world that goes as far as any: without a failure, else past the guards before the inference, else any."""
        failures = {
            self.evaluator.decide(v.world).failure: v.world for v in reversed(self.found.vectors) if not v.flags
        }
        early = {name.replace("safety_guard:", "", 1) for name in self.early}
        late = [w for f, w in failures.items() if f is not None and f.removeprefix("safety_guard:") not in early]
        anything = self.cells.world(dict.fromkeys(self.real.numbers.groups, 0.0), self.guards)
        return failures.get(None) or next(iter(late), anything)

    def divide_by_zero(self) -> None:
        """A world in which a divisor is zero, so that a number is infinite or NaN, if there is one."""
        numbers = Divided(self.logic, self.guards, self.cells)
        side = _Side(self.logic, numbers, early=False)
        for divisor in numbers.divisors:
            if side.check([side.flow.entered, divisor == 0]) == z3.sat:
                self.add(Vector(side.world(self.guards), 0, "a divisor is zero"))

    def unreachable(self, failure: str) -> str | None:
        """Why no inference can end with ``failure`` (``safety_guard:NAME``: a guard with its own fallback), if so."""
        if failure.startswith("safety_guard"):
            _, _, own = failure.partition(":")
            guards = [g for g in self.logic.guards if (g.name == own if own else not self.own_fallback(g))]
            goals = [Goal("outcome", f"safety_guard:{g.name}", value=False) for g in guards]
            if all(goal in self.found.infeasible for goal in goals):
                return "the guards it answers for are proved never to fail"
        if failure == "not_a_number" and all(Intervals(self.logic, self.guards).finite(n) for n in self.evaluator.all):
            return "every number is finite for all tensors within the guards (interval arithmetic)"
        if failure in ("refusal", "lockstep", "output_guard") and self.never_entered():
            return "the guards before the inference are proved to fail always"
        return None

    def never_entered(self) -> bool:
        goals = [Goal("outcome", name, value=True) for name in self.early]
        return any(goal in self.found.infeasible for goal in goals)

    def own_fallback(self, guard: NamedGuard) -> bool:
        return has_own_fallback(self.logic, guard)

    def relaxed(self, goal: Goal) -> _Side:
        node = self.nodes[goal.probe]
        early = node.owner in self.early
        if early not in self._relaxed:
            self._relaxed[early] = _Side(self.logic, Relaxed(self.logic, self.guards, self.cells), early=early)
        return self._relaxed[early]

    # ---- one goal

    def pursue(self, goal: Goal) -> None:
        node = self.nodes[goal.probe]
        if reached(goal, node, self.records[goal.probe]):
            return
        if goal.kind == "boundary":
            self.boundary(goal)
            return
        if goal.kind == "unique_cause":
            if not self.pair(goal):
                self.settle(goal, *self.relaxed(goal).pair(goal))
            return
        wanted = self.real.wanted(goal)
        if not self.attempt(wanted, [], str(goal), lambda v: self.after(goal, v)):
            side = self.relaxed(goal)
            self.settle(goal, side, side.wanted(goal))

    def settle(self, goal: Goal, side: _Side, wanted: list[Term]) -> None:
        """Prove the goal infeasible, else leave it open."""
        if side.check(wanted) == z3.unsat:
            self.found.infeasible[goal] = "unsatisfiable for all tensors within the guards (Z3)"
        else:
            self.found.open.append(goal)

    def after(self, goal: Goal, verdict: Verdict) -> bool:
        return reached(goal, self.nodes[goal.probe], [r for name, r in verdict.records if name == goal.probe])

    def attempt(self, wanted: list[Term], exempt: list[Compare], purpose: str, good: Callable[[Verdict], bool]) -> bool:
        """A world with ``wanted``, comparisons but ``exempt`` kept apart by a margin where possible."""
        for width in LADDER:
            if self.real.check(wanted, width, exempt) != z3.sat:
                continue
            world = self.real.world(self.guards)
            if good(self.evaluator.decide(world)):
                self.add(Vector(world, 0, purpose))
                return True
        return False

    def add(self, vector: Vector) -> None:
        self.found.vectors.append(vector)
        for name, record in self.evaluator.decide(vector.world, vector.flags).records:
            if record not in self.seen[name]:
                self.seen[name].add(record)
                self.records[name].append(record)

    def pair(self, goal: Goal) -> bool:
        """Two worlds that are an independence pair by unique cause."""
        side, wanted = self.real.pair(goal)
        for width in LADDER[:-1]:
            if side.check(wanted, width) != z3.sat:
                continue
            worlds = [side.world(self.guards), side.world(self.guards, side.second)]
            records = [[r for name, r in self.evaluator.decide(w).records if name == goal.probe] for w in worlds]
            if reached(goal, self.nodes[goal.probe], [r for rs in records for r in rs]):
                for world in worlds:
                    self.add(Vector(world, 0, str(goal)))
                return True
        return False

    def boundary(self, goal: Goal) -> None:
        """The condition's sides equal, or one just above the other; where it is not masked, if that can be."""
        condition = self.nodes[goal.probe].conditions[goal.index]
        assert isinstance(condition, Compare)
        traced = self.real.flow.traced[goal.probe]
        place = [z3.And(traced.reached, traced.evaluated[goal.index])]
        for near in self.real.near(condition, goal.side):
            for where in ([*place, traced.unmasked[goal.index]], place):
                if self.attempt([*where, near], [condition], str(goal), lambda v: True):
                    return


class _Side:
    """One encoding with its solver."""

    def __init__(self, logic: Logic, numbers: Numbers, *, early: bool) -> None:
        self.numbers = numbers
        self.flow = Flow(logic, numbers, early=early)
        self.apart: list[Term] = []
        self.switches: dict[tuple[Compare, int], Term] = {}
        self.solver = z3.Solver()
        self.model: Any = None
        self.solver.set("rlimit", EFFORT)
        self.second: list[tuple[Term, Term]] = []
        self.second_of = -1
        self.copies: list[Term] = []
        self.said = 0
        self.multiples: list[Term] = []
        self.say()

    def say(self) -> None:
        """Tell the solver the facts and margins that are new."""
        facts = self.numbers.facts[self.said :]
        self.said = len(self.numbers.facts)
        self.solver.add(*facts)
        for condition, widths in self.numbers.margins.items():
            for width, apart in enumerate(widths):
                if (condition, width) not in self.switches:
                    switch = z3.Bool(f"margin.{len(self.switches)}")
                    self.switches[condition, width] = switch
                    self.apart.append(z3.Implies(switch, apart))
                    self.solver.add(self.apart[-1])

    def check(self, wanted: list[Term], width: int = NONE, exempt: Iterable[Compare] = ()) -> Any:
        left = set(exempt)
        switches = [s for (c, w), s in self.switches.items() if w == width and c not in left]
        if width == DYADIC:
            switches.append(self.dyadic())
        self.solver.push()
        self.solver.add(*wanted)
        found = self.solver.check(*switches)
        self.model = self.solver.model() if found == z3.sat else None
        self.solver.pop()
        return found

    def dyadic(self) -> Term:
        """A switch that makes every element a multiple of 2**-12."""
        switch = z3.Bool("dyadic")
        if not self.multiples:
            for number, term in enumerate(self.numbers.groups.values()):
                self.multiples.append(z3.ToReal(z3.Int(f"multiple.{number}")) / 4096 == term)
            self.solver.add([z3.Implies(switch, m) for m in self.multiples])
        return switch

    def wanted(self, goal: Goal) -> list[Term]:
        return _wanted(self.flow.traced[goal.probe], goal)

    def world(self, guards: Mapping[str, Bounds], renamed: list[tuple[Term, Term]] | None = None) -> WorldArrays:
        values = {}
        for group, term in self.numbers.groups.items():
            here = z3.substitute(term, *renamed) if renamed else term
            values[group] = _float(self.model.eval(here, model_completion=True))
        return self.numbers.cells.world(values, guards)

    def near(self, condition: Compare, side: str) -> list[Term]:
        """Terms for the sides of a comparison being equal or near, the nearest first."""
        left, right = self.numbers.number(condition.left), self.numbers.number(condition.right)
        limit = self.numbers.constant(condition.right)
        self.say()
        if side == "equal":
            return [left == right]
        grid = self.numbers.grid(condition.left)
        made = []
        if limit is not None and grid is not None and self.numbers.counts(condition.left) is None:
            near = grid.above(limit) if side == "above" else grid.below(limit)
            if abs(near) != float("inf"):
                made.append(left == rational(near))
        scale = Fraction(max(1.0, abs(limit or 0.0)))
        for bits in (20, 10):
            far = rational(scale / 2**bits)
            above, below = z3.And(left > right, left <= right + far), z3.And(left < right, left >= right - far)
            made.append(above if side == "above" else below)
        return made

    def pair(self, goal: Goal) -> tuple[_Side, list[Term]]:
        """This side, and the terms for an independence pair: the second evaluation is over renamed variables."""
        traced = self.flow.traced[goal.probe]
        terms = [traced.reached, traced.outcome, *traced.values, *traced.evaluated]
        if self.second_of != self.said:
            shared = {str(s) for s in self.switches.values()}
            variables = [v for v in _variables([*self.numbers.facts, *self.apart, *terms]) if str(v) not in shared]
            self.second = [(v, z3.Const(f"{v}'", v.sort())) for v in variables]
            self.second_of = self.said
            self.copies = [z3.substitute(f, *self.second) for f in (*self.numbers.facts, *self.apart)]
        known = {str(a) for a, _ in self.second}
        self.second += [(v, z3.Const(f"{v}'", v.sort())) for v in _variables(terms) if str(v) not in known]
        other = Traced(
            z3.substitute(traced.reached, *self.second),
            z3.substitute(traced.outcome, *self.second),
            tuple(z3.substitute(v, *self.second) for v in traced.values),
            tuple(z3.substitute(v, *self.second) for v in traced.evaluated),
            (),
        )
        wanted = [*self.copies, traced.reached, other.reached, traced.outcome != other.outcome]
        for index, (a, b) in enumerate(zip(traced.values, other.values, strict=True)):
            both = z3.And(traced.evaluated[index], other.evaluated[index])
            wanted += [both, a, z3.Not(b)] if index == goal.index else [z3.Implies(both, a == b)]
        return self, wanted


def _wanted(traced: Traced, goal: Goal) -> list[Term]:
    match goal.kind:
        case "outcome":
            return [traced.reached, traced.outcome if goal.value else z3.Not(traced.outcome)]
        case "condition":
            place = traced.evaluated[goal.index]
        case _:
            place = traced.unmasked[goal.index]
    value = traced.values[goal.index]
    return [traced.reached, place, value if goal.value else z3.Not(value)]


def _variables(terms: list[Term]) -> list[Term]:
    found: dict[int, Term] = {}
    done: set[int] = set()
    stack = list(terms)
    while stack:
        term = stack.pop()
        if term.get_id() in done:
            continue
        done.add(term.get_id())
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[term.get_id()] = term
        stack.extend(term.children())
    return sorted(found.values(), key=str)


def _float(value: Term) -> float:
    if z3.is_algebraic_value(value):
        value = value.approx(40)
    return float(Fraction(value.numerator_as_long(), value.denominator_as_long()))
