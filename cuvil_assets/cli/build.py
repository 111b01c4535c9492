"""``cuvil build``: progress lines while the assets run, a summary at the end."""

from __future__ import annotations

import sys
import time
from typing import Any

from compiler_kernels.stage import Json
from compiler_kernels.targets.registry import alias_note
from cuvil_assets.builder import BuildOutcome, build
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.inputs import BuildOptions
from cuvil_assets.records import Recorded


class Progress:
    """One line per stage on standard error: rewritten in place on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.began = 0.0

    def started(self, stage: str) -> None:
        self.began = time.perf_counter()
        if self.terminal:
            print(f"  {stage} ...", end="", file=sys.stderr, flush=True)

    def finished(self, stage: str, recorded: Recorded) -> None:
        how = "from the cache" if recorded.cache_hit else f"{time.perf_counter() - self.began:.1f} s"
        start = "\r\x1b[K" if self.terminal else ""
        print(f"{start}  {stage:17} {how}", file=sys.stderr, flush=True)

    def check_failed(self, stage: str, check: str, sentence: str) -> None:
        print(f"  {stage:17} check {check} failed", file=sys.stderr, flush=True)


def run(options: BuildOptions, *, as_json: bool, verbose: bool) -> None:
    """Build and report. Raises ``CuvilError``."""
    remark = alias_note(options.target)
    if remark and not as_json:
        note(remark)
    progress = None if as_json else Progress()
    try:
        outcome = build(options, progress, verbose)
    except BaseException:
        if progress is not None and progress.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        raise
    if as_json:
        print_json({**document(outcome), **({"note": remark} if remark else {})})
        return
    if outcome.facts["audit"]:
        note(str(outcome.facts["audit"]))
    if outcome.facts["keys_created"]:
        note(f"made development keys in {outcome.facts['keys']}: they show what belongs together, not who made it")
    print(summary(outcome))


def document(outcome: BuildOutcome) -> dict[str, Json]:
    """The one object of ``--json``."""
    return {"files": {kind: str(path) for kind, path in outcome.files.items()}, **outcome.facts}


def summary(outcome: BuildOutcome) -> str:
    """About ten lines for people."""
    facts: Any = outcome.facts
    verdict = f"{facts['equivalence']} ({facts['equivalence_grade']}, {counted(facts['equivalence_inputs'], 'input')})"
    rows = [
        *converted(facts["conversion"]),
        ("engine", f"{outcome.engine} ({facts['engine_bytes']:,} bytes, for {facts['target']})"),
        ("", f"sha3-512:{facts['engine_sha3_512']}"),
        ("memory", f"{facts['arena_bytes']:,} bytes for intermediate values, no allocation"),
        ("", f"{facts['memory_bytes']:,} bytes with weights, inputs, outputs and scratch{within(facts['budget'])}"),
        ("equivalence", f"{verdict} with the independent reference, bit for bit"),
        ("accuracy", accuracy(facts)),
        ("proof", f"{outcome.proof} (SM2 and P-384 signatures, verified)"),
        ("report", str(outcome.files["equivalence"])),
        *((kind, str(path)) for kind, path in outcome.files.items() if kind not in ("bin", "proof", "equivalence")),
        (
            "time",
            f"{facts['wall_seconds']:.1f} s; {facts['cpu_seconds_total']:.1f} CPU-s, of which stages "
            f"{facts['cpu_seconds_stages']:.1f}, Dagster {facts['cpu_seconds_dagster']:.1f}",
        ),
    ]
    return "\n".join(f"{name:12} {text}" for name, text in rows)


def converted(conversion: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Where the model came from when it was no ONNX file, and what of a function is not in the engine."""
    if conversion is None:
        return []
    entry = f":{conversion['entry']}" if "entry" in conversion else ""
    made = ", ".join(f"{name} {version}" for name, version in conversion["exporter"].items())
    removed = [("left out", f"line {item['line']}: {item['what']}") for item in conversion.get("removed", [])]
    return [("model", f"{conversion['source']}{entry}, converted with {made}"), *removed]


def counted(number: Json, noun: str) -> str:
    """``1 input``, ``2 inputs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def within(budget: dict[str, Any]) -> str:
    """What the policy limits, as the end of a sentence."""
    said = ""
    if budget["memory_limit_bytes"] is not None:
        said += f" (budget {budget['memory_limit_bytes']:,})"
    if budget["latency"] is not None:
        latency = budget["latency"]
        said += (
            f"; {latency['median_ms']:.4g} ms per inference (budget {latency['limit_ms']:g}) on {latency['machine']}"
        )
    return said


def accuracy(facts: dict[str, Any]) -> str:
    ratio = facts["rms_error_ratio_to_onnxruntime"]
    if ratio is None:
        return "not compared with onnxruntime (not installed, or no tensor to compare)"
    largest = facts["largest_rms_error_ratio_to_onnxruntime"]
    return f"rms error {ratio:.2f} x onnxruntime's (geometric mean over tensors), at most {largest:.2f} x"
