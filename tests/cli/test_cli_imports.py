"""The command line starts quickly: what a command does not need is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("dagster", "torch", "onnx", "numpy", "onnxruntime", "pydantic", "sqlalchemy")


def loaded_by(program: str) -> set[str]:
    code = f"{program}\nimport sys\nprint(*sorted({{m.partition('.')[0] for m in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "program",
    [
        "import cuvil_assets.cli",
        "from cuvil_assets.cli import main; main(['--version'])",
        "import cuvil_assets.cli.app, cuvil_assets.cli.outcome",
    ],
)
def test_nothing_heavy_for_the_command_line_itself(program: str) -> None:
    assert not loaded_by(program) & set(HEAVY)


def test_verify_needs_neither_dagster_nor_the_compiler() -> None:
    loaded = loaded_by("from cuvil_assets.cli import main; main(['verify', '/nonexistent'])")
    assert not loaded & {"dagster", "torch", "onnx", "numpy", "onnxruntime"}
