"""What a run of the evidence on a GPU is asked for, and whether a report on disk answers the same question."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import gpu_machine, zoo
from benchmarks.gpu_engines import CPU
from benchmarks.gpu_subjects import Subject
from benchmarks.gpu_verdict import EVERY_BATCH, LARGE
from compiler_kernels.errors import UsageError
from compiler_kernels.stage import sha3_512_hex
from cuvil_assets.files import write_atomic

FORMAT: Final = "cuvil-gpu-evidence/2"
GPU_90, GPU_80 = "cuda-sm_90", "cuda-sm_80"


def check(options: argparse.Namespace) -> None:
    """``UsageError`` where an option names nothing that exists, before a report is touched."""
    for net in filter(None, options.nets.split(",")):
        name, _, prefer = net.partition(":")
        if name not in zoo.ZOO or prefer not in ("", "size"):
            raise UsageError(f"--nets: there is no network {net!r}: choose from {', '.join(zoo.ZOO)}, NAME:size")
    for word in filter(None, options.batches.split(",")):
        if not word.isdecimal() or int(word) < 1:
            raise UsageError(f"--batches: {word!r} is no batch: give whole numbers from 1 on, as in 2,7,32")
    for name, least in {"inputs": 1, "runs": 1, "every": 0, "workers": 0, "limit": 0}.items():
        if getattr(options, name) < least:
            raise UsageError(f"--{name}: {getattr(options, name)} is less than {least}")
    named = {"files": options.files, "cubins-of": filter(None, [options.cubins_of]), "vectors": [options.vectors]}
    for option, paths in named.items():
        for path in paths:
            if not Path(path).exists():
                raise UsageError(f"--{option}: there is no {path}")


def write_report(place: Path, report: dict[str, Any], plain: Callable[[Any], Any] | None = None) -> None:
    """As JSON, whole or not at all. ``UsageError`` where nothing can be written there."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, (json.dumps(report, indent=1, default=plain) + "\n").encode())
    except OSError as error:
        raise UsageError(f"--out {place}: {error.strerror}") from None


def subjects_of(options: argparse.Namespace) -> list[Subject]:
    """Networks, then files."""
    nets = [Subject(n.partition(":")[0], prefer=n.partition(":")[2]) for n in options.nets.split(",") if n]
    return nets + [Subject(Path(f).stem, f) for f in options.files]


def asked_of(options: argparse.Namespace, subjects: Sequence[Subject]) -> dict[str, Any]:
    """What the run is to make and to compare: the verdict counts what of it is missing."""
    few = [int(b) for b in options.batches.split(",") if b]
    every = options.all_batches.split(",")
    is_open = [s.key for s in subjects if not s.prefer and s.batch_is_open()]
    batches = {s.key: [] if s.key not in is_open else [*EVERY_BATCH] if s.name in every else few for s in subjects}
    also = {s.key: ["sm_80"] if options.sm80 and not s.prefer else [] for s in subjects}
    engines = []
    for s in subjects:
        engines += [f"{s.label} {CPU}", f"{s.label} {GPU_90}", *(f"{s.label} {GPU_80}" for _ in also[s.key])]
        engines += [f"{Subject(s.name, s.file, b, s.prefer).label} {GPU_90}" for b in batches[s.key]]
    parts = {
        "vectors": bool(options.every), "bisect": options.bisect,
        "traffic": bool(options.ncu) and not options.emulate,
        "cubin_from_two_folders": True, "cubins_of_two_machines": bool(options.cubins_of),
    }  # fmt: skip
    return {
        "nets": [s.key for s in subjects if not s.file],
        "files": {s.name: sha3_512_hex(s.onnx()) for s in subjects if s.file},
        "engines": engines,
        "batches": batches,
        "open": is_open,
        "also": also,
        "inputs": options.inputs,
        "times": not options.emulate,
        "large": [label for label in LARGE if int(label.split()[-1]) in batches.get(label.split()[0], [])],
        "parts": [name for name, wanted in parts.items() if wanted],
    }


def resumed(place: Path, fresh: dict[str, Any]) -> dict[str, Any]:
    """The report at ``place``. ``UsageError`` unless it is of this compiler, this machine and asks for the same."""
    try:
        found: dict[str, Any] = json.loads(place.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{place} cannot be resumed ({error}): run without --resume") from None
    refused = found.get("refused", {})
    asked = dict(fresh["asked"])
    asked["engines"] = [e for e in asked["engines"] if e.partition(" batch ")[0] not in refused]
    pairs = [(k, found.get(k), fresh[k]) for k in ("format", "emulated", "sources")]
    pairs += [(k, found.get("machine", {}).get(k), fresh["machine"][k]) for k in gpu_machine.SAME]
    pairs += [(k, found.get("asked", {}).get(k), asked[k]) for k in asked]
    for name, theirs, ours in pairs:
        if theirs != ours:
            raise UsageError(
                f"{place} is of another state ({name} differs), and one report never joins two: run without --resume"
            )
    return found
