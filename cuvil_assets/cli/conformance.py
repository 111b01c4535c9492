"""``cuvil conformance``: ONNX's node tests through compiled engines."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.targets.registry import resolve_target
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.files import write_atomic
from evidence.conformance import MODES, Outcome, onnx_node_cases, run_jobs
from evidence.conformance.cases import listed, select
from evidence.conformance.report import baseline_text, defects, document, read_baseline, regressions, table
from evidence.conformance.suite import this_target

SUITES = ("onnx-node",)


class Bar:
    """A bar on a terminal, a line now and then elsewhere; on standard error, so that results stay apart."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = self.defects = 0
        self.terminal = sys.stderr.isatty()
        self.began = time.perf_counter()

    def step(self, outcome: Outcome) -> None:
        self.done += 1
        self.defects += outcome.kind.defect
        if self.terminal and (self.done % 8 == 0 or self.done == self.total):
            filled = 40 * self.done // self.total
            print(f"\r\x1b[K  {'#' * filled}{'.' * (40 - filled)} {self._text()}", end="", file=sys.stderr, flush=True)
        elif not self.terminal and (self.done % 500 == 0 or self.done == self.total):
            print(f"  {self._text()}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _text(self) -> str:
        found = f", {self.defects} defects" if self.defects else ""
        return f"{self.done}/{self.total} tests, {time.perf_counter() - self.began:.0f} s{found}"


def run(
    suite: str,
    only: str,
    op: str,
    mode: str,
    target: str,
    baseline: Path | None,
    write_baseline: Path | None,
    json: bool,
) -> int:
    """Run, print, return the exit code: 1 for a defect or a test of the baseline that passes no more.

    Raises ``CuvilError``.
    """
    if suite not in SUITES:
        raise UsageError(f"--suite {suite!r} is not known; choose one of {', '.join(SUITES)}")
    if mode not in (*MODES, "both"):
        raise UsageError(f"--mode {mode!r} is not known; choose one of {', '.join(MODES)}, both")
    chosen = resolve_target(target) if target else this_target()
    passed_before = read_baseline(baseline) if baseline is not None else None
    names = select(listed(), only, op)
    if write_baseline is not None and (len(names) != len(listed()) or mode != "both"):
        raise UsageError("--write-baseline needs the whole suite in both modes; leave out --only, --op and --mode")
    if write_baseline is not None and not write_baseline.parent.is_dir():
        raise UsageError(f"--write-baseline {write_baseline}: there is no such folder; name a file in one that exists")
    cases = onnx_node_cases()
    missing = [name for name in names if name not in cases]
    if missing:
        raise UsageError(
            f"the installed onnx package has no test {missing[0]!r}, which the list of tests names; "
            "install the version of onnx that Cuvil depends on"
        )
    jobs = [(cases[name], m) for name in names for m in (MODES if mode == "both" else (mode,))]
    bar = None if json else Bar(len(jobs))
    try:
        outcomes = run_jobs(jobs, chosen, bar.step if bar else lambda outcome: None)
    finally:
        if bar:
            bar.close()
    regressed = None if passed_before is None else regressions(outcomes, passed_before)
    if write_baseline is not None:
        try:
            write_atomic(write_baseline, baseline_text(outcomes).encode())
        except OSError as error:
            raise UsageError(
                f"--write-baseline {write_baseline}: cannot be written ({error.strerror}); name a file you may write"
            ) from None
    if json:
        print_json(document(outcomes, chosen.triple, regressed))
    else:
        print("\n".join(table(outcomes)))
        for line in regressed or []:
            print(f"passes no more: {line}")
    return 1 if regressed or defects(outcomes) else 0
