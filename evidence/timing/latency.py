"""Latency of a finished engine, as the program measures it itself, and which of its layers take the time."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compiler_kernels.engine import load_engine
from compiler_kernels.errors import RefusedError
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain.sources import library_sources
from compiler_kernels.toolchain.zig import ZigDriver
from evidence.timing.profile import profile

PROBE: Final = 3
FEWEST: Final = 5
MOST: Final = 201
SECONDS: Final = 2.0
"""About how long is measured; between ``FEWEST`` and ``MOST`` inferences."""
TIMEOUT_SECONDS: Final = 600


@dataclass(frozen=True)
class Latency:
    """Wall time of one inference in milliseconds: median and minimum of ``runs``; the instruction set that ran."""

    median_ms: float
    min_ms: float
    runs: int
    isa: str


def measure_latency(engine: bytes, threads: int) -> Latency:
    """Time ``engine`` (an executable for this machine) on inputs of zeros; an inference's work does not depend on them.

    ``RefusedError`` when the engine does not run or takes minutes.
    """
    with tempfile.TemporaryDirectory(prefix="cuvil-latency-") as folder:
        path = Path(folder) / "inference-engine.bin"
        path.write_bytes(engine)
        path.chmod(0o755)
        probe = _bench(path, threads, PROBE)["wall_us"]["median"]
        runs = max(FEWEST, min(MOST, int(SECONDS * 1e6 / max(probe, 1.0))))
        found = _bench(path, threads, runs)
    wall = found["wall_us"]
    return Latency(wall["median"] / 1000, wall["min"] / 1000, runs, str(found["isa"]))


def _bench(path: Path, threads: int, runs: int) -> dict[str, Any]:
    words = [str(path), "--bench", str(runs), "--threads", str(threads), "--json"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise RefusedError(
            f"the latency cannot be measured: {runs} inferences take more than {TIMEOUT_SECONDS} s; take latency_ms "
            "out of the policy, or a smaller input"
        ) from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise RefusedError(f"the latency cannot be measured: the engine says {said}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def slowest_steps(generated: Mapping[str, bytes], target: Target) -> list[tuple[str, float]]:
    """Nodes and median microseconds of every step on one thread, slowest first, from the sources of an engine."""
    with tempfile.TemporaryDirectory(prefix="cuvil-layers-") as folder:
        path = Path(folder) / "engine.so"
        path.write_bytes(ZigDriver().build({**library_sources(), **generated}, target, "so").data)
        engine = load_engine(path)
        found = [(step.node or step.kernel, us) for step, us in zip(engine.steps, profile(engine), strict=True)]
    return sorted(found, key=lambda item: -item[1])
