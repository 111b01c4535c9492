"""What the demonstration does with an engine: run it by itself, and compare its result with onnxruntime's."""

from __future__ import annotations

import importlib
import io
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UnsupportedError, UsageError, VerificationFailed
from compiler_kernels.stage import Json
from cuvil_assets.files import write_atomic

Tensor = NDArray[np.float32]
_TIME_LIMIT_S = 300
_TARGETS = {"x86_64": "x86_64-linux-musl", "amd64": "x86_64-linux-musl"} | dict.fromkeys(
    ("aarch64", "arm64"), "aarch64-linux-musl"
)


def native_target() -> str:
    """Target triple whose engines run on this machine; ``UnsupportedError`` when there is none."""
    target = _TARGETS.get(platform.machine().lower())
    if not sys.platform.startswith("linux") or target is None:
        raise UnsupportedError(
            f"the demonstration runs its engine, and no target runs on this machine ({platform.system()} "
            f"{platform.machine()}); use Linux on x86-64 or aarch64"
        )
    return target


def write_file(path: Path, data: bytes) -> None:
    """Write all of ``data`` or nothing; ``UsageError`` when that fails."""
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); give a directory you can write to") from None


def npy_bytes(array: Tensor) -> bytes:
    """The .npy file of ``array``."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def run_engine(engine: Path, input_name: str, input_file: Path, output_name: str, folder: Path) -> bytes:
    """Run ``ENGINE --input NAME=FILE --output-dir FOLDER`` as a process; bytes of ``FOLDER/OUTPUT.npy``.

    ``VerificationFailed`` (check ``engine-run``) with the engine's own sentence when it does not end with exit code 0.
    """
    # an absolute path: a bare file name would be looked up in PATH
    command = [str(engine.resolve()), "--input", f"{input_name}={input_file}", "--output-dir", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    except OSError as error:
        raise VerificationFailed("engine-run", f"{engine}: the engine does not start ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise VerificationFailed("engine-run", f"{engine}: the engine ran past {_TIME_LIMIT_S} s") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or "no message"
        raise VerificationFailed("engine-run", f"{engine}: the engine ended with exit code {done.returncode}: {said}")
    result = folder / f"{output_name}.npy"
    try:
        return result.read_bytes()
    except OSError as error:
        raise VerificationFailed("engine-run", f"{result}: the engine wrote no result ({error.strerror})") from None


def run_twice(engine: Path, input_name: str, input_file: Path, output_name: str, folder: Path) -> Tensor:
    """Run into ``FOLDER/run-1`` and ``run-2``; the float32 result, whose two files must be equal byte for byte.

    ``VerificationFailed`` with check ``repeatability`` when they are not.
    """
    first, second = (
        run_engine(engine, input_name, input_file, output_name, folder / name) for name in ("run-1", "run-2")
    )
    if first != second:
        raise VerificationFailed("repeatability", f"{engine}: two runs on {input_file} wrote different bytes")
    values: Tensor = np.load(io.BytesIO(first), allow_pickle=False)
    return values


def compare_with_onnxruntime(
    model: Path, input_name: str, rgb: Tensor, vessel: Tensor, threshold: float
) -> dict[str, Json] | None:
    """``version``, largest absolute difference and number of mask pixels that differ; ``None`` without onnxruntime.

    A comparison only: onnxruntime is another implementation with its own rounding, not the standard to meet.
    """
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    other: Tensor = session.run(None, {input_name: rgb})[0]
    return {
        "version": str(runtime.__version__),
        "max_abs_difference": float(np.max(np.abs(other.astype(np.float64) - vessel.astype(np.float64)))),
        "mask_pixels_that_differ": int(np.count_nonzero((other > threshold) != (vessel > threshold))),
        "mask_pixels": int(vessel.size),
    }
