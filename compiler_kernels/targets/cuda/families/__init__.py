"""Families of GPU kernels, in the order they are asked. What none of them takes falls back to scalar code.

A family maps an L2 function, a chip and a name to a kernel, or ``None`` where another does it better or it can not.
It may choose tiles and splits by shape and chip; results are those of docs/arithmetic.md whatever it chooses.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.cuda.families.conv import conv
from compiler_kernels.targets.cuda.families.depthwise import depthwise
from compiler_kernels.targets.cuda.families.integer import integer
from compiler_kernels.targets.cuda.families.movement import join, moves, packing, relayout, strided
from compiler_kernels.targets.cuda.families.patches import patches
from compiler_kernels.targets.cuda.families.planes import normalization, plane
from compiler_kernels.targets.cuda.families.pointwise import pointwise
from compiler_kernels.targets.cuda.families.pool import global_pool, pool
from compiler_kernels.targets.cuda.families.product import product
from compiler_kernels.targets.cuda.families.recurrent import recurrent
from compiler_kernels.targets.cuda.families.resize import resize
from compiler_kernels.targets.cuda.families.rows import layer_normalization, reduction, softmax
from compiler_kernels.targets.cuda.families.stem import stem
from compiler_kernels.targets.cuda.families.winograd import winograd
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

Family = Callable[[Graph, Gpu, str], CudaKernel | None]
FAMILIES: tuple[Family, ...] = (
    *(conv, winograd, stem, depthwise),
    patches,
    *(product, softmax, layer_normalization, reduction, recurrent),
    *(pool, global_pool, pointwise, resize),
    *(normalization, plane, integer),
    *(relayout, packing, join, moves, strided),
)


def emit_family_kernel(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of the first family that takes ``function``; ``None`` when none does or a size is symbolic."""
    for family in FAMILIES:
        kernel = family(function, gpu, name)
        if kernel is not None:
            return kernel
    return None
