"""Every real model on both targets, on inputs such as it meets: the reference's bits, values near onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from real_model_cases import MODELS, SHARED, Array, RealModel, speech

from compiler_kernels import compile_model, load_engine
from compiler_kernels.compile import Frozen, build_frozen, freeze_model
from compiler_kernels.errors import RefusedError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import load_policy
from compiler_kernels.targets.registry import TARGETS, runner
from evidence.equivalence import EngineRunner, output_file_stem, words
from evidence.reference import RefGraph, load_graph, run

QUICK = ("cxr_pneumonia_cnn_qdq_int8", "breast_cancer_rf_onnxml", "synthetic_loop_if")
BY_NAME = {m.name: m for m in MODELS}


def frozen_model(model: RealModel) -> tuple[Frozen, RefGraph]:
    policy = load_policy(model.policy_text(), "policy.yaml")
    frozen = freeze_model(model.path, model.shapes, policy)
    graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
    return frozen, graph


def expected(graph: RefGraph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    values = run(graph, feeds)
    return {name: np.ascontiguousarray(values[i]) for i, name in graph.outputs}


def session(model: RealModel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.path, options, providers=["CPUExecutionProvider"])


def near(
    ours: Mapping[str, Array], peer: onnxruntime.InferenceSession, feeds: Mapping[str, Array], limit: float
) -> None:
    names = [o.name for o in peer.get_outputs()]
    for name, theirs in zip(names, peer.run(names, dict(feeds)), strict=True):
        mine, theirs = ours[name], np.asarray(theirs)
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, name
        scale = float(np.max(np.abs(theirs))) if theirs.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=limit * max(scale, 1.0 if scale else 0.0), err_msg=name)


def test_every_model_has_a_case() -> None:
    if not (SHARED / "models").is_dir():
        pytest.skip("the model collection is not beside this checkout")
    assert sorted(BY_NAME) == sorted(p.stem for p in (SHARED / "models").glob("*.onnx"))


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BY_NAME])
def test_both_targets_have_the_bits_of_the_reference(name: str, tmp_path: Path) -> None:
    model = BY_NAME[name]
    frozen, graph = frozen_model(model)
    sets = model.feeds()
    wanted = [expected(graph, feeds) for feeds in sets]
    peer = session(model)
    for feeds, values in zip(sets, wanted, strict=True):
        near(values, peer, feeds, model.limit)
    executed = 0
    for target in TARGETS.values():
        prefix = runner(target)
        if target.triple not in ("x86_64-linux-musl", "aarch64-linux-musl") or prefix is None:
            continue
        folder = tmp_path / target.triple
        folder.mkdir()
        engine = EngineRunner(build_frozen(frozen, target, "bin"), prefix, folder)
        for feeds, values in zip(sets, wanted, strict=True):
            produced = engine.run(dict(feeds))
            for output, value in values.items():
                np.testing.assert_array_equal(words(output_file_stem(produced, output)), words(value), err_msg=output)
        executed += 1
    assert executed >= 1


def test_speech_over_50_frames(tmp_path: Path) -> None:
    """The state goes round: nothing drifts apart from onnxruntime's, and the other sampling rate, whose branch is for
    other frames, is refused at run time."""
    model = BY_NAME["silero_vad_if_lstm"]
    path = compile_model(model.path, input_shapes=model.shapes, output=tmp_path / "vad.so", isas=["avx2"])
    engine, peer = load_engine(path), session(model)
    ours = theirs = np.zeros((2, 1, 128), np.float32)
    heard = []
    for feeds in speech(50):
        mine = engine.run({**feeds, "state": ours})
        output, theirs = peer.run(["output", "stateN"], {**feeds, "state": theirs})
        ours = mine["stateN"]
        np.testing.assert_allclose(mine["output"], output, rtol=0, atol=2e-6)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5)
        heard.append(float(output[0, 0]))
    assert max(heard) > 10 * min(heard)
    with pytest.raises(RefusedError, match="chooses its else branch, which is not compiled for these shapes"):
        engine.run({**speech(1)[0], "sr": np.array(8000, np.int64)})
