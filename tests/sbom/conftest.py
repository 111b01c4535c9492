"""One small engine built twice by the command line, in two homes, for all tests of its bill of materials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sbom_case import POLICY, Built
from tiny_models import ModelMaker

from cuvil_assets.cli import main
from cuvil_assets.cli.sbom import statement_of
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore


@pytest.fixture(scope="session")
def engines(
    home_maker: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory, tiny_model: ModelMaker
) -> list[Built]:
    found = []
    for name in ("first", "second"):
        home, folder = home_maker(), tmp_path_factory.mktemp(name)
        engine, policy = folder / "inference-engine.bin", folder / "policy.yaml"
        policy.write_text(POLICY)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUVIL_HOME", str(home))
            words = ["build", "--model", str(tiny_model()), "--policy", str(policy), "--target", "x86_64-linux-musl"]
            assert main([*words, "--output", str(engine), "--equivalence-inputs", "2"]) == 0
            found.append(Built(home, engine, statement_of(engine), ContentStore(current_home().store)))
    return found


@pytest.fixture(scope="session")
def built(engines: list[Built]) -> Built:
    return engines[0]
