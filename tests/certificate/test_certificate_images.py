"""Real chest films through the engine of the shared model: every bound holds, and decisions are certified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.certificate import compiled
from evidence.bisect_systems import subject
from evidence.certificate.decisions import parse_threshold
from evidence.certificate.report import certify
from evidence.reference import run

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cxr_pneumonia_cnn", "cxr_pneumonia_cnn_qdq_int8"])
def test_decisions_on_real_images(name: str) -> None:
    model, data = SHARED / "models" / f"{name}.onnx", SHARED / "data" / "pneumoniamnist.npz"
    if not model.exists() or not data.exists():
        pytest.skip("the shared model or its images are not beside this checkout")
    made = subject(model.read_bytes(), {"image": (1, 1, 28, 28)})
    engine = compiled(made)
    certified = 0
    for image in np.load(data)["test_images"][:20]:
        x = {"image": (image.astype(np.float32) / np.float32(255)).reshape(1, 1, 28, 28)}
        found = engine(x)
        result = certify(made.graph, x, found, [parse_threshold("prob[0,1]>=0.5")])
        wide = run(made.graph, x, "float64")
        value_id, output = made.graph.outputs[0]
        error = np.abs(found[output].astype(np.float64) - wide[value_id])
        assert (error <= result.bounds[output] + 1e-12).all()  # the binary64 run has an error of its own
        certified += result.certified
    assert certified == 20
