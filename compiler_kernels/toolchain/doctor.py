"""What this machine offers for building and running engines, as rows for ``cuvil doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.registry import ALIASES, GPU_TARGETS, TARGETS, gpu_for, grade, runner
from compiler_kernels.toolchain import triton
from compiler_kernels.toolchain.gcc import find_gcc
from compiler_kernels.toolchain.nvcc import REMEDY, VERSION, find_nvcc, version_of
from compiler_kernels.toolchain.zig import clang_version, zig_cache, zig_version


@dataclass(frozen=True)
class CheckRow:
    """One line of the report; ``status`` is "missing" only for what Cuvil cannot work without."""

    name: str
    status: Literal["ok", "optional", "missing"]
    detail: str


def _gpu_rows() -> list[CheckRow]:
    path = find_nvcc()
    version = version_of(path) if path is not None else ""
    usable = version == VERSION
    said = f"{path}, version {version}" if path is not None else "not found"
    rows = [CheckRow("nvcc", "ok" if usable else "optional", said if usable else f"{said}; for GPU targets {REMEDY}")]
    found = triton.installed_version()
    said = f"version {found}" if found else "not found"
    usable = found == triton.VERSION
    said = said if usable else f"{said}; for a policy with gpu.kernels: triton {triton.REMEDY.partition(',')[0]}"
    rows.append(CheckRow("triton", "ok" if usable else "optional", said))
    for target in GPU_TARGETS.values():
        gpu = gpu_for(target)
        how = (
            f"runs here on {gpu}" if gpu else "cannot run here: nvidia-smi lists no such GPU; its kernels are emulated"
        )
        rows.append(CheckRow(f"target {target.triple}", "ok" if gpu else "optional", f"{target.gpu}; {how}"))
    return rows


def doctor() -> list[CheckRow]:
    """Compiler, targets and how each can be run here, aliases, and optional tools. Never raises for a missing tool."""
    rows: list[CheckRow] = []
    try:
        rows.append(CheckRow("compiler", "ok", f"zig {zig_version()} with clang {clang_version()}"))
    except CuvilError as error:
        rows.append(CheckRow("compiler", "missing", str(error)))
    cached = "filled" if (zig_cache() / "o").is_dir() else "empty: the first build compiles the C library"
    rows.append(CheckRow("compiler cache", "ok", f"{zig_cache()} ({cached})"))
    for target in TARGETS.values():
        words = runner(target)
        how = "cannot run here: install " + " or ".join(target.qemu_programs)
        if words is not None:
            how = f"runs here by {' '.join(words)}" if words else "runs here natively"
        detail = f"{target.cpu}; {how}; results are graded {grade(target)!r}"
        rows.append(CheckRow(f"target {target.triple}", "ok" if words is not None else "optional", detail))
    rows += _gpu_rows()
    rows += [CheckRow(f"alias {name}", "ok", note) for name, (_, note) in ALIASES.items()]
    for target in TARGETS.values():
        path = find_gcc(target)
        found = (
            str(path)
            if path is not None
            else f"not found ({target.gcc_name}); only the comparison of compilers needs it"
        )
        rows.append(CheckRow(f"gcc for {target.machine}", "ok" if path is not None else "optional", found))
    return rows
