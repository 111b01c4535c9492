"""``InferenceSession`` with bounds: one engine for every size, and per-shape engines where a dimension has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_symbolic_engines import NET, model, policy, reference

import cuvil
from compiler_kernels.compile import freeze_model
from compiler_kernels.errors import UsageError
from evidence.reference import run

BOUNDS = "batch: [1, 3], height: {min: 4, max: 20, multiple: 2}"


def options(**entries: str) -> cuvil.SessionOptions:
    found = cuvil.SessionOptions()
    for key, value in entries.items():
        found.add_session_config_entry(f"cuvil.{key}", value)
    return found


def test_bounds_make_one_engine_for_all_sizes() -> None:
    session = cuvil.InferenceSession(model(NET), options(shapes=BOUNDS))
    frozen = freeze_model(model(NET), policy=policy(BOUNDS))
    for batch, height in ((1, 4), (3, 18), (2, 20)):
        x = np.random.default_rng(height).standard_normal((batch, 2, height, 12)).astype(np.float32)
        graph = reference(frozen, {"batch": batch, "height": height})
        bits = run(graph, {"image": x}, "ca1")
        for (value_id, _), got in zip(graph.outputs, session.run(None, {"image": x}), strict=True):
            assert got.tobytes() == bits[value_id].tobytes()
    assert session._pool.loaded == [()]
    with pytest.raises(UsageError, match="multiple of 2 from 4 to 20"):
        session.run(None, {"image": np.zeros((1, 2, 5, 12), np.float32)})


def test_a_policy_that_bounds_everything_does_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f'version: 1\nmodel: {{name: net, version: "1"}}\nshapes: {{{BOUNDS}}}\n')
    session = cuvil.InferenceSession(model(NET), options(policy=str(path)))
    assert session.run(["pooled"], {"image": np.zeros((2, 2, 8, 12), np.float32)})[0].shape == (2, 5)
    assert session._pool.loaded == [()]
    with pytest.raises(cuvil.InvalidArgument, match="state the bounds in the policy"):
        cuvil.InferenceSession(model(NET), options(policy=str(path), shapes=BOUNDS))


def test_without_bounds_of_all_dimensions_engines_are_per_shape() -> None:
    session = cuvil.InferenceSession(model(NET), options(shapes="batch: [1, 3]"))
    assert session._pool.loaded == []
    assert session.run(["pooled"], {"image": np.zeros((2, 2, 8, 12), np.float32)})[0].shape == (2, 5)
    assert session._pool.loaded == [(("image", (2, 2, 8, 12)),)]
