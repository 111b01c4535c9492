"""Triton's kernels beside the CUDA C++ ones on a GPU: bits and times, kernel by kernel and engine by engine.

    python -m benchmarks.gpu_triton [NET...] [--json FILE] [--runs N] [--seconds N] [--emulate]

Per network (of the zoo, and ``mlp``, made here), with direct convolutions: an engine of each generator and the CPU
engine on five inputs, huge, tiny, infinite and NaN values among them; and every launch that has a kernel of both, on
the same memory, after which all bytes of its result, halo included, are compared. ``--emulate`` goes the same way on
the emulated driver: scalar code stands for Triton's kernels there, so it tests this program and compiles them, and
says nothing of them.
Exit 1 where bits differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks import gpu_engines, zoo
from benchmarks.gpu_driver import Driver
from benchmarks.gpu_engines import CPU, Built, Runner
from benchmarks.gpu_machine import machine, sources
from benchmarks.gpu_subjects import Subject
from compiler_kernels.compile import Frozen, generate_frozen
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.plan import emit_cuda, plan
from compiler_kernels.targets.cuda.program import block_of
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.targets.triton.emit import emit_with_triton, triton_file
from compiler_kernels.toolchain.emulator import compile_emulated
from compiler_kernels.toolchain.nvcc import compile_cuda
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources
from compiler_kernels.toolchain.triton import compile_triton, installed_version

TARGET: Final = "cuda-sm_90"
NETS: Final = ("mlp", "resnet18", "vit_tiny", "mobilenetv2")
PIECE: Final = 4
"""Functions per translation unit: nvcc is slow, and units compile beside each other."""
REPEATS: Final = 20


def mlp_file(folder: Path) -> str:
    """A perceptron whose layers end in different functions, on 3 rows."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(11)
    sizes = (784, 256, 192, 96, 64, 10)
    kinds = ("Gelu", "Tanh", "Sigmoid", "Softplus", "")
    nodes, weights, last = [], [], "x"
    for n, (kind, rows, columns) in enumerate(zip(kinds, sizes[:-1], sizes[1:], strict=True)):
        scale = np.float32(rows**-0.5)
        weights += [
            numpy_helper.from_array(rng.standard_normal((rows, columns)).astype(np.float32) * scale, f"w{n}"),
            numpy_helper.from_array(rng.standard_normal(columns).astype(np.float32), f"b{n}"),
        ]
        nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], [f"t{n}"]))
        last = f"t{n}"
        if kind:
            nodes.append(helper.make_node(kind, [last], [f"u{n}"]))
            last = f"u{n}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 784]), (last, [3, 10]))]
    graph = helper.make_graph(nodes, "mlp", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = folder / "mlp.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


@dataclass(frozen=True)
class Pair:
    """One launch: kernels of both generators (one where Triton has none), offsets of each, and the result's bytes."""

    node: str
    first: CudaKernel
    second: CudaKernel | None
    offsets: tuple[tuple[int, ...], tuple[int, ...]]
    result: tuple[int, int]
    in_place: bool


@dataclass(frozen=True)
class Launches:
    """The launches of a network in order, its constants, and its block of device memory."""

    pairs: list[Pair]
    weights: bytes
    inputs: tuple[tuple[int, int], ...]
    tickets: tuple[int, int]
    total: int


def launches_of(frozen: Frozen) -> Launches:
    module = lower_to_l2(frozen.module, frozen.store)
    ours, theirs = plan(module, SM_90, "c", emit_cuda), plan(module, SM_90, "t", emit_with_triton)
    weights = pack(module.main, frozen.store) or bytes(64)
    block = block_of(module, [*ours, *theirs], len(weights))
    pairs = []
    for a, b in zip(ours, theirs, strict=True):
        places = tuple(block.offset(p) for p in a.arguments)
        types = [*(v.type for v in a.function.inputs), a.function.ops[-1].out]
        stretches = [(at, at + t.nbytes) for at, t in zip(places, types, strict=True)]
        last = stretches[-1]
        extra = (
            *([block.workspace] if a.kernel.workspace_bytes else []),
            *([block.tickets] if a.kernel.tickets else []),
        )
        pairs.append(
            Pair(
                a.node, a.kernel, b.kernel if b.kernel.triton else None, ((*places, *extra), (*places, 0, 0)),
                (last[0], last[1] - last[0]), any(s[0] < last[1] and last[0] < s[1] for s in stretches[:-1]),
            )
        )  # fmt: skip
    sizes = tuple((block.inputs[n], v.type.nbytes) for n, v in enumerate(module.main.inputs))
    return Launches(pairs, weights, sizes, (block.tickets, block.sizes - block.tickets), block.total)


def units_of(found: Launches) -> list[tuple[list[CudaKernel], list[CudaKernel]]]:
    """Distinct kernels of both generators in pieces."""
    ours = list({p.first.name: p.first for p in found.pairs}.values())
    theirs = list({p.second.name: p.second for p in found.pairs if p.second}.values())
    pieces: list[tuple[list[CudaKernel], list[CudaKernel]]] = [
        (ours[n : n + PIECE], []) for n in range(0, len(ours), PIECE)
    ]
    return [*pieces, *([([], theirs)] if theirs else [])]


def compile_unit(ours: list[CudaKernel], theirs: list[CudaKernel], path: Path) -> Path:
    """The code of some kernels for the chip."""
    sources = {**runtime_sources(), **cuda_sources(), "kernels.cu": unit_text(ours).encode()}
    more = compile_triton(triton_file(theirs, ["benchmark"]).encode(), SM_90).text if theirs else ""
    path.write_bytes(compile_cuda(sources, SM_90, more=more)[0]["kernels.cubin"])
    return path


def engines_of(subject: Subject) -> list[tuple[Subject, str]]:
    """The CPU engine, and those of both generators."""
    return [(subject, CPU), *((replace(subject, kernels=k), TARGET) for k in ("cuda", "triton"))]


def prepared(subject: Subject, path: Path) -> Path:
    """The launches, pickled, and beside them the sources of the engines."""
    frozen = subject.freeze()
    for one, target in engines_of(subject):
        files = generate_frozen(replace(frozen, policy=one.policy() or frozen.policy), resolve_target(target))
        path.with_name(f"{one.stem}-{target}").write_bytes(pickle.dumps(files))
    path.write_bytes(pickle.dumps(launches_of(frozen)))
    return path


def compare_launches(
    found: Launches, driver: Driver, images: Sequence[tuple[bytes, list[str]]], seed: int, timed: bool
) -> list[dict[str, Any]]:
    """One row per launch with a kernel of both: differing values of the result and microseconds of each."""
    functions = {}
    for image, names in images:
        functions |= driver.functions(image, names)
    driver.write(0, np.frombuffer(found.weights, np.uint8))
    if found.tickets[1]:
        driver.write(found.tickets[0], np.zeros(found.tickets[1], np.uint8))
    rng = np.random.default_rng(seed)
    for offset, size in found.inputs:
        driver.write(offset, rng.standard_normal(size // 4).astype(np.float32).view(np.uint8))
    rows = []
    for pair in found.pairs:
        first = functions[pair.first.name]
        before = driver.read(*pair.result)
        driver.run(driver.graph(first, pair.first, pair.offsets[0]))
        if pair.second is None:
            continue
        wanted = driver.read(*pair.result)
        driver.write(pair.result[0], before if pair.in_place else np.full_like(before, 0xFF))
        second = functions[pair.second.name]
        driver.run(driver.graph(second, pair.second, pair.offsets[1]))
        got = driver.read(*pair.result)
        a, b = (np.where(np.isnan(v.view(np.float32)), np.uint32(0x7FC00000), v.view(np.uint32)) for v in (wanted, got))
        row = {
            "kernel": pair.second.name,
            "node": pair.node,
            "differing": int(np.count_nonzero(a != b)),
            "values": a.size,
        }
        if timed:
            for name, function, kernel, offsets in (
                ("cuda_us", first, pair.first, pair.offsets[0]),
                ("triton_us", second, pair.second, pair.offsets[1]),
            ):
                graph = driver.graph(function, kernel, offsets, REPEATS)
                row[name] = round(min(driver.microseconds(graph) for _ in range(5)) / REPEATS, 3)
        driver.write(pair.result[0], wanted)
        rows.append(row)
    return rows


def compare_engines(cpu: Runner, cuda: Runner, triton: Runner, runs: int, timed: bool) -> dict[str, Any]:
    """Differing bits of the Triton engine against both others, on inputs of every kind, and times of both."""
    against_cpu, against_cuda = [], []
    for number in range(5):
        inputs = gpu_engines.inputs_for(cpu, number)
        found = triton.run(inputs)
        against_cpu.append(sum(gpu_engines.differing(found, cpu.run(inputs)).values()))
        against_cuda.append(sum(gpu_engines.differing(found, cuda.run(inputs)).values()))
    again = sum(gpu_engines.differing(triton.run(inputs), found).values())
    result: dict[str, Any] = {
        "differing_from_cpu": against_cpu, "differing_from_cuda": against_cuda, "differing_again": again,
    }  # fmt: skip
    if timed:
        result["cuda_us"] = gpu_engines.percentiles(cuda.gpu_microseconds(runs))
        result["triton_us"] = gpu_engines.percentiles(triton.gpu_microseconds(runs))
    return result


def engine(subject: Subject, target: str, folder: Path, emulate: bool) -> Built:
    files = pickle.loads((folder / f"{subject.stem}-{target}").read_bytes())
    return gpu_engines.build_files(files, subject, target, folder, emulate and target != CPU)


def work(nets: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything for ``nets``; a network whose builds are not done in ``options.seconds`` is named and left out."""
    began, emulate = time.monotonic(), options.emulate
    result: dict[str, Any] = {
        "format": "cuvil-gpu-triton/1",
        "emulated": emulate,
        "machine": {**machine(), "triton": installed_version(), **sources()},
        "nets": {},
        "left_out": [],
    }
    workers = max(2, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        subjects, parts, tables, units = {}, {}, {}, {}
        for net in nets:
            file = mlp_file(folder) if net == "mlp" else ""
            subjects[net] = Subject(net, file, prefer="size")
            tables[net] = pool.submit(prepared, subjects[net], folder / f"{net}.pickle")
        for net in nets:  # engines first: they take longest
            tables[net].result()
            parts[net] = [pool.submit(engine, s, t, folder, emulate) for s, t in engines_of(subjects[net])]
        for net in nets:
            found = pickle.loads(tables[net].result().read_bytes())
            units[net] = (found, [
                (pool.submit(compile_unit, a, b, folder / f"{net}-{n}.cubin"), [k.name for k in (*a, *b)])
                for n, (a, b) in enumerate(units_of(found))
            ])  # fmt: skip
        for net in nets:
            futures: list[Future[Any]] = [*parts[net], *(f for f, _ in units[net][1])]
            try:
                for future in futures:
                    future.result(max(0.0, options.seconds - (time.monotonic() - began)))
                result["nets"][net] = judged(net, [f.result() for f in parts[net]], *units[net], folder, options)
            except Exception as error:  # of a build or of the device: the other networks still count
                result["left_out"].append({"net": net, "why": f"{type(error).__name__}: {error}"})
            print(f"{net}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
            if options.json:
                Path(options.json).write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        for future in (f for net in nets for f in (*parts[net], *(u for u, _ in units[net][1]))):
            future.cancel()
    return result


def judged(
    net: str, engines: list[Built], found: Launches, units: Any, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    library, images = "libcuda.so.1", [(f.result().read_bytes(), names) for f, names in units]
    if options.emulate:
        place = folder / f"{net}-driver"
        place.mkdir()
        kernels = {k.name: k for p in found.pairs for k in (p.first, p.second) if k}
        gcc = "" if importlib.util.find_spec("ziglang") else "g++"
        library = str(compile_emulated(unit_text(list(kernels.values())), place, gcc, 90))
    rows = compare_launches(found, Driver(library, found.total), images, 5, not options.emulate)
    whole = compare_engines(*map(Runner, engines), options.runs, not options.emulate)
    whole |= {"launches": len(found.pairs), "with_triton": len(rows)}
    differing = sum(row["differing"] for row in rows)
    print(f"{net}: {len(rows)} launches of {len(found.pairs)}, differing {differing}; engine {whole}")
    return {"engine": whole, "launches": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_triton", description="Triton kernels on a GPU.")
    parser.add_argument(
        "nets", nargs="*", metavar="NET", help=f"of mlp, {', '.join(zoo.ZOO)}; {', '.join(NETS)} if none"
    )
    parser.add_argument("--json", metavar="FILE", help="where the result goes, too")
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="timed runs of an engine (100)")
    parser.add_argument("--seconds", type=float, default=3600.0, metavar="N", help="until builds are given up (3600)")
    parser.add_argument("--emulate", action="store_true", help="without a GPU; Triton's kernels are then not executed")
    options = parser.parse_args(arguments)
    unknown = [net for net in options.nets if net != "mlp" and net not in zoo.ZOO]
    if unknown:
        print(f"error: there is no network {unknown[0]!r}: choose from mlp, {', '.join(zoo.ZOO)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cuvil-gpu-triton-") as folder:
        result = work(options.nets or NETS, Path(folder), options)
    print(json.dumps({net: found["engine"] for net, found in result["nets"].items()}, indent=1))
    bad = any(r["differing"] for n in result["nets"].values() for r in n["launches"]) or any(
        sum(n["engine"]["differing_from_cpu"]) + n["engine"]["differing_again"] for n in result["nets"].values()
    )
    return int(bad or bool(result["left_out"]))


if __name__ == "__main__":
    sys.exit(main())
