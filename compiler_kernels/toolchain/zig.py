"""The compiler every engine is built with: clang, lld and musl from the ``ziglang`` distribution.

Two cache directories matter. The global one holds libc, compiled once per target and processor (about a minute) and
kept under $CUVIL_HOME. The local one is fresh and empty for every build: zig 0.17 does not notice a changed file behind
``.incbin``, and returned the objects of another directory for equal relative command lines.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.stage import Json
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain.driver import BuildKind, Driver
from compiler_kernels.toolchain.sealed import file_sha256


def cuvil_home() -> Path:
    """The user's Cuvil directory: $CUVIL_HOME, else ~/.cuvil."""
    return Path(os.environ.get("CUVIL_HOME") or Path.home() / ".cuvil").expanduser().absolute()


def zig_cache() -> Path:
    """Where compiled C libraries are kept: $CUVIL_ZIG_CACHE, else $CUVIL_HOME/zig-cache."""
    override = os.environ.get("CUVIL_ZIG_CACHE")
    return Path(override).expanduser().absolute() if override else cuvil_home() / "zig-cache"


@lru_cache(maxsize=1)
def zig_executable() -> Path:
    """The ``zig`` program inside the installed ``ziglang`` distribution, never one from PATH; else ``UsageError``."""
    spec = importlib.util.find_spec("ziglang")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        for name in ("zig", "zig.exe"):
            if (Path(directory) / name).is_file():
                return Path(directory).resolve() / name
    raise UsageError("the C compiler is not installed: run pip install ziglang==0.17.1, on which Cuvil depends")


@lru_cache(maxsize=4)
def _ask(*words: str) -> str:
    """The first line zig prints for a question such as ``version``."""
    environment = {"PATH": os.defpath, "LC_ALL": "C", "ZIG_GLOBAL_CACHE_DIR": str(zig_cache())}
    try:
        done = subprocess.run(
            [str(zig_executable()), *words], env=environment, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CuvilError(
            f"the C compiler {zig_executable()} does not run on this machine ({error}): reinstall ziglang==0.17.1"
        ) from error
    return done.stdout.decode().splitlines()[0]


def zig_version() -> str:
    """Zig's own version, for example "0.17.1"."""
    return _ask("version")


def clang_version() -> str:
    """The version of the clang inside zig, for example "22.1.8"."""
    match = re.search(r"clang version (\S+)", _ask("cc", "--version"))
    if match is None:
        raise CuvilError("zig cc reports no clang version: reinstall ziglang==0.17.1")
    return match[1]


class ZigDriver(Driver):
    """``zig cc`` as a compiler of static musl executables, shared and static libraries."""

    name = "zig"

    def compiler(self, target: Target) -> Path:
        return zig_executable()

    def identity(self, target: Target) -> dict[str, Json]:
        return {
            "name": "zig",
            "version": zig_version(),
            "clang": clang_version(),
            "sha256": file_sha256(zig_executable()),
        }

    def command(self, target: Target) -> list[str]:
        return [str(zig_executable()), "cc"]

    def archiver(self, target: Target) -> list[str]:
        return [str(zig_executable()), "ar"]

    def target_flags(self, target: Target, generated: bool, isa: Isa | None = None) -> list[str]:
        cpu = (isa.zig_cpu if isa else "") or (target.zig_cpu if generated else target.zig_baseline)
        return ["-target", target.zig_triple, f"-mcpu={cpu}"]

    def link_flags(self, kind: BuildKind, target: Target) -> list[str]:
        if target.gpu:  # the driver's library is loaded at run time by the system's loader
            return [*(["-shared"] if kind == "so" else []), "-ldl", "-Wl,--build-id=none", "-Wl,--gc-sections"]
        if kind == "so":
            return ["-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,--gc-sections"]
        return ["-static", "-Wl,--build-id=none", "-Wl,--gc-sections"]

    def map_flags(self, kind: BuildKind) -> list[str]:
        # zig 0.17 refuses -Map=FILE ("unsupported linker arg"); lld prints the same table with --print-map.
        return ["-Wl,--print-map"] if kind == "bin" else []

    def environment(self, directory: Path) -> dict[str, str]:
        cache = zig_cache()
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot create the compiler's cache {cache}: {error.strerror}; set CUVIL_HOME to a writable directory"
            ) from error
        return {
            **super().environment(directory),
            "ZIG_LOCAL_CACHE_DIR": str(directory / "zig-local-cache"),
            "ZIG_GLOBAL_CACHE_DIR": str(cache),
        }


def warm(targets: Iterable[Target], progress: Callable[[str], None] = lambda line: None) -> None:
    """Compile the C library of each target into the cache, so that the first build of an engine takes seconds.

    Targets are compiled side by side (zig compiles one library on one core). Uses the commands of a real build, as the
    cache distinguishes their flags. Raises what ``Driver.build`` raises.
    """
    driver = ZigDriver()

    def prepare(target: Target) -> None:
        progress(f"preparing the C library for {target.triple} (about a minute the first time)")
        driver.build({"cuvil_main.c": b"int main(void) { return 0; }\n"}, target)
        driver.build({"engine.c": b"int cuvil_engine_instance = 0;\n"}, target, "so")

    with ThreadPoolExecutor(max_workers=2) as pool:
        for done in [pool.submit(prepare, target) for target in targets]:
            done.result()
