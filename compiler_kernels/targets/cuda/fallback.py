"""The scalar section's kernels as device code: one thread per work item, slow and correct.

What no family takes is the text the C target compiles for ``CA1_VL`` 1, so it needs no verification of its own beyond
the compiler's.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.symbols import Symbols
from compiler_kernels.ir.views import MOVES
from compiler_kernels.targets.c.program import emit_for
from compiler_kernels.targets.c.scalar import emit_kernel
from compiler_kernels.targets.c.sizes import is_symbolic
from compiler_kernels.targets.c.writer import Kernel, c_type
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.isa import SCALAR

BLOCK: Final = 128
MAX_SCRATCH: Final = 64 << 20
"""Bytes of scratch a launch may need; fewer threads take more items each beyond it."""

# Hints to a C compiler about registers and order of loads; they compute nothing, and nvcc would read PTX into them.
_HINT: Final = re.compile(r'__asm__ ?(?:volatile)?\("" :[^;]*;')
_REFUSAL: Final = re.compile(r'CA1_REFUSE\(("(?:[^"\\]|\\.)*")\)')
_STATIC: Final = re.compile(r"^(?:CA1_DEVICE )?static (?:CA1_TARGET |inline )*", re.MULTILINE)


def device_text(text: str) -> str:
    """C text of a scalar kernel as device code: every function and table at file scope belongs to the device."""
    return _HINT.sub("", _STATIC.sub("static __device__ ", text))


def emit_fallback(function: Graph, gpu: Gpu, name: str, symbols: Symbols | None = None) -> CudaKernel:
    """The kernel of ``function`` by its scalar text."""
    kernel, refusals = _reporting(_item_kernel(function, name, symbols))
    threads = max(1, kernel.items)
    scratch = -(-kernel.scratch_floats // 16) * 64
    if scratch:
        threads = max(1, min(threads, MAX_SCRATCH // scratch))
    block = min(BLOCK, threads) if threads < gpu.multiprocessors * BLOCK else BLOCK
    if scratch or threads < gpu.multiprocessors * 32:
        block = min(block, 32)  # few and heavy items: spread them over the multiprocessors
    blocks = -(-threads // block)
    text, joinable = _wrapper(function, kernel, name, blocks, block, scratch, bool(refusals))
    return CudaKernel(
        name,
        text,
        (blocks, 1, 1),
        block,
        workspace_bytes=blocks * block * scratch,
        independent=True,
        dependent=True,
        sizes=kernel.sizes,
        block_text="" if scratch or kernel.sizes or refusals else joinable,
        refusals=refusals,
    )


def _reporting(kernel: Kernel) -> tuple[Kernel, tuple[str, ...]]:
    """``kernel`` with its refusals as numbers in ``*refusal``, a further parameter, and their sentences."""
    sentences = tuple(dict.fromkeys(_REFUSAL.findall(kernel.text)))
    if not sentences:
        return kernel, ()

    def report(found: re.Match[str]) -> str:
        return f"do {{ if (!*refusal) *refusal = {sentences.index(found[1]) + 1}; }} while (0)"

    text = _REFUSAL.sub(report, kernel.text)
    head, definition = re.split(rf"(?=void {kernel.name}\()", text, maxsplit=1)
    definition = definition.replace("int begin, int end)", "int begin, int end, int *refusal)", 1)
    return replace(kernel, text=head + definition), sentences


def _item_kernel(function: Graph, name: str, symbols: Symbols | None) -> Kernel:
    return _by_items(function, f"{name}_item", symbols)


def stand_in_text(function: Graph, name: str) -> str:
    """The scalar text of ``function`` for the emulator, for a grid of any size (targets/triton). One thread runs after
    another there, so they share their scratch memory."""
    kernel = _item_kernel(function, name, None)
    scratch = kernel.scratch_floats
    parameters = [f"const {c_type(v.type)} *p{n}" for n, v in enumerate(function.inputs)]
    parameters.append(f"{c_type(function.ops[-1].out)} *y")
    arguments = [*(f"p{n}" for n in range(len(function.inputs))), "y", *([f"{name}_scratch"] if scratch else [])]
    memory = f"alignas(64) static float {name}_scratch[{scratch}];\n" if scratch else ""
    return (
        f'{memory}{device_text(kernel.text)}extern "C" __global__ void {name}({", ".join(parameters)})\n{{\n'
        f"    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < {kernel.items}; i += gridDim.x * blockDim.x)\n"
        f"        {kernel.name}({', '.join(arguments)}, (int)i, (int)i + 1);\n"
        "}\n"
    )


def _by_items(function: Graph, name: str, symbols: Symbols | None) -> Kernel:
    """The scalar section's kernel, or the plain one of one element per item where that makes more items."""
    kernel = emit_for(function, SCALAR, name, symbols)
    moved = len(function.ops) > 1 and any(op.kind in MOVES for op in function.ops)
    if is_symbolic(function) or moved:  # statements whose body moves values are for the other generator
        return kernel
    try:
        plain = emit_kernel(function, name, symbols)
    except UnsupportedError:  # a layout or a packing it does not know
        return kernel
    return plain if plain.items > kernel.items else kernel


def _wrapper(
    function: Graph, kernel: Kernel, name: str, blocks: int, block: int, scratch: int, refuses: bool
) -> tuple[str, str]:
    """The kernel's text, and that of its block alone."""
    parameters = [f"const {c_type(v.type)} *p{n}" for n, v in enumerate(function.inputs)]
    parameters.append(f"{c_type(function.ops[-1].out)} *y")
    parameters += ["unsigned char *workspace"] if scratch else []
    parameters += ["const int64_t *sizes"] if kernel.sizes else []
    parameters += ["int *refusal"] if refuses else []
    names = [p.rpartition("*")[2] for p in parameters]
    arguments = [f"p{n}" for n in range(len(function.inputs))] + ["y"]
    arguments += ["sizes"] if kernel.sizes else []
    arguments += [f"(float *)(workspace + (long)self * {scratch})"] if scratch else []
    body = (
        f"{device_text(kernel.text)}"
        f"CUVIL_FN void {name}_block(const int block, {', '.join(parameters)})\n{{\n"
        f"    const int self = block * {block} + (int)threadIdx.x;\n"
        "    cuvil_grid_wait();\n"
        f"    for (long i = self; i < {kernel.items}; i += {blocks * block})\n"
        f"        {kernel.name}({', '.join(arguments)}, (int)i, (int)i + 1{', refusal' if refuses else ''});\n"
        "}\n"
    )
    whole = (
        f'{body}extern "C" __global__ void {name}({", ".join(parameters)})\n{{\n'
        f"    {name}_block((int)blockIdx.x, {', '.join(names)});\n"
        "}\n"
    )
    return whole, body
