"""Running a compiler: a session of its own, a fixed environment and umask, a time limit, one sentence when it fails."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from compiler_kernels.errors import CuvilError


@lru_cache(maxsize=8)
def _digest_of(path: str, size: int, modified: int) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file, computed once per process unless its size or time of modification changes."""
    state = path.stat()
    return _digest_of(str(path), state.st_size, state.st_mtime_ns)


def first_error(output: str) -> str:
    """The first line of a compiler's output that reports an error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[-1] if lines else "no message")


def run_sealed(command: Sequence[str], directory: Path, environment: Mapping[str, str], timeout: float) -> str:
    """Run a compiler and return its messages; ``CuvilError`` when it fails or takes longer than ``timeout`` seconds.

    The command gets a session of its own so that a timeout ends its children too.
    """
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=dict(environment),
        umask=0o022,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        raw, _ = process.communicate(timeout=timeout)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CuvilError(
                f"the C compiler did not finish in {timeout:g} s: try again on a less loaded machine, and report it as "
                "a defect of Cuvil if it stays"
            ) from error
        raise
    output = raw.decode("utf-8", "replace").replace(str(directory), ".")
    if process.returncode != 0:
        raise CuvilError(
            f"the C compiler refused what Cuvil generated ({first_error(output)}): this is a defect of Cuvil, please "
            "report it with the model"
        )
    return output
