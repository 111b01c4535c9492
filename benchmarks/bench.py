"""Time Cuvil and its peers in one interleaved run (docs/benchmarks.md).

    python -m benchmarks.bench [MODEL...] [--peers onnxruntime,openvino,torch,inductor] [--threads N] [--runs N]
                               [--json FILE] [--picture FILE]

MODEL is the name of a network of the zoo or an ONNX file. Exit code 1 when the vector kernels are not faster than plain
C, or when a result is far from a peer's: such a run is no measurement.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.runners import PEERS, Ours, Runner, Sample, installed, make_ours, make_peer
from benchmarks.zoo import ZOO, example_input, model_file
from compiler_kernels.compile import Frozen, freeze_model, native_target
from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.targets.isa import SCALAR
from evidence.equivalence import multiply_adds
from evidence.reference import load_graph

FORMAT: Final = "cuvil-bench/1"
WARM_UP: Final = 2
FAR: Final = 1e-3
"""Largest difference from a peer, relative to the largest magnitude, that rounding explains."""
Array = NDArray[np.float32]
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
    name: str, path: Path, peers: Sequence[str], threads: int, runs: int, folder: Path, check_scalar: bool = True
) -> dict[str, Any]:
    """Time one model. ``failures`` lists what makes the run no measurement; ``refused`` says who could not run it."""
    result: dict[str, Any] = {"model": name, "file": path.name, "threads": threads, "failures": [], "refused": {}}
    try:
        frozen = freeze_model(path)
    except CuvilError as error:
        return {**result, "refused": {"cuvil": str(error)}, "systems": {}}
    result["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (x,) = example_inputs(name, frozen, 1)
    result["multiply_adds"] = macs(frozen)
    started = []
    for peer in peers:
        try:
            started.append(make_peer(peer, path, name, x, threads))
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


def _one_thread(result: dict[str, Any], ours: Ours, frozen: Frozen, x: Array, folder: Path, scalar: bool) -> None:
    result["layers"] = [{"kernel": s.kernel, "items": s.items, "node": s.node} for s in ours.engine.steps]
    result["arena_bytes"], result["weights_bytes"] = ours.engine.arena_bytes, ours.engine.weights_bytes
    if not scalar:
        return
    plain = Ours(frozen, x, Path(tempfile.mkdtemp(dir=folder)), (SCALAR,))
    plain.infer()
    slow = min(plain.sample().cpu for _ in range(2)) / 1e6
    fast = result["systems"]["cuvil"]["cpu_ms"]["min"]
    result["scalar_cpu_ms"] = slow
    if not fast < slow:
        sentence = f"{result['model']}: {ours.engine.isa} takes {fast:.3g} ms and plain C {slow:.3g} ms"
        result["failures"].append(f"{sentence}: the vector kernels are not in use")
    if plain.output().tobytes() != ours.output().tobytes():
        result["failures"].append(f"{result['model']}: {ours.engine.isa} and plain C give different bits")


def ratio(systems: dict[str, Any], clock: str) -> dict[str, float]:
    """Time of the fastest peer divided by ours, from medians and from minima (above 1: we are faster)."""
    found = {}
    for kind in ("median", "min"):
        peers = [s[clock][kind] for name, s in systems.items() if name != "cuvil"]
        if peers:
            found[kind] = round(min(peers) / systems["cuvil"][clock][kind], 3)
    return found


def macs(frozen: Frozen) -> int:
    """Multiply-adds of one inference counted directly, whatever algorithm computes them."""
    main = frozen.module.main
    return multiply_adds(load_graph(neutral_json(main), pack(main, frozen.store)))


def find_model(models: Sequence[str]) -> list[tuple[str, Path]]:
    """Name and ONNX file of every model given, all of the zoo if none is. ``UsageError`` for an unknown one."""
    for model in models:
        if model not in ZOO and not Path(model).is_file():
            raise UsageError(f"{model}: no such file and no network of the zoo; the zoo holds {', '.join(ZOO)}")
    return [(m, model_file(m)) if m in ZOO else (Path(m).stem, Path(m)) for m in models or ZOO]


def example_inputs(name: str, frozen: Frozen, count: int) -> list[Array]:
    """``count`` seeded inputs of a model with one input."""
    if name in ZOO:
        return [example_input(ZOO[name], number) for number in range(count)]
    inputs = frozen.module.main.inputs
    if len(inputs) != 1:
        raise UsageError(f"{name} has {len(inputs)} inputs; models of one input are fed")
    shape = inputs[0].type.dims
    return [np.random.Generator(np.random.PCG64(n)).standard_normal(shape).astype(np.float32) for n in range(count)]


def bench_models(
    models: Sequence[str],
    peers: Sequence[str] | None = None,
    threads: int = 1,
    runs: int = 15,
    check_scalar: bool = True,
    show: Show = lambda line: None,
) -> dict[str, Any]:
    """The whole benchmark as one JSON document: machine, versions, and one entry per model (all of the zoo if empty).

    ``peers`` are names of ``runners.PEERS``, the installed ones if not given. ``UsageError`` for an unknown or missing
    peer or model.
    """
    chosen = [p for p in PEERS if installed(p)] if peers is None else list(peers)
    for peer in chosen:
        if peer not in PEERS:
            raise UsageError(f"there is no peer {peer!r}: choose from {', '.join(PEERS)}")
        if not installed(peer):
            raise UsageError(f"the peer {peer} is not installed: run pip install {peer}, or leave it out of --peers")
    found = find_model(models)
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
    show(f"{document['machine']['processor']}; measured peak of one core: " + table_peak(peak))
    with tempfile.TemporaryDirectory(prefix="cuvil-bench-") as folder:
        for name, path in found:
            start = time.perf_counter()
            entry = bench_model(name, path, chosen, threads, runs, Path(folder), check_scalar)
            document["models"].append(entry)
            show(f"{entry['model']} done in {time.perf_counter() - start:.0f} s")
    return document


def table_peak(peak: dict[str, float]) -> str:
    return ", ".join(f"{isa} {value} GFLOP/s" for isa, value in peak.items())


def _own_version() -> str:
    try:
        return version("cuvil")
    except PackageNotFoundError:
        return "source tree"


def table(document: dict[str, Any]) -> list[str]:
    """The results as lines of text: medians in milliseconds (processor time on one thread, else wall time)."""
    clock = "cpu" if document["threads"] == 1 else "wall"
    names = ["cuvil", *(p for p in PEERS if any(p in m["systems"] for m in document["models"]))]
    peak = max(document["machine"]["fma_peak_gflops_per_core"].values(), default=0.0) * document["threads"]
    lines = [f"median {clock} ms, {document['threads']} thread(s); ratio: fastest peer / cuvil (median, min)"]
    lines.append(f"{'model':14}" + "".join(f"{n:>13}" for n in names) + f"{'ratio':>14}{'of peak':>9}  isa")
    for entry in document["models"]:
        systems = entry["systems"]
        if "cuvil" not in systems:
            lines.append(f"{entry['model']:14}{'refused':>13}  {entry['refused']['cuvil']}")
            continue
        times = [f"{systems[n][f'{clock}_ms']['median']:13.3f}" if n in systems else f"{'-':>13}" for n in names]
        ratios = entry[f"ratio_{clock}"]
        both = f"{ratios['median']:.2f}, {ratios['min']:.2f}" if ratios else "-"
        used = entry["multiply_adds"] * 2e-6 / systems["cuvil"][f"{clock}_ms"]["median"]
        share = f"{used / peak:9.0%}" if peak else f"{'-':>9}"
        lines.append(f"{entry['model']:14}" + "".join(times) + f"{both:>14}{share}  {systems['cuvil']['flags']['isa']}")
    lines += [f"refused: {why}" for e in document["models"] for who, why in e["refused"].items() if who != "cuvil"]
    return lines + [f"FAILED: {text}" for entry in document["models"] for text in entry["failures"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description="Time Cuvil and its peers.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"ONNX file, or one of {', '.join(ZOO)}")
    parser.add_argument("--peers", help="comma-separated; the installed ones if not given, 'none' for none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=15, help="rounds per model")
    parser.add_argument("--no-scalar", action="store_true", help="leave out the comparison with plain C")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, raw samples included")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write a PNG (pip install 'cuvil[bench]')")
    options = parser.parse_args(arguments)
    names = None if options.peers is None else [p for p in options.peers.split(",") if p and p != "none"]
    try:
        if options.threads < 1 or options.runs < 1:
            raise UsageError("--threads and --runs take numbers of at least 1")
        document = bench_models(
            options.models, names, options.threads, options.runs, not options.no_scalar,
            lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
        if options.json:
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if options.picture:
            from benchmarks.picture import draw

            draw(document, options.picture)
    except CuvilError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(table(document)))
    return 1 if any(entry["failures"] for entry in document["models"]) else 0


if __name__ == "__main__":
    sys.exit(main())
