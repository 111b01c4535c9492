"""The asset ``reproducibility``: rebuilds on demand, never from the cache; its check fails for a difference."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rebuild_case import Delivered

from compiler_kernels.stage import StageResult
from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain.gcc import find_gcc
from cuvil_assets.chain import REPRODUCIBILITY
from cuvil_assets.checks import CHECKS
from cuvil_assets.describe import summary
from cuvil_assets.execution import Build, run_stage
from cuvil_assets.home import Home
from cuvil_assets.records import Recorded
from cuvil_assets.request import load_request

PARTITION = "tiny-1.0|x86_64-linux-musl"


@pytest.fixture
def build(delivered: Delivered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    shutil.copytree(delivered.home, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    home = Home(tmp_path / "home")
    return Build(home, load_request(home, PARTITION, None))


def checked(build: Build, result: StageResult) -> tuple[bool, str]:
    outcome = CHECKS[REPRODUCIBILITY]["every_byte_again"](build, result)
    return outcome.passed, outcome.sentence


@pytest.mark.slow
@pytest.mark.skipif(find_gcc(TARGETS["x86_64-linux-musl"]) is None, reason="the policy of this engine asks for gcc")
def test_the_asset_rebuilds_and_is_never_looked_up(build: Build) -> None:
    made: list[Recorded] = [run_stage(build, REPRODUCIBILITY) for _ in range(2)]
    assert [item.cache_hit for item in made] == [False, False]
    assert made[0].result.principal.sha3_512 == made[1].result.principal.sha3_512
    assert made[0].result.facts["verdict"] == "passed"
    passed, sentence = checked(build, made[0].result)
    assert passed and sentence.startswith("2 rebuilds, all equal; engines of zig and gcc")
    assert "2 of 2 rebuilds equal" in summary(made[0].result)


@pytest.mark.slow
def test_its_check_fails_for_a_difference(build: Build, wrapper: int) -> None:
    result = run_stage(build, REPRODUCIBILITY).result
    passed, sentence = checked(build, result)
    assert not passed
    assert "rebuild 1: stage engine, inference-engine.bin: bytes differ in 1 place" in sentence
    assert result.facts["differing"] == 2
