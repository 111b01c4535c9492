"""What is committed is what SUSHI makes of the source (`make test-sushi`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "sushi.py"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="SUSHI needs Node with npm")
def test_sushi_makes_what_is_committed(tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.mktemp("sushi")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check", "--cache", cache], capture_output=True, text=True, timeout=600
    )
    if done.returncode not in (0, 1) or "npm" in done.stderr:
        pytest.skip(f"fsh-sushi or its packages could not be had: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
