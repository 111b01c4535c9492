"""The equivalence stage: engine bits against the independent reference, and errors against binary64.

Three runs of each input: the engine itself (natively or under an emulator), the reference in Canonical Arithmetic 1 on
the frozen graph, and the L0 graph (before the numerics passes) in binary64, which is the yardstick of errors.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy import policy_from_json
from compiler_kernels.stage import Artifact, Json, as_json, sha3_512_hex
from compiler_kernels.stages.base import Config, Inputs, Outcome, Stage
from compiler_kernels.targets.registry import resolve_target, runner
from evidence.error_statistics import ErrorTable
from evidence.peer import OnnxRuntimePeer
from evidence.reference import RefGraph, load_graph, run
from evidence.steering_inputs import steering_inputs
from evidence.test_inputs import SPECIAL_INPUTS, make_inputs

Array = npt.NDArray[Any]
WORK_BUDGET: Final = 300_000_000
"""Multiply-adds the reference may spend in a build; it decides how many inputs are tried (1 to 64)."""
TIMEOUT_SECONDS: Final = 600


def multiply_adds(graph: RefGraph) -> int:
    """Multiply-adds of one inference: the sums of products of the graph."""
    total = 0
    for node in graph.nodes:
        if node.op == "conv":
            total += prod(node.shape) * prod(graph.weights[node.inputs[1]].shape[1:])
        elif node.op == "conv_transpose":
            w = graph.weights[node.inputs[1]].shape
            total += prod(node.shape) * w[0] * prod(w[2:])
        elif node.op in ("gemm", "matmul") and node.inputs[1] in graph.weights:
            total += prod(node.shape) * graph.weights[node.inputs[1]].shape[0]
        else:
            total += prod(node.shape)
    return total


def automatic_count(graph: RefGraph) -> int:
    return max(1, min(64, WORK_BUDGET // max(1, multiply_adds(graph))))


class EngineRunner:
    """Runs an engine executable on named arrays, through its public command line and ``.npy`` files."""

    def __init__(self, engine: bytes, prefix: tuple[str, ...], directory: Path) -> None:
        self.path = directory / "inference-engine.bin"
        self.path.write_bytes(engine)
        self.path.chmod(0o755)
        self.prefix = prefix
        self.directory = directory

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Outputs by file stem (the engine's sanitised output name). ``VerificationFailed`` when the engine refuses."""
        out = self.directory / "out"
        words: list[str] = []
        for number, (name, value) in enumerate(inputs.items()):
            path = self.directory / f"input{number}.npy"
            np.save(path, value)
            words += ["--input", f"{name}={path}"]
        done = subprocess.run(
            [*self.prefix, str(self.path), *words, "--output-dir", str(out)],
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            raise VerificationFailed(
                "engine-runs", f"the engine refused a test input of the equivalence stage: {message}"
            )
        return {path.stem: np.load(path) for path in sorted(out.glob("*.npy"))}


def output_file_stem(engine_outputs: dict[str, Array], name: str) -> Array:
    """The output called ``name``; engines replace characters a file name cannot hold by ``_``."""
    if name in engine_outputs:
        return engine_outputs[name]
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)
    return engine_outputs[safe]


def words(values: Array) -> npt.NDArray[Any]:
    """The bits of ``values``, flat, as unsigned integers of the element's size."""
    flat = np.ascontiguousarray(values).reshape(-1)
    bits: npt.NDArray[Any] = flat.view(f"<u{flat.dtype.itemsize}")
    return bits


def _equivalence(inputs: Inputs, config: Config) -> Outcome:
    frozen = load_graph(inputs["frozen_graph/frozen_graph.json"].data, inputs["frozen_graph/weights.bin"].data)
    source = load_graph(inputs["ir_l0/ir_l0.json"].data, inputs["ir_l0/weights.bin"].data)
    policy = policy_from_json(inputs["source_model/policy.json"].data)
    target = resolve_target(str(config["target"]))
    prefix = runner(target)
    wanted = config["equivalence_inputs"]
    count = wanted if isinstance(wanted, int) and wanted > 0 else automatic_count(frozen)
    shapes = {t.name: t.shape for t in frozen.inputs}
    bounds = {name: guard.range for name, guard in policy.inputs.items()}
    steering = steering_inputs(frozen)
    made = make_inputs(shapes, bounds, count, seed=20261130, dtypes={t.name: t.dtype for t in frozen.inputs})
    sets = [{**one, **steering} for one in made]
    peer = None
    if config["onnxruntime"] is not None:
        peer = OnnxRuntimePeer(inputs["source_model/model.onnx"].data, shapes)
    report = _compare(frozen, source, sets, inputs["engine/inference-engine.bin"].data, prefix, peer)
    report["target"] = target.triple
    report["onnxruntime"] = config["onnxruntime"]
    report["grade"] = _grade(prefix)
    data = (json.dumps(as_json(report), indent=1) + "\n").encode()
    errors = report["errors"]
    assert isinstance(errors, dict)
    facts: dict[str, Json] = {
        "verdict": report["verdict"],
        "grade": report["grade"],
        "inputs": count,
        "differing_values": report["differing_values"],
        "errors": errors["summary"],
    }
    return (Artifact("equivalence.json", data, "application/json"),), facts


def _grade(prefix: tuple[str, ...] | None) -> str:
    if prefix is None:
        return "not executed"
    return f"executed under {Path(prefix[0]).name}" if prefix else "executed natively"


def _compare(
    frozen: RefGraph,
    source: RefGraph,
    sets: list[dict[str, Array]],
    engine: bytes,
    prefix: tuple[str, ...] | None,
    peer: OnnxRuntimePeer | None,
) -> dict[str, Json]:
    table = ErrorTable()
    differing = compared = 0
    first_difference: Json = None
    digests: list[Json] = []
    by_tensor = {node.tensor: node for node in frozen.nodes if node.tensor}
    with tempfile.TemporaryDirectory(prefix="cuvil-equivalence-") as directory:
        runner_ = EngineRunner(engine, prefix, Path(directory)) if prefix is not None else None
        for index, one in enumerate(sets):
            values = run(frozen, one, "ca1", keep="all")
            # The special inputs (constant images, extremes) are for bits; as error statistics they would count one
            # rounding thousands of times.
            measured = by_tensor if index >= SPECIAL_INPUTS or len(sets) <= SPECIAL_INPUTS else {}
            others = peer.run(one) if peer is not None and measured else {}
            wide = run(source, one, "float64", keep="all") if measured else {}
            truth = {n.tensor: v for n, v in _by_node(source, wide)}
            for tensor, node in measured.items():
                real = node.dtype in ("float32", "float64", "float16")
                if real and tensor in truth and truth[tensor].shape == values[node.output].shape:
                    other = others.get(tensor)
                    usable = other if other is not None and other.shape == values[node.output].shape else None
                    table.add(tensor, node.op, truth[tensor], values[node.output], usable)
            produced = runner_.run(dict(one)) if runner_ is not None else {}
            for value_id, name in frozen.outputs:
                expected = np.ascontiguousarray(values[value_id])
                digests.append({"input": index, "output": name, "sha3_512": sha3_512_hex(expected.tobytes())})
                if runner_ is None:
                    continue
                wanted = words(expected)
                got = words(output_file_stem(produced, name))
                wrong = np.flatnonzero(got != wanted) if got.shape == wanted.shape else np.arange(wanted.size)
                compared += expected.size
                differing += wrong.size
                if wrong.size and first_difference is None:
                    at = int(wrong[0])
                    first_difference = {
                        "input": index,
                        "output": name,
                        "index": at,
                        "engine": f"0x{int(got[at]):0{2 * got.itemsize}x}" if at < got.size else "absent",
                        "reference": f"0x{int(wanted[at]):0{2 * wanted.itemsize}x}",
                    }
    verdict = "not executed" if prefix is None else ("failed" if differing else "passed")
    return {
        "format": "cuvil-equivalence/1",
        "arithmetic": "CA-1",
        "verdict": verdict,
        "inputs": len(sets),
        "compared_values": compared,
        "differing_values": differing,
        "first_difference": first_difference,
        "reference_outputs": digests,
        "errors": {"against": "binary64 run of the L0 graph", "summary": table.summary(), "tensors": table.to_json()},
    }


def _by_node(graph: RefGraph, values: dict[str, Array]) -> list[tuple[Any, Array]]:
    return [(node, values[node.output]) for node in graph.nodes if node.output in values]


EQUIVALENCE = Stage(
    "equivalence",
    _equivalence,
    reads=(
        "engine/inference-engine.bin",
        "frozen_graph/frozen_graph.json",
        "frozen_graph/weights.bin",
        "ir_l0/ir_l0.json",
        "ir_l0/weights.bin",
        "source_model/model.onnx",
        "source_model/policy.json",
    ),
    config=("target", "equivalence_inputs", "onnxruntime", "runner"),
    rooms=("compiler_kernels", "evidence"),
    description="Engine bits against the independent reference; error of every tensor against binary64.",
)
