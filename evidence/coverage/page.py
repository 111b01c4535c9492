"""``STEM.coverage.html``: the coverage report as one offline page, every figure a link to the vectors behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

Row = Mapping[str, Any]
_NAMES: Final = {
    "statement": "Statement",
    "decision": "Decision",
    "condition": "Condition",
    "mcdc_masking": "MC/DC, masking",
    "mcdc_unique_cause": "MC/DC, unique cause",
}
_KINDS: Final = {
    "entry": "Entry",
    "fallback_handler": "Fallback",
    "safety_guard": "Safety guard",
    "decision_node": "Decision",
    "at_least": "Counted conditions",
}
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --good: #17804d; --bad: #c0282d; --off: #8a6d00 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1.5rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem } h3 { font-size: 1rem; margin: 0 }
.verdict { font-weight: 700 } .passed, .covered { color: var(--good) } .failed, .open { color: var(--bad) }
.infeasible { color: var(--off) }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere } section { border: 1px solid var(--line);
border-radius: 6px; padding: .8rem 1rem; margin: .8rem 0 } .muted { opacity: .75 } .scroll { overflow-x: auto }
:target { outline: 2px solid #4a7fd6 }
"""


def coverage_page(report: Row) -> bytes:
    """The page of a report; the same report gives the same bytes."""
    title = f"Coverage of {report['engine']['name']}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">{escape(report["model"])} {escape(report["model_version"])}, '
        f"{escape(report['engine']['target'])}, SHA-256 <code>{escape(report['engine']['sha256'])}</code></p>",
        f'<p><span class="verdict {report["verdict"]}">{report["verdict"]}</span>: {escape(report["sentence"])}</p>',
        "<p>Structural coverage of the clinical logic, as additional evidence of unit verification. Figures are "
        "percentages of what is feasible; what is infeasible is proved, what is open neither covered nor proved.</p>",
        "<h2>Totals</h2>",
        _totals(report),
        "<h2>Decisions, guards, fallbacks</h2>",
        *(_probe(row) for row in report["probes"]),
        "<h2>Requirements</h2>",
        _requirements(report["requirements"]),
        "<h2>Recount</h2>",
        _recount(report["recount"]),
        "<h2>Vectors</h2>",
        f"<p>All of them: <code>{escape(report['archive']['file'])}</code> "
        f"(SHA3-512 <code>{escape(report['archive']['sha3_512'][:32])}...</code>).</p>",
        _vectors(report["vectors"]),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
    )
    return "\n".join([head, *body, "</body></html>", ""]).encode("utf-8")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numbers else ''}>{cell}</{tag}>" for place, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", head)}</tr>{lines}</table></div>'


def _totals(report: Row) -> str:
    limits = report["limits"]
    rows = [
        (
            escape(_NAMES[name]),
            str(total["covered"]),
            str(total["infeasible"]),
            str(total["open"]),
            str(total["total"]),
            f"{total['percent']:g} %",
            f"{limits[name]:g} %" if name in limits else "",
        )
        for name, total in report["totals"].items()
    ]
    head = ("criterion", "covered", "infeasible", "open", "all", "of feasible", "limit")
    return _table(head, rows, numbers=range(1, 7))


def _vector(number: int | None) -> str:
    return "" if number is None else f'<a href="#v{number}">{number}</a>'


def _status(item: Row, shown: str = "") -> str:
    words = shown or escape(item["status"])
    reason = f' <span class="muted">{escape(item["reason"])}</span>' if item.get("reason") else ""
    return f'<span class="{item["status"]}">{words}</span>{reason}'


def _pair(item: Row) -> str:
    pair = item["pair"]
    return _status(item, f"{_vector(pair[0])} / {_vector(pair[1])}" if pair else "")


def _seen(item: Row) -> str:
    return _status(item, _vector(item["vector"]) if item["vector"] is not None else "")


def _probe(row: Row) -> str:
    labels = [*row["requirements"], *row["clauses"]]
    lines = [
        f'<section id="{escape(row["id"])}"><h3>{_KINDS[row["kind"]]} {escape(row["name"])} '
        f'<span class="muted">passed {row["hits"]} times</span> {_status(row["reached"])}</h3>'
    ]
    if row["text"]:
        lines.append(f"<p><code>{escape(row['text'])}</code></p>")
    if labels:
        lines.append(f'<p class="muted">{escape(", ".join(labels))}</p>')
    if "outcomes" in row:
        outcomes = row["outcomes"]
        lines.append(f"<p>true {_seen(outcomes['true'])}, false {_seen(outcomes['false'])}</p>")
        head = ("condition", "true", "false", "masking pair", "unique-cause pair")
        rows = [
            (
                f"<code>{escape(c['text'])}</code>",
                _seen(c["true"]),
                _seen(c["false"]),
                _pair(c["masking"]),
                _pair(c["unique_cause"]),
            )
            for c in row["conditions"]
        ]
        lines.append(_table(head, rows))
    return "".join([*lines, "</section>"])


def _probe_link(name: str) -> str:
    return f'<a href="#{escape(name)}"><code>{escape(name)}</code></a>'


def _requirements(requirements: Mapping[str, Row]) -> str:
    if not requirements:
        return "<p>The policy names none.</p>"
    rows = [
        (
            f'<span id="r-{escape(name)}">{escape(name)}</span>',
            " ".join(_probe_link(probe) for probe in entry["probes"]),
            " ".join(_vector(number) for number in entry["vectors"]) or '<span class="open">none</span>',
        )
        for name, entry in requirements.items()
    ]
    return _table(("requirement", "probes", "vectors"), rows)


def _recount(recount: Row) -> str:
    if recount["tool"] is None:
        return f'<p class="infeasible">Not recounted: {escape(recount["reason"])}.</p>'

    def marks(flags: Sequence[bool] | None) -> str:
        return "no record" if flags is None else " ".join("yes" if flag else "no" for flag in flags)

    rows = [
        (
            _probe_link(row["probe"]),
            marks(row["ours"]),
            marks(row["theirs"]),
            '<span class="covered">agree</span>' if row["agree"] else '<span class="open">differ</span>',
        )
        for row in recount["decisions"]
    ]
    if not rows:
        return f"<p>Nothing to recount: {escape(recount['tool'])} counts decisions of two conditions or more.</p>"
    words = (
        f"<p>Independence pairs by condition, counted from <code>clinical.c</code> by {escape(recount['tool'])}.</p>"
    )
    return words + _table(("decision", "probes", "clang", ""), rows)


def _vectors(vectors: Iterable[Row]) -> str:
    rows = [
        (
            f'<span id="v{row["number"]}">{row["number"]}</span>',
            escape(row["purpose"]),
            escape(row["status"] + (f": {row['failure']}" if row["failure"] else "")),
            escape(", ".join(name for name, value in row["decisions"].items() if value)),
            " ".join(_probe_link(name) for name in row["probes"]),
            " ".join(f'<a href="#r-{escape(name)}">{escape(name)}</a>' for name in row["requirements"]),
        )
        for row in vectors
    ]
    return _table(("vector", "made for", "ended", "decided true", "probes", "requirements"), rows, numbers=(0,))
