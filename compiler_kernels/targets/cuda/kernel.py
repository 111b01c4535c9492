"""One GPU kernel as the families emit it, and as the program launches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_BLOCK: Final = 1024
MAX_GRID: Final = (2**31 - 1, 65535, 65535)
MOST_ARGUMENTS: Final = 512
"""Pointers of a launch, workspace and tickets included: 4096 bytes of parameters (runtime/cuda/cuvil_gpu.c)."""
MOST_LAUNCHES: Final = 8192


@dataclass(frozen=True, slots=True)
class TritonForm:
    """A kernel that Triton makes: the text of its function (targets/triton), which takes so many pointers. Warps of a
    program and stages of its loads are options of the compilation."""

    text: str
    pointers: int
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class CudaKernel:
    """One ``__global__`` function and how it is launched.

    ``text`` defines ``extern "C" __global__ void NAME(const T *p0, ..., T *y[, unsigned char *workspace][, unsigned
    *tickets][, const int64_t *sizes][, int *refusal])`` and whatever it calls, for nvcc and for the emulator alike: it
    includes nothing (``cuvil_device.h`` and the ``ca1_*.h`` headers stand before it); every other name at file scope
    starts with NAME. Pointers address the first byte of a buffer, halo included, and are aligned to 64 bytes.

    ``grid`` thread blocks of ``block`` threads with ``shared_bytes`` of dynamic shared memory (``cuvil_shared``; there
    is no other), in clusters of ``cluster`` blocks along x.
    ``workspace_bytes`` of memory that holds anything at the start and is shared with other kernels, which do not run at
    the same time. ``tickets`` counters that are zero at the start and must be left zero.
    ``block_text`` is the text of ``NAME_block(const int block, p0, ..., y)``, what one block of a grid along x does;
    empty where the kernel cannot share a launch (targets/cuda/merge.py).
    ``independent``: no thread waits for another or uses shared memory, so the emulator needs no fibers.
    ``dependent``: may start while the kernel before it still runs; it then calls ``cuvil_grid_wait()`` in every thread
    before it touches any memory but constants (programmatic dependent launch).
    ``refusals``: C literals of the sentences with which the kernel may refuse run-time values; it then leaves the
    number of one, from 1 on, in ``*refusal``, where it finds 0 (of several, the first stays).
    ``triton``: Triton makes the kernel; ``text`` then only stands for it where kernels are emulated.
    """

    name: str
    text: str
    grid: tuple[int, int, int]
    block: int
    shared_bytes: int = 0
    workspace_bytes: int = 0
    tickets: int = 0
    cluster: int = 1
    independent: bool = False
    dependent: bool = False
    sizes: bool = False
    block_text: str = ""
    triton: TritonForm | None = None
    refusals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.block <= MAX_BLOCK:
            raise ValueError(f"{self.name}: {self.block} threads in a block")
        if any(not 1 <= n <= most for n, most in zip(self.grid, MAX_GRID, strict=True)):
            raise ValueError(f"{self.name}: grid {self.grid}")
        if self.grid[0] % self.cluster:
            raise ValueError(f"{self.name}: clusters of {self.cluster} do not divide a grid of {self.grid[0]}")
        if self.dependent and "cuvil_grid_wait()" not in self.text:
            raise ValueError(f"{self.name}: a dependent launch that never waits for the kernel before it")
