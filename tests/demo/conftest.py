"""The held-out half, its pseudo-labels and onnxruntime's probability map: read and computed once."""

from __future__ import annotations

import pytest
from demo_case import Case

from cuvil_assets import demo, demo_data


@pytest.fixture(scope="session")
def case() -> Case:
    runtime = pytest.importorskip("onnxruntime", reason="the test extra installs onnxruntime")
    halves = demo_data.load_halves()
    label = demo_data.pseudo_labels(halves.held_out, demo_data.thresholds(halves.training))
    session = runtime.InferenceSession(str(demo.MODEL), providers=["CPUExecutionProvider"])
    probability = session.run(None, {demo.INPUT: demo_data.as_nchw(halves.held_out)})[0]
    return Case(halves, label, probability)
