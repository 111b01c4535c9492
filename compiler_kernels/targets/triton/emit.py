"""A Triton kernel for the functions that have one, and the text that stands for it where kernels are emulated.

Triton's own interpreter has other bits (its fma is two roundings), so there is no emulation of a Triton kernel: on a
machine without a GPU the scalar section's text takes its place, and reports say so (evidence/equivalence.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.symbols import Symbols
from compiler_kernels.targets.cuda.fallback import stand_in_text
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import MAX_GRID, CudaKernel, TritonForm
from compiler_kernels.targets.cuda.plan import emit_cuda
from compiler_kernels.targets.triton.blocked import convolution, depthwise, pointwise
from compiler_kernels.targets.triton.form import Form
from compiler_kernels.targets.triton.library import library_text
from compiler_kernels.targets.triton.products import product
from compiler_kernels.targets.triton.text import NoForm, kernel_source

FAMILIES: Final[tuple[Callable[[Graph, Gpu], Form | None], ...]] = (convolution, depthwise, product, pointwise)
MARK: Final = "triton_"
"""What the names of Triton kernels have behind the prefix, so that every list of launches shows the generator."""


def emit_with_triton(function: Graph, gpu: Gpu, name: str, symbols: Symbols) -> CudaKernel:
    """The Triton kernel of ``function`` if it has one, else the CUDA C++ kernel; the latter's arguments and errors."""
    prefix, _, rest = name.partition("_")
    return emit_triton(function, gpu, f"{prefix}_{MARK}{rest}") or emit_cuda(function, gpu, name, symbols)


def emit_triton(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The Triton kernel of the first family that takes ``function``; ``None`` when none does."""
    for family in FAMILIES:
        try:
            form = family(function, gpu)
        except NoForm:
            form = None
        if form is None or form.programs > MAX_GRID[0]:
            continue
        text = stand_in_text(function, name)
        source = kernel_source(function, name, form.body)
        return CudaKernel(
            name, text, (form.programs, 1, 1), 32 * form.warps, independent=True,
            triton=TritonForm(source, len(function.inputs) + 1, form.warps, form.stages),
        )  # fmt: skip
    return None


def triton_kernels(text: str) -> list[str]:
    """Names of the kernels of a kernels_triton.py."""
    return re.findall(r'^    "(\w+)": \(', text, re.MULTILINE)


def triton_file(kernels: Sequence[CudaKernel], head: Sequence[str]) -> str:
    """kernels_triton.py: the Triton kernels of an engine, each once, and how they are compiled; empty without any.

    ``head``: comment lines. ``KERNELS`` has, by name, the number of pointers, warps and pipeline stages.
    """
    found = {k.name: k.triton for k in kernels if k.triton is not None}
    if not found:
        return ""
    bodies = "\n\n".join(form.text for form in found.values())
    rows = [f'    "{name}": ({form.pointers}, {form.warps}, {form.stages}),' for name, form in found.items()]
    imports = "import triton\nimport triton.language as tl\n"
    table = "\n".join(["KERNELS = {", *rows, "}", ""])
    return "\n".join([*(f"# {line}" for line in head), imports, "", library_text(bodies) + bodies, "", table])
