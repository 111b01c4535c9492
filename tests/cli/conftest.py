"""One engine for all tests of commands that read one, and a way to call the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_case import Cli, Delivered
from tiny_models import ModelMaker

from cuvil_assets.cli import main


@pytest.fixture(scope="session")
def delivered(
    home_maker: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory, tiny_model: ModelMaker, tiny_policy: Path
) -> Delivered:
    """An engine built for x86-64 by the command line itself."""
    home, folder = home_maker(), tmp_path_factory.mktemp("delivered")
    engine = folder / "inference-engine.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_HOME", str(home))
        words = ["build", "--model", str(tiny_model()), "--policy", str(tiny_policy), "--target", "x86_64-linux-musl"]
        assert main([*words, "--output", str(engine), "--equivalence-inputs", "4"]) == 0
    return Delivered(home, engine, engine.with_name("inference-engine.proof.json"))


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """``cli(words...)`` to ``(exit code, standard output, standard error)``."""

    def call(*words: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture
def cli_json(cli: Cli) -> Callable[..., tuple[int, dict[str, object]]]:
    """The same with ``--json``; asserts that standard output is one object and nothing else was said."""

    def call(*words: str | Path) -> tuple[int, dict[str, object]]:
        code, out, err = cli(*words, "--json")
        assert err == ""
        document = json.loads(out)
        assert isinstance(document, dict)
        return code, document

    return call
