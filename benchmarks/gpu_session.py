"""One run of the evidence on a GPU: what is asked for, the phases, and the report, which several commands may complete.

The report is saved after every part. A later command with ``--resume`` reads it, does what is missing, and is refused
where the compiler's text, the chip, the driver or what is asked for is another: a report never joins two of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import gpu_checks, gpu_engines, gpu_machine, gpu_torch, gpu_vectors
from benchmarks.gpu_asked import FORMAT, GPU_80, GPU_90, asked_of, resumed, subjects_of, write_report
from benchmarks.gpu_engines import CPU, Built
from benchmarks.gpu_subjects import Subject
from benchmarks.gpu_verdict import EVERY_BATCH, RATIOS, summary, verdict
from benchmarks.gpu_work import Jobs, apart, attempt, bits_of, rows_of, times_of
from compiler_kernels.errors import UnsupportedError
from compiler_kernels.stage import sha3_512_hex

PHASES: Final = ("build", "compare", "time", "vectors", "bisect", "traffic", "folders", "spare")
ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LONG: Final = ("densenet121", "unet2m")
"""What takes longest to compile."""


class Session:
    """One command: its options, the subjects, and the report so far. ``UsageError`` where it may not be resumed."""

    def __init__(self, options: argparse.Namespace, words: Sequence[str] = ()) -> None:
        self.options = options
        self.folder = Path(options.folder).resolve()
        self.began = time.monotonic()
        self.workers = options.workers or max(1, (os.cpu_count() or 2) - 1)
        self.whole: set[str] = set()
        self.more = False
        self.subjects = subjects_of(options)
        asked = asked_of(options, self.subjects)
        machine, sources = gpu_machine.machine(), gpu_machine.sources()
        self.report: dict[str, Any] = {
            "format": FORMAT, "emulated": bool(options.emulate), "machine": machine, "sources": sources, "asked": asked,
            "commands": [], "builds": {}, "failures": {}, "nets": {},
        }  # fmt: skip
        if options.resume:
            self.report = resumed(Path(options.out), self.report)
        self.command: dict[str, Any] = {
            "date": machine["date"],
            "words": [word.rpartition("/")[2] for word in words],
            "seconds": {},
        }
        self.report["commands"].append(self.command)

    def say(self, text: str) -> None:
        """One line on the terminal."""
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", file=sys.stderr, flush=True)

    def run(self, phases: Sequence[str]) -> dict[str, Any]:
        """The phases in order; a part that fails is reported and the others go on."""
        self.save()
        for phase in PHASES:
            if phase in phases and not self.late():
                began = time.monotonic()
                getattr(self, phase)()
                self.command["seconds"][phase] = round(time.monotonic() - began, 1)
                self.save()
        return self.report

    def late(self) -> bool:
        """Whether the command has had its time: nothing new begins then."""
        return 0 < self.options.limit < time.monotonic() - self.began

    def save(self) -> None:
        """The report so far, so that a run that is stopped leaves what it found."""
        self.report["verdict"] = verdict(self.report)
        write_report(Path(self.options.out), self.report, _plain)

    def built(self, subject: Subject, target: str) -> Built | None:
        """The engine of ``subject``, where it was built and lies there unchanged."""
        label = f"{subject.label} {target}"
        facts = self.report["builds"].get(label)
        emulate = self.options.emulate and target != CPU
        path = gpu_engines.built_file(subject, target, self.folder, emulate)
        if facts is None or not path.is_file():
            return None
        if label not in self.whole:
            if sha3_512_hex(path.read_bytes()) != facts["engine_sha3_512"]:
                return None
            self.whole.add(label)  # hashed once in a command
        words = gpu_engines.emulation_words(subject, target, self.folder) if emulate else ()
        return Built(subject, target, str(path), facts, words)

    def row(self, subject: Subject) -> dict[str, Any]:
        """The subject's part of the report."""
        found: dict[str, Any] = self.report["nets"].setdefault(subject.key, {})
        return found

    def others(self, subject: Subject) -> list[Subject]:
        """The subject at the larger batches that are asked for; with ``more`` at all whose rows were not compared."""
        sizes = self.report["asked"]["batches"][subject.key]
        if self.more and subject.key in self.report["asked"]["open"]:
            sizes = [b for b in EVERY_BATCH if str(b) not in self.row(subject).get("rows", {})]
        return [Subject(subject.name, subject.file, b, subject.prefer) for b in sizes]

    def build(self) -> None:
        """What needs processors only, side by side: engines from one freeze of each subject, torch.compile's cache."""
        wanted: list[tuple[Subject, list[str]]] = []
        for subject in self.subjects:
            targets = [CPU, GPU_90, *([GPU_80] if GPU_80[5:] in self.report["asked"]["also"][subject.key] else [])]
            wanted += [(subject, targets), *((one, [GPU_90]) for one in self.others(subject))]
        wanted = [(s, [t for t in targets if self.built(s, t) is None]) for s, targets in wanted]
        few = [int(b) for b in self.options.batches.split(",") if b]

        def order(pair: tuple[Subject, list[str]]) -> tuple[bool, bool, bool]:
            # What takes long begins first where all must end, and last where the time decides what is done.
            one, long = pair[0], pair[0].name in LONG
            return one.batch > 1, one.batch not in few, long if self.more else not long

        wanted.sort(key=order)
        with self.jobs() as jobs:
            warmed = self.report.setdefault("torch_compile_seconds", {})
            if self.options.torch and self.options.compile and not self.more:
                labels = [f"{n} batch 1" for n in RATIOS if n in {s.key for s in self.subjects}]
                for label in [*labels, *self.report["asked"]["large"]]:
                    if "ok" not in warmed.get(label, {}):
                        name, _, batch = label.partition(" batch ")
                        jobs.add(("warm", label), apart, gpu_torch.warm_compile, name, int(batch))
            for subject, targets in wanted:
                if targets and subject.key not in self.report.get("refused", {}):
                    jobs.add(
                        ("generate", (subject, targets)),
                        attempt, gpu_engines.generate, subject, targets, self.folder,
                    )  # fmt: skip
            for (kind, about), got in jobs.finished():
                if kind == "warm":
                    warmed[about] = got
                elif kind == "generate":
                    subject, targets = about
                    if "ok" not in got:
                        self.failed(subject, targets, got)
                    for target in targets if "ok" in got else ():
                        emulate = self.options.emulate and target != CPU
                        jobs.add(
                            ("compile", (subject, target, got["ok"])),
                            attempt, gpu_engines.compile_generated, subject, target, self.folder, emulate, first=True,
                        )  # fmt: skip
                elif kind == "rows":
                    self.compared(kind, about, got)
                else:
                    subject, target, frozen = about
                    if "ok" not in got:
                        self.failed(subject, [target], got)
                        continue
                    label = f"{subject.label} {target}"
                    self.report["builds"][label] = {**frozen, **got["ok"].facts}
                    self.report["failures"].pop(label, None)
                    self.whole.add(label)
                    alone = self.built(replace(subject, batch=1), target) if self.more and subject.batch > 1 else None
                    if alone is not None:
                        jobs.add(("rows", subject), apart, rows_of, got["ok"], alone, first=True)
        self.say(f"{len(self.report['builds'])} engines, {len(self.report['failures'])} failures")

    def failed(self, subject: Subject, targets: Sequence[str], got: dict[str, Any]) -> None:
        """Keep the sentence; a file that is known to be refused is no failure, and has no engines then."""
        if subject.name in self.options.refused and got.get("kind") == UnsupportedError.__name__:
            self.report.setdefault("refused", {})[subject.key] = got["error"]
            labels = [e for e in self.report["asked"]["engines"] if e.startswith(f"{subject.key} batch ")]
            for label in labels:
                self.report["asked"]["engines"].remove(label)
            return
        for target in targets:
            self.report["failures"][f"{subject.label} {target}"] = got["error"]
            self.say(f"{subject.label} for {target}: {got['error']}")

    @contextmanager
    def pool(self) -> Iterator[ProcessPoolExecutor]:
        """Workers of one thread each: libraries that start one per processor in every worker hinder each other."""
        before = {name: os.environ.get(name) for name in ONE_THREAD}
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        try:
            context = get_context("spawn")
            with ProcessPoolExecutor(self.workers, mp_context=context, initializer=gpu_checks.without_zig) as pool:
                yield pool
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    @contextmanager
    def jobs(self) -> Iterator[Jobs]:
        """A queue of work in such a pool; the report is saved and a line said now and then."""
        said = [time.monotonic()]

        def now_and_then(done: int, left: int) -> bool:
            if time.monotonic() - said[0] > 20:
                said[0] = time.monotonic()
                self.say(f"{done} done, {left} to do")
                self.save()
            return self.late()

        with self.pool() as pool:
            yield Jobs(pool, self.workers + 2, now_and_then)

    def compare(self) -> None:
        """Bits against the CPU engine, of the older chip's code, and of rows, side by side."""
        with self.jobs() as jobs:
            for subject in self.subjects:
                row, gpu = self.row(subject), self.built(subject, GPU_90)
                cpu, older = self.built(subject, CPU), self.built(subject, GPU_80)
                if gpu is None or cpu is None:
                    continue
                if "bits" not in row:
                    jobs.add(("bits", subject), apart, bits_of, gpu, cpu, self.options.inputs, first=True)
                if older is not None and "sm_80" not in row:
                    jobs.add(("sm_80", subject), apart, bits_of, older, cpu, 2, first=True)
                for one in self.others(subject):
                    made = self.built(one, GPU_90)
                    if made is not None and str(one.batch) not in row.get("rows", {}):
                        jobs.add(("rows", one), apart, rows_of, made, gpu)
            for (part, subject), got in jobs.finished():
                self.compared(part, subject, got)
        for subject in (s for s in self.subjects if s.key not in self.report.get("refused", {})):
            self.say(
                f"{subject.key}: {summary(self.row(subject))}, rows of {len(self.row(subject).get('rows', {}))} batches"
            )

    def compared(self, part: str, subject: Subject, got: dict[str, Any]) -> None:
        """Keep what a comparison found."""
        label = f"compare {subject.label} {part}"
        if "ok" not in got:
            self.report["failures"][label] = got["error"]
            self.say(f"{label}: {got['error']}")
            return
        self.report["failures"].pop(label, None)
        row = self.row(subject)
        if part == "rows":
            rows = {**row.get("rows", {}), str(subject.batch): got["ok"]}
            row["rows"] = {k: rows[k] for k in sorted(rows, key=int)}
        else:
            row[part] = got["ok"]

    def spare(self) -> None:
        """Of every model that leaves its batch open the rows of the batches up to 32 that nobody asked for, while the
        time lasts: they count, but none is missing."""
        if self.options.limit:
            self.more = True
            self.build()
            self.compare()
            self.more = False

    def time(self) -> None:
        """Times and memory, one model after the other, with nothing else running."""
        if self.options.emulate:
            return
        large = [label.partition(" batch ") for label in self.report["asked"]["large"]]
        rows = self.report.setdefault("large_batches", {})
        about = [(s, self.row(s)) for s in self.subjects if not s.file]
        about += [(s, rows.setdefault(s.label, {})) for s in (Subject(n, batch=int(b)) for n, _, b in large)]
        about += [(s, self.row(s)) for s in self.subjects if s.file]
        for subject, row in about:
            gpu = self.built(subject, GPU_90)
            if gpu is not None and "cuvil" not in row and not self.late():
                self.timed(subject, gpu, row)

    def timed(self, subject: Subject, gpu: Built, row: dict[str, Any]) -> None:
        got = apart(times_of, gpu, self.options)
        if "ok" in got:
            row |= got["ok"]
        else:
            self.report["failures"][f"time {subject.label}"] = got["error"]
        self.say(f"{subject.label}: {got.get('error') or summary(row)}")
        self.save()

    def vectors(self) -> None:
        """The vectors of CA-1."""
        if "vectors" not in self.report["asked"]["parts"] or "error" not in self.report.get("vectors", {"error": ""}):
            return
        with self.pool() as pool:
            place = self.folder / "vectors"
            found = attempt(
                gpu_vectors.check, self.options.vectors, GPU_90, place, self.options.emulate, pool, self.options.every
            )
        self.keep("vectors", found)

    def bisect(self) -> None:
        """Layer by layer, on the smallest file or the last network."""
        if "bisect" in self.report["asked"]["parts"]:
            self.part("bisect", gpu_checks.bisection, self.small())

    def traffic(self) -> None:
        """Memory traffic of one network by ncu."""
        if self.options.ncu and not self.options.emulate:
            self.part("traffic", gpu_checks.traffic, self.options.ncu, self.folder)

    def folders(self) -> None:
        """The cubin from two folders, and beside those of another machine."""
        self.part("cubin_from_two_folders", gpu_checks.two_folders, self.small(), self.folder)
        if self.options.cubins_of:
            other = json.loads(Path(self.options.cubins_of).read_bytes())
            self.keep("cubins_of_two_machines", attempt(gpu_checks.other_machine, self.report, other))

    def small(self) -> Subject:
        return next((s for s in self.subjects if s.name == self.options.small), self.subjects[-1])

    def part(self, name: str, work: Callable[..., Any], *arguments: Any) -> None:
        """One part of the report, if it is not there; in a child, so that none inherits an opened GPU."""
        if "error" in self.report.get(name, {"error": ""}) and not self.late():
            self.keep(name, apart(work, *arguments))

    def keep(self, name: str, got: dict[str, Any]) -> None:
        self.report[name] = got.get("ok") or {"error": got["error"]}
        self.say(f"{name}: {got.get('error', 'done')}")
        self.save()


def cubins(options: argparse.Namespace) -> dict[str, Any]:
    """What nvcc makes of the subjects' kernels here, for a comparison with another machine (``--cubins-of``)."""
    found: dict[str, Any] = {}
    for subject in subjects_of(options):
        targets = [GPU_90] if subject.prefer or not options.sm80 else [GPU_90, GPU_80]
        got = attempt(gpu_checks.cubins, subject, targets)
        for target in targets:
            found[f"{subject.label} {target}"] = got["ok"][target] if "ok" in got else {"error": got["error"]}
        print(f"{subject.label}: {got.get('error', 'done')}", file=sys.stderr, flush=True)
    return {"format": FORMAT, "machine": gpu_machine.machine(), "sources": gpu_machine.sources(), "cubins": found}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)
