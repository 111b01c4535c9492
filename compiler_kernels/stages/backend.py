"""Stages after the freeze: ir_l1, ir_l2, generated_source, engine. None of them can change a bit."""

from __future__ import annotations

import json
from collections.abc import Sequence

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import scope, symbols_of
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.buffers import AssignBuffers
from compiler_kernels.passes.fuse import FuseElementwise
from compiler_kernels.passes.infra import ModulePass, run_passes
from compiler_kernels.passes.integers import LowerIntegers
from compiler_kernels.passes.layouts import AssignLayouts
from compiler_kernels.passes.lower_batch_norm import LowerBatchNorm
from compiler_kernels.passes.lower_pow import LowerPow
from compiler_kernels.passes.mark_runtime_weights import MarkRuntimeWeights
from compiler_kernels.passes.memory import PlanMemory
from compiler_kernels.passes.memory_report import lockstep_bytes, memory_report, total_bytes
from compiler_kernels.passes.outline import OutlineKernels
from compiler_kernels.passes.products import LowerProducts
from compiler_kernels.passes.recurrent import LowerRecurrent
from compiler_kernels.passes.skip_unselected import SkipUnselected
from compiler_kernels.policy import Policy, policy_from_json
from compiler_kernels.policy.audit import Sessions
from compiler_kernels.policy.logic import resolve, tensors_of
from compiler_kernels.proofs.access import prove_accesses
from compiler_kernels.stage import Artifact, as_json, sha3_512_hex
from compiler_kernels.stages.base import Config, Inputs, Outcome, Stage
from compiler_kernels.stages.frontend import JSON, module_artifacts, read_module
from compiler_kernels.targets.c.clinical import Clinical
from compiler_kernels.targets.c.program import COMPILED_FILES, Guard, Identity, Program, generate
from compiler_kernels.targets.cuda.gpu import BY_NAME as GPUS
from compiler_kernels.targets.cuda.program import generate_cuda
from compiler_kernels.targets.cuda.taps import with_taps
from compiler_kernels.targets.cuda.tuning import tuning_digest
from compiler_kernels.targets.isa import VARIANTS, Isa
from compiler_kernels.targets.registry import GPU_TARGETS, Target, resolve_target
from compiler_kernels.toolchain.engines import DEVICE_FILES, build_engine
from compiler_kernels.toolchain.nvcc import flags_digest
from compiler_kernels.toolchain.triton import options_digest

L1_PASSES: tuple[ModulePass, ...] = (
    LowerBatchNorm(),
    LowerPow(),
    MarkRuntimeWeights(),
    FuseElementwise(),
    AssignLayouts(),
    LowerRecurrent(),
    LowerProducts(),
    LowerIntegers(),
    AssignBuffers(),
    SkipUnselected(),
)
L2_PASSES: tuple[ModulePass, ...] = (PlanMemory(), OutlineKernels())
C_SOURCE = "text/x-c; charset=utf-8"
PYTHON = "text/x-python; charset=utf-8"


# Passes that choose memory layouts and constant orders; a generator of scalar kernels (CUDA) works without them.
LAYOUT_PASSES: tuple[type, ...] = (AssignLayouts, LowerRecurrent, LowerProducts, LowerIntegers)


def lower_to_l2(module: Module, store: WeightStore, plain: bool = False) -> Module:
    """All passes after the freeze in one call, for tools without stage records; ``plain``: row-major throughout."""
    module, _ = run_passes(module, store, (*l1_passes(module, plain), *L2_PASSES))
    return module


def l1_passes(module: Module, plain: bool = False) -> tuple[ModulePass, ...]:
    """The passes to L1. Layouts are for shapes known at compile time: symbolic modules stay ``plain``."""
    plain = plain or bool(symbols_of(module.meta))
    return tuple(p for p in L1_PASSES if not (plain and isinstance(p, LAYOUT_PASSES)))


def _ir_l1(inputs: Inputs, config: Config) -> Outcome:
    module, store = read_module(inputs["frozen_graph/frozen_graph.txt"], inputs["frozen_graph/weights.bin"])
    passes = l1_passes(module)
    module, notes = run_passes(module, store, passes)
    facts = as_json({"passes": [p.name for p in passes], "statements": len(module.main.ops), "changes": notes})
    assert isinstance(facts, dict)
    return module_artifacts("ir_l1.txt", module, store), facts


def _ir_l2(inputs: Inputs, config: Config) -> Outcome:
    l1, store = read_module(inputs["ir_l1/ir_l1.txt"], inputs["ir_l1/weights.bin"])
    module, notes = run_passes(l1, store, L2_PASSES)
    with scope(symbols_of(l1.meta)):
        memory = memory_report(
            next(note for note in notes if note["pass"] == PlanMemory.name),
            parse_module(inputs["frozen_graph/frozen_graph.txt"].text),
            l1,
        )
    proved = prove_accesses(module).bounds if symbols_of(module.meta) else 0
    text, weights = module_artifacts("ir_l2.txt", module, store)
    plan = Artifact("memory.json", (json.dumps(memory, indent=1) + "\n").encode(), JSON)
    return (text, weights, plan), {
        "functions": len(module.graphs) - 1,
        "arena_bytes": memory["arena_bytes"],
        "lower_bound_bytes": memory["lower_bound_bytes"],
        "live_unpadded_bytes": memory["live_unpadded_bytes"],
        "traffic": memory["traffic"],
        "index_bounds_proved": proved,
    }


def config_digest(policy_json: bytes, pins_json: bytes, target: str) -> str:
    """Compile-config digest: SHA3-512 over policy, pinned shapes, target and arithmetic, each length-prefixed; of a GPU
    target also compilers, flags and the tuning of its kernels."""
    parts = [b"cuvil-config/1", policy_json, pins_json, target.encode(), b"CA-1"]
    if target in GPU_TARGETS:
        parts += [flags_digest().encode(), tuning_digest().encode()]
        if (json.loads(policy_json).get("gpu") or {}).get("kernels") == "triton":
            parts.append(options_digest().encode())
    return sha3_512_hex(b"".join(len(p).to_bytes(8, "big") + p for p in parts))


def guards_of(policy: Policy) -> dict[tuple[str, str], Guard]:
    """By ``("inputs", NAME)`` and ``("outputs", NAME)``: an input and an output may share a name."""
    found = {}
    for space, tensors in (("inputs", policy.inputs), ("outputs", policy.outputs)):
        for name, tensor in tensors.items():
            low, high = tensor.range if tensor.range is not None else (None, None)
            found[space, name] = Guard(tensor.finite, low, high)
    return found


def clinical_of(policy: Policy, module: Module) -> Clinical:
    """The clinical logic of ``policy`` for ``module`` (L0 or frozen), which ``check_against`` has accepted."""
    return Clinical(resolve(policy, *tensors_of(module)), policy.coverage is not None and policy.coverage.probes)


def sessions_of(policy: Policy) -> Sessions | None:
    """How the engine keeps records of inferences, or ``None`` (docs/sessions.md)."""
    return policy.audit.sessions if policy.audit else None


def wants_lockstep(policy: Policy) -> bool:
    """Whether the policy asks for every inference twice (docs/lockstep.md)."""
    return policy.safety is not None and policy.safety.lockstep


def wants_triton(policy: Policy) -> bool:
    """Whether the policy asks for Triton kernels where the target is a GPU's (docs/gpu.md)."""
    return policy.gpu is not None and policy.gpu.kernels == "triton"


def program_of(
    module: Module,
    store: WeightStore,
    identity: Identity,
    policy: Policy,
    clinical: Clinical,
    target: Target,
    isas: Sequence[Isa] | None = None,
    frozen: tuple[Module, WeightStore] | None = None,
) -> Program:
    """The program of an L2 ``module`` for ``target``. ``UnsupportedError``: no kernel, or lockstep on a GPU.

    ``frozen``: the frozen graph and its constants, of which kernels of a GPU may prefer the untransformed ones.
    """
    guards, sessions = guards_of(policy), sessions_of(policy)
    if not target.gpu:
        chosen = VARIANTS[target.machine] if isas is None else tuple(isas)
        lockstep = wants_lockstep(policy)
        return generate(
            module, store, identity, guards, isas=chosen, lockstep=lockstep, clinical=clinical, sessions=sessions
        )
    if wants_lockstep(policy):
        raise UnsupportedError(
            f"safety.lockstep of the policy computes twice on a processor, and {target.triple} engines compute on a "
            "GPU: build for a CPU target, or take lockstep out of the policy"
        )
    if frozen is not None:
        module = with_taps(module, store, frozen[0].main, frozen[1], GPUS[target.gpu])
    chip, triton = GPUS[target.gpu], wants_triton(policy)
    return generate_cuda(module, store, identity, chip, guards, clinical=clinical, sessions=sessions, triton=triton)


def _generated_source(inputs: Inputs, config: Config) -> Outcome:
    module, store = read_module(inputs["ir_l2/ir_l2.txt"], inputs["ir_l2/weights.bin"])
    policy_json = inputs["source_model/policy.json"].data
    policy = policy_from_json(policy_json)
    target = resolve_target(str(config["target"]))
    digest = config_digest(policy_json, inputs["source_model/pins.json"].data, target.triple)
    identity = Identity(
        policy.model.name,
        policy.model.version,
        inputs["frozen_graph/frozen_graph.txt"].sha3_512,
        digest,
        target.triple,
    )
    frozen = read_module(inputs["frozen_graph/frozen_graph.txt"], inputs["frozen_graph/weights.bin"])
    clinical = clinical_of(policy, frozen[0])
    program = program_of(module, store, identity, policy, clinical, target, frozen=frozen)
    lockstep = wants_lockstep(policy)
    media = {"c": C_SOURCE, "cu": C_SOURCE, "json": JSON, "py": PYTHON}
    artifacts = tuple(
        Artifact(name, data, media.get(name.rpartition(".")[2], "application/octet-stream"))
        for name, data in program.files.items()
    )
    memory = {**json.loads(inputs["ir_l2/memory.json"].data), "scratch_bytes_per_thread": program.scratch_bytes}
    memory |= program.memory
    if lockstep:
        memory["lockstep_bytes"] = lockstep_bytes(memory)
    report = Artifact("memory.json", (json.dumps(memory, indent=1) + "\n").encode(), JSON)
    return (*artifacts, report), {
        "config_digest": digest,
        "kernels": len(module.graphs) - 1,
        "arena_bytes": memory["arena_bytes"],
        "memory_bytes": total_bytes(memory),
        "scratch_bytes_per_thread": program.scratch_bytes,
        "instruction_sets": [target.gpu] if target.gpu else [isa.name for isa in VARIANTS[target.machine]],
        "decisions": len(clinical.logic.decisions),
        "safety_guards": len(clinical.logic.guards),
        "lockstep": lockstep,
        "source_lines": sum(
            data.count(b"\n") for name, data in program.files.items() if name.endswith((".c", ".cu", ".py"))
        ),
    }


def _engine(inputs: Inputs, config: Config) -> Outcome:
    target = resolve_target(str(config["target"]))
    built = build_engine({name.partition("/")[2]: artifact.data for name, artifact in inputs.items()}, target)
    report = Artifact("build.json", (json.dumps(built.report, indent=1, sort_keys=True) + "\n").encode(), JSON)
    images = tuple(Artifact(name, data) for name, data in built.images.items())
    return (Artifact("inference-engine.bin", built.data), report, *images), {"engine_bytes": len(built.data)}


IR_L1 = Stage(
    "ir_l1",
    _ir_l1,
    reads=("frozen_graph/frozen_graph.txt", "frozen_graph/weights.bin"),
    description="Fused statements with explicit buffers.",
)
IR_L2 = Stage(
    "ir_l2",
    _ir_l2,
    reads=("ir_l1/ir_l1.txt", "ir_l1/weights.bin", "frozen_graph/frozen_graph.txt"),
    description="One function per kernel, calls into a static arena.",
)
GENERATED_SOURCE = Stage(
    "generated_source",
    _generated_source,
    reads=(
        "ir_l2/ir_l2.txt",
        "ir_l2/weights.bin",
        "ir_l2/memory.json",
        "frozen_graph/frozen_graph.txt",
        "frozen_graph/weights.bin",
        "source_model/policy.json",
        "source_model/pins.json",
    ),
    config=("target",),
    description="The C program: one function per kernel, static memory, no allocation.",
)
ENGINE = Stage(
    "engine",
    _engine,
    reads=tuple(f"generated_source/{name}" for name in COMPILED_FILES),
    optional_reads=tuple(f"generated_source/{name}" for name in DEVICE_FILES),
    config=("target",),
    description="The engine for one target: of a CPU, static.",
)
