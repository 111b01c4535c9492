"""The report ``STEM.coverage.json`` (``cuvil-coverage/1``): figures from the engine's own records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compiler_kernels.policy.clinical import Coverage
from evidence.coverage.execute import Executed
from evidence.coverage.finder import Finder
from evidence.coverage.goals import Goal
from evidence.coverage.mcdc import DecisionCoverage, Pair, Tree, measure

FORMAT: Final = "cuvil-coverage/1"
CRITERIA: Final = ("statement", "decision", "condition", "mcdc_masking", "mcdc_unique_cause")
Row = dict[str, Any]


@dataclass(frozen=True)
class Recount:
    """What clang counted, by C function, or why it was not asked."""

    tool: str | None
    reason: str
    figures: Mapping[str, Sequence[bool]]


def make_report(
    head: Mapping[str, Any],
    probes: Sequence[Row],
    limits: Coverage,
    finder: Finder,
    executed: Executed,
    recount: Recount,
) -> Row:
    """The report: ``head`` names the engine, ``probes`` are those of ``probes.json``."""
    measured = {row["id"]: _measured(row, executed) for row in probes}
    rows = [_row(row, measured[row["id"]], finder) for row in probes]
    totals = {name: _total(_items(rows, name)) for name in CRITERIA}
    compared = _compared(rows, probes, recount)
    problems = _problems(limits, totals, rows, executed, compared)
    verdict = "failed" if problems else "passed"
    return {
        "format": FORMAT,
        **head,
        "verdict": verdict,
        "sentence": _sentence(problems, totals, limits, recount, bool(compared)),
        "problems": problems,
        "criterion": f"mcdc_{limits.criterion}",
        "limits": {
            "statement": limits.statement,
            "decision": limits.decision,
            "condition": limits.condition,
            f"mcdc_{limits.criterion}": limits.mcdc,
        },
        "totals": totals,
        "ring": {"records": sum(map(len, executed.records)), "dropped": executed.dropped},
        "recount": {"tool": recount.tool, "reason": recount.reason, "decisions": compared},
        "probes": rows,
        "requirements": _requirements(rows, executed, probes),
        "vectors": _vectors(finder, executed, probes),
    }


def _measured(row: Row, executed: Executed) -> DecisionCoverage:
    records = [(v, r) for v, found in enumerate(executed.records) for number, r in found if number == row["number"]]
    tree = 0 if row["tree"] is None else tree_of_json(row["tree"])
    return measure(tree, len(row["conditions"]), records)


def tree_of_json(value: Any) -> Tree:
    """The tree of ``probes.json`` with tuples for lists."""
    return tuple(v if isinstance(v, str) else tree_of_json(v) for v in value) if isinstance(value, list) else int(value)


def _row(row: Row, found: DecisionCoverage, finder: Finder) -> Row:
    decides = row["tree"] is not None
    name = row["id"]
    made: Row = {
        key: row[key]
        for key in ("number", "id", "kind", "name", "text", "requirements", "clauses", "function", "lines")
    }
    made["hits"] = found.hits
    made["reached"] = _item(found.hits > 0, *_unreached(row, finder))
    if not decides:
        return made
    made["outcomes"] = {
        word: {"vector": vector, **_goal_item(vector is not None, Goal("outcome", name, value=value), finder)}
        for word, vector, value in (("true", found.true, True), ("false", found.false, False))
    }
    made["conditions"] = []
    for index, (text, condition) in enumerate(zip(row["conditions"], found.conditions, strict=True)):
        masking = [Goal("masking", name, index, value) for value in (True, False)]
        made["conditions"].append(
            {
                "index": index,
                "text": text["text"],
                "true": {
                    "vector": condition.true,
                    **_goal_item(condition.true is not None, Goal("condition", name, index, True), finder),
                },
                "false": {
                    "vector": condition.false,
                    **_goal_item(condition.false is not None, Goal("condition", name, index, False), finder),
                },
                "masking": _pair_item(condition.masking, masking, finder),
                "unique_cause": _pair_item(condition.unique_cause, [Goal("unique_cause", name, index)], finder),
            }
        )
    return made


def _unreached(row: Row, finder: Finder) -> tuple[bool, str]:
    if row["kind"] == "fallback_handler":
        reason = finder.unreachable(row["name"])
        return reason is not None, reason or ""
    if row["tree"] is None:
        return False, ""
    goals = [Goal("outcome", row["id"], value=value) for value in (True, False)]
    return all(g in finder.found.infeasible for g in goals), "neither outcome is feasible"


def _item(covered: bool, infeasible: bool, reason: str = "") -> Row:
    if covered:
        return {"status": "covered"}
    return {"status": "infeasible", "reason": reason} if infeasible else {"status": "open"}


def _goal_item(covered: bool, goal: Goal, finder: Finder) -> Row:
    return _item(covered, goal in finder.found.infeasible, finder.found.infeasible.get(goal, ""))


def _pair_item(pair: Pair | None, goals: list[Goal], finder: Finder) -> Row:
    reasons = [f"{goal}: {finder.found.infeasible[goal]}" for goal in goals if goal in finder.found.infeasible]
    item = _item(pair is not None, bool(reasons), "; ".join(reasons))
    return {**item, "pair": [pair.true, pair.false] if pair is not None else None}


def _items(rows: Iterable[Row], criterion: str) -> list[Row]:
    """The items a criterion counts."""
    if criterion == "statement":
        return [row["reached"] for row in rows]
    decisions = [row for row in rows if "outcomes" in row]
    if criterion == "decision":
        return [row["outcomes"][word] for row in decisions for word in ("true", "false")]
    conditions = [c for row in decisions for c in row["conditions"]]
    if criterion == "condition":
        return [c[word] for c in conditions for word in ("true", "false")]
    return [c[criterion.removeprefix("mcdc_")] for c in conditions]


def _total(items: list[Row]) -> Row:
    count = {status: sum(item["status"] == status for item in items) for status in ("covered", "infeasible", "open")}
    feasible = len(items) - count["infeasible"]
    # rounded down: 100 means all of them
    percent = 100.0 if count["covered"] == feasible else int(10_000 * count["covered"] / feasible) / 100
    return {**count, "total": len(items), "percent": percent}


def _compared(rows: Sequence[Row], probes: Sequence[Row], recount: Recount) -> list[Row]:
    """Decisions of two conditions or more: which have an independence pair by our count and by clang's."""
    if recount.tool is None:
        return []
    found = []
    for row, probe in zip(rows, probes, strict=True):
        if row["kind"] in ("decision_node", "safety_guard") and len(row["conditions"]) > 1:
            ours = [c["unique_cause"]["status"] == "covered" for c in row["conditions"]]
            theirs = recount.figures.get(probe["function"])
            found.append({"probe": row["id"], "ours": ours, "theirs": theirs, "agree": theirs == ours})
    return found


def _problems(
    limits: Coverage, totals: Mapping[str, Row], rows: Sequence[Row], executed: Executed, compared: Sequence[Row]
) -> list[str]:
    named = {
        "statement": limits.statement,
        "decision": limits.decision,
        "condition": limits.condition,
        f"mcdc_{limits.criterion}": limits.mcdc,
    }
    found = [
        f"{name} coverage is {totals[name]['percent']} % of what is feasible, the policy's limit is {limit:g} %"
        for name, limit in named.items()
        if totals[name]["percent"] < limit
    ]
    if executed.dropped:
        found.append(f"{executed.dropped} records of probes were lost")
    found += [f"clang counts {row['probe']} otherwise: {row['theirs']}" for row in compared if not row["agree"]]
    return found


def _sentence(
    problems: Sequence[str], totals: Mapping[str, Row], limits: Coverage, recount: Recount, compared: bool
) -> str:
    if problems:
        return "; ".join(problems)
    figures = totals[f"mcdc_{limits.criterion}"]
    words = limits.criterion.replace("_", " ")
    said = f"{figures['covered']} of {figures['total']} conditions have MC/DC ({words}), {figures['infeasible']} cannot"
    if not recount.tool:
        return f"{said}; not recounted: {recount.reason}"
    # clang's figures are of decisions of two conditions or more.
    return f"{said}; {f'the same by {recount.tool}' if compared else 'no decision has two, so clang recounts none'}"


def _requirements(rows: Sequence[Row], executed: Executed, probes: Sequence[Row]) -> Row:
    """By requirement: its probes, and the vectors that passed one of them."""
    numbers = {row["id"]: row["number"] for row in probes}
    found: dict[str, Row] = {}
    for row in rows:
        for requirement in row["requirements"]:
            entry = found.setdefault(requirement, {"probes": [], "vectors": []})
            entry["probes"].append(row["id"])
    for entry in found.values():
        wanted = {numbers[name] for name in entry["probes"]}
        entry["vectors"] = [v for v, records in enumerate(executed.records) if wanted & {n for n, _ in records}]
    return dict(sorted(found.items()))


def _vectors(finder: Finder, executed: Executed, probes: Sequence[Row]) -> list[Row]:
    """Every vector: what it was made for, how the engine ended, which probes it passed, with their requirements."""
    by_number = {row["number"]: row for row in probes}
    found = []
    for number, (vector, answer, records) in enumerate(
        zip(finder.found.vectors, executed.answers, executed.records, strict=True)
    ):
        passed = list(dict.fromkeys(by_number[n]["id"] for n, _ in records))
        failure = answer.get("failure")
        found.append(
            {
                "number": number,
                "purpose": vector.purpose,
                "flags": vector.flags,
                "status": answer["status"],
                "failure": failure["kind"] if failure else None,
                "decisions": answer["decisions"],
                "probes": passed,
                "requirements": sorted({r for n, _ in records for r in by_number[n]["requirements"]}),
            }
        )
    return found
