"""Evidence on a GPU: `make gpu-evidence`, for anyone with an NVIDIA GPU and nvcc.

    python -m benchmarks.gpu_evidence [--out FILE] [--nets A,B] [--files X.onnx ...] [--batches 2,8,32] [--runs N]
                                      [--skip-torch] [--skip-compile] [--sign HOME] [--emulate]

Builds networks for CPU and GPU; compares every output bit for bit, and every row of a batch with a batch of one;
times the engine and torch in the same process; compares memory; runs the PTX of the sm_80 engines where the chip is a
later one; looks for a difference layer by layer and for a planted one; measures the traffic of a net with ncu. Writes
one JSON object. ``--emulate`` runs all of it but the times on a machine without a GPU, and the result says so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import gpu_checks, gpu_engines, gpu_torch, zoo
from benchmarks.gpu_engines import CPU, Built, Runner, Subject
from compiler_kernels.stages.base import source_digest
from compiler_kernels.targets.cuda.tuning import tuning_digest
from compiler_kernels.targets.registry import gpus_here
from compiler_kernels.toolchain import nvcc

FORMAT: Final = "cuvil-gpu-evidence/1"
LIMITS: Final = {
    "resnet18": 0.2, "unet2m": 0.65, "densenet121": 0.7, "mobilenetv2": 0.7, "vit_tiny": 0.7, "ecg": 0.7, "bilstm": 0.7,
}  # fmt: skip
"""Most the engine's time may be of torch.compile's in a CUDA graph, batch 1."""


def machine() -> dict[str, Any]:
    """Date, chip, driver, compilers, and the digests that name this compiler's text."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,ecc.mode.current"]
    try:
        smi = subprocess.run([*words, "--format=csv,noheader"], capture_output=True, text=True, timeout=60, check=True)
        gpus = [line.strip() for line in smi.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError):
        gpus = []
    try:
        import torch

        version, cuda = torch.__version__, torch.version.cuda
    except ImportError:
        version = cuda = None
    path = nvcc.find_nvcc()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": gpus,
        "nvcc": nvcc.version_of(path) if path else None,
        "c_compiler": gpu_engines.c_driver().name,
        "torch": version,
        "torch_cuda": cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "compiler_kernels": source_digest("compiler_kernels"),
        "tuning": tuning_digest(),
    }


def _apart(work: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """``_attempt`` in a child of its own: a fresh context on the GPU, and a crash that ends nothing else."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        sender.send(_attempt(work, *arguments))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        found: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join()
        found = {"error": f"the process ended with {process.exitcode}"}
    process.join()
    return found


def _attempt(work: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The result of one piece of work under ``ok``, or the sentence of its failure under ``error``."""
    try:
        return {"ok": work(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:400]}


class Session:
    """One run of the script: what to do, what was built, and the report so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = Path(options.folder).resolve()
        self.report: dict[str, Any] = {"format": FORMAT, "emulated": bool(options.emulate), "machine": machine()}
        self.built: dict[tuple[str, int, str], Built] = {}
        self.failures: dict[str, str] = {}
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", file=sys.stderr, flush=True)

    def subjects(self) -> list[Subject]:
        files = [Subject(Path(f).stem, f) for f in self.options.files]
        return [
            Subject(n.partition(":")[0], prefer=n.partition(":")[2]) for n in self.options.nets.split(",") if n
        ] + files

    def batches(self, subject: Subject) -> list[Subject]:
        sizes = [int(b) for b in self.options.batches.split(",") if b and not subject.prefer]
        if not subject.batch_is_open():
            return []
        if subject.name == self.options.all_batches:
            sizes = list(range(2, 33))
        return [Subject(subject.name, subject.file, b) for b in sizes]

    def build_all(self) -> None:
        """Everything that needs processors only, side by side: engines, and torch.compile's cache on disk."""
        wanted: list[tuple[Subject, str]] = []
        for subject in self.subjects():
            targets = [CPU, "cuda-sm_90"] + ([] if self.options.skip_sm80 or subject.prefer else ["cuda-sm_80"])
            wanted += [(subject, target) for target in targets]
            wanted += [(one, "cuda-sm_90") for one in self.batches(subject)]
        workers = self.options.workers or max(1, (os.cpu_count() or 2) - 2)
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            waiting = [
                (s, t, pool.submit(_attempt, gpu_engines.build, s, t, self.folder, self.options.emulate and t != CPU))
                for s, t in wanted
            ]
            compiled = {}
            if not (self.options.skip_torch or self.options.skip_compile):
                for net in {s.name for s in self.subjects() if not s.file}:
                    compiled[net] = pool.submit(_attempt, gpu_torch.warm_compile, net, 1)
            for subject, target, future in waiting:
                got = future.result()
                if "ok" in got:
                    self.built[subject.key, subject.batch, target] = got["ok"]
                else:
                    self.failures[f"build {subject.label} {target}"] = got["error"]
                    self.say(f"{subject.label} for {target}: {got['error']}")
            warmed = {net: future.result() for net, future in compiled.items()}
        self.report["builds"] = {
            f"{name} batch {batch} {target}": {**made.seconds, **made.facts}
            for (name, batch, target), made in self.built.items()
        }
        self.report["torch_compile_seconds"] = warmed
        self.say(f"built {len(self.built)} engines")

    def check(self, subject: Subject) -> dict[str, Any]:
        """Bits, rows, memory and times of one subject."""
        row: dict[str, Any] = {}
        gpu = self.built.get((subject.key, 1, "cuda-sm_90"))
        cpu = self.built.get((subject.key, 1, CPU))
        if gpu is None or cpu is None:
            return {"error": "not built"}
        free = gpu_checks.free_bytes() if not self.options.emulate else 0
        runner, reference = Runner(gpu), Runner(cpu)
        if runner.engine is not None:
            used = free - gpu_checks.free_bytes()
            row["memory"] = {"engine_bytes": runner.engine.device_bytes, "device_bytes_taken_by_loading": used}
        row["device"] = runner.device
        row["bits"] = gpu_checks.bits(runner, reference, self.options.inputs)
        older = self.built.get((subject.key, 1, "cuda-sm_80"))
        if older is not None:
            ran = Runner(older)
            row["sm_80"] = {"device": ran.device, **gpu_checks.bits(ran, reference, 2)}
        row["rows"] = {}
        for one in self.batches(subject):
            made = self.built.get((one.key, one.batch, "cuda-sm_90"))
            if made is not None:
                row["rows"][one.batch] = gpu_checks.rows(Runner(made), runner, one.batch)
        if not self.options.emulate:
            row["cuvil"] = {
                "gpu_us": gpu_engines.percentiles(runner.gpu_microseconds(self.options.runs)),
                "wall_us": gpu_engines.percentiles(runner.wall_microseconds(self.options.runs)),
            }
            if not self.options.skip_torch and not subject.file:
                row["torch"] = gpu_torch.measure(
                    subject.name, 1, self.options.runs, compiled=not (self.options.skip_compile or subject.prefer)
                )
                row |= gpu_checks.against(row, None if subject.prefer else LIMITS.get(subject.name))
        self.say(f"{subject.key}: {gpu_checks.summary(row)}")
        return row

    def large_batch(self, name: str, batch: int) -> dict[str, Any]:
        """Times at a large batch beside torch's."""
        made = self.built.get((name, batch, "cuda-sm_90"))
        if made is None or self.options.emulate:
            return {"error": "not built or emulated"}
        runner = Runner(made)
        row: dict[str, Any] = {"cuvil": {"gpu_us": gpu_engines.percentiles(runner.gpu_microseconds(100))}}
        if not self.options.skip_torch:
            row["torch"] = gpu_torch.measure(name, batch, 100, compiled=not self.options.skip_compile)
            row |= gpu_checks.against(row, 1.0)
        self.say(f"{name} batch {batch}: {gpu_checks.summary(row)}")
        return row

    def run(self) -> dict[str, Any]:
        """All phases; a failing one is reported and the others go on."""
        self.build_all()
        self.report["nets"] = {}
        for subject in self.subjects():
            got = _apart(self.check, subject)
            self.report["nets"][subject.key] = got.get("ok", got)
            if "error" in got:
                self.say(f"{subject.name}: {got['error']}")
            self.save()
        if "32" in self.options.batches.split(",") and "resnet18" in self.options.nets:
            self.report["resnet18 batch 32"] = _apart(self.large_batch, "resnet18", 32)
        small = next((s for s in self.subjects() if s.file), self.subjects()[-1])
        if self.options.bisect:
            self.report["bisect"] = _attempt(gpu_checks.bisection, small)
        if self.options.ncu and not self.options.emulate:
            self.report["traffic"] = _attempt(gpu_checks.traffic, self.options.ncu, self.folder)
        self.report["cubin_from_two_folders"] = _attempt(gpu_checks.two_folders, small, self.folder)
        self.report["failures"] = self.failures
        self.report["verdict"] = gpu_checks.verdict(self.report)
        self.save()
        return self.report

    def save(self) -> None:
        """The report so far, so that a run that is stopped leaves what it found."""
        place = Path(self.options.out)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.report, indent=1, default=_plain) + "\n", "utf-8")
        temporary.replace(place)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(type(value).__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_evidence", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", default="benchmarks/results/gpu_evidence.json", help="the JSON file to write")
    parser.add_argument(
        "--nets",
        default=",".join([*LIMITS, "resnet18:size", "unet2m:size"]),
        help=f"of {', '.join(zoo.ZOO)}; NAME:size for numerics.prefer: size",
    )
    parser.add_argument("--files", nargs="*", default=[], help="ONNX files to compare besides")
    parser.add_argument("--batches", default="2,7,32", help="batches whose rows are compared with the batch of one")
    parser.add_argument("--all-batches", default="ecg", help="the net whose rows are compared for all of 2 to 32")
    parser.add_argument("--inputs", type=int, default=5, help="inputs of the comparison of bits")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--folder", default="/tmp/cuvil-gpu-evidence", help="where engines are built")
    parser.add_argument("--skip-torch", action="store_true")
    parser.add_argument("--skip-compile", action="store_true")
    parser.add_argument("--skip-sm80", action="store_true")
    parser.add_argument("--no-bisect", dest="bisect", action="store_false")
    parser.add_argument("--ncu", default="", help="the net whose memory traffic ncu measures")
    parser.add_argument("--sign", default="", help="folder of keys (cuvil keys init) that sign the result")
    parser.add_argument("--emulate", action="store_true")
    options = parser.parse_args(arguments)
    if not options.emulate and not gpus_here():
        print("error: nvidia-smi lists no GPU here: run this where it does, or give --emulate", file=sys.stderr)
        return 4
    gpu_checks.without_zig()
    report = Session(options).run()
    if options.sign:
        gpu_checks.sign(Path(options.out), Path(options.sign))
    print(json.dumps(report["verdict"], indent=1))
    return 0 if report["verdict"]["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
