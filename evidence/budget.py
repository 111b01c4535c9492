"""The budget stage: memory and latency of the engine against the policy's section ``budget``.

A build over its budget fails here, with ``RefusedError``: no record of this stage exists then, and without it no proof
is made. Without such a section the stage states the memory and measures nothing.
"""

from __future__ import annotations

import json
from typing import Any, Final

from compiler_kernels.errors import RefusedError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.passes.memory_report import total_bytes
from compiler_kernels.policy import Budget, Policy, policy_from_json
from compiler_kernels.stage import Artifact, Json
from compiler_kernels.stages.base import Config, Inputs, Outcome, Stage
from compiler_kernels.targets.c.program import COMPILED_FILES
from compiler_kernels.targets.registry import GPU_TARGETS, resolve_target
from evidence.timing.latency import Latency, measure_latency, slowest_steps

FORMAT: Final = "cuvil-budget/1"
SHOWN: Final = 3
"""How many buffers or layers a refusal names."""


def _budget(inputs: Inputs, config: Config) -> Outcome:
    policy = policy_from_json(inputs["source_model/policy.json"].data)
    memory = json.loads(inputs["generated_source/memory.json"].data)
    budget = policy.budget
    # A GPU engine has one workspace, whoever calls it.
    threads = budget.threads if budget is not None and str(config["target"]) not in GPU_TARGETS else 1
    needed = total_bytes(memory, threads)
    report: dict[str, Json] = {
        "format": FORMAT,
        "target": config["target"],
        "verdict": "no budget",
        "threads": threads,
        "memory_bytes": needed,
        "memory_parts": {**_parts(memory, threads)},
        "memory_limit_bytes": None,
        "latency": None,
    }
    if budget is not None:
        report["verdict"] = "met"
        if budget.memory_mb is not None:
            report["memory_limit_bytes"] = int(budget.memory_mb * 1e6)
            if needed > budget.memory_mb * 1e6:
                raise RefusedError(_memory_sentence(memory, needed, budget, _winograd(inputs)))
        if budget.latency_ms is not None:
            report["latency"] = _latency(inputs, config, budget, policy)
    latency = report["latency"]
    facts: dict[str, Json] = {key: report[key] for key in ("verdict", "threads", "memory_bytes", "memory_limit_bytes")}
    facts["latency"] = {k: v for k, v in latency.items() if k != "samples"} if isinstance(latency, dict) else None
    data = (json.dumps(report, indent=1) + "\n").encode()
    return (Artifact("budget.json", data, "application/json"),), facts


def _latency(inputs: Inputs, config: Config, budget: Budget, policy: Policy) -> dict[str, Json]:
    """Measure and judge; ``RefusedError`` when the engine is too slow, or cannot be measured on this machine."""
    assert budget.latency_ms is not None
    target = resolve_target(str(config["target"]))
    machine = config["budget_machine"]
    if config["runner"] != "natively" or not isinstance(machine, str):
        raise RefusedError(
            f"budget.latency_ms is not executed: this machine does not run {target.triple} engines itself"
            f"{' (it has no such GPU, and an emulated latency means nothing)' if target.gpu else ''}; "
            "build on one that does, or take latency_ms out of the policy"
        )
    if budget.machine not in machine:
        raise RefusedError(
            f"budget.latency_ms is not executed: it holds for {budget.machine!r}, and this machine is a {machine!r}; "
            "build on that machine, or change budget.machine"
        )
    found = measure_latency(inputs["engine/inference-engine.bin"].data, budget.threads)
    if found.median_ms > budget.latency_ms:
        generated = {name: inputs[f"generated_source/{name}"].data for name in COMPILED_FILES}
        slowest = [] if target.gpu else slowest_steps(generated, target)  # launches of a graph are not timed singly
        raise RefusedError(_latency_sentence(found, machine, slowest, budget, policy))
    return {
        "limit_ms": budget.latency_ms,
        "median_ms": found.median_ms,
        "min_ms": found.min_ms,
        "runs": found.runs,
        "isa": found.isa,
        "clock": "wall",
        "machine": machine,
    }


def _parts(memory: dict[str, Any], threads: int) -> dict[str, int]:
    if "device_bytes" in memory:  # of a GPU, whose arena may hold inputs, outputs and workspace
        parts = {key: memory[f"{key}_bytes"] for key in ("weights", "arena")}
        return {**parts, "other": memory["device_bytes"] - sum(parts.values())}
    parts = {key: memory[f"{key}_bytes"] for key in ("weights", "arena", "input", "output")}
    lockstep = {"lockstep": memory["lockstep_bytes"]} if "lockstep_bytes" in memory else {}
    return {**parts, **lockstep, "scratch": memory["scratch_bytes_per_thread"] * threads}


def _winograd(inputs: Inputs) -> bool:
    """Whether a convolution is computed in a Winograd form, whose transformed weights are larger."""
    frozen = parse_module(inputs["frozen_graph/frozen_graph.txt"].text).main
    return any(op.has("arithmetic") and op.str_("arithmetic") != "direct" for op in frozen.ops)


def _memory_sentence(memory: dict[str, Any], needed: int, budget: Budget, winograd: bool) -> str:
    assert budget.memory_mb is not None
    parts = ", ".join(f"{name} {_mb(size)}" for name, size in _parts(memory, budget.threads).items())
    largest = sorted(memory["buffers"], key=lambda b: -b["bytes"])[:SHOWN]
    named = ", ".join(f"{b['node'] or b['id']} {_mb(b['bytes'])}" for b in largest)
    remedies = ["take a smaller input"]
    if winograd:
        remedies.append("set numerics.prefer: size (transformed weights are larger)")
    if budget.threads > 1:
        remedies.append("lower budget.threads")
    return (
        f"the engine needs {_mb(needed)} MB of memory, {_mb(needed - budget.memory_mb * 1e6)} MB more than "
        f"budget.memory_mb allows ({budget.memory_mb:g}): {parts} MB; largest buffers: {named or 'none'} MB; "
        f"{', '.join(remedies)}, or raise budget.memory_mb"
    )


def _latency_sentence(
    found: Latency, machine: str, slowest: list[tuple[str, float]], budget: Budget, policy: Policy
) -> str:
    assert budget.latency_ms is not None
    shown = ", ".join(f"{node} {us / 1000:.3g} ms" for node, us in slowest[:SHOWN])
    layers = f"slowest layers on one thread: {shown}; " if shown else ""
    remedies = []
    if policy.numerics.winograd == "forbid":
        remedies.append("set numerics.winograd: allow")
    if policy.numerics.prefer == "size":
        remedies.append("set numerics.prefer: speed")
    if budget.threads == 1 and not found.isa.startswith("sm_"):
        remedies.append("allow more budget.threads")
    remedies.append("take a smaller input")
    return (
        f"an inference takes {found.median_ms:.4g} ms (median of {found.runs}, {budget.threads} thread(s), {found.isa} "
        f"on {machine}), {found.median_ms - budget.latency_ms:.3g} ms more than budget.latency_ms allows "
        f"({budget.latency_ms:g}); {layers}{', '.join(remedies)}, or raise "
        "budget.latency_ms"
    )


def _mb(size: float) -> str:
    return f"{size / 1e6:.3g}"


BUDGET = Stage(
    "budget",
    _budget,
    reads=(
        "engine/inference-engine.bin",
        "frozen_graph/frozen_graph.txt",
        "source_model/policy.json",
        "generated_source/memory.json",
        *(f"generated_source/{name}" for name in COMPILED_FILES),
    ),
    config=("target", "runner", "budget_machine"),
    rooms=("compiler_kernels", "evidence"),
    description="Memory and, where the policy limits it, latency of the engine: a build over its budget fails.",
)
