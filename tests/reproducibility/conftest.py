"""One small engine for all tests, built by the command line, and what its proof records."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rebuild_case import Delivered
from tiny_models import ModelMaker

from compiler_kernels.toolchain.zig import zig_executable
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


@pytest.fixture
def wrapper(tmp_path: Path, delivered: Delivered, monkeypatch: pytest.MonkeyPatch) -> int:
    """A compiler that changes one byte of a weight in every engine it links; the byte's offset."""
    weights = delivered.store.find(delivered.recorded.expected["generated_source"]["engine_weights.bin"])
    assert weights is not None
    offset = delivered.engine.read_bytes().find(weights) + 7
    package = tmp_path / "plant" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    script = package / "zig"
    script.write_text(
        f"#!{sys.executable} -IS\n"
        "import subprocess, sys\n"
        f"code = subprocess.call([{str(zig_executable())!r}, *sys.argv[1:]])\n"
        "if code == 0 and sys.argv[-2:] == ['-o', 'engine']:\n"
        "    with open('engine', 'r+b') as stream:\n"
        f"        stream.seek({offset})\n"
        "        byte = stream.read(1)[0] ^ 1\n"
        f"        stream.seek({offset})\n"
        "        stream.write(bytes([byte]))\n"
        "sys.exit(code)\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plant"))
    return offset
