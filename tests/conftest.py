"""What every test shares: a home of its own, so that no test reads or writes the user's, and small models to build."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.toolchain.zig import zig_cache

_HOME = pytest.StashKey[str]()

POLICY = """\
version: 1
model: {name: tiny, version: "1.0"}
inputs:
  image: {shape: [1, 1, 8, 8], finite: true, range: [0.0, 1.0]}
outputs:
  prob: {finite: true}
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regenerate", action="store_true", help="rewrite committed snapshots instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    # Compiled C libraries take a minute each and hold nothing of the user: their cache is shared.
    os.environ["CUVIL_ZIG_CACHE"] = str(zig_cache())
    # Dagster's SQLite files are synced hundreds of times a run; in memory that costs nothing.
    memory = Path("/dev/shm")
    fast = str(memory) if memory.is_dir() and os.access(memory, os.W_OK) else None
    home = tempfile.mkdtemp(prefix="cuvil-test-home-", dir=fast)
    config.stash[_HOME] = home
    os.environ["CUVIL_HOME"] = str(Path(home) / "session")
    os.environ.pop("SOURCE_DATE_EPOCH", None)
    os.environ.pop("CUVIL_KEY_PASSPHRASE", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash.get(_HOME, ""), ignore_errors=True)


def tiny_model_bytes(seed: int = 0, batch: int | str = "N") -> bytes:
    """Conv, Relu, GlobalAveragePool, Flatten, Gemm, Softmax: image [batch, 1, 8, 8] to prob [batch, 2]."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "m", "n"], ["l"], "gemm"),
        helper.make_node("Softmax", ["l"], ["prob"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 1, 8, 8])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, [batch, 2])],
        [weight("w", 4, 1, 3, 3), weight("b", 4), weight("m", 4, 2), weight("n", 2)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


ModelMaker = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> ModelMaker:
    """``tiny_model(seed)``: a model file; another seed gives other weights."""
    folder = tmp_path_factory.mktemp("models")

    def make(seed: int = 0) -> Path:
        path = folder / f"tiny-{seed}.onnx"
        if not path.exists():
            path.write_bytes(tiny_model_bytes(seed))
        return path

    return make


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy file that pins the shape of ``tiny_model``."""
    path = tmp_path_factory.mktemp("policies") / "policy.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture(scope="session")
def home_maker(request: pytest.FixtureRequest) -> Callable[[], Path]:
    """Makes fresh folders to serve as $CUVIL_HOME; they go when the session ends."""
    parent = request.config.stash[_HOME]
    return lambda: Path(tempfile.mkdtemp(prefix="home-", dir=parent))


@pytest.fixture
def home(home_maker: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh $CUVIL_HOME for one test."""
    folder = home_maker()
    monkeypatch.setenv("CUVIL_HOME", str(folder))
    return folder
