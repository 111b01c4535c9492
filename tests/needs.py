"""Marks of tests that need compilers which are not everywhere, or no GPU."""

from __future__ import annotations

import shutil

import pytest

from compiler_kernels.targets.registry import gpus_here
from compiler_kernels.toolchain import nvcc


def nvcc_works() -> bool:
    """Whether the pinned nvcc is here, and the g++ it calls."""
    path = nvcc.find_nvcc()
    return (
        path is not None and nvcc.version_of(path) == nvcc.VERSION and bool(shutil.which("g++", path=nvcc.SYSTEM_PATH))
    )


needs_nvcc = pytest.mark.skipif(not nvcc_works(), reason=f"needs nvcc {nvcc.VERSION} and g++")
no_gpu = pytest.mark.skipif(bool(gpus_here()), reason="there is a GPU here")
