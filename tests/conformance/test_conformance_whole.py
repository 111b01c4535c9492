"""The whole suite in both modes: nothing that passed before fails, and nothing is wrong."""

from __future__ import annotations

import pytest

from evidence.conformance import MODES, Kind, onnx_node_cases, run_jobs
from evidence.conformance.cases import LIST_FILE
from evidence.conformance.deviations import DEVIATIONS
from evidence.conformance.report import defects, read_baseline, regressions

BASELINE = LIST_FILE.with_name("onnx_node_passing.txt")


@pytest.mark.slow
def test_whole_suite() -> None:
    outcomes = run_jobs([(case, mode) for case in onnx_node_cases().values() for mode in MODES])
    assert regressions(outcomes, read_baseline(BASELINE)) == []
    assert [(o.name, o.mode, o.kind, o.detail) for o in defects(outcomes)] == []
    # A deviation that passes is none any more: take it off the list.
    frozen = {o.name: o.kind for o in outcomes if o.mode == "frozen"}
    assert {name: frozen[name] for name in DEVIATIONS} == dict.fromkeys(DEVIATIONS, Kind.WRONG)
