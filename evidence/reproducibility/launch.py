"""Starts the process of one rebuild in its own directory and world, and reads what it left.

Cuvil's own code is copied into the rebuild's directory, so that its path is varied too; so are its temporary files, its
home and the compiler's cache. User and host name change inside Linux namespaces (``unshare`` of util-linux), which need
no privilege where the system allows them. The clock moves by a preloaded library, so for Cuvil's own process: the
compiler is linked statically and always sees the machine's clock. What the system does not grant stays as it is, and
the process reports what it saw.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.toolchain.sealed import run_sealed
from compiler_kernels.toolchain.zig import zig_cache, zig_executable
from evidence.reproducibility.inputs import COMPILE, Recorded
from evidence.reproducibility.plan import KEPT, Variation

ROOMS = ("compiler_kernels", "evidence")
CODE = Path(__file__).resolve().parents[2]
"""The folder that holds Cuvil's rooms."""
TIMEOUT_SECONDS = 3600
CLOCK = CODE / "evidence" / "data" / "clock.c"
_CLOCK_FLAGS = ("-shared", "-fPIC", "-O1", "-fno-builtin", "-nostdlib")
_ENTER = Path(__file__).with_name("enter.py")


@dataclass(frozen=True)
class Rebuilt:
    """What one rebuild left. ``stages``: per stage ``code_version``, ``artifacts`` (name to SHA3-512) and ``facts``.

    ``kept``: bytes of differing artefacts by digest. ``error``: ``stage`` and ``message`` of a stage that refused.
    ``started``: this machine's clock when the rebuild began.
    """

    variation: Variation
    started: float
    observed: Mapping[str, Any]
    stages: Mapping[str, Mapping[str, Any]]
    error: Mapping[str, str] | None
    kept: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True)
class Means:
    """How worlds can be varied on this machine.

    ``unshare``: the program that gives a command user and UTS namespaces of its own, or empty where the system grants
    none. ``clock``: a shared library for LD_PRELOAD that moves the clock, or empty.
    """

    unshare: str
    clock: bytes = field(repr=False)

    def enter(self, uid: int) -> list[str]:
        """The words before a command that is to run as ``uid`` and may set its host name."""
        if not self.unshare:
            return []
        return [self.unshare, "--user", f"--map-user={uid}", f"--map-group={uid}", "--uts", "--keep-caps"]


@lru_cache(maxsize=1)
def means() -> Means:
    """What this machine grants, found by trying."""
    unshare = shutil.which("unshare") or ""
    probe = "import socket; socket.sethostname('cuvil-probe')"
    granted = Means(unshare, b"").enter(30001)
    works = bool(unshare) and _works([*granted, sys.executable, "-I", "-S", "-c", probe])
    return Means(unshare if works else "", clock_library())


def clock_library() -> bytes:
    """``data/clock.c`` compiled for the machine at hand; empty where it cannot be."""
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        return b""
    with tempfile.TemporaryDirectory(prefix="cuvil-clock-") as folder:
        place = Path(folder)
        (place / "clock.c").write_bytes(CLOCK.read_bytes())
        command = [str(zig_executable()), "cc", "-target", f"{platform.machine()}-linux-gnu", *_CLOCK_FLAGS, "clock.c"]
        caches = {"ZIG_LOCAL_CACHE_DIR": folder, "ZIG_GLOBAL_CACHE_DIR": folder}
        try:
            run_sealed([*command, "-o", "clock.so"], place, {"PATH": os.defpath, "HOME": folder, **caches}, 120)
            return (place / "clock.so").read_bytes()
        except (CuvilError, OSError):
            return b""


def _works(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def rebuild(recorded: Recorded, variation: Variation, stages: Sequence[str] = COMPILE, code: Path = CODE) -> Rebuilt:
    """Build ``recorded`` again in the world of ``variation``. ``code``: the folder whose rooms take part.

    Raises ``UsageError`` when the temporary directory cannot be used, ``CuvilError`` when the process ends without a
    result.
    """
    try:
        with _directory() as base:
            return _rebuild_in(base, recorded, variation, stages, code)
    except OSError as error:
        raise UsageError(
            f"cannot rebuild in the temporary directory {tempfile.gettempdir()}: {error.strerror or error}; free some "
            "space there or set TMPDIR to another directory"
        ) from error


@contextmanager
def _directory() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="cuvil-rebuild-"))
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _rebuild_in(base: Path, recorded: Recorded, variation: Variation, stages: Sequence[str], code: Path) -> Rebuilt:
    granted = means()
    work = base / variation.directory
    folders = {name: work / name for name in ("code", "home", "tmp", "task", "cache")}
    for path in folders.values():
        path.mkdir(parents=True)
    for room in ROOMS:
        copy_shuffled(code / room, folders["code"] / room, variation.file_order)
    if variation.compiler_cache == KEPT and zig_cache().is_dir() and "engine" in stages:
        shutil.copytree(zig_cache(), folders["cache"], dirs_exist_ok=True, symlinks=True, copy_function=_take)
    names = {role: f"source{index}" for index, role in enumerate(sorted(recorded.sources))}
    for role, name in names.items():
        (folders["task"] / name).write_bytes(recorded.sources[role])
    task = {
        "sources": names,
        "config": dict(recorded.config),
        "expected": recorded.expected,
        "stages": list(stages),
        "file_order": variation.file_order,
    }
    (folders["task"] / "task.json").write_text(json.dumps(task))
    if granted.clock:
        # Above the varied directory: LD_PRELOAD takes a blank as the end of a name.
        (base / "clock.so").write_bytes(granted.clock)
    world = {
        "hostname": variation.hostname if granted.unshare else "",
        "umask": f"{variation.umask:04o}",
        "cpus": variation.cpus,
        "environment": _environment(variation, folders, base / "clock.so" if granted.clock else None),
        "directory": str(work),
        "command": [sys.executable, "-P", "-m", "evidence.reproducibility.worker", str(folders["task"])],
    }
    entry = base / "world.json"
    entry.write_text(json.dumps(world))
    started = time.time()
    _run([*granted.enter(variation.uid), sys.executable, "-I", "-S", str(_ENTER), str(entry)], variation)
    return _read(folders["task"], variation, started)


def _take(source: str, destination: str) -> None:
    """Copy a file of the compiler's cache. Its objects (``o/``) are never written again, so another name is enough."""
    if "o" in Path(source).parent.parts:
        with suppress(OSError):
            os.link(source, destination)
            return
    shutil.copy2(source, destination)


def _environment(variation: Variation, folders: Mapping[str, Path], clock: Path | None) -> dict[str, str]:
    """The complete environment of the rebuild."""
    found = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folders["home"]),
        "USER": variation.user,
        "LOGNAME": variation.user,
        "LC_ALL": variation.locale,
        "LANG": variation.locale,
        "TZ": variation.timezone,
        "TMPDIR": str(folders["tmp"]),
        "CUVIL_HOME": str(folders["home"]),
        "CUVIL_ZIG_CACHE": str(folders["cache"]),
        "CUVIL_REBUILD_PADDING": "p" * variation.environment,
        "PYTHONPATH": os.pathsep.join([str(folders["code"]), *_inherited_path()]),
        "PYTHONHASHSEED": str(variation.hash_seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Text in C and POSIX locales too: a model's names are Unicode.
        "PYTHONUTF8": "1",
    }
    if not variation.vectors:
        found["NPY_DISABLE_CPU_FEATURES"] = " ".join(_vector_features())
        found["OPENBLAS_CORETYPE"] = "NEHALEM"
    if clock is not None:
        found |= {"LD_PRELOAD": str(clock), "CUVIL_CLOCK_OFFSET": str(variation.clock_offset)}
    return found


def _inherited_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and Path(part).is_absolute()]


@lru_cache(maxsize=1)
def _vector_features() -> tuple[str, ...]:
    """Names of the vector instructions NumPy chooses at run time and this processor has."""
    module: Any = importlib.import_module("numpy._core._multiarray_umath")
    return tuple(name for name in module.__cpu_dispatch__ if module.__cpu_features__.get(name))


def copy_shuffled(source: Path, destination: Path, seed: int) -> None:
    """Copy a folder of code, its files in an order drawn from ``seed``: file systems list many directories in the order
    their entries were made. Compiled Python is left out."""
    destination.mkdir()
    names = sorted(path.name for path in source.iterdir() if path.name != "__pycache__")
    random.Random(seed).shuffle(names)
    for name in names:
        if (source / name).is_dir():
            copy_shuffled(source / name, destination / name, seed)
        else:
            shutil.copyfile(source / name, destination / name)


def _run(command: Sequence[str], variation: Variation) -> None:
    process = subprocess.Popen(
        command,
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=TIMEOUT_SECONDS)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CuvilError(
                f"rebuild {variation.number} did not finish in {TIMEOUT_SECONDS} s; try again on a less loaded machine"
            ) from error
        raise
    if process.returncode != 0:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise CuvilError(
            f"rebuild {variation.number} ended with {process.returncode} and no result "
            f"({lines[-1] if lines else 'it said nothing'}); run it again, and report it as a defect if it stays"
        )


def _read(folder: Path, variation: Variation, started: float) -> Rebuilt:
    document = json.loads((folder / "result.json").read_bytes())
    return Rebuilt(
        variation,
        started,
        document["observed"],
        {item["stage"]: item for item in document["stages"]},
        document["error"],
        {path.name: path.read_bytes() for path in sorted((folder / "kept").iterdir())},
    )
