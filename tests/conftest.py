"""What every test shares: a home of its own, so that no test reads or writes the user's, and small models to build."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import POLICY, ModelMaker, tiny_model_bytes

from compiler_kernels.toolchain.zig import zig_cache

_HOME = pytest.StashKey[str]()


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
