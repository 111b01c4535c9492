"""Tables and figures of a run, and the check against the names that passed before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from evidence.conformance.cases import DENOMINATORS, MODES, denominator, listed
from evidence.conformance.deviations import DEVIATIONS
from evidence.conformance.outcome import Kind, Outcome

FEW = 100
"""Up to this many outcomes, the table names every refused test."""


def figures(outcomes: Sequence[Outcome]) -> dict[str, dict[str, dict[str, int]]]:
    """Per mode and denominator: how many names it has, how many of them were run, how many passed.

    ``count`` is fixed by the committed list; a name that was not selected counts as not passed.
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    for mode in modes_of(outcomes):
        run = {o.name for o in outcomes if o.mode == mode}
        passed = {o.name for o in outcomes if o.mode == mode and o.kind is Kind.PASSED}
        sets = {kind: denominator(kind) for kind in DENOMINATORS.values()} | {"all": frozenset(listed())}
        found[mode] = {
            kind: {"count": len(names), "run": len(names & run), "passed": len(names & passed)}
            for kind, names in sets.items()
        }
    return found


def modes_of(outcomes: Iterable[Outcome]) -> list[str]:
    present = {o.mode for o in outcomes}
    return [mode for mode in MODES if mode in present]


def reason(outcome: Outcome) -> str:
    """The detail without the names and numbers of the one test, so that equal reasons can be counted."""
    text = outcome.detail.replace(outcome.name, "MODEL")
    text = re.sub(r"node '[^']*'", "node", text)
    text = re.sub(r"'[^']*'", "'…'", text)
    text = re.sub(r"\[[^\]]*\]", "[…]", text)
    text = re.sub(r"\(got .*?\)|got .*? expected .*?\)", "", text)
    return " ".join(re.sub(r"(?<![\w.])-?\d+(\.\d+)?", "N", text).split())


def reasons(outcomes: Sequence[Outcome], kind: Kind, mode: str) -> list[tuple[int, str, list[str]]]:
    """Reasons of ``kind`` with their number and operators, most frequent first."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.kind is kind and outcome.mode == mode:
            found.setdefault(reason(outcome), []).append(outcome.op)
    rows = [(len(ops), text, [op for op, _ in Counter(ops).most_common()]) for text, ops in found.items()]
    return sorted(rows, key=lambda row: (-row[0], row[1]))


def by_operator(outcomes: Sequence[Outcome], mode: str) -> dict[str, Counter[Kind]]:
    found: dict[str, Counter[Kind]] = {}
    for outcome in outcomes:
        if outcome.mode == mode:
            found.setdefault(outcome.op, Counter())[outcome.kind] += 1
    return dict(sorted(found.items()))


def document(outcomes: Sequence[Outcome], target: str, regressed: Sequence[str] | None) -> dict[str, Json]:
    """The object of ``--json``; ``regressed`` is ``None`` where no baseline was given."""
    modes: dict[str, Json] = {}
    counted = figures(outcomes)
    for mode in modes_of(outcomes):
        rows = by_operator(outcomes, mode)
        kinds = Counter(o.kind for o in outcomes if o.mode == mode)
        modes[mode] = as_json(
            {
                "passed": counted[mode],
                "outcomes": {kind.value: kinds[kind] for kind in Kind},
                "operators": {op: {k.value: n for k, n in sorted(c.items(), key=_order)} for op, c in rows.items()},
                "refusals": [{"count": n, "reason": t, "operators": ops} for n, t, ops in _refusals(outcomes, mode)],
            }
        )
    return {
        "suite": "onnx-node",
        "target": target,
        "modes": modes,
        "regressed": None if regressed is None else list(regressed),
        "cases": as_json([o.to_json() for o in outcomes]),
    }


def _order(item: tuple[Kind, int]) -> int:
    return list(Kind).index(item[0])


def _refusals(outcomes: Sequence[Outcome], mode: str) -> list[tuple[int, str, list[str]]]:
    return reasons(outcomes, Kind.REFUSED, mode)


def table(outcomes: Sequence[Outcome], longest: int = 20) -> list[str]:
    """Lines for people: figures, outcomes per operator, reasons of refusals, and every defect."""
    lines: list[str] = []
    counted = figures(outcomes)
    for mode in modes_of(outcomes):
        kinds = Counter(o.kind for o in outcomes if o.mode == mode)
        lines += [f"mode {mode}: " + ", ".join(f"{kinds[k]} {k.value}" for k in Kind if kinds[k])]
        lines += [f"  {kind:12} {_share(row)}" for kind, row in counted[mode].items()]
        lines += ["", *_operators(by_operator(outcomes, mode)), ""]
        refusals = _refusals(outcomes, mode)
        for count, text, ops in refusals[:longest]:
            shown = text if len(text) <= 140 else text[:139] + "…"
            lines.append(f"  {count:5}  {shown} [{', '.join(ops[:6])}{', …' if len(ops) > 6 else ''}]")
        if len(refusals) > longest:
            lines.append(f"         and {len(refusals) - longest} further reasons; --json has all")
        lines.append("")
    if len(outcomes) <= FEW:
        lines += [f"refused: {o.name} ({o.mode}): {o.detail}" for o in outcomes if o.kind is Kind.REFUSED]
    lines += [f"{o.kind.value}: {o.name} ({o.mode}): {o.detail}{_known(o)}" for o in outcomes if o.kind.defect]
    return lines


def defects(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that are neither passed, nor refused, nor a wrong value that ``DEVIATIONS`` explains."""
    return [o for o in outcomes if o.kind.defect and not (o.kind is Kind.WRONG and o.name in DEVIATIONS)]


def _known(outcome: Outcome) -> str:
    reason = DEVIATIONS.get(outcome.name)
    return f" (known: {reason})" if reason and outcome.kind is Kind.WRONG else ""


def _share(row: Mapping[str, int]) -> str:
    """The figure of a denominator; a selection gives none, so it says so."""
    if row["run"] < row["count"]:
        return f"{row['passed']} of the {row['run']} that were run (of {row['count']})"
    return f"{row['passed']} of {row['count']} ({100 * row['passed'] / row['count']:.1f} %)"


def _operators(rows: Mapping[str, Counter[Kind]]) -> list[str]:
    """One line per operator, a column per outcome that occurs."""
    kinds = [k for k in Kind if any(c[k] for c in rows.values())]
    width = max((len(op) for op in rows), default=8)
    head = f"  {'operator':{width}}" + "".join(f"  {k.value:>{max(7, len(k.value))}}" for k in kinds)
    return [head] + [
        f"  {op:{width}}" + "".join(f"  {c[k] or '.':>{max(7, len(k.value))}}" for k in kinds) for op, c in rows.items()
    ]


_BASELINE_HEAD = (
    "# Node tests that pass, with their modes; `cuvil conformance --baseline` fails when one no longer does.\n"
)


def baseline_text(outcomes: Sequence[Outcome]) -> str:
    """The baseline file of a run: ``NAME MODE[,MODE]``, sorted by name."""
    modes: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.kind is Kind.PASSED:
            modes.setdefault(outcome.name, []).append(outcome.mode)
    return _BASELINE_HEAD + "".join(f"{name} {','.join(sorted(m))}\n" for name, m in sorted(modes.items()))


def read_baseline(file: Path) -> frozenset[tuple[str, str]]:
    """Pairs of name and mode. ``UsageError`` for an unreadable file or a line of another form."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--baseline {file}: cannot be read ({error}); give a file that this command wrote") from None
    found: set[tuple[str, str]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, modes = line.strip().partition(" ")
        chosen = modes.split(",")
        if name not in listed() or not set(chosen) <= set(MODES):
            raise UsageError(f"--baseline {file}: line {number} is not NAME MODE[,MODE]; write the file again")
        found.update((name, mode) for mode in chosen)
    return frozenset(found)


def regressions(outcomes: Sequence[Outcome], baseline: frozenset[tuple[str, str]]) -> list[str]:
    """``NAME (MODE): outcome`` of every test that was run, is in the baseline, and did not pass."""
    return [
        f"{o.name} ({o.mode}): {o.kind.value}: {o.detail}"
        for o in outcomes
        if o.kind is not Kind.PASSED and (o.name, o.mode) in baseline
    ]
