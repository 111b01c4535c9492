"""Running a converter in a process of its own: a user's code, or an exporter with other dependencies than ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_kernels.doors.converted import read_refusal
from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json


def run_child(
    command: Sequence[str], request: Mapping[str, Json], name: str, environment: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, Json]]:
    """Model bytes and facts from ``command ANSWER-FOLDER``, which reads ``request`` on standard input.

    What the child prints goes nowhere unless it dies; then its last line is in the sentence. ``UsageError`` or
    ``UnsupportedError`` as the child refused, ``UsageError`` naming ``name`` when it ended without an answer.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
    settings = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path, **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="cuvil-door-") as text:
        folder = Path(text)
        try:
            done = subprocess.run(
                [*command, str(folder)],
                input=json.dumps(request).encode(),
                env=settings,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except OSError as error:
            raise UsageError(f"{command[0]}: cannot be started ({error.strerror}); give a Python interpreter") from None
        refusal = read_refusal(folder)
        if refusal is not None:
            raise refusal
        try:
            facts = json.loads((folder / "facts.json").read_text())
            return (folder / "model.onnx").read_bytes(), facts
        except OSError:
            lines = [line.strip() for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
            last = lines[-1][:300] if lines else "it printed nothing"
            raise UsageError(
                f"{name}: the process that converts it ended with {done.returncode} and without a model ({last})"
            ) from None


def python_child(module: str) -> list[str]:
    """The command that runs ``module`` of this package with this interpreter."""
    # -P: a file of the current folder must not stand in for a module of the same name
    return [sys.executable, "-P", "-m", f"compiler_kernels.doors.{module}"]
