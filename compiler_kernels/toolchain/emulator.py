"""GPU kernels compiled for this machine's processor from the same text, and called from Python (docs/gpu.md).

What runs here is the emulator, never a GPU: results say what the kernels compute, nothing about a device.
"""

from __future__ import annotations

import ctypes
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.plan import Launch, Place
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.toolchain.sealed import run_sealed
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver, zig_executable

Bytes = NDArray[np.uint8]

PAGE: Final = 4096

# As of the C target's generated code; no exceptions and no type information, so that no C++ library is needed.
FLAGS: Final = (
    "-std=c++17",
    "-O2",
    "-g0",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-Wno-unknown-pragmas",
    "-Wno-unused",
    "-DCUVIL_EMULATE",
)


def compiler_words(gcc: str = "") -> list[str]:
    """The words that start the C++ compiler: zig's, or the g++ called ``gcc``."""
    if gcc:
        return [gcc, "-march=native"]
    # The GNU system's C library, which a GPU engine's host program and Python load too.
    machine = platform.machine()
    cpu = "x86_64_v3" if machine == "x86_64" else "generic"
    return [str(zig_executable()), "cc", "-target", f"{machine}-linux-gnu.2.28", f"-mcpu={cpu}"]


def emulated_driver(kernels: bytes, chip: str, directory: Path, gcc: str = "", faults: bool = False) -> tuple[str, ...]:
    """Words to put before a GPU engine's path, so that it runs without a GPU: its own host code, as shipped, finds a
    ``libcuda.so.1`` in ``directory`` that executes ``kernels`` (the text of kernels.cu) on the processor.

    ``chip`` is the one the engine is compiled for, such as ``sm_90``. ``faults``, for tests: functions of the
    driver fail where the environment variable CUVIL_EMULATED_FAULT says so. ``CuvilError`` where the text does not
    compile.
    """
    compile_emulated(kernels.decode(), directory, gcc, int(chip.removeprefix("sm_")), faults)
    return ("/usr/bin/env", f"LD_LIBRARY_PATH={directory.resolve()}")


def compile_emulated(text: str, directory: Path, gcc: str = "", chip: int = 0, faults: bool = False) -> Path:
    """A shared library of the unit ``text`` and the emulator, in ``directory``. ``CuvilError`` where it is no C++.

    ``chip`` (90 for sm_90) adds the functions of the CUDA driver, which fail on demand with ``faults``, and the library
    is called ``libcuda.so.1``.
    """
    own = ["-fPIC", "-shared", *([f"-DCUVIL_EMULATED_CHIP={chip}"] if chip else [])]
    own += ["-DCUVIL_EMULATED_FAULTS"] if chip and faults else []
    _compile(text, directory, gcc, own, ["cuvil_emulated_driver.cpp"] if chip else [], "kernels.so")
    product = directory / "kernels.so"
    return product.rename(directory / "libcuda.so.1") if chip else product


def compile_emulated_program(text: str, directory: Path, gcc: str = "") -> Path:
    """A program of the unit ``text``, which defines ``main``, and the emulator, as quickly compiled as it may be.

    An access that is not aligned as its type asks ends the program (SIGILL), as it ends a kernel on a GPU.
    """
    own = ["-O1", "-fsanitize=alignment", "-fsanitize-trap=alignment"]
    _compile(text, directory, gcc, own, [], "program")
    return directory / "program"


def _compile(text: str, directory: Path, gcc: str, own: Sequence[str], more: Sequence[str], product: str) -> None:
    for name, data in {**runtime_sources(), **cuda_sources()}.items():
        if name.endswith((".h", ".cpp")):
            (directory / name).write_bytes(data)
    (directory / "kernels.cpp").write_text(text, "utf-8")
    environment = ZigDriver().environment(directory)
    if gcc:
        environment["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    words = [*compiler_words(gcc), *FLAGS, *own, "-nostdlib++" if not gcc else "-lm"]
    run_sealed([*words, "kernels.cpp", "cuvil_emulator.cpp", *more, "-o", product], directory, environment, 900.0)


class _Entry(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("run", ctypes.c_void_p), ("n", ctypes.c_int), ("free", ctypes.c_int))


class Emulator:
    """Kernels that can be called with arrays as device memory."""

    def __init__(self, kernels: Sequence[CudaKernel], gcc: str = "") -> None:
        self.kernels = {k.name: k for k in kernels}
        with tempfile.TemporaryDirectory(prefix="cuvil-emulate-") as folder:
            self._library = ctypes.CDLL(str(compile_emulated(unit_text(kernels), Path(folder), gcc)))
        table = (_Entry * len(self.kernels)).in_dll(self._library, "cuvil_emulated_kernels")
        self._runs = {bytes(entry.name).decode(): int(entry.run) for entry in table}
        self._emulate = self._library.cuvil_emulate
        self._emulate.restype = ctypes.c_char_p
        self._guarded: list[tuple[int, int]] = []

    def run(self, launch: Launch, memory: Memory, seed: int = 0) -> None:
        """One launch of a plan on its memory."""
        place, workspace = launch.workspace, None
        if place is not None:
            workspace = memory.at(place, launch.kernel.workspace_bytes)
            workspace[:] = 0xFF
        self.launch(launch.kernel.name, memory.pointers(launch), seed, workspace)

    def guard(self, memory: Memory) -> None:
        """From now on, a kernel that may start early (``CudaKernel.dependent``) must not touch what other kernels write
        of ``memory``, which has pages of its own, before it waits; one that does is a ``CuvilError``. For tests."""
        self._guarded = memory.pages()

    def launch(self, name: str, pointers: Sequence[int], seed: int = 0, workspace: Bytes | None = None) -> None:
        """Run the whole grid of kernel ``name`` on ``pointers`` (operands and result; each addresses the first byte).

        A workspace that is not given is full of NaN before.
        ``CuvilError`` when threads wait without end or a ticket is not given back.
        """
        kernel = self.kernels[name]
        own = np.full(64 if workspace is not None else kernel.workspace_bytes + 64, 0xFF, np.uint8)
        tickets = np.zeros(kernel.tickets + 1, np.uint32)
        extra = [_aligned(own) if workspace is None else workspace.ctypes.data] if kernel.workspace_bytes else []
        extra += [tickets.ctypes.data] if kernel.tickets else []
        refusal = ctypes.c_int(0)
        extra += [ctypes.addressof(refusal)] if kernel.refusals else []
        arguments = (ctypes.c_void_p * (len(pointers) + len(extra)))(*pointers, *extra)
        for first, size in self._guarded if kernel.dependent else ():
            self._library.cuvil_emulated_guard(ctypes.c_void_p(first), ctypes.c_size_t(size))
        problem = self._emulate(
            ctypes.c_void_p(self._runs[name]), arguments, (ctypes.c_uint * 3)(*kernel.grid), kernel.block,
            kernel.shared_bytes, kernel.cluster, int(kernel.independent), ctypes.c_uint64(seed),
        )  # fmt: skip
        self._library.cuvil_emulated_guard(None, ctypes.c_size_t(0))
        if problem is not None:
            raise CuvilError(f"kernel {name}, emulated: {problem.decode()}")
        if tickets.any():
            raise CuvilError(f"kernel {name}, emulated: {np.count_nonzero(tickets)} tickets are not zero at the end")


def _aligned(memory: NDArray[Any]) -> int:
    return -(-memory.ctypes.data // 64) * 64


class Memory:
    """Device memory of one plan: inputs, outputs, weights and arena, each in pages of its own."""

    def __init__(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[int], weights: bytes, arena: int) -> None:
        self._spaces: dict[tuple[str, int], Bytes] = {}
        for n, array in enumerate(inputs):
            self._add("input", n, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for n, size in enumerate(outputs):
            self._add("output", n, size)[:] = 0xFF
        self._add("weights", 0, len(weights))[:] = np.frombuffer(weights, np.uint8)
        self._add("arena", 0, arena)[:] = 0xFF

    def _add(self, space: str, index: int, size: int) -> Bytes:
        room = np.zeros(size + 2 * PAGE, np.uint8)
        start = -room.ctypes.data % PAGE
        self._spaces[space, index] = room[start : start + size]
        return self._spaces[space, index]

    def of(self, space: str, index: int = 0) -> Bytes:
        """The bytes of one buffer; changes are seen by kernels."""
        return self._spaces[space, index]

    def at(self, place: Place, size: int) -> Bytes:
        """``size`` bytes at ``place``."""
        return self.of(place.space, place.index)[place.offset : place.offset + size]

    def pointers(self, launch: Launch) -> list[int]:
        """Addresses of the operands and of the result."""
        return [self.of(p.space, p.index).ctypes.data + p.offset for p in launch.arguments]

    def pages(self) -> list[tuple[int, int]]:
        """First byte and size of the whole pages of every buffer but the weights; nothing else lies in them."""
        return [
            (data.ctypes.data, max(1, -(-data.nbytes // PAGE)) * PAGE)
            for key, data in self._spaces.items()
            if key[0] != "weights"
        ]

    def snapshot(self) -> Mapping[tuple[str, int], Bytes]:
        """Copies of every buffer that kernels write."""
        return {key: data.copy() for key, data in self._spaces.items() if key[0] in ("output", "arena")}

    def restore(self, saved: Mapping[tuple[str, int], Bytes]) -> None:
        """Put back what :meth:`snapshot` copied."""
        for key, data in saved.items():
            self._spaces[key][:] = data
