"""The equivalence stage's comparison of decisions: an engine that decides as its policy says, and one that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import clinical_case as case
import pytest

from compiler_kernels.compile import Frozen, freeze_model
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import load_policy
from evidence.equivalence import EngineRunner
from evidence.equivalence_decisions import Decisions
from evidence.reference import RefGraph, load_graph, run


@pytest.fixture(scope="module")
def frozen() -> Frozen:
    return freeze_model(case.model_bytes(), None, load_policy(case.POLICY, "policy.yaml"))


@pytest.fixture(scope="module")
def graph(frozen: Frozen) -> RefGraph:
    return load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))


def compared(policy: dict[str, Any], program: case.Program, graph: RefGraph, folder: Path) -> Decisions:
    """All cases as inferences, and made-up outputs."""
    found = Decisions(policy)
    runner = EngineRunner(program.path.read_bytes(), program.prefix, folder)
    for name, inputs in case.CASES.items():
        if name != "refusal":  # the reference refuses, too, and has no outputs then
            values = run(graph, inputs, "ca1", keep="all")
            outputs = {output: values[value_id] for value_id, output in graph.outputs}
            found.inference(runner.command(inputs), folder, inputs, outputs)
    found.made_up(runner.words, folder, graph)
    return found


def test_the_engine_of_the_policy_agrees(
    program: case.Program, graph: RefGraph, frozen: Frozen, tmp_path: Path
) -> None:
    found = compared(json.loads(frozen.policy.canonical_json()), program, graph, tmp_path)
    assert found.wanted and found.differing == 0 and found.first is None
    assert found.inferences == len(case.CASES) - 1 and found.given == 200
    assert set(found.report()["outcomes"]) >= {"decided", "input_guard", "safety_guard"}  # type: ignore[arg-type]


@pytest.mark.parametrize("program", ["x86_64-linux-musl"], indirect=True)
@pytest.mark.parametrize(
    ("section", "name", "field", "text", "seen"),
    [
        ("decisions", "bright", "when", "brightest > cutoff and not dark", "decisions"),
        ("decisions", "dark", "when", "exposure <= 0.9", "decisions"),
        ("quantities", "lesion", "value", "area(mask >= 0.25)", "quantities"),
        ("thresholds", "cutoff", "value", 0.25, "quantities"),
    ],
)
def test_another_policy_does_not(
    program: case.Program,
    graph: RefGraph,
    frozen: Frozen,
    tmp_path: Path,
    section: str,
    name: str,
    field: str,
    text: object,
    seen: str,
) -> None:
    policy = json.loads(frozen.policy.canonical_json())
    policy[section][name][field] = text
    found = compared(policy, program, graph, tmp_path)
    assert found.differing > 0 and isinstance(found.first, dict)
    assert found.first["field"] in (seen, "status", "failure", "decisions")
