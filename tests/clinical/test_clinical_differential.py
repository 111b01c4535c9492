"""Compiled clinical logic against the independent evaluator: random policies and tensors, answers equal to the bit."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from clinical_program import Builder, answers, native_builder, zig_builder
from wild_policies import INPUTS, OUTPUTS, wild_policy, wild_values

from compiler_kernels.answer import number_json
from compiler_kernels.policy.schema import Policy
from compiler_kernels.targets.registry import resolve_target, runner
from evidence.reference.clinical import Found, decide

FLAGS = {
    0: (),
    1: ("refusal",),
    2: ("lockstep",),
    4: ("input_guard",),
    8: ("output_guard",),
    3: ("refusal", "lockstep"),
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return native_builder(tmp_path_factory.mktemp("programs"))


def expected(found: Found) -> dict[str, Any]:
    failure = (found.failure, found.guard or None) if found.failure else None
    return {
        "status": found.status,
        "failure": failure,
        "message": found.message,
        "quantities": {n: number_json(v) for n, v in found.quantities.items()},
        "decisions": found.decisions,
        "guards": found.guards,
    }


def shown(answer: Mapping[str, Any]) -> dict[str, Any]:
    failure = answer["failure"]
    return {
        "status": answer["status"],
        "failure": (failure["kind"], failure["guard"]) if failure else None,
        **{key: answer[key] for key in ("message", "quantities", "decisions", "guards")},
    }


def compare(builder: Builder, seed: int, count: int) -> Counter[str]:
    """``count`` vectors of one random policy; how often each outcome came."""
    rng = random.Random(seed)
    policy = Policy.model_validate(wild_policy(rng))
    program = builder.program(policy, INPUTS, OUTPUTS)
    sets = [(wild_values(rng, INPUTS), wild_values(rng, OUTPUTS)) for _ in range(count)]
    flags = [rng.choice([*FLAGS]) if rng.random() < 0.15 else 0 for _ in range(count)]
    found = answers(program, builder.folder / "vectors", [[*i.values(), *o.values()] for i, o in sets], flags)
    stated = json.loads(policy.canonical_json())
    outcomes: Counter[str] = Counter()
    for number, ((inputs, outputs), flag) in enumerate(zip(sets, flags, strict=True)):
        wanted = decide(stated, inputs, outputs, FLAGS[flag])
        assert shown(found[number]) == expected(wanted), (seed, number, stated)
        outcomes[wanted.failure or wanted.status] += 1
        outcomes.update(f"{n}={v}" for n, v in wanted.decisions.items() if not wanted.failure)
    return outcomes


def test_random_policies_answer_like_the_evaluator(builder: Builder) -> None:
    total: Counter[str] = Counter()
    for seed in range(24):
        total += compare(builder, seed, 150)
    for outcome in ("decided", "not_a_number", "safety_guard", "input_guard", "output_guard", "refusal", "lockstep"):
        assert total[outcome] > 10, (outcome, total)


@pytest.mark.slow
def test_many_random_policies_answer_like_the_evaluator(builder: Builder) -> None:
    for seed in range(1000, 1400):
        compare(builder, seed, 100)


@pytest.mark.slow
@pytest.mark.parametrize("triple", ["x86_64-linux-musl", "aarch64-linux-musl"])
def test_random_policies_on_every_target(tmp_path: Path, triple: str) -> None:
    prefix = runner(resolve_target(triple))
    if prefix is None:
        pytest.skip(f"{triple} cannot run here")
    builder = zig_builder(tmp_path, triple, prefix)
    for seed in range(12):
        compare(builder, seed, 100)
