"""Mutants of the compiled policy are told apart by the generated vectors, or proved to be equivalent."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import clinical_case
import coverage_case as case
import mutants
import pytest

from compiler_kernels.compile import freeze_model
from compiler_kernels.policy import load_policy
from compiler_kernels.policy.logic import resolve, tensors_of
from compiler_kernels.targets.c.clinical import Clinical, generate_clinical
from evidence.coverage.execute import encode_vectors
from evidence.coverage.finder import Finder, Vector
from evidence.coverage.grids import policy_bounds
from evidence.coverage.intervals import Intervals

pytestmark = pytest.mark.skipif(bool(mutants.MISSING), reason=mutants.MISSING)


@cache
def _finder(name: str | int) -> Finder:
    if name != "DEMO":
        return case.searched(name)
    policy = load_policy(clinical_case.POLICY, "policy.yaml")
    module = freeze_model(clinical_case.model_bytes(), None, policy).module
    finder = Finder(resolve(policy, *tensors_of(module)), policy_bounds(policy))
    finder.search()
    return finder


def _judged(name: str | int, folder: Path, part: int = 1, vectors: int | None = None) -> mutants.Outcome:
    finder = _finder(name)
    source = generate_clinical(Clinical(finder.logic, True), "e0", "00", ["/*"])["clinical.c"].decode()
    flagged: list[Vector] = []
    for vector in finder.found.vectors[:vectors]:
        failure = finder.evaluator.decide(vector.world, vector.flags).failure or ""
        broken = {"input_guard": 4, "output_guard": 8}.get(failure, 0)
        flagged.append(replace(vector, flags=vector.flags | broken))
    encoded = encode_vectors(finder.logic.tensors, flagged)
    return mutants.judged(source, "e0", finder.logic.tensors, encoded, folder, part)


def _equivalent(finder: Finder, function: str, before: str, after: str) -> str:
    """Why a mutant that survived is equivalent; empty where that is not known."""
    intervals = Intervals(finder.logic, finder.guards)
    returned = re.fullmatch(r"\s*return (.+);", after)
    if before.strip() == "return 1;" and returned and _truthy(returned[1]):
        return "any number but 0 is true in C"
    for computed, numbers in (("compute_before", finder.evaluator.early), ("compute_after", finder.evaluator.all)):
        if before.strip() == f"if (!{computed}()) return 0;" and all(intervals.finite(n) for n in numbers):
            return "every number is finite (interval arithmetic), so the branch is never taken"
    for failure in ("not_a_number", "safety_guard"):
        if function == f"fallback_{failure}" and finder.unreachable(failure):
            return str(finder.unreachable(failure))
    return ""


def _truthy(text: str) -> bool:
    try:
        return bool(eval(compile(ast.parse(text, mode="eval"), "mutant", "eval"), {"__builtins__": {}}))
    except (SyntaxError, NameError):
        return False


def _check(name: str | int, found: mutants.Outcome) -> None:
    finder = _finder(name)
    unexplained = [survivor for survivor in found.survivors if not _equivalent(finder, *survivor)]
    assert unexplained == []


def test_a_sample_of_mutants_is_killed(tmp_path: Path) -> None:
    found = _judged("DEMO", tmp_path, part=24)
    _check("DEMO", found)
    assert found.killed > 8


def test_one_vector_does_not_kill_them(tmp_path: Path) -> None:
    """That mutants die is the doing of the vectors."""
    found = _judged("DEMO", tmp_path, part=24, vectors=1)
    assert len(found.survivors) > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DEMO", "TWELVE"])
def test_every_mutant_is_killed_or_equivalent(name: str, tmp_path: Path) -> None:
    found = _judged(name, tmp_path)
    _check(name, found)
    assert found.killed > 100
    print(f"{name}: {found.killed} killed, {len(found.survivors)} equivalent, {found.same_program} the same program")
