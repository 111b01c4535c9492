"""gcc as a second compiler: an engine built with it must give the same bits. It makes no released engine."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.stage import Json
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain.driver import BuildKind, Driver
from compiler_kernels.toolchain.sealed import file_sha256


@lru_cache(maxsize=4)
def _version(path: str) -> str:
    done = subprocess.run([path, "-dumpfullversion"], capture_output=True, timeout=60, check=True)
    return done.stdout.decode().strip()


def find_gcc(target: Target) -> Path | None:
    """The gcc on PATH that compiles for the target's processor, or ``None``."""
    names = [target.gcc_name] + (["gcc"] if platform.machine() == target.machine else [])
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return Path(path)
    return None


class GccDriver(Driver):
    """gcc with the system's C library (glibc on most machines), linked statically."""

    name = "gcc"
    links_malloc = True

    def compiler(self, target: Target) -> Path:
        path = find_gcc(target)
        if path is None:
            raise UnsupportedError(
                f"there is no gcc for {target.triple} on PATH: install {target.gcc_name}, or leave out the comparison "
                "with gcc"
            )
        return path

    def identity(self, target: Target) -> dict[str, Json]:
        path = self.compiler(target)
        return {"name": "gcc", "version": _version(str(path)), "sha256": file_sha256(path.resolve())}

    def target_flags(self, target: Target, generated: bool, isa: Isa | None = None) -> list[str]:
        arch = (isa.gcc_arch if isa else "") or (target.gcc_arch if generated else target.gcc_baseline)
        return [f"-march={arch}"]

    def link_flags(self, kind: BuildKind, target: Target) -> list[str]:
        if target.gpu:
            return [*(["-shared"] if kind == "so" else []), "-ldl", "-Wl,--build-id=none", "-Wl,--gc-sections"]
        if kind == "so":
            return ["-shared", "-nostdlib", "-Wl,--build-id=none", "-Wl,--gc-sections"]
        return ["-static", "-no-pie", "-Wl,--build-id=none", "-Wl,--gc-sections"]
