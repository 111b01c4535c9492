"""Engines for the evidence on a GPU: models of the zoo and files, compiled for CPU and GPU, and run in one process.

Uses the pinned zig where it is installed, else gcc: results do not depend on it, and a bare machine has gcc.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_subjects import Subject
from compiler_kernels.compile import generate_frozen
from compiler_kernels.engine import load_engine
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.driver import Driver
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.engines import CUDA_FILE, build_engine
from compiler_kernels.toolchain.gcc import GccDriver
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

Array = NDArray[Any]
CPU: Final = "x86_64-linux-musl"


@dataclass
class Built:
    """A compiled subject: where its engine is, what is known of it, and the words that run it without a GPU."""

    subject: Subject
    target: str
    path: str
    facts: dict[str, Any] = field(default_factory=dict)
    emulated: tuple[str, ...] = ()


def has_zig() -> bool:
    """Whether the pinned compiler is installed."""
    return importlib.util.find_spec("ziglang") is not None


def c_driver() -> Driver:
    """zig, or gcc on a machine without it."""
    return ZigDriver() if has_zig() else GccDriver()


def generate(subject: Subject, targets: Sequence[str], folder: Path) -> dict[str, str]:
    """Export and freeze ``subject`` once, and write what the compilers read for each target; the graph's digest."""
    frozen = subject.freeze()
    for target in targets:
        place = _sources(folder, subject, target)
        place.mkdir(parents=True, exist_ok=True)
        for name, data in generate_frozen(frozen, resolve_target(target)).items():
            (place / name).write_bytes(data)
    return {"frozen_graph": frozen.digest[:32]}


def compile_generated(subject: Subject, target: str, folder: Path, emulate: bool = False) -> Built:
    """The engine of what ``generate`` wrote; ``emulate``: a program and the words that run it without a GPU."""
    began = time.perf_counter()
    place = _sources(folder, subject, target)
    files = {p.name: p.read_bytes() for p in place.iterdir()}
    made = build_files(files, subject, target, folder, emulate)
    shutil.rmtree(place)
    made.facts["seconds"] = round(time.perf_counter() - began, 2)
    return made


def _sources(folder: Path, subject: Subject, target: str) -> Path:
    return folder / f"{subject.stem}-{target}-sources"


def built_file(subject: Subject, target: str, folder: Path, emulate: bool) -> Path:
    """Where the engine of ``subject`` lies."""
    return folder / f"{subject.stem}-{target}.{'bin' if emulate else 'so'}"


def emulation_words(subject: Subject, target: str, folder: Path, text: bytes = b"") -> tuple[str, ...]:
    """What to put before an engine to run it without a GPU; compiles the kernels' ``text`` first where it is given."""
    place = folder / f"{subject.stem}-{target}-driver"
    if text:
        place.mkdir(parents=True, exist_ok=True)
        return emulated_driver(text, resolve_target(target).gpu, place, "" if has_zig() else "g++")
    return ("/usr/bin/env", f"LD_LIBRARY_PATH={place.resolve()}")


def build_files(files: Mapping[str, bytes], subject: Subject, target: str, folder: Path, emulate: bool) -> Built:
    """Compile the generated ``files`` of ``subject``."""
    chosen = resolve_target(target)
    output = build_engine(files, chosen, "bin" if emulate else "so", c_driver())
    path = built_file(subject, target, folder, emulate)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(output.data)
    path.chmod(0o755)
    facts: dict[str, Any] = {"engine_bytes": len(output.data), "engine_sha3_512": sha3_512_hex(output.data)}
    words: tuple[str, ...] = ()
    if chosen.gpu:
        report = output.report["cuda"]
        assert isinstance(report, dict)
        text = files[CUDA_FILE]
        facts |= {"images": report["images"], "ptx_instructions": report["ptx_instructions"], **facts_of_kernels(text)}
        if emulate:
            words = emulation_words(subject, target, folder, text)
    return Built(subject, target, str(path), facts, words)


def unit_of(text: bytes) -> dict[str, bytes]:
    """What nvcc reads for kernels.cu of this ``text``: it and the headers."""
    found = {**runtime_sources(), **cuda_sources(), CUDA_FILE: text}
    return {name: data for name, data in sorted(found.items()) if name == CUDA_FILE or name.endswith(".h")}


def facts_of_kernels(text: bytes) -> dict[str, Any]:
    """Digest of what nvcc reads (kernels.cu and headers); number of kernels, and of those that no family took."""
    unit = unit_of(text)
    return {
        "nvcc_reads_sha3_512": sha3_512_hex(b"".join(f"{n} {sha3_512_hex(d)}\n".encode() for n, d in unit.items())),
        "kernels": text.count(b'extern "C" __global__'),
        "scalar_kernels": len(set(re.findall(rb"(\w+_item)\(", text))),
    }


class Runner:
    """An engine that runs here: in this process, or as a program on the emulated driver."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self.engine = None if built.emulated else load_engine(built.path)
        self.device = ""
        if self.engine is not None:
            self.device = self.engine.device
            self.shapes = {t.name: (t.shape, t.dtype) for t in self.engine.inputs}
        else:
            version = json.loads(self._call("--version", "--json"))
            self.shapes = {t["name"]: (tuple(t["shape"]), t["dtype"]) for t in version["inputs"]}
            self.device = "no GPU: kernels emulated on the CPU"

    def _call(self, *words: str) -> str:
        command = [*self.built.emulated, self.built.path, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
        if done.returncode:
            raise RuntimeError(f"the engine ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: outputs by name, NaN canonical."""
        if self.engine is not None:
            return self.engine.run(dict(inputs))
        with tempfile.TemporaryDirectory(prefix="cuvil-gpu-evidence-") as place:
            folder, words = Path(place), []
            for n, (name, value) in enumerate(inputs.items()):
                np.save(folder / f"{n}.npy", value)
                words += ["--input", f"{name}={folder / f'{n}.npy'}"]
            told = json.loads(self._call(*words, "--output-dir", str(folder / "out"), "--json"))
            return {row["name"]: np.load(folder / "out" / row["file"]) for row in told["outputs"]}

    def gpu_microseconds(self, runs: int) -> list[float]:
        """Time of the kernels by the device's events, ``runs`` times after ten."""
        assert self.engine is not None
        return self.engine.device_times(runs + 10)[10:]

    def wall_microseconds(self, runs: int) -> list[float]:
        """Wall time of whole inferences, copies included, ``runs`` times after ten."""
        assert self.engine is not None
        found = []
        for _ in range(runs + 10):
            before = time.perf_counter_ns()
            self.engine.infer()
            found.append((time.perf_counter_ns() - before) / 1000)
        return found[10:]


def inputs_for(runner: Runner, number: int) -> dict[str, Array]:
    """Input set ``number``: 0 and 1 random, then constants, huge and tiny values, and some NaN and infinities."""
    rng = np.random.Generator(np.random.PCG64([number, 20261201]))
    made: dict[str, Array] = {}
    for name, (shape, dtype) in runner.shapes.items():
        if not dtype.startswith("float"):
            made[name] = runner.built.subject.integers(name, shape, dtype, rng)
            continue
        x = rng.standard_normal(shape)
        if number == 2:
            x = np.full(shape, 0.5)
        elif number == 3:
            x = x * np.exp2(rng.integers(-140, 100, shape).astype(np.float64))
        elif number == 4:
            x = np.where(rng.random(shape) < 0.001, np.inf, x)
            x = np.where(rng.random(shape) < 0.001, np.nan, x)
        with np.errstate(over="ignore", under="ignore"):
            made[name] = x.astype(dtype)
    return made


def differing(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, int]:
    """Values of each output whose bits differ; an output that only one has counts as 1."""
    found = {}
    for name in {**a, **b}:
        x, y = a.get(name), b.get(name)
        if x is None or y is None or x.shape != y.shape or x.dtype != y.dtype:
            found[name] = 1
        else:
            bits = f"u{x.dtype.itemsize}"
            same = np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)
            found[name] = int(np.count_nonzero(~same))
    return found


def row_of(arrays: Mapping[str, Array], alone: Mapping[str, tuple[int, ...]], row: int) -> dict[str, Array]:
    """Row ``row`` of the inputs or outputs of a batch, cut along the axis in which the shapes ``alone`` of a batch of
    one are 1 instead; what has no such axis as it is. ``ValueError`` where the shapes differ otherwise."""
    found = {}
    for name, value in arrays.items():
        shape = alone[name]
        axes = [a for a, (n, one) in enumerate(zip(value.shape, shape, strict=True)) if n != one]
        if len(axes) > 1 or any(shape[a] != 1 for a in axes):
            raise ValueError(f"{name} of a batch has shape {value.shape}, and {shape} alone: no axis is the batch")
        found[name] = np.ascontiguousarray(value.take([row], axes[0])) if axes else value
    return found


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Minimum, median, 95th and 99th percentile, and p99 over the median."""
    ordered = np.sort(np.asarray(samples))
    median, p99 = (float(np.percentile(ordered, q)) for q in (50, 99))
    return {
        "min": round(float(ordered[0]), 3),
        "median": round(median, 3),
        "p95": round(float(np.percentile(ordered, 95)), 3),
        "p99": round(p99, 3),
        "p99_over_p50": round(p99 / median, 4) if median else 0.0,
        "runs": len(ordered),
    }
