"""CUDA C++ from the same kernels: one thread per work item, the same text, checked flags (docs/arithmetic.md).

nvcc flags that keep the arithmetic: -fmad=false -ftz=false -prec-div=true -prec-sqrt=true.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Graph, Module
from compiler_kernels.ir.weights import WeightStore, layout, pack
from compiler_kernels.targets.c.runtime_checks import REFUSING
from compiler_kernels.targets.c.scalar import emit_kernel
from compiler_kernels.targets.c.writer import Kernel

NVCC_FLAGS = ("-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true")
BLOCK = 128


def generate_cuda(module: Module, store: WeightStore, prefix: str) -> str:
    """``<prefix>_run(const float *inputs, float *outputs)``: host arrays in and out, binary32, in graph order.

    Kernels run one after another on the default stream; device memory comes from cudaMalloc and is freed at the end.
    ``UnsupportedError`` for an operation that may refuse a run-time value.
    """
    main = module.main
    for op in (op for function in module.graphs[1:] for op in function.ops):
        if op.kind in REFUSING:
            raise UnsupportedError(f"operator {op.kind} refuses run-time shapes, which CUDA code cannot report so far")
    kernels = {f.name: emit_kernel(f, f"{prefix}_{f.name}") for f in module.graphs[1:]}
    weights = pack(main, store) or bytes(64)
    lines = [f"static const unsigned char {prefix}_weights[] = {{{','.join(map(str, weights))}}};"]
    for kernel in kernels.values():
        lines += [kernel.text, _wrapper(kernel)]
    return "\n".join([*lines, *_host(main, kernels, prefix, len(weights), dict(module.meta))]) + "\n"


def _wrapper(kernel: Kernel) -> str:
    params = ", ".join([*(f"const float *p{n}" for n in range(kernel.params)), "float *y"])
    names = ", ".join([*(f"p{n}" for n in range(kernel.params)), "y", "i", "i + 1"])
    return (
        f"__global__ void {kernel.name}_g({params}) {{\n"
        f"    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if (i < {kernel.items}) {kernel.name}({names});\n}}"
    )


def _host(main: Graph, kernels: Mapping[str, Kernel], prefix: str, weights: int, meta: Mapping[str, str]) -> list[str]:
    offsets, _ = layout(main.weights)
    arena = max(64, int(meta.get("arena_bytes", "0")))
    outputs = sorted(
        ((op.int_("position"), op) for op in main.ops if op.name == "tensor.alloc" and op.has("output")),
        key=lambda item: item[0],
    )
    in_counts = [max(1, v.type.count) for v in main.inputs]
    out_counts = [max(1, op.out.count) for _, op in outputs]
    lines = [
        f"static void {prefix}_run(const float *inputs, float *outputs) {{",
        "    unsigned char *w, *arena;",
        "    float *in, *out;",
        f"    CHECK(cudaMalloc(&w, {weights})); CHECK(cudaMalloc(&arena, {arena}));",
        f"    CHECK(cudaMalloc(&in, {4 * max(1, sum(in_counts))})); CHECK(cudaMalloc(&out, {4 * sum(out_counts)}));",
        f"    CHECK(cudaMemcpy(w, {prefix}_weights, {weights}, cudaMemcpyHostToDevice));",
        f"    CHECK(cudaMemcpy(in, inputs, {4 * sum(in_counts)}, cudaMemcpyHostToDevice));",
    ]
    where: dict[str, str] = {}
    start = 0
    for value, count in zip(main.inputs, in_counts, strict=True):
        where[value.id] = f"(in + {start})"
        start += count
    where.update({w.id: f"(const float *)(w + {offsets[w.ref]})" for w in main.weights})
    buffers: dict[str, str] = {}
    start = 0
    for (_, op), count in zip(outputs, out_counts, strict=True):
        buffers[op.result] = f"(out + {start})"
        start += count
    for op in main.ops:
        if op.name == "tensor.alloc":
            if not op.has("output"):
                buffers[op.result] = f"(float *)(arena + {op.int_('offset')})"
        elif op.name == "view.reshape":
            where[op.result] = where[op.operands[0]]
        else:
            kernel = kernels[op.kind]
            where[op.result] = buffers[op.into]
            arguments = ", ".join([*(where[o] for o in op.operands if o), buffers[op.into]])
            if kernel.items:
                lines.append(f"    {kernel.name}_g<<<{-(-kernel.items // BLOCK)}, {BLOCK}>>>({arguments});")
    return [
        *lines,
        "    CHECK(cudaGetLastError()); CHECK(cudaDeviceSynchronize());",
        f"    CHECK(cudaMemcpy(outputs, out, {4 * sum(out_counts)}, cudaMemcpyDeviceToHost));",
        "    CHECK(cudaFree(w)); CHECK(cudaFree(arena)); CHECK(cudaFree(in)); CHECK(cudaFree(out));",
        "}",
    ]
