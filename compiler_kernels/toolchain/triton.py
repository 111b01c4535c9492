"""Triton: the second compiler of GPU kernels (docs/gpu.md). kernels_triton.py becomes PTX that joins nvcc's.

The version is pinned like nvcc's, and no GPU is needed. The PTX goes through the same gate and the same ptxas. The same
text gives the same bytes in any folder: Triton keeps no line information here, and its cache is a folder of the build.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.ptx_gate import gate
from compiler_kernels.targets.triton.text import MOST_SHARED
from compiler_kernels.toolchain.sealed import file_sha256, run_sealed

VERSION: Final = "3.6.0"
PTX_VERSION: Final = 86
"""Of the PTX that Triton writes: the highest its LLVM knows."""
OPTIONS: Final = ("enable_fp_fusion=False", "enable_reflect_ftz=False", f"ptx_version={PTX_VERSION}")
TRITON_FILE: Final = "kernels_triton.py"
"""What the generated files of an engine have where the policy asks for Triton."""
CHILD: Final = Path(__file__).with_name("triton_child.py")
REMEDY: Final = f"run pip install 'cuvil[triton]', which has Triton {VERSION}, or take gpu.kernels out of the policy"
_ENTRY: Final = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
_SHARED: Final = "global_smem"


@dataclass(frozen=True)
class TritonPtx:
    """PTX without its header, to stand behind nvcc's, and the facts of the build report."""

    text: str
    facts: dict[str, Json]


def installed_version() -> str:
    """Version of the installed Triton; empty without one."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return ""


def require_triton() -> None:
    """``UnsupportedError`` when Triton is not installed, ``UsageError`` when it is another version."""
    found = installed_version()
    if not found:
        raise UnsupportedError(f"gpu.kernels of the policy is triton, which is not installed: {REMEDY}")
    if found != VERSION:
        raise UsageError(
            f"Triton {found} is installed, and engines are compiled by Triton {VERSION}, so that anyone gets the same "
            f"bytes: {REMEDY}"
        )


def options_digest() -> str:
    """SHA3-512 over version and options: part of the compile configuration of an engine with Triton kernels."""
    return sha3_512_hex("\0".join((VERSION, *OPTIONS)).encode())


def compile_triton(source: bytes, gpu: Gpu, timeout: float = 1800.0) -> TritonPtx:
    """Compile the text of kernels_triton.py for ``gpu``.

    Raises what :func:`require_triton` raises, and ``CuvilError`` when Triton refuses the text or makes a kernel that
    the engine's host library cannot launch (both defects of Cuvil).
    """
    require_triton()
    with tempfile.TemporaryDirectory(prefix="cuvil-triton-") as root:
        folder = Path(root) / "src"
        folder.mkdir()
        (folder / TRITON_FILE).write_bytes(source)
        arch = gpu.name.removeprefix("sm_")
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": root,
            "TMPDIR": root,
            "LC_ALL": "C",
            "TRITON_CACHE_DIR": f"{root}/cache",
            "TRITON_DISABLE_LINE_INFO": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = [sys.executable, "-I", str(CHILD), TRITON_FILE, arch, str(PTX_VERSION), str(_library().parents[2])]
        run_sealed(words, folder, environment, timeout)
        made: Mapping[str, Mapping[str, int]] = json.loads((folder / "kernels.json").read_bytes())
        bodies = {name: (folder / f"{name}.ptx").read_text("utf-8") for name in made}
    parts = [placed(name, bodies[name], made[name]) for name in made]
    kernels: dict[str, Json] = {
        name: {"shared_bytes": fact["shared"], "threads": 32 * fact["warps"], "ptx_instructions": {**gate(part).counts}}
        for (name, fact), part in zip(made.items(), parts, strict=True)
    }
    facts: dict[str, Json] = {
        "name": "triton",
        "version": VERSION,
        "sha256": file_sha256(_library()),
        "options": list(OPTIONS),
        "kernels": kernels,
    }
    return TritonPtx("\n".join(parts), facts)


def _library() -> Path:
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "_C" / "libtriton.so"


def placed(name: str, ptx: str, facts: Mapping[str, int]) -> str:
    """The entry of one module of Triton's, with shared memory of its own: the ``.extern`` one of Triton's would need a
    size at every launch."""
    begins = [found for found in _ENTRY.finditer(ptx) if found[1] == name]
    others = re.findall(r"^\.(?:visible |weak )?\.?(?:entry|func) .*", ptx, re.MULTILINE)
    if len(begins) != 1 or len(others) != 1:
        raise CuvilError(f"Triton made {len(others)} functions of kernel {name}: this is a defect of Cuvil")
    if facts["scratch"] or facts["shared"] > MOST_SHARED:
        raise CuvilError(
            f"Triton kernel {name} needs {facts['shared']} bytes of shared memory and {facts['scratch']} of scratch "
            "memory, which the engine does not give: this is a defect of Cuvil"
        )
    text = ptx[begins[0].start() :]
    own = f"{name}_shared"
    declared = ""
    if re.search(rf"\b{_SHARED}\b", text):
        declared = f".shared .align 16 .b8 {own}[{max(16, facts['shared'])}];\n"
        text = re.sub(rf"\b{_SHARED}\b", own, text)
    if re.search(r"_\$_str", text):
        raise CuvilError(f"Triton kernel {name} reads a constant outside of it: this is a defect of Cuvil")
    return declared + text
