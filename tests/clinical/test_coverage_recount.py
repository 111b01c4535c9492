"""Our count of MC/DC against clang's, from the same ``clinical.c`` and the same vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import coverage_case as case
import pytest

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy.schema import Coverage
from compiler_kernels.targets.c.clinical import Clinical, generate_clinical
from evidence.coverage import page, report
from evidence.coverage.execute import encode_vectors
from evidence.coverage.finder import Finder, Vector
from evidence.coverage.mcdc import measure
from evidence.coverage.recount import Counted, missing_tools, recount

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason=f"{', '.join(missing_tools())} not installed")


def _job(finder: Finder, prefix: str, vectors: Sequence[Vector]) -> Counted:
    source = generate_clinical(Clinical(finder.logic, True), prefix, "00", ["/*"])["clinical.c"].decode()
    broken = {"input_guard": 4, "output_guard": 8}
    failures = [finder.evaluator.decide(v.world, v.flags).failure or "" for v in vectors]
    flagged = [replace(v, flags=v.flags | broken.get(f, 0)) for v, f in zip(vectors, failures, strict=True)]
    return Counted(source, finder.logic.tensors, encode_vectors(finder.logic.tensors, flagged))


def _ours(finder: Finder, vectors: Sequence[Vector]) -> dict[str, list[bool]]:
    records = [finder.evaluator.decide(v.world, v.flags).records for v in vectors]
    found = {}
    for name, node in finder.nodes.items():
        if node.kind != "at_least" and len(node.conditions) > 1:
            mine = [(v, r) for v, rs in enumerate(records) for probe, r in rs if probe == name]
            function = ("decide_" if node.kind == "decision_node" else "guard_") + node.name
            conditions = measure(node.tree, len(node.conditions), mine).conditions
            found[function] = [c.unique_cause is not None for c in conditions]
    return found


def _agree(names: Sequence[str | int]) -> None:
    finders = [case.searched(name) for name in names]
    jobs = [_job(f, f"e{n}", f.found.vectors) for n, f in enumerate(finders)]
    for name, finder, theirs in zip(names, finders, recount(jobs), strict=True):
        assert theirs == _ours(finder, finder.found.vectors), name


def test_clang_agrees_on_the_policies_of_the_normal_suite() -> None:
    _agree(["TWELVE", "COUPLED", *case.SEEDS])
    assert all(all(flags) for flags in _ours(case.searched("TWELVE"), case.searched("TWELVE").found.vectors).values())


@pytest.mark.slow
def test_clang_agrees_on_two_hundred_random_policies() -> None:
    for start in range(0, 200, 50):
        _agree(range(start, start + 50))


def test_clang_agrees_on_too_few_vectors() -> None:
    """Agreement on full coverage alone would not show that either counts."""
    finder = case.searched("TWELVE")
    parts = [finder.found.vectors[:count] for count in (1, 2, 5, 9)]
    counted = recount([_job(finder, f"e{n}", part) for n, part in enumerate(parts)])
    assert counted == [_ours(finder, part) for part in parts]
    assert not any(counted[0]["decide_refer"]) and any(counted[3]["decide_refer"])
    assert not all(counted[3]["decide_refer"])


def test_a_tool_that_fails_is_named() -> None:
    job = Counted("extern const cuvil_engine e_engine_instance;\nnot C", (), b"")
    with pytest.raises(
        VerificationFailed, match=r"clang-19 failed: clinical0\.c:1:14: error|clang-19 failed: clinical0\.c"
    ):
        recount([job])


def test_nothing_to_recount_is_not_called_agreement() -> None:
    """clang's figures are of decisions of two conditions or more; a policy may have none."""
    totals = {"mcdc_masking": {"covered": 1, "total": 1, "infeasible": 0}}
    said = [
        report._sentence([], totals, Coverage(), report.Recount("clang 19", "", {}), found) for found in (True, False)
    ]
    assert "the same by clang 19" in said[0] and "the same" not in said[1] and "clang recounts none" in said[1]
    shown = page._recount({"tool": "clang 19", "reason": "", "decisions": []})
    assert "Nothing to recount" in shown and "<table" not in shown
