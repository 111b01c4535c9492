"""The systems ``bisect`` compares: each runs one model on one input and shows the value of every tensor.

``cuvil``, ``cuvil@ISA``, ``cuvil@TARGET``, ``cuvil@threads=N``: engines compiled with every tensor as an output. Fusion
ends at an output, which changes no bit of an engine (docs/arithmetic.md). ``onnxruntime``,
``onnxruntime@threads=N``, ``onnxruntime@opt=off``; ``torch``; ``reference`` (Canonical Arithmetic 1) and ``float64``.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.compile import Frozen, build_frozen, freeze_model, generate_frozen, native_target
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import UnsupportedError, UsageError, VerificationFailed
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Graph, Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.targets.isa import BY_NAME
from compiler_kernels.targets.registry import ALIASES, ALL_TARGETS, host_runs, resolve_target, runner, why_not_here
from compiler_kernels.toolchain.engines import CUDA_FILE, build_engine
from evidence.equivalence import ways_to_run
from evidence.reference import RefGraph, load_graph, run

Array = npt.NDArray[Any]
Trace = dict[str, Array]
OUTPUTS_PER_ENGINE: Final = 60
"""The engine as a program holds at most 64 outputs, so larger graphs are exposed by several engines."""


@dataclass(frozen=True)
class Subject:
    """A model in all the forms systems need. ``source`` is the L0 graph, ``graph`` the frozen one."""

    data: bytes
    frozen: Frozen
    source: RefGraph
    graph: RefGraph

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {t.name: t.shape for t in self.graph.inputs}


def subject(data: bytes, input_shapes: Mapping[str, Sequence[int]] | None = None) -> Subject:
    """Import and freeze a model; the importer's errors."""
    frozen = freeze_model(data, input_shapes)
    module, store = import_onnx(data, filename="model.onnx", pins=frozen.pins)
    return Subject(data, frozen, _neutral(module.main, store), _neutral(frozen.module.main, frozen.store))


def _neutral(graph: Graph, store: WeightStore) -> RefGraph:
    return load_graph(neutral_json(graph), pack(graph, store))


@dataclass(frozen=True)
class System:
    """``trace``: values by the model's tensor names, as far as the system can show them; ``plain``: the model's outputs
    as a user gets them, nothing exposed."""

    name: str
    trace: Callable[[Subject, Mapping[str, Array]], Trace]
    plain: Callable[[Subject, Mapping[str, Array]], Trace]
    single: Callable[[Subject, Mapping[str, Array], str], Array] | None = None
    """The value of one tensor when it alone is exposed, where exposing all of them changes what the system computes."""


def system(text: str) -> System:
    """The system called ``text``; ``UsageError``: unknown name, ``UnsupportedError``: not installed here."""
    name, _, option = text.partition("@")
    if name == "cuvil":
        return _cuvil(text, option)
    if name == "onnxruntime":
        return _onnxruntime(text, option)
    if text in ("reference", "float64"):
        arithmetic = "ca1" if text == "reference" else "float64"

        def trace(s: Subject, x: Mapping[str, Array]) -> Trace:
            graph = s.graph if arithmetic == "ca1" else s.source
            values = run(graph, x, arithmetic, keep="all")
            return {**{n.tensor: values[n.output] for n in graph.nodes if n.tensor}, **_named(graph, values)}

        def plain(s: Subject, x: Mapping[str, Array]) -> Trace:
            graph = s.graph if arithmetic == "ca1" else s.source
            return _named(graph, run(graph, x, arithmetic))

        return System(text, trace, plain)
    if text == "torch":
        from evidence.bisect_torch import outputs, trace_torch

        return System(text, lambda s, x: trace_torch(s.source, x), lambda s, x: outputs(s.source, x))
    raise UsageError(
        f"there is no system {text!r}: choose cuvil, cuvil@INSTRUCTION-SET, cuvil@TARGET, cuvil@threads=N, reference, "
        "float64, onnxruntime, onnxruntime@threads=N, onnxruntime@opt=off or torch"
    )


def _named(graph: RefGraph, values: Mapping[str, Array]) -> Trace:
    return {name: values[vid] for vid, name in graph.outputs}


def _number(text: str, option: str) -> int:
    value = option.removeprefix("threads=")
    if not value.isdigit() or not 1 <= int(value) <= 64:
        raise UsageError(f"{text}: give a number of threads, as in {text.partition('@')[0]}@threads=2")
    return int(value)


# cuvil ----------------------------------------------------------------------------------------------------------------
def _cuvil(text: str, option: str) -> System:
    if option in ALL_TARGETS or option in ALIASES:
        target, words = resolve_target(option), []
    elif option.startswith("threads="):
        target, words = native_target(), ["--threads", str(_number(text, option))]
    elif not option or option in BY_NAME:
        isas = (BY_NAME[option],) if option else None

        def execute(frozen: Frozen, x: Mapping[str, Array]) -> Trace:
            with tempfile.TemporaryDirectory(prefix="cuvil-bisect-") as folder:
                path = Path(folder) / "engine.so"
                path.write_bytes(build_frozen(frozen, native_target(), "so", isas))
                return dict(load_engine(path).run(x))

        return _engine_system(text, execute)
    else:
        known = ", ".join([*BY_NAME, *ALL_TARGETS, "threads=N"])
        raise UsageError(f"{text}: after cuvil@ stands one of {known}")
    prefix = runner(target)
    if prefix is None and not (target.gpu and host_runs(target)):
        raise UnsupportedError(f"{text} cannot run here: {why_not_here(target)}")

    def program(frozen: Frozen, x: Mapping[str, Array]) -> Trace:
        names = frozen.module.main.output_names
        safe = tuple(f"o{n}" for n in range(len(names)))  # file names
        main = replace(frozen.module.main, output_names=safe)
        plain = replace(frozen, module=replace(frozen.module, graphs=(main,)))
        if prefix is None:  # a GPU target without its GPU: the kernels' text runs on the processor
            built = generate_frozen(plain, target)
            with ways_to_run(target, built[CUDA_FILE]) as emulated:
                found = _run_program(build_engine(built, target).data, [*(emulated or ())], words, x)
        else:
            found = _run_program(build_frozen(plain, target, "bin"), [*prefix], words, x)
        return {name: found[key] for name, key in zip(names, safe, strict=True)}

    return _engine_system(text, program)


def _engine_system(text: str, execute: Callable[[Frozen, Mapping[str, Array]], Trace]) -> System:
    """A tensor alone is exposed by an engine that ends with it: what comes before is computed as in the shipped one."""

    def single(s: Subject, x: Mapping[str, Array], tensor: str) -> Array:
        (result,) = (op.result for op in s.frozen.module.main.ops if op.tensor == tensor)
        return execute(replace(s.frozen, module=_exposed(s.frozen.module, [(result, tensor)])), x)[tensor]

    return System(text, lambda s, x: _traced(s, x, execute), lambda s, x: execute(s.frozen, x), single)


def _run_program(engine: bytes, prefix: Sequence[str], words: Sequence[str], x: Mapping[str, Array]) -> Trace:
    """Outputs by file stem. ``VerificationFailed`` with the engine's own sentence when it refuses."""
    with tempfile.TemporaryDirectory(prefix="cuvil-bisect-") as name:
        folder = Path(name)
        path, out = folder / "engine.bin", folder / "out"
        path.write_bytes(engine)
        path.chmod(0o755)
        command = [*prefix, str(path), *words, "--output-dir", str(out), "--network-only"]
        for number, (key, value) in enumerate(x.items()):
            np.save(folder / f"input{number}.npy", value)
            command += ["--input", f"{key}={folder / f'input{number}.npy'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise VerificationFailed("engine-runs", f"the engine refused the input: {done.stderr.strip()}")
        return {file.stem: np.load(file) for file in sorted(out.glob("*.npy"))}


def _traced(s: Subject, x: Mapping[str, Array], execute: Callable[[Frozen, Mapping[str, Array]], Trace]) -> Trace:
    """Engines with up to ``OUTPUTS_PER_ENGINE`` tensors exposed each, until every tensor has been."""
    graph = s.frozen.module.main
    found: Trace = {}
    made = [(op.result, op.tensor) for op in graph.ops if op.tensor]
    for start in range(0, len(made), OUTPUTS_PER_ENGINE):
        part = made[start : start + OUTPUTS_PER_ENGINE]
        found.update(execute(replace(s.frozen, module=_exposed(s.frozen.module, part)), x))
    return found


def _exposed(module: Module, tensors: Sequence[tuple[str, str]]) -> Module:
    """The frozen module with other outputs, and without what they do not need."""
    needed = {vid for vid, _ in tensors}
    kept = []
    for op in reversed(module.main.ops):
        if op.result in needed:
            needed.update(op.operands)
            kept.append(op)
    used = {o for op in kept for o in op.operands}
    graph = replace(
        module.main,
        ops=tuple(reversed(kept)),
        weights=tuple(w for w in module.main.weights if w.id in used),
        outputs=tuple(vid for vid, _ in tensors),
        output_names=tuple(name for _, name in tensors),
    )
    return replace(module, graphs=(graph,))


# onnxruntime ----------------------------------------------------------------------------------------------------------
def _onnxruntime(text: str, option: str) -> System:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise UnsupportedError(f"{text} is not installed: run pip install onnxruntime") from None
    if option not in ("", "opt=off") and not option.startswith("threads="):
        raise UsageError(f"{text}: after onnxruntime@ stands threads=N or opt=off")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _number(text, option) if option.startswith("threads=") else 1
    options.inter_op_num_threads, options.log_severity_level = 1, 3
    if option == "opt=off":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def values(data: bytes, x: Mapping[str, Array]) -> Trace:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return {n: np.asarray(v) for n, v in zip(names, session.run(None, dict(x)), strict=True)}

    def opened(data: bytes, chosen: set[str] | None) -> bytes:
        proto = onnx.load_from_string(data)
        known = {o.name for o in proto.graph.output}
        for node in proto.graph.node:
            for name in node.output:
                if name and name not in known and (chosen is None or name in chosen):
                    proto.graph.output.append(onnx.ValueInfoProto(name=name))
        return bytes(proto.SerializeToString())

    return System(
        text,
        lambda s, x: values(opened(s.data, None), x),
        lambda s, x: values(s.data, x),
        lambda s, x, tensor: values(opened(s.data, {tensor}), x)[tensor],
    )
