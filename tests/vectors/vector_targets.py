"""Ways to compile and run the program of all vectors."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.targets.isa import AVX2, AVX512, NEON, SCALAR, Isa
from compiler_kernels.targets.registry import AARCH64_LINUX_MUSL, X86_64_LINUX_MUSL, runner
from compiler_kernels.toolchain.sources import RUNTIME_DIRECTORY
from compiler_kernels.toolchain.zig import zig_cache, zig_executable

FLAGS = ("-std=c11", "-O2", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-lto")


@dataclass(frozen=True)
class Way:
    """One compiler, processor and instruction set. ``run`` None: through wasmtime."""

    name: str
    isa: Isa
    compiler: tuple[str, ...]
    run: tuple[str, ...] | None


def _flags_of_this_cpu() -> str:
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""


def ways() -> list[Way]:
    """What this machine can compile and run; qemu and gcc where they are installed."""
    zig = (str(zig_executable()), "cc")
    x86 = (*zig, "-target", "x86_64-linux-musl", "-static")
    arm = (*zig, "-target", "aarch64-linux-musl", "-mcpu=generic", "-static")
    found = []
    native = runner(X86_64_LINUX_MUSL)
    if native is not None:
        found.append(Way("x86-64 scalar", SCALAR, (*x86, "-mcpu=x86_64_v3"), native))
        found.append(Way("x86-64 AVX2", AVX2, (*x86, "-mcpu=x86_64_v3"), native))
        if "avx512dq" in _flags_of_this_cpu() and native == ():
            found.append(Way("x86-64 AVX-512", AVX512, (*x86, "-mcpu=x86_64_v4"), native))
        if shutil.which("gcc") and native == ():
            found.append(Way("x86-64 gcc AVX2", AVX2, ("gcc", "-march=x86-64-v3"), native))
    emulated = runner(AARCH64_LINUX_MUSL)
    if emulated is not None:
        found.append(Way("aarch64 scalar", SCALAR, arm, emulated))
        found.append(Way("aarch64 NEON", NEON, arm, emulated))
    found.append(Way("wasm32 with soft fma", SCALAR, (*zig, "-target", "wasm32-wasi"), None))
    return found


def compile_program(files: dict[str, bytes], way: Way, directory: Path) -> Path:
    """Compile ``files`` in ``directory`` with the product's flags; ``AssertionError`` with the first messages."""
    for name, data in files.items():
        (directory / name).write_bytes(data)
    caches = {"ZIG_LOCAL_CACHE_DIR": str(directory / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(zig_cache())}
    environment = {**os.environ, **caches}
    product = directory / "vectors.bin"
    sources = sorted(name for name in files if name.endswith(".c"))
    words = [*way.compiler, *FLAGS, "-I", str(RUNTIME_DIRECTORY), *sources, "-o", str(product)]
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    return product


def run_program(product: Path, way: Way, data: bytes, directory: Path) -> bytes:
    """Standard output of the program fed with ``data``."""
    if way.run is None:
        return _run_wasm(product, data, directory)
    done = subprocess.run([*way.run, str(product)], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[:500]
    return done.stdout


def _run_wasm(product: Path, data: bytes, directory: Path) -> bytes:
    import wasmtime

    (directory / "input").write_bytes(data)
    engine = wasmtime.Engine()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    wasi = wasmtime.WasiConfig()
    wasi.stdin_file = str(directory / "input")
    wasi.stdout_file = str(directory / "output")
    store.set_wasi(wasi)
    instance = linker.instantiate(store, wasmtime.Module(engine, product.read_bytes()))
    start = instance.exports(store)["_start"]
    assert isinstance(start, wasmtime.Func)
    try:
        start(store)
    except wasmtime.ExitTrap as exit_:
        assert exit_.code == 0, f"exit code {exit_.code}"
    return (directory / "output").read_bytes()


def names(items: Sequence[Way]) -> list[str]:
    return [way.name for way in items]
