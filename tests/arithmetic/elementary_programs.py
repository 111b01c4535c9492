"""Builds and runs the C test programs of the elementary functions; fixtures shared by the test modules beside it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RUNTIME = ROOT / "compiler_kernels" / "runtime"
FLAGS = ["-O2", "-g0", "-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno"]
X86_V3 = ["-target", "x86_64-linux-musl", "-mcpu=x86_64_v3"]
X86_V1 = ["-target", "x86_64-linux-musl", "-mcpu=x86_64"]
ARM = ["-target", "aarch64-linux-musl", "-static"]
WASM = ["-target", "wasm32-wasi"]
NAMES = (
    "exp log erf tanh sigmoid sqrt reciprocal pow softplus elu hard_swish gelu gelu_tanh mish leaky_relu relu max min "
    "maxn minn fma div mul_sub exp_nonpositive exp_core"
).split()

Floats = npt.NDArray[np.float32]
Build = Callable[..., Path]
Apply = Callable[..., Floats]

CPU = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
needs_v3 = pytest.mark.skipif(" avx2" not in CPU or " fma" not in CPU, reason="this CPU has no AVX2 and FMA")
needs_v4 = pytest.mark.skipif(" avx512f" not in CPU or " avx512dq" not in CPU, reason="this CPU has no AVX-512")


def needs_fma() -> None:
    """Skips where the x86-64-v3 programs cannot run in this process or on this CPU."""
    if " fma" not in CPU or " avx2" not in CPU:
        pytest.skip("the reference build is x86-64-v3, which this CPU cannot run")


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles one test program, once for each set of flags; every build gets its own empty local zig cache."""
    place = tmp_path_factory.mktemp("elementary")
    done: dict[tuple[str, ...], Path] = {}

    def run(source: str, *flags: str, compiler: str = "zig") -> Path:
        key = (source, compiler, *flags)
        if key not in done:
            command = [sys.executable, "-m", "ziglang", "cc"] if compiler == "zig" else [compiler]
            output = place / f"program{len(done)}"
            with tempfile.TemporaryDirectory(dir=place) as cache:
                result = subprocess.run(
                    [*command, *FLAGS, *flags, f"-I{RUNTIME}", str(HERE / source), "-o", str(output), "-lm"],
                    env={**os.environ, "ZIG_LOCAL_CACHE_DIR": cache},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            assert result.returncode == 0, result.stderr
            done[key] = output
        return done[key]

    return run


def output(*command: object) -> str:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def measure(program: Path, function: str, first: int, last: int, step: int) -> tuple[float, int, int]:
    worst, _, wrong, tested = output(program, function, first, last, step).split()
    return float(worst), int(wrong), int(tested)


@pytest.fixture(scope="session")
def apply(build: Build) -> Apply:
    """``apply(name, x, y=0, z=0, width=1)`` runs one C function over arrays of binary32 in this process."""
    needs_fma()
    library = ctypes.CDLL(
        str(build("elementary_probe.c", "-target", "x86_64-linux-gnu", *X86_V3[2:], "-shared", "-fPIC"))
    )
    pointer = np.ctypeslib.ndpointer(np.float32, flags="C")
    library.probe_apply.argtypes = [ctypes.c_int, ctypes.c_int, *[pointer] * 4, ctypes.c_long]

    def run(name: str, x: npt.ArrayLike, y: npt.ArrayLike = 0, z: npt.ArrayLike = 0, width: int = 1) -> Floats:
        shape = np.broadcast_shapes(np.shape(x), np.shape(y), np.shape(z))
        count = -(-int(np.prod(shape)) // 16) * 16
        padded = [np.zeros(count, np.float32) for _ in range(3)]
        for buffer, value in zip(padded, (x, y, z), strict=True):
            buffer[: int(np.prod(shape))] = np.broadcast_to(np.asarray(value, np.float32), shape).ravel()
        result = np.empty(count, np.float32)
        assert library.probe_apply(NAMES.index(name), width, *padded, result, count) == 0
        return result[: int(np.prod(shape))].reshape(shape)

    return run


def bits(values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """Patterns, NaN made canonical."""
    array = np.atleast_1d(np.asarray(values, np.float32))
    return np.where(np.isnan(array), np.uint32(0x7FC00000), array.view(np.uint32))


def floats(*patterns: int) -> Floats:
    return np.array(patterns, np.uint32).view(np.float32)
