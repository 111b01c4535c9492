"""One small engine for all tests, built by the command line, and what its proof records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rebuild_case import Delivered
from tiny_models import ModelMaker

from cuvil_assets.cli import main
from cuvil_assets.cli.sbom import statement_of
from cuvil_assets.home import Home
from cuvil_assets.store import ContentStore
from evidence.reproducibility.inputs import recorded_build

POLICY = """\
version: 1
model: {name: tiny, version: "1.0"}
inputs:
  image: {shape: [1, 1, 8, 8], finite: true, range: [0.0, 1.0]}
reproducibility: {rebuilds: 2, compilers: [zig, gcc]}
release: {demand: [equivalence, reproducibility]}
"""


@pytest.fixture(scope="session")
def delivered(tmp_path_factory: pytest.TempPathFactory, tiny_model: ModelMaker) -> Iterator[Delivered]:
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("delivered")
    policy, engine = folder / "policy.yaml", folder / "inference-engine.bin"
    policy.write_text(POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_HOME", str(home))
        words = ["build", "--model", str(tiny_model()), "--policy", str(policy), "--target", "x86_64-linux-musl"]
        assert main([*words, "--output", str(engine), "--equivalence-inputs", "2"]) == 0
        store = ContentStore(Home(home).store)
        yield Delivered(home, engine, recorded_build(statement_of(engine), store.find, {}), store)
