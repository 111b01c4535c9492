"""Markdown that lets a person read a stage's result in the user interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from compiler_kernels.stage import Json, StageResult

EXCERPT_LINES = 60
ROWS = 40


def summary(result: StageResult) -> str:
    """What there is to see of ``result``: tables for reports, an excerpt for texts."""
    parts = [artifact_table(result)]
    if result.stage == "equivalence":
        parts.append(error_table(json.loads(result.principal.data)))
    elif result.stage == "engine":
        parts.append(_sections(json.loads(result.artifact("build.json").data)))
    elif result.stage == "budget":
        parts.append(_fenced(result.principal.text, "json"))
    elif result.stage == "ir_l2":
        parts += [_plan(json.loads(result.artifact("memory.json").data)), excerpt(result.principal.text, "text")]
    elif result.stage == "frozen_graph":
        numerics = json.loads(result.artifact("numerics.json").data)
        parts += [_fenced(json.dumps(numerics, indent=1), "json"), excerpt(result.principal.text, "text")]
    elif result.stage == "source_model":
        policy = json.loads(result.artifact("policy.json").data)
        parts.append(_fenced(json.dumps(policy, indent=1, ensure_ascii=False), "json"))
    elif result.stage == "build_proof":
        parts.append(_fenced(json.dumps(dict(result.facts), indent=1), "json"))
    elif result.stage == "reproducibility":
        parts.append(_varied(json.loads(result.principal.data)))
    elif result.stage == "sbom":
        parts.append(_components(json.loads(result.principal.data)))
    elif result.stage == "coverage":
        parts.append(_figures(json.loads(result.principal.data)))
    elif result.stage == "dataset":
        parts.append(_splits(json.loads(result.principal.data)))
    elif result.stage == "decisions":
        parts.append(_test_set(json.loads(result.principal.data)))
    else:
        parts.append(excerpt(result.principal.text, "c" if result.principal.name.endswith(".c") else "text"))
    return "\n\n".join(parts)


def artifact_table(result: StageResult) -> str:
    rows = [(item.name, f"{len(item.data):,}", item.sha3_512[:24] + "...") for item in result.artifacts]
    return table(("artefact", "bytes", "SHA3-512"), rows)


def _varied(report: dict[str, Any]) -> str:
    rows = [(kind, str(v["values"]), v["not_varied"]) for kind, v in report["varied"].items()]
    second = report["second_compiler"]
    head = f"Verdict **{report['verdict']}**: {report['equal']} of {report['rebuilds']} rebuilds equal. "
    head += second["sentence"] if second else "No second compiler."
    return head + "\n\n" + table(("varied", "values", "not varied because"), rows)


def _components(bill: dict[str, Any]) -> str:
    rows = []
    for item in bill.get("components", [])[:ROWS]:
        licences = [c.get("expression") or c.get("license", {}).get("id", "") for c in item.get("licenses", [])]
        rows.append((item["name"], item.get("version", ""), item["type"], ", ".join(filter(None, licences))))
    return table(("component", "version", "type", "licence"), rows)


def _splits(report: dict[str, Any]) -> str:
    """Splits, what each two share, and the first shared items."""
    splits = report.get("splits", {})
    rows = [
        (name, f"{s['items']:,}", f"{s['repeated']:,}", s["manifest_sha256"][:24] + "...") for name, s in splits.items()
    ]
    pairs = [(f"{p['a']}, {p['b']}", *map(str, p["shared_items"])) for p in report.get("pairs", [])]
    shared = [(g["kind"], " = ".join(" ".join(item) for item in g["items"])) for g in report.get("overlaps", [])[:ROWS]]
    return "\n\n".join(
        [
            f"verdict: **{report['verdict']}**",
            table(("split", "items", "repeated", "manifest"), rows),
            table(("splits", "shared of the first", "of the second"), pairs),
            table(("the same by", "items"), shared),
        ]
    )


def _test_set(report: dict[str, Any]) -> str:
    """Verdict, flips, and the figures before and after."""
    if "flips" not in report:
        return f"verdict: **{report['verdict']}**"
    rows = [
        (name, *(f"{v['estimate']} [{v['low']}, {v['high']}]" for v in (report["before"][name], report["after"][name])))
        for name in ("auc", "sensitivity", "specificity")
    ]
    head = (
        f"Verdict **{report['verdict']}**: {report['flips']['items']} of {report['data']['items']} decisions flipped."
    )
    return head + "\n\n" + table(("95 % interval", "before", "after"), rows)


def _figures(report: dict[str, Any]) -> str:
    rows = [
        (name, str(total["covered"]), str(total["infeasible"]), str(total["open"]), f"{total['percent']:g} %")
        for name, total in report.get("totals", {}).items()
    ]
    said = f"Verdict **{report['verdict']}**. {report.get('sentence', '')}"
    return said + "\n\n" + table(("criterion", "covered", "infeasible", "open", "of feasible"), rows)


def error_table(report: dict[str, Any]) -> str:
    """The tensors with the largest rms error relative to their own scale, ours beside onnxruntime's."""
    tensors = sorted(report["errors"]["tensors"], key=lambda t: -t["rms_error"] / (t["largest_magnitude"] or 1.0))
    rows = []
    for item in tensors[:ROWS]:
        peer = item.get("onnxruntime_rms_error")
        ratio = f"{item['rms_error'] / peer:.2f}" if peer else ""
        other = "" if peer is None else f"{peer:.2e}"
        rows.append((item["tensor"], item["op"], str(item["elements"]), f"{item['rms_error']:.2e}", other, ratio))
    head = f"Verdict **{report['verdict']}** ({report['grade']}), {report['inputs']} inputs, "
    head += f"{report['differing_values']} of {report['compared_values']} values differ."
    return head + "\n\n" + table(("tensor", "op", "elements", "rms error", "onnxruntime", "ratio"), rows)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def excerpt(text: str, language: str) -> str:
    lines = text.splitlines()
    shown = "\n".join(line if len(line) <= 200 else line[:200] + " ..." for line in lines[:EXCERPT_LINES])
    rest = len(lines) - EXCERPT_LINES
    return _fenced(shown, language) + (f"\n\n{rest} more lines." if rest > 0 else "")


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def _sections(report: dict[str, Any]) -> str:
    rows = [(name, f"{size:,}") for name, size in report["sections"].items()]
    compiler = report["compiler"]
    head = f"{compiler['name']} {compiler['version']} (clang {compiler['clang']}), {len(report['warnings'])} warnings."
    return head + "\n\n" + table(("section", "bytes"), rows)


def _plan(plan: dict[str, Json]) -> str:
    rows = [(key.replace("_", " "), str(value)) for key, value in plan.items() if not isinstance(value, list | dict)]
    return table(("memory plan", ""), rows)
