"""The equivalence stage: engine bits against the independent reference, and errors against binary64.

Three runs of each input: the engine itself (natively or under an emulator), the reference in Canonical Arithmetic 1 on
the frozen graph, and the L0 graph (before the numerics passes) in binary64, which is the yardstick of errors.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy import policy_from_json
from compiler_kernels.stage import Artifact, Json, as_json, sha3_512_hex
from compiler_kernels.stages.base import Config, Inputs, Outcome, Stage
from compiler_kernels.targets.registry import Target, gpu_for, host_runs, resolve_target, runner
from compiler_kernels.targets.triton.emit import triton_kernels
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.engines import CUDA_FILE
from compiler_kernels.toolchain.triton import TRITON_FILE
from evidence.equivalence_decisions import Decisions
from evidence.error_statistics import ErrorTable
from evidence.peer import OnnxRuntimePeer
from evidence.reference import RefGraph, graph_bounds, load_graph, run
from evidence.steering_inputs import steering_inputs
from evidence.test_inputs import SPECIAL_INPUTS, make_inputs

Array = npt.NDArray[Any]
KERNELS: Final = f"generated_source/{CUDA_FILE}"
TRITON_KERNELS: Final = f"generated_source/{TRITON_FILE}"
WORK_BUDGET: Final = 300_000_000
"""Multiply-adds the reference may spend in a build; it decides how many inputs are tried (1 to 64)."""
LONGEST: Final = 4
"""A further choice of sizes is tried up to this many times the work of a build without symbols."""
TIMEOUT_SECONDS: Final = 600


def multiply_adds(graph: RefGraph) -> int:
    """Multiply-adds of one inference: the sums of products of the graph."""
    total = 0
    shapes = {t.id: t.shape for t in graph.inputs} | {k: w.shape for k, w in graph.weights.items()}
    shapes |= {n.output: n.shape for n in graph.nodes}
    for node in graph.nodes:
        if node.op in ("conv", "conv_integer"):
            total += prod(node.shape) * prod(shapes[node.inputs[1]][1:])
        elif node.op == "conv_transpose":
            w = shapes[node.inputs[1]]
            total += prod(node.shape) * w[0] * prod(w[2:])
        elif node.op in ("gemm", "matmul", "matmul_integer"):
            total += prod(node.shape) * shapes[node.inputs[0]][0 if node.attrs.get("trans_a") else -1]
        else:
            total += prod(node.shape)
    return total


def automatic_count(graph: RefGraph) -> int:
    return max(1, min(64, WORK_BUDGET // max(1, multiply_adds(graph))))


class EngineRunner:
    """Runs an engine executable on named arrays, through its public command line and ``.npy`` files.

    Without its clinical logic, which would withhold the bits of most test inputs: they are no images.
    """

    def __init__(self, engine: bytes, prefix: tuple[str, ...], directory: Path) -> None:
        self.path = directory / "inference-engine.bin"
        self.path.write_bytes(engine)
        self.path.chmod(0o755)
        self.prefix = prefix
        self.directory = directory

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Outputs by file stem (the engine's sanitised output name). ``VerificationFailed`` when the engine refuses."""
        out = self.directory / "out"
        done = subprocess.run(
            [*self.command(inputs), "--output-dir", str(out), "--network-only"],
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

    def command(self, inputs: dict[str, Array]) -> list[str]:
        """The words that run the engine on ``inputs``, which are written to files."""
        words: list[str] = []
        for number, (name, value) in enumerate(inputs.items()):
            path = self.directory / f"input{number}.npy"
            np.save(path, value)
            words += ["--input", f"{name}={path}"]
        return [*self.words, *words]

    @property
    def words(self) -> list[str]:
        """The words that start the engine."""
        return [*self.prefix, str(self.path)]


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


@dataclass(frozen=True)
class Trial:
    """The graphs at one choice of sizes (nothing where the shapes are fixed) with the inputs to try there."""

    sizes: Mapping[str, int]
    frozen: RefGraph
    source: RefGraph
    sets: list[dict[str, Array]]


def size_choices(bounds: Mapping[str, range]) -> list[dict[str, int]]:
    """Sizes to try: all smallest, all largest, and per symbol one in the middle with the others smallest."""
    if not bounds:
        return [{}]
    least = {name: allowed[0] for name, allowed in bounds.items()}
    middles = [{**least, name: allowed[len(allowed) // 2]} for name, allowed in bounds.items()]
    choices = [least, *middles, {name: allowed[-1] for name, allowed in bounds.items()}]
    return [one for n, one in enumerate(choices) if one not in choices[:n]]


def trials_of(inputs: Inputs, config: Config) -> tuple[list[Trial], list[dict[str, int]]]:
    """What to try, and the choices of sizes left out because the reference would need too long.

    Reads ``source_model/policy.json`` and both graphs of ``EQUIVALENCE.reads``; ``equivalence_inputs`` of ``config``.
    """
    policy = policy_from_json(inputs["source_model/policy.json"].data)
    ranges = {name: guard.range for name, guard in policy.inputs.items()}
    wanted = config["equivalence_inputs"]
    trials: list[Trial] = []
    skipped = []
    for sizes in size_choices(graph_bounds(inputs["frozen_graph/frozen_graph.json"].data)):
        frozen = load_graph(
            inputs["frozen_graph/frozen_graph.json"].data, inputs["frozen_graph/weights.bin"].data, sizes
        )
        if trials and multiply_adds(frozen) > LONGEST * WORK_BUDGET:
            skipped.append(sizes)
            continue
        count = wanted if isinstance(wanted, int) and wanted > 0 else automatic_count(frozen)
        shapes = {t.name: t.shape for t in frozen.inputs}
        dtypes = {t.name: t.dtype for t in frozen.inputs}
        made = make_inputs(shapes, ranges, count, seed=20261130 + len(trials), dtypes=dtypes)
        source = load_graph(inputs["ir_l0/ir_l0.json"].data, inputs["ir_l0/weights.bin"].data, sizes)
        trials.append(Trial(sizes, frozen, source, [{**one, **steering_inputs(frozen)} for one in made]))
    return trials, skipped


def _equivalence(inputs: Inputs, config: Config) -> Outcome:
    target = resolve_target(str(config["target"]))
    kernels = inputs.get(KERNELS)
    trials, skipped = trials_of(inputs, config)
    peer = None
    if config["onnxruntime"] is not None:
        peer = OnnxRuntimePeer(inputs["source_model/model.onnx"].data)
    decisions = Decisions(json.loads(inputs["source_model/policy.json"].data))
    with ways_to_run(target, kernels.data if kernels else None) as prefix:
        found = _compare(trials, inputs["engine/inference-engine.bin"].data, prefix, peer, decisions)
    report = found.report(prefix)
    limit = policy_from_json(inputs["source_model/policy.json"].data).numerics.max_error_ratio
    beyond = found.errors.beyond(limit) if limit is not None else {}
    report["target"] = target.triple
    report["onnxruntime"] = config["onnxruntime"]
    second = inputs.get(TRITON_KERNELS)
    report["grade"] = grade_of(target, prefix, triton_kernels(second.text) if second else ())
    if decisions.wanted:
        report["decisions"] = decisions.report()
        if decisions.differing:
            report["verdict"] = "failed"
    if trials[0].sizes:
        report["sizes"] = [as_json({"tried": t.sizes, "inputs": len(t.sets)}) for t in trials]
        report["sizes_not_tried"] = [as_json(one) for one in skipped]
    errors = report["errors"]
    assert isinstance(errors, dict)
    errors |= {"limit": limit, "beyond_limit": beyond}
    data = (json.dumps(as_json(report), indent=1) + "\n").encode()
    facts: dict[str, Json] = {
        "verdict": report["verdict"],
        "grade": report["grade"],
        "inputs": report["inputs"],
        "differing_values": report["differing_values"],
        "differing_decisions": decisions.differing,
        "errors": errors["summary"],
        "errors_limit": limit,
        "errors_beyond_limit": beyond,
    }
    return (Artifact("equivalence.json", data, "application/json"),), facts


EMULATED: Final = "emulated on the CPU from the text of the GPU kernels; no GPU ran them"
TRITON_COMPILED: Final = "; {} Triton kernels were compiled and inspected, not executed, and scalar code stood for them"


@contextmanager
def ways_to_run(target: Target, kernels: bytes | None) -> Iterator[tuple[str, ...] | None]:
    """The words that run engines of ``target`` here, or ``None``. Where the GPU of a GPU target is absent, ``kernels``
    (the engine's kernels.cu) are compiled for the processor and the engine's host code runs on them as shipped."""
    prefix = runner(target)
    if prefix is not None or not target.gpu or kernels is None or not host_runs(target):
        yield prefix
        return
    with tempfile.TemporaryDirectory(prefix="cuvil-emulated-") as folder:
        yield emulated_driver(kernels, target.gpu, Path(folder))


def grade_of(target: Target, prefix: tuple[str, ...] | None, triton: Sequence[str] = ()) -> str:
    """How results came about that the words ``prefix`` made (those of :func:`ways_to_run`). ``triton``: names of the
    kernels that Triton made, which nothing but a GPU executes."""
    if prefix is None:
        return "not executed"
    if target.gpu and prefix:
        return EMULATED + (TRITON_COMPILED.format(len(triton)) if triton else "")
    if target.gpu:
        return f"executed on {gpu_for(target)}"
    return f"executed under {Path(prefix[0]).name}" if prefix else "executed natively"


@dataclass
class _Comparison:
    """Running totals over all trials."""

    errors: ErrorTable = field(default_factory=ErrorTable)
    differing: int = 0
    compared: int = 0
    first: Json = None
    digests: list[Json] = field(default_factory=list)
    count: int = 0

    def measure(
        self, trial: Trial, one: dict[str, Array], values: dict[str, Array], peer: OnnxRuntimePeer | None
    ) -> None:
        """Errors of every tensor against binary64, beside the peer's."""
        wide = run(trial.source, one, "float64", keep="all")
        others = peer.run(one) if peer is not None else {}
        truth = {n.tensor: v for n, v in _by_node(trial.source, wide)}
        for node in trial.frozen.nodes:
            tensor = node.tensor
            real = node.dtype in ("float32", "float64", "float16")
            if tensor and real and tensor in truth and truth[tensor].shape == values[node.output].shape:
                other = others.get(tensor)
                usable = other if other is not None and other.shape == values[node.output].shape else None
                self.errors.add(tensor, node.op, truth[tensor], values[node.output], usable)

    def outputs(self, trial: Trial, values: dict[str, Array], produced: dict[str, Array] | None) -> None:
        """Engine outputs (``None``: not executed) against the reference's, bit by bit."""
        for value_id, name in trial.frozen.outputs:
            expected = np.ascontiguousarray(values[value_id])
            digest = {"input": self.count, "output": name, "sha3_512": sha3_512_hex(expected.tobytes())}
            self.digests.append(as_json(digest))
            if produced is None:
                continue
            wanted, got = words(expected), words(output_file_stem(produced, name))
            wrong = np.flatnonzero(got != wanted) if got.shape == wanted.shape else np.arange(wanted.size)
            self.compared += expected.size
            self.differing += wrong.size
            if wrong.size and self.first is None:
                at = int(wrong[0])
                self.first = {
                    "input": self.count,
                    "output": name,
                    "index": at,
                    "engine": f"0x{int(got[at]):0{2 * got.itemsize}x}" if at < got.size else "absent",
                    "reference": f"0x{int(wanted[at]):0{2 * wanted.itemsize}x}",
                }

    def report(self, prefix: tuple[str, ...] | None) -> dict[str, Json]:
        verdict = "not executed" if prefix is None else ("failed" if self.differing else "passed")
        errors = self.errors
        return {
            "format": "cuvil-equivalence/1",
            "arithmetic": "CA-1",
            "verdict": verdict,
            "inputs": self.count,
            "compared_values": self.compared,
            "differing_values": self.differing,
            "first_difference": self.first,
            "reference_outputs": self.digests,
            "errors": {
                "against": "binary64 run of the L0 graph",
                "summary": errors.summary(),
                "tensors": errors.to_json(),
            },
        }


def _compare(
    trials: list[Trial],
    engine: bytes,
    prefix: tuple[str, ...] | None,
    peer: OnnxRuntimePeer | None,
    decisions: Decisions,
) -> _Comparison:
    found = _Comparison()
    with tempfile.TemporaryDirectory(prefix="cuvil-equivalence-") as directory:
        runner_ = EngineRunner(engine, prefix, Path(directory)) if prefix is not None else None
        for trial in trials:
            for index, one in enumerate(trial.sets):
                values = run(trial.frozen, one, "ca1", keep="all")
                # The special inputs (constant images, extremes) are for bits; as error statistics they would count one
                # rounding thousands of times.
                if index >= SPECIAL_INPUTS or len(trial.sets) <= SPECIAL_INPUTS:
                    found.measure(trial, one, values, peer)
                found.outputs(trial, values, runner_.run(dict(one)) if runner_ is not None else None)
                found.count += 1
                if runner_ is not None and decisions.wanted:
                    outputs = {name: values[value_id] for value_id, name in trial.frozen.outputs}
                    decisions.inference(runner_.command(dict(one)), Path(directory), dict(one), outputs)
        if runner_ is not None and decisions.wanted and not trials[0].sizes:
            decisions.made_up(runner_.words, Path(directory), trials[0].frozen)
    return found


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
    optional_reads=(KERNELS, TRITON_KERNELS),
    config=("target", "equivalence_inputs", "onnxruntime", "runner"),
    rooms=("compiler_kernels", "evidence"),
    description="Engine bits against the independent reference; error of every tensor against binary64.",
)
