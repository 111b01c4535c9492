"""Cuvil and its peers timed in one interleaved run, as one JSON document (docs/benchmarks.md)."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from compiler_kernels.compile import Frozen, freeze_model, native_target
from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.targets.isa import SCALAR
from evidence.equivalence import multiply_adds
from evidence.reference import load_graph
from evidence.timing import machine
from evidence.timing.network import Inputs, Network
from evidence.timing.profile import profile
from evidence.timing.runners import PEERS, Ours, Runner, Sample, installed, make_ours, make_peer
from evidence.timing.table import peak_text, ratio

FORMAT: Final = "cuvil-bench/1"
WARM_UP: Final = 2
FAR: Final = 1e-3
"""Largest difference from a peer, relative to the largest magnitude, that rounding explains."""
SHORT: Final = 0.02
"""Milliseconds below which vector kernels need not be faster than plain C: the clocks' own cost is visible there."""
Show = Callable[[str], None]


def interleave(ours: Runner, peers: Sequence[Runner], runs: int) -> dict[str, list[Sample]]:
    """``runs`` rounds of (peer, ours) for every peer, so that drift of the machine meets all alike."""
    samples: dict[str, list[Sample]] = {r.name: [] for r in (ours, *peers)}
    for runner in (ours, *peers):
        for _ in range(WARM_UP):
            runner.infer()
    for _ in range(runs):
        for peer in peers:
            samples[peer.name].append(peer.sample())
            samples[ours.name].append(ours.sample())
        if not peers:
            samples[ours.name].append(ours.sample())
    return samples


def statistics(samples: Sequence[Sample]) -> dict[str, Any]:
    """Minimum and median in milliseconds, and the raw samples in nanoseconds."""
    cpu, wall = [s.cpu for s in samples], [s.wall for s in samples]
    return {
        "cpu_ms": {"min": min(cpu) / 1e6, "median": median(cpu) / 1e6},
        "wall_ms": {"min": min(wall) / 1e6, "median": median(wall) / 1e6},
        "samples_ns": {"cpu": cpu, "calling_thread_cpu": [s.thread for s in samples], "wall": wall},
    }


def bench_model(
    network: Network, peers: Sequence[str], threads: int, runs: int, folder: Path, check_scalar: bool = True
) -> dict[str, Any]:
    """Time one model. ``failures`` lists what makes the run no measurement; ``refused`` says who could not run it."""
    name, path = network.name, network.path
    result: dict[str, Any] = {"model": name, "file": path.name, "threads": threads, "failures": [], "refused": {}}
    try:
        frozen = freeze_model(path, network.pins)
    except CuvilError as error:
        return {**result, "refused": {"cuvil": str(error)}, "systems": {}}
    result["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (x,) = network.inputs(frozen, 1)
    result["multiply_adds"] = macs(frozen)
    started = []
    for peer in peers:
        try:
            started.append(make_peer(peer, network, x, threads))
        except CuvilError as error:
            result["refused"][peer] = str(error)
    ours = make_ours(frozen, x, threads, folder)
    samples = interleave(ours, started, runs)
    result["systems"] = {
        r.name: {"version": r.version, "flags": r.flags, **statistics(samples[r.name])} for r in (ours, *started)
    }
    mine = ours.output()
    result["output_sha256"] = hashlib.sha256(mine.tobytes()).hexdigest()
    result["build_seconds"] = ours.build_seconds
    for runner in started:
        theirs = runner.output()
        far = float(np.abs(theirs - mine).max() / max(float(np.abs(theirs).max()), 1e-30))
        result["systems"][runner.name]["difference"] = far
        if not far <= FAR:
            result["failures"].append(f"the result of {name} differs from {runner.name}'s by {far:.2g} of its maximum")
    for clock in ("cpu_ms", "wall_ms"):
        result[f"ratio_{clock[:-3]}"] = ratio(result["systems"], clock)
    if isinstance(ours, Ours):
        _one_thread(result, ours, frozen, x, folder, check_scalar)
    return result


def _one_thread(result: dict[str, Any], ours: Ours, frozen: Frozen, x: Inputs, folder: Path, scalar: bool) -> None:
    result["layers"] = [
        {"kernel": s.kernel, "items": s.items, "node": s.node, "wall_us": round(time_us, 2)}
        for s, time_us in zip(ours.engine.steps, profile(ours.engine), strict=True)
    ]
    result["arena_bytes"], result["weights_bytes"] = ours.engine.arena_bytes, ours.engine.weights_bytes
    if not scalar:
        return
    plain = Ours(frozen, x, Path(tempfile.mkdtemp(dir=folder)), (SCALAR,))
    slow, fast = _alternating(plain, ours)
    result["scalar_cpu_ms"] = slow
    if max(slow, fast) >= SHORT and not fast < slow:
        sentence = f"{result['model']}: {ours.engine.isa} takes {fast:.3g} ms and plain C {slow:.3g} ms"
        result["failures"].append(f"{sentence}: the vector kernels are not in use")
    if plain.output().tobytes() != ours.output().tobytes():
        result["failures"].append(f"{result['model']}: {ours.engine.isa} and plain C give different bits")


def _alternating(first: Runner, second: Runner) -> list[float]:
    """Smallest processor time of each in milliseconds, in turn, until two seconds are over (two to ten rounds)."""
    best = [float("inf")] * 2
    end = time.perf_counter() + 2.0
    for runner in (first, second):
        runner.infer()
    for done in range(10):
        if done >= 2 and time.perf_counter() > end:
            break
        best = [min(t, runner.sample().cpu / 1e6) for t, runner in zip(best, (first, second), strict=True)]
    return best


def macs(frozen: Frozen) -> int:
    """Multiply-adds of one inference counted directly, whatever algorithm computes them."""
    main = frozen.module.main
    return multiply_adds(load_graph(neutral_json(main), pack(main, frozen.store)))


def bench(
    networks: Sequence[Network],
    peers: Sequence[str] | None = None,
    threads: int = 1,
    runs: int = 15,
    check_scalar: bool = True,
    show: Show = lambda line: None,
) -> dict[str, Any]:
    """The whole benchmark as one JSON document: machine, versions, and one entry per network.

    ``peers`` are names of ``runners.PEERS``, the installed ones if not given. ``UsageError`` for an unknown or missing
    peer, for no network, and for numbers below 1.
    """
    if threads < 1 or runs < 1:
        raise UsageError("--threads and --runs take numbers of at least 1")
    if not networks:
        raise UsageError("there is nothing to time: give at least one model")
    chosen = [p for p in PEERS if installed(p)] if peers is None else list(peers)
    for peer in chosen:
        if peer not in PEERS:
            raise UsageError(f"there is no peer {peer!r}: choose from {', '.join(PEERS)}")
        if not installed(peer):
            raise UsageError(f"the peer {peer} is not installed: run pip install {peer}, or leave it out of --peers")
    document: dict[str, Any] = {
        "format": FORMAT,
        "machine": machine.describe(),
        "cuvil": _own_version(),
        "target": native_target().triple,
        "threads": threads,
        "runs": runs,
        "order": "per round: each peer, and ours after each peer",
        "models": [],
    }
    peak = document["machine"]["fma_peak_gflops_per_core"]
    show(f"{document['machine']['processor']}; measured peak of one core: " + peak_text(peak))
    with tempfile.TemporaryDirectory(prefix="cuvil-bench-") as folder:
        for network in networks:
            start = time.perf_counter()
            entry = bench_model(network, chosen, threads, runs, Path(folder), check_scalar)
            document["models"].append(entry)
            show(f"{entry['model']} done in {time.perf_counter() - start:.0f} s")
    return document


def _own_version() -> str:
    try:
        return version("cuvil")
    except PackageNotFoundError:
        return "source tree"


def failed(document: dict[str, Any]) -> list[str]:
    """Sentences about what makes a document no measurement, refusals of ours included; empty for a good one."""
    refused = [e["refused"]["cuvil"] for e in document["models"] if "cuvil" in e["refused"]]
    return [*refused, *(text for entry in document["models"] for text in entry["failures"])]
