"""One engine with clinical logic, as a program and as a library, compiled once per session."""

from __future__ import annotations

from pathlib import Path

import clinical_case as case
import pytest

from compiler_kernels.compile import build_frozen, freeze_model
from compiler_kernels.engine import Engine, load_engine
from compiler_kernels.policy import load_policy
from compiler_kernels.targets.registry import resolve_target, runner


@pytest.fixture(scope="session", params=["x86_64-linux-musl", "aarch64-linux-musl"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> case.Program:
    """The engine of the case for every target that runs here."""
    target = resolve_target(request.param)
    prefix = runner(target)
    if prefix is None:
        pytest.skip(f"{target.triple} cannot run here")
    frozen = freeze_model(case.model_bytes(), None, load_policy(case.POLICY, "policy.yaml"))
    path = tmp_path_factory.mktemp("engine") / "engine"
    path.write_bytes(build_frozen(frozen, target, "bin"))
    path.chmod(0o755)
    return case.Program(path, prefix)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The same engine in this process."""
    target = resolve_target("x86_64-linux-musl")
    frozen = freeze_model(case.model_bytes(), None, load_policy(case.POLICY, "policy.yaml"))
    path: Path = tmp_path_factory.mktemp("engine") / "engine.so"
    path.write_bytes(build_frozen(frozen, target, "so"))
    return load_engine(path)
