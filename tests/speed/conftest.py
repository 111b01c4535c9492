"""Engines of this folder are compiled with the user's own compiler cache and kept in a directory of the session."""

import os
from collections.abc import Iterator

import pytest

from compiler_kernels.toolchain.zig import zig_cache


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setenv("CUVIL_ZIG_CACHE", str(zig_cache()))
    patch.setenv("CUVIL_HOME", str(tmp_path_factory.mktemp("home")))
    assert os.environ["CUVIL_ZIG_CACHE"]
    yield
    patch.undo()
