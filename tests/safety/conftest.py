"""Engines that several tests of this folder use, built once."""

import sys
from pathlib import Path

import pytest
import safety_case as case

from compiler_kernels.targets.registry import runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

import small_models

native = pytest.mark.skipif(runner(case.X86) != (), reason="no engine runs natively here")


@pytest.fixture(scope="session")
def residual(tmp_path_factory: pytest.TempPathFactory) -> case.Built:
    """x (1, 3, 12, 12) -> p (1, 5) with lockstep, as a program."""
    if runner(case.X86) != ():
        pytest.skip("no x86-64 engine runs natively here")
    return case.build(small_models.residual(), tmp_path_factory.mktemp("residual") / "engine")
