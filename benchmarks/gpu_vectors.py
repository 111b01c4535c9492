"""The vectors of CA-1 through GPU engines as they are shipped: many one-node models are one model, and one engine.

    python -m benchmarks.gpu_vectors [--every N] [--emulate]

compiles them all with the generator of GPU code, runs them and compares every bit with docs/vectors/ca1.json; exit
code 1 where one differs. ``make gpu-evidence`` does the same on the device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import onnx

from benchmarks import gpu_checks, gpu_engines
from benchmarks.gpu_engines import Runner
from benchmarks.gpu_subjects import Subject
from benchmarks.gpu_work import apart, attempt
from compiler_kernels.compile import Frozen, generate_frozen
from compiler_kernels.errors import UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.verify import verify
from compiler_kernels.policy import Numerics, Policy
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.cuda.gpu import BY_NAME
from compiler_kernels.targets.cuda.plan import plan
from compiler_kernels.targets.registry import gpus_here, resolve_target
from evidence.reference.vector_model import Vector
from evidence.reference.vectors import VERSION, load_vectors
from evidence.vector_engines import compare, compile_all, onnx_array, onnx_model

VECTORS: Final = Path(__file__).resolve().parents[1] / "docs" / "vectors" / "ca1.json"
AT_ONCE: Final = 40
"""Vectors of one engine: the groups compile side by side."""
MOST_INPUTS: Final = 64
"""Of an engine that is a program, as emulation runs it."""


@dataclass(frozen=True)
class Group:
    """Vectors of one operator set and the engine's name."""

    name: str
    vectors: tuple[Vector, ...]


def groups(vectors: Sequence[Vector]) -> Iterator[Group]:
    """The vectors in groups that can be one model."""
    by_opset: dict[tuple[str, int], list[Vector]] = {}
    for vector in vectors:
        model = vector.onnx_model_parts()
        by_opset.setdefault((model.domain, model.opset), []).append(vector)
    for (domain, opset), found in by_opset.items():
        parts: list[list[Vector]] = [[]]
        inputs = 0
        for vector in found:
            own = len(vector.onnx_model_parts().graph_inputs)
            if len(parts[-1]) == AT_ONCE or inputs + own > MOST_INPUTS:
                parts.append([])
                inputs = 0
            parts[-1].append(vector)
            inputs += own
        for number, some in enumerate(parts):
            yield Group(f"{domain or 'onnx'}-{opset}-{number}", tuple(some))


def joined_model(vectors: Sequence[Vector]) -> bytes:
    """One ONNX model of the vectors' nodes; every name of vector ``n`` begins with ``v<n>_``."""
    whole = onnx.load_from_string(onnx_model(vectors[0]))
    for field in ("node", "input", "output", "initializer"):
        whole.graph.ClearField(field)
    for number, vector in enumerate(vectors):
        graph = onnx.load_from_string(onnx_model(vector)).graph
        for node in graph.node:
            node.name = f"v{number}_{node.name}"
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    names[index] = f"v{number}_{name}" if name else ""
        for tensor in (*graph.input, *graph.output, *graph.initializer):
            tensor.name = f"v{number}_{tensor.name}"
        whole.graph.node.extend(graph.node)
        whole.graph.input.extend(graph.input)
        whole.graph.output.extend(graph.output)
        whole.graph.initializer.extend(graph.initializer)
    return bytes(whole.SerializeToString())


def frozen_group(vectors: Sequence[Vector]) -> Frozen:
    """The joined model up to the freeze, each convolution in the arithmetic its vector names."""
    module, store = import_onnx(joined_model(vectors), filename="vectors", pins={})
    frozen, _ = freeze(module, store, Numerics(winograd="forbid"))
    named = {f"v{n}_{v.name}": v.arithmetic for n, v in enumerate(vectors) if v.arithmetic}
    graph = frozen.main
    ops = tuple(op.with_attrs(arithmetic=named[op.node]) if op.node in named else op for op in graph.ops)
    frozen = replace(frozen, graphs=(replace(graph, ops=ops),))
    verify(frozen)
    return Frozen(frozen, store, Policy(version=1, model=ModelIdentity(name="vectors", version="0")), {})


def check_group(group: Group, target: str, folder: Path, emulate: bool) -> dict[str, Any]:
    """Compile and run one group: how many have the expected bits, which not, and which the target refuses."""
    compiled, refused = compile_all(group.vectors)
    kept = []
    for item in compiled:
        try:
            plan(item.module, BY_NAME[resolve_target(target).gpu])
            kept.append(item)
        except UnsupportedError as error:
            refused[item.name] = str(error)
    found: dict[str, Any] = {"run": len(kept), "wrong": {}, "refused": refused, "kernels": 0, "scalar_kernels": 0}
    if not kept:
        return found
    by_name = {v.name: v for v in group.vectors}
    vectors = [by_name[item.name] for item in kept]
    files = generate_frozen(frozen_group(vectors), resolve_target(target))
    built = gpu_engines.build_files(files, Subject(group.name), target, folder, emulate)
    inputs = {
        f"v{n}_{name}": onnx_array(array)
        for n, vector in enumerate(vectors)
        for name, array in vector.onnx_model_parts().graph_inputs.items()
    }
    outputs = [f"v{n}_{vector.onnx_model_parts().output}" for n, vector in enumerate(vectors)]
    got = apart(run_group, built, inputs)
    if "ok" not in got:
        raise RuntimeError(got["error"])
    found["wrong"] = compare(kept, b"".join(got["ok"][name] for name in outputs))
    return found | {k: built.facts[k] for k in ("kernels", "scalar_kernels")}


def run_group(built: gpu_engines.Built, inputs: dict[str, Any]) -> dict[str, bytes]:
    """The bytes of every output."""
    runner = Runner(built)
    given = {name: inputs[name] for name in runner.shapes}
    return {name: value.tobytes() for name, value in runner.run(given).items()}


def check(path: Path, target: str, folder: Path, emulate: bool, pool: Executor, every: int = 1) -> dict[str, Any]:
    """Every ``every``-th vector of the file at ``path`` through ``target``, the groups side by side in ``pool``."""
    vectors = load_vectors(path)[::every]
    found: dict[str, Any] = {
        "arithmetic": VERSION, "vectors": len(vectors), "run": 0, "wrong": {}, "refused": {}, "kernels": 0,
        "scalar_kernels": 0, "engines": 0,
    }  # fmt: skip
    futures = {g.name: pool.submit(attempt, check_group, g, target, folder, emulate) for g in groups(vectors)}
    for name, future in futures.items():
        got = future.result()
        if "ok" not in got:
            found.setdefault("failed", {})[name] = got["error"]
            found["error"] = (
                f"{len(found['failed'])} groups of vectors, the first {next(iter(found['failed'].items()))}"
            )
            continue
        part = got["ok"]
        for key in ("run", "kernels", "scalar_kernels"):
            found[key] += part[key]
        for key in ("wrong", "refused"):
            found[key] |= part[key]
        found["engines"] += bool(part["run"])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_vectors", description="CA-1's vectors on a GPU.")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take every N-th vector")
    parser.add_argument("--target", default="cuda-sm_90")
    parser.add_argument("--emulate", action="store_true", help="run on the emulated driver, which is no GPU")
    options = parser.parse_args(arguments)
    if not options.emulate and not gpus_here():
        print("error: nvidia-smi lists no GPU here: run this where it does, or give --emulate", file=sys.stderr)
        return 4
    context = get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="cuvil-vectors-") as folder,
        ProcessPoolExecutor(os.cpu_count(), mp_context=context, initializer=gpu_checks.without_zig) as pool,
    ):
        found = check(VECTORS, options.target, Path(folder), options.emulate, pool, options.every)
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] or "error" in found else 0


if __name__ == "__main__":
    sys.exit(main())
