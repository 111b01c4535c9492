"""Chains of elementwise operations on blocked values; on plain ones see movement.py."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.targets.cuda.families.positions import Blocked
from compiler_kernels.targets.cuda.families.text import computes_floats
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel


def pointwise(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """An elementwise chain whose result is blocked."""
    kind = function.ops[0].kind
    if not computes_floats(function) or (kind not in ELEMENTWISE and kind != "affine"):
        return None
    if not function.ops[-1].out.layout.startswith("c16"):
        return None
    return Blocked(function, name, skip_root=False).emit(lambda code: None)
