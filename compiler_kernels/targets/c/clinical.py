"""Generate ``clinical.c``: the clinical logic of the policy as C that auditors read (docs/clinical.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from compiler_kernels.policy.clinical import Fallback
from compiler_kernels.policy.logic_text import number_text
from compiler_kernels.policy.logic_tree import (
    Condition,
    Logic,
    NamedDecision,
    NamedGuard,
    Numeric,
)
from compiler_kernels.targets.c.conditions import Expression
from compiler_kernels.targets.c.includes import include
from compiler_kernels.targets.c.numbers import (
    Numbers,
    comment,
    comparisons,
    inputs_only,
    quantity_names,
    unnamed_numbers,
)
from compiler_kernels.targets.c.probes import (
    Kind,
    Probe,
    at_least_owner,
    counted,
    has_own_fallback,
    probes_json,
    probes_of,
    used_fallbacks,
)
from compiler_kernels.targets.c.writer import c_string

NO_LOGIC = "/* The policy has no decisions and no safety guards: there is no clinical logic. */\n"


@dataclass(frozen=True)
class Clinical:
    """The clinical logic of one engine, as its generator takes it; ``probes``: whether they are compiled in."""

    logic: Logic
    probes: bool = False

    def any(self) -> bool:
        return self.logic.any()


def generate_clinical(
    clinical: Clinical | None, prefix: str, config_digest: str, note: Sequence[str]
) -> dict[str, bytes]:
    """``clinical.c`` and ``probes.json``, both present without clinical logic too; ``note`` begins the comment on top.

    The C defines ``<prefix>_clinical_logic``, a ``cuvil_clinical`` of cuvil_engine.h.
    """
    if clinical is None or not clinical.any():
        return {"clinical.c": NO_LOGIC.encode(), "probes.json": probes_json((), {}, False, config_digest)}
    writer = _Writer(clinical, prefix)
    text = "\n".join([*note, *writer.whole()]) + "\n"
    lines = _function_lines(text)
    return {
        "clinical.c": text.encode(),
        "probes.json": probes_json(writer.probes, lines, clinical.probes, config_digest),
    }


def _function_lines(text: str) -> dict[str, tuple[int, int]]:
    """First and last line (from 1, the comment above it included) of every function."""
    found = {}
    name, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("static ") and line.endswith(") {"):
            name, start = line.split("(")[0].split()[-1], number - 1
        elif line == "}" and name:
            found[name], name = (start, number), ""
    return found


@dataclass
class _Writer:
    clinical: Clinical
    prefix: str
    numbers: Numbers = field(init=False)
    probes: tuple[Probe, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.logic = self.clinical.logic
        self.numbers = Numbers(self.prefix, unnamed_numbers(self.logic))
        self.probes = probes_of(self.logic)
        self.number_of = {probe.id: probe.number for probe in self.probes}

    def whole(self) -> list[str]:
        body = [*self.fallbacks(), *self.before_and_after()]
        return [
            " * Clinical logic: what is computed, guarded and decided around one inference. */",
            f"#define CUVIL_PROBES {int(self.clinical.probes)}",
            include("cuvil_engine.h"),
            include("cuvil_fpenv.h"),
            include("cuvil_clinical.h"),
            include("cuvil_cover.h"),
            "",
            f"#define ENGINE (&{self.prefix}_engine_instance)",
            f"extern const cuvil_engine {self.prefix}_engine_instance;",
            "",
            *self.names(),
            *self.numbers.declarations(),
            "",
            *body,
            *self.interface(),
        ]

    # ---- names

    def names(self) -> list[str]:
        logic = self.logic
        thresholds = []
        for t in logic.thresholds:
            words = [repr(t.value), *([comment(t.source)] if t.source else []), *t.requirements]
            thresholds.append(f"#define t_{t.name} ({t.value.hex()}) /* {'; '.join(words)} */")
        values = [f"#define q_{q.name} values[{n}]" for n, q in enumerate(logic.quantities)]
        first = len(logic.quantities)
        values += [
            f"#define e_{n} values[{first + n}] /* {comment(number_text(v))} */"
            for n, v in enumerate(self.numbers.unnamed)
        ]
        return [
            "/* Thresholds t_, quantities q_, unnamed sides of comparisons e_, decisions d_, safety guards g_. */",
            *thresholds,
            *values,
            *(f"#define d_{d.name} decisions[{n}]" for n, d in enumerate(logic.decisions)),
            *(f"#define g_{g.name} guards[{n}]" for n, g in enumerate(logic.guards)),
            f"enum {{ VALUES = {len(values)}, QUANTITIES = {first}, DECISIONS = {len(logic.decisions)}, "
            f"GUARDS = {len(logic.guards)} }};",
            "static double values[VALUES + 1];",
            "static unsigned char known[VALUES + 1];",
            "static signed char decisions[DECISIONS + 1], guards[GUARDS + 1];",
            'static cuvil_answer answer = {CUVIL_OPEN, CUVIL_NO_FAILURE, -1, 0, "", values, known, decisions, guards};',
            "",
        ]

    # ---- fallbacks

    def fallbacks(self) -> list[str]:
        logic = self.logic
        lines = []
        for failure in used_fallbacks(logic):
            lines += self.fallback(f"fallback_{failure}", failure, f"fallbacks.{failure}", logic.fallbacks[failure])
        for guard in logic.guards:
            if has_own_fallback(logic, guard):
                where = f"safety.guards.{guard.name}.fallback"
                lines += self.fallback(f"fallback_of_{guard.name}", f"safety_guard:{guard.name}", where, guard.fallback)
        host = (
            f"        [CUVIL_{f.upper()}] = fallback_{f},"
            for f in ("input_guard", "output_guard", "refusal", "lockstep")
        )
        return [
            *lines,
            "/* Ends the inference without a decision of its own. */",
            "static void settle(int failure, int guard, const char *sentence, void (*fallback)(void)) {",
            "    answer.failure = failure;",
            "    answer.guard = guard;",
            "    answer.sentence = sentence;",
            "    for (int d = 0; d < DECISIONS; d++) decisions[d] = -1;",
            "    fallback();",
            "}",
            "",
            "/* A failure that the host found. */",
            "static void fail(int failure, const char *sentence) {",
            "    static void (*const fallbacks[CUVIL_FAILURES])(void) = {",
            *host,
            "    };",
            "    settle(failure, -1, sentence, fallbacks[failure]);",
            "}",
            "",
        ]

    def fallback(self, function: str, probe: str, where: str, fallback: Fallback) -> list[str]:
        decided = [f"    d_{name} = {int(fallback.decisions[name])};" for name in sorted(fallback.decisions)]
        status = "CUVIL_FALLBACK" if fallback.action == "answer" else "CUVIL_NO_ANSWER"
        return [
            f"/* {where}: {fallback.action} */",
            f"static void {function}(void) {{",
            f"    {self.cover(f'fallback_handler:{probe}', '0', '1')}",
            f"    answer.status = {status};",
            *([f"    answer.message = {c_string(fallback.message)};"] if fallback.message else []),
            *decided,
            "}",
            "",
        ]

    def cover(self, probe: str, trace: str, outcome: str) -> str:
        return f'__cuvil_cover("{probe}", {self.number_of[probe]}, {trace}, {outcome});'

    # ---- guards and decisions

    def node(self, kind: Kind, section: NamedDecision | NamedGuard, when: Condition, function: str) -> list[str]:
        """Function that evaluates one decision or guard and notes it."""
        where = f"decisions.{section.name}" if kind == "decision_node" else f"safety.guards.{section.name}"
        store = f"{'d' if kind == 'decision_node' else 'g'}_{section.name}"
        lines = [f"/* {where}: {comment(section.text)} */", f"static int {function}(void) {{", "    uint64_t t = 0;"]
        plus = f"\n{' ' * 19}+ "
        for place, leaf in enumerate(counted(when), 1):
            terms = [f"cuvil_condition(&t{place}, {i}, {self.plain(o)})" for i, o in enumerate(leaf.operands)]
            probe = f"at_least:{at_least_owner(kind, section.name)}:{place}"
            lines += [
                f"    uint64_t t{place} = 0;",
                f"    const int n{place} = {plus.join(terms)};",
                f"    {self.cover(probe, f't{place}', f'n{place} >= {leaf.count}')}",
            ]
        expression = Expression(self.numbers)
        return [
            *lines,
            f"    const int result = {expression.probed(when, ' ' * 23)};",
            f"    {self.cover(f'{kind}:{section.name}', 't', 'result')}",
            f"    {store} = (signed char)result;",
            *(self.broken(section) if isinstance(section, NamedGuard) else []),
            "    return result;",
            "}",
            "",
        ]

    def plain(self, condition: Condition) -> str:
        return Expression(self.numbers).plain(condition)

    def broken(self, guard: NamedGuard) -> list[str]:
        number = self.logic.guards.index(guard)
        own = has_own_fallback(self.logic, guard)
        words = f"the safety guard {guard.name} does not hold: {' '.join(guard.text.split())}"
        if guard.description:
            words += f" ({guard.description})"
        fallback = f"fallback_of_{guard.name}" if own else "fallback_safety_guard"
        return [
            f"    if (!result) settle(CUVIL_SAFETY_GUARD, {number}, {c_string(words)},",
            f"                        {fallback});",
        ]

    # ---- the order of one inference

    def before_and_after(self) -> list[str]:
        logic = self.logic
        early_guards = [g for g in logic.guards if g.before]
        early = self.needed(g.require for g in early_guards)
        late_quantities = [q.name for q in logic.quantities if q.name not in early[0]]
        late = (late_quantities, [v for v in self.numbers.unnamed if v not in early[1]])
        lines = self.all_finite()
        lines += self.compute("compute_before", "Numbers of the inputs that guards before the inference read.", *early)
        lines += self.compute("compute_after", "All other numbers.", *late)
        for guard in logic.guards:
            lines += self.node("safety_guard", guard, guard.require, f"guard_{guard.name}")
        for decision in logic.decisions:
            lines += self.node("decision_node", decision, decision.when, f"decide_{decision.name}")
        decided = [f"    decide_{d.name}();" for d in logic.decisions]
        steps = [self.computed("compute_before", early), [f"guard_{g.name}()" for g in early_guards]]
        then = [self.computed("compute_after", late)]
        held = [f"guard_{g.name}()" for g in logic.guards if not g.before]
        return [
            *lines,
            "static int check_before(void) {",
            *(f"    if (!{step}) return 0;" for group in steps for step in group),
            "    return 1;",
            "}",
            "",
            "static int check_after(void) {",
            *(f"    if (!{step}) return 0;" for group in then for step in group),
            *decided,
            *(f"    if (!{step}) return 0;" for step in held),
            "    answer.status = CUVIL_DECIDED;",
            "    return 1;",
            "}",
            "",
        ]

    @staticmethod
    def computed(function: str, what: tuple[Sequence[str], Sequence[Numeric]]) -> list[str]:
        return [f"{function}()"] if what[0] or what[1] else []

    def needed(self, conditions: Iterable[Condition]) -> tuple[list[str], list[Numeric]]:
        """Quantities, with those they read, and unnamed numbers of ``conditions``, in the order of computation."""
        sides = [s for c in conditions for compare in comparisons(c) for s in (compare.left, compare.right)]
        unnamed = [v for v in self.numbers.unnamed if v in sides]
        wanted = {name for side in sides for name in quantity_names(side)}
        by_name = {q.name: q for q in self.logic.quantities}
        waiting = list(wanted)
        while waiting:
            new = set(quantity_names(by_name[waiting.pop()].value)) - wanted
            wanted |= new
            waiting += new
        assert all(inputs_only(v, self.logic) for v in unnamed)
        return [q.name for q in self.logic.quantities if q.name in wanted], unnamed

    def all_finite(self) -> list[str]:
        names = [f"the quantity {q.name}" for q in self.logic.quantities]
        names += [f"the number {number_text(v)}" for v in self.numbers.unnamed]
        if not names:
            return []
        return [
            "static int all_finite(void) {",
            "    static const char *const sentences[VALUES] = {",
            *(f"        {c_string(f'{n} is NaN or infinite, and nothing is decided on it')}," for n in names),
            "    };",
            "    const int broken = cuvil_not_finite(values, VALUES);",
            "    if (broken >= 0) settle(CUVIL_NOT_A_NUMBER, -1, sentences[broken], fallback_not_a_number);",
            "    return broken < 0;",
            "}",
            "",
        ]

    def compute(self, function: str, title: str, names: Sequence[str], unnamed: Sequence[Numeric]) -> list[str]:
        if not names and not unnamed:
            return []
        lines = [f"/* {title} */", f"static int {function}(void) {{"]
        by_name = {q.name: q for q in self.logic.quantities}
        for name in names:
            quantity = by_name[name]
            unit = f", {comment(quantity.unit)}" if quantity.unit else ""
            value = self.numbers.expression(quantity.value)
            lines.append(f"    q_{name} = cuvil_number({value}); /* {comment(quantity.text)}{unit} */")
            lines.append(f"    known[{self.logic.quantities.index(quantity)}] = 1;")
        for number in unnamed:
            place = self.numbers.unnamed.index(number)
            lines.append(f"    e_{place} = cuvil_number({self.numbers.expression(number)});")
        return [*lines, "    return all_finite();", "}", ""]

    def interface(self) -> list[str]:
        logic = self.logic

        def table(name: str, rows: Iterable[str]) -> list[str]:
            made = [f"    {c_string(row)}," for row in rows]
            return [f"static const char *const {name}[] = {{", *(made or ["    0,"]), "};"]

        def entered(function: str, check: str) -> list[str]:
            return [
                f"static int {function}(void) {{",
                "    const cuvil_fpenv fpenv = cuvil_fpenv_enter();",
                f"    const int goes_on = {check}();",
                "    cuvil_fpenv_leave(fpenv);",
                "    return goes_on;",
                "}",
                "",
            ]

        return [
            "static void erase(void) {",
            "    answer.status = CUVIL_OPEN;",
            "    answer.failure = CUVIL_NO_FAILURE;",
            "    answer.guard = -1;",
            "    answer.sentence = 0;",
            '    answer.message = "";',
            "    cuvil_wipe(values, sizeof values);",
            "    cuvil_wipe(known, sizeof known);",
            "    for (int d = 0; d < DECISIONS; d++) decisions[d] = -1;",
            "    for (int g = 0; g < GUARDS; g++) guards[g] = -1;",
            "}",
            "",
            "static void forget(void) {",
            "    erase();",
            "    cuvil_forget_ring();",
            "}",
            "",
            "/* An inference begins: nothing is known. */",
            "static void begin(void) {",
            f"    {self.cover('entry:inference', '0', '1')}",
            "    erase();",
            "}",
            "",
            *entered("before", "check_before"),
            *entered("after", "check_after"),
            *table("quantity_names", (q.name for q in logic.quantities)),
            *table("decision_names", (d.name for d in logic.decisions)),
            *table("guard_names", (g.name for g in logic.guards)),
            f'__attribute__((visibility("hidden"))) const cuvil_clinical {self.prefix}_clinical_logic = {{',
            "    QUANTITIES, DECISIONS, GUARDS, quantity_names, decision_names, guard_names,",
            "    &answer, begin, before, after, fail, forget, CUVIL_RING,",
            "};",
        ]
