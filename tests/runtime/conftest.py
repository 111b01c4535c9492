"""Engines compiled once per session, with the C libraries kept in the user's own compiler cache."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import runtime_sample as sample

from compiler_kernels.targets.registry import TARGETS, Target, runner
from compiler_kernels.toolchain.zig import ZigDriver, zig_cache


@pytest.fixture(scope="session", autouse=True)
def shared_zig_cache() -> Iterator[None]:
    """Pin the cache before a test points CUVIL_HOME elsewhere: filling it takes a minute per target."""
    before = os.environ.get("CUVIL_ZIG_CACHE")
    os.environ["CUVIL_ZIG_CACHE"] = str(zig_cache())
    yield
    if before is None:
        del os.environ["CUVIL_ZIG_CACHE"]
    else:
        os.environ["CUVIL_ZIG_CACHE"] = before


@pytest.fixture(scope="session")
def build_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., sample.Engine]:
    """``build_engine(target, sources)`` compiles an executable and wraps it with its runner; skips without one."""

    def build(target: Target, sources: dict[str, bytes]) -> sample.Engine:
        prefix = runner(target)
        if prefix is None:
            pytest.skip(f"{target.triple} cannot run here: install {target.qemu_programs[0]}")
        data = ZigDriver().build(sources, target).data
        return sample.write_engine(tmp_path_factory.mktemp("engine"), "engine", data, prefix)

    return build


@pytest.fixture(scope="session", params=sorted(TARGETS))
def engine(request: pytest.FixtureRequest, build_engine: Callable[..., sample.Engine]) -> sample.Engine:
    """The two-input sample engine, for every target."""
    target = TARGETS[request.param]
    return build_engine(target, sample.two_inputs(target.triple))


@pytest.fixture(scope="session")
def single(build_engine: Callable[..., sample.Engine]) -> sample.Engine:
    """The one-input, three-output sample engine on x86-64."""
    target = TARGETS["x86_64-linux-musl"]
    return build_engine(target, sample.one_input(target.triple))


@pytest.fixture
def arrays(tmp_path: Path) -> dict[str, Path]:
    """Valid files for the two inputs: a (0..5) and b (all 2), both (2, 3) float32."""
    paths = {"a": tmp_path / "a.npy", "b": tmp_path / "b.npy"}
    np.save(paths["a"], np.arange(6, dtype="<f4").reshape(2, 3))
    np.save(paths["b"], np.full((2, 3), 2.0, "<f4"))
    return paths
