"""The machine of a run of the evidence on a GPU, and the digests of the text it ran."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from typing import Any, Final

from benchmarks import gpu_engines
from compiler_kernels.stages.base import source_digest
from compiler_kernels.targets.cuda.tuning import tuning_digest
from compiler_kernels.toolchain import nvcc

SAME: Final = ("gpus", "nvcc", "c_compiler", "torch", "kernel")
"""What of a machine must be the same for a command to complete the report of another."""


def machine() -> dict[str, Any]:
    """Date, chip, driver, compilers."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,ecc.mode.current"]
    try:
        smi = subprocess.run([*words, "--format=csv,noheader"], capture_output=True, text=True, timeout=60, check=True)
        gpus = [line.strip() for line in smi.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError):
        gpus = []
    try:
        import torch

        version, cuda = torch.__version__, torch.version.cuda
    except ImportError:
        version = cuda = None
    path = nvcc.find_nvcc()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpus": gpus,
        "nvcc": nvcc.version_of(path) if path else None,
        "c_compiler": gpu_engines.c_driver().name,
        "torch": version,
        "torch_cuda": cuda,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
    }


def sources() -> dict[str, str]:
    """Digests that name the text of the compiler, of the reference and of these scripts, and the tuning tables."""
    packages = ("compiler_kernels", "evidence", "benchmarks")
    return {**{name: source_digest(name) for name in packages}, "tuning": tuning_digest()}
