"""nvcc: CUDA C++ to PTX, the gate on the PTX, and PTX to the code that an engine embeds.

The version is pinned like every compiler here: another one gives other bytes. No GPU is needed. The same text gives the
same bytes in any folder, because no line information is kept.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.ptx_gate import gate
from compiler_kernels.toolchain.sealed import file_sha256, first_error, run_sealed

VERSION: Final = "13.0.88"
# The first four keep the arithmetic as it is written (docs/arithmetic.md); -O3 moves and unrolls.
FLAGS: Final = (
    "-fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-std=c++17",
    "-O3",
)
# nvcc puts digests of the folder's path into the names of static functions (-frandom-seed does not change them).
_INTERNAL: Final = re.compile(rb"_INTERNAL_[0-9a-f]{8}_(\d+_kernels_cu)_[0-9a-f]{8}")
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
REMEDY: Final = f"run pip install 'cuvil[cuda]', which has nvcc {VERSION}, or put it on PATH"


@lru_cache(maxsize=1)
def find_nvcc() -> Path | None:
    """nvcc of the installed ``nvidia-cuda-nvcc`` distribution, of $CUDA_HOME, on PATH or below /usr/local/cuda."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(p) / "cu13" / "bin" for p in (spec.submodule_search_locations or [])] if spec else []
    if os.environ.get("CUDA_HOME"):
        places.append(Path(os.environ["CUDA_HOME"]) / "bin")
    on_path = shutil.which("nvcc")
    if on_path:
        places.append(Path(on_path).parent)
    places.append(Path("/usr/local/cuda/bin"))
    for folder in places:
        path = folder / "nvcc"
        if path.is_file() and os.access(path, os.X_OK) and version_of(path):
            return path
    return None


@lru_cache(maxsize=8)
def version_of(nvcc: Path) -> str:
    """Version such as "13.0.88"; empty where the program does not run."""
    try:
        done = subprocess.run([str(nvcc), "--version"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout.decode("utf-8", "replace"))
    return found[1] if found else ""


def require_nvcc() -> Path:
    """The pinned nvcc. ``UnsupportedError`` when there is none, ``UsageError`` when it is another version."""
    path = find_nvcc()
    if path is None:
        raise UnsupportedError(f"engines for NVIDIA GPUs are compiled by nvcc, which is not installed: {REMEDY}")
    if version_of(path) != VERSION:
        raise UsageError(
            f"{path} is nvcc {version_of(path)}, and engines are compiled by nvcc {VERSION}, so that anyone gets the "
            f"same bytes: {REMEDY}"
        )
    return path


@lru_cache(maxsize=8)
def programs_of(nvcc: Path) -> dict[str, str]:
    """SHA-256 of the programs that make the code: nvcc itself, cicc and ptxas. ``nvcc`` on PATH may be a script that
    starts the one of a toolkit elsewhere; where that is says its dry run. ``CuvilError`` when it does not."""
    done = subprocess.run([str(nvcc), "--dryrun", "-cubin", "x.ptx"], capture_output=True, text=True, check=False)
    said = dict(re.findall(r"^#\$ (_HERE_|CICC_PATH)=(.+)$", done.stderr, re.MULTILINE))
    if len(said) != 2:
        raise CuvilError(f"{nvcc} --dryrun does not say where cicc and ptxas are: {first_error(done.stderr)}")
    here = Path(said["_HERE_"])
    found = {"cicc": Path(said["CICC_PATH"]) / "cicc", "nvcc": here / "nvcc", "ptxas": here / "ptxas"}
    return {name: file_sha256(path.resolve()) for name, path in found.items()}


def included(sources: Mapping[str, bytes], name: str) -> dict[str, bytes]:
    """``name`` of ``sources`` and every header of them that it includes, directly or not."""
    found: dict[str, bytes] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found or one not in sources:
            continue
        found[one] = sources[one]
        waiting += re.findall(r'^\s*#\s*include\s+"([^"]+)"', sources[one].decode("utf-8", "replace"), re.MULTILINE)
    return dict(sorted(found.items()))


def flags_digest() -> str:
    """SHA3-512 over compiler version and flags: part of the compile configuration of every GPU engine."""
    return sha3_512_hex("\0".join((VERSION, *FLAGS)).encode())


def compile_cuda(
    sources: Mapping[str, bytes], gpu: Gpu, name: str = "kernels.cu", timeout: float = 1800.0, more: str = ""
) -> tuple[dict[str, bytes], dict[str, Json]]:
    """Compile ``name`` of ``sources`` (with the headers it includes) for ``gpu``: images by file name, and the report.

    ``kernels.cubin`` is code for the chip; chips before sm_90 also get ``kernels.ptx``, which drivers of later chips
    compile. ``more`` is PTX of another compiler that joins nvcc's before the gate. Raises ``CuvilError`` when the
    compiler refuses the text or the gate the PTX (both defects of Cuvil), and
    ``UnsupportedError`` without nvcc or the g++ that it calls.
    """
    nvcc = require_nvcc()
    if shutil.which("g++", path=SYSTEM_PATH) is None:
        raise UnsupportedError(
            "engines for NVIDIA GPUs are compiled by nvcc, which reads headers with g++, and there is none in "
            f"{SYSTEM_PATH}: install g++ (on Debian: apt-get install g++)"
        )
    arch = gpu.name.removeprefix("sm_")
    with tempfile.TemporaryDirectory(prefix="cuvil-nvcc-") as root:
        folder = Path(root) / "src"
        folder.mkdir()
        read = included(sources, name)
        for file, data in read.items():
            (folder / file).write_bytes(data)
        commands = [
            [str(nvcc), *FLAGS, f"-arch=compute_{arch}", "-ptx", name, "-o", "kernels.ptx"],
            [str(nvcc), f"-arch={gpu.name}", "-O3", "-cubin", "kernels.ptx", "-o", "kernels.cubin"],
        ]
        environment = {
            "PATH": f"{nvcc.parent}:{SYSTEM_PATH}",
            "HOME": root,
            "TMPDIR": root,
            "LC_ALL": "C",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": "0",
        }
        run_sealed(commands[0], folder, environment, timeout)
        ptx = _INTERNAL.sub(rb"_INTERNAL_00000000_\1_00000000", (folder / "kernels.ptx").read_bytes())
        ptx += b"\n" + more.encode() if more else b""
        (folder / "kernels.ptx").write_bytes(ptx)
        report = gate(ptx.decode("utf-8", "replace"))
        if report.violations:
            raise CuvilError(f"the PTX of the kernels holds {report.violations[0]}: this is a defect of Cuvil")
        run_sealed(commands[1], folder, environment, timeout)
        cubin = (folder / "kernels.cubin").read_bytes()
    images = {"kernels.cubin": cubin} | ({} if gpu.clusters else {"kernels.ptx": ptx + b"\0"})
    facts: dict[str, Json] = {
        "compiler": {"name": "nvcc", "version": VERSION, "programs_sha256": {**programs_of(nvcc)}},
        "files": {n: {"sha3_512": sha3_512_hex(d)} for n, d in read.items()},
        "commands": [["{nvcc}", *words[1:]] for words in commands],
        "chip": gpu.name,
        "ptx_instructions": {**report.counts},
        "images": {n: {"bytes": len(d), "sha3_512": sha3_512_hex(d)} for n, d in images.items()},
    }
    return images, facts
