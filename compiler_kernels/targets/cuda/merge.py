"""Launches next to each other that do not depend on each other become one: each costs a microsecond or more by itself.

The blocks of a joined launch do the work of their own kernels (``CudaKernel.block_text``), so no bit changes. Two
launches depend on each other when one writes bytes that the other reads or writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.targets.cuda.kernel import MOST_ARGUMENTS, CudaKernel
from compiler_kernels.targets.cuda.plan import Launch, Place

MOST: Final = 6
"""Launches that are joined; their pointers are parameters of one kernel."""

Range = tuple[str, int, int, int]


def merged(launches: Sequence[Launch], prefix: str = "cuvil") -> list[Launch]:
    """``launches`` with neighbours joined where they may be; a joined kernel is called ``<prefix>_joined<n>``."""
    found: list[Launch] = []
    known: dict[tuple[str, ...], CudaKernel] = {}
    group: list[Launch] = []

    def close() -> None:
        if len(group) > 1:
            key = tuple(launch.kernel.name for launch in group)
            if key not in known:
                known[key] = joined([launch.kernel for launch in group], f"{prefix}_joined{len(known)}")
            arguments = tuple(p for launch in group for p in launch.arguments)
            nodes = " + ".join(dict.fromkeys(launch.node for launch in group if launch.node))
            found.append(replace(group[0], kernel=known[key], arguments=arguments, node=nodes))
        else:
            found.extend(group)
        group.clear()

    for launch in launches:
        fits = can_join(launch.kernel)
        many = sum(len(other.arguments) for other in (*group, launch)) > MOST_ARGUMENTS
        if not fits or many or len(group) == MOST or any(_depend(launch, other) for other in group):
            close()
        if fits:
            group.append(launch)
        else:
            found.append(launch)
    close()
    return found


def can_join(kernel: CudaKernel) -> bool:
    """Whether ``kernel`` may share a launch; a workspace is for one kernel at a time."""
    return bool(kernel.block_text) and not kernel.workspace_bytes and not kernel.tickets


def _ranges(launch: Launch) -> list[Range]:
    """Bytes of the operands and of the result, which is the last."""
    types = [*(v.type for v in launch.function.inputs), launch.function.ops[-1].out]
    return [_range(p, t) for p, t in zip(launch.arguments, types, strict=True)]


def _range(place: Place, ttype: TensorType) -> Range:
    return place.space, place.index, place.offset, place.offset + ttype.nbytes


def _depend(a: Launch, b: Launch) -> bool:
    ours, theirs = _ranges(a), _ranges(b)
    return any(_overlap(ours[-1], r) for r in theirs) or any(_overlap(theirs[-1], r) for r in ours)


def _overlap(a: Range, b: Range) -> bool:
    return a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3]


def joined(kernels: Sequence[CudaKernel], name: str) -> CudaKernel:
    """One kernel whose blocks do the work of ``kernels``, one after another along the grid."""
    texts: list[str] = []
    functions: dict[str, str] = {}
    for kernel in kernels:
        if kernel.name not in functions:
            functions[kernel.name] = f"{name}_{len(functions)}"
            texts.append(re.sub(rf"\b{kernel.name}(?=_)", functions[kernel.name], kernel.block_text))
    parameters: list[str] = []
    lines: list[str] = []
    first = 0
    for number, kernel in enumerate(kernels):
        own = _parameters(kernel)
        names = [f"{p.rpartition('*')[2]}_{number}" for p in own]
        parameters += [f"{p.rpartition('*')[0]}*{n}" for p, n in zip(own, names, strict=True)]
        call = f"{functions[kernel.name]}_block((int)blockIdx.x - {first}, {', '.join(names)});"
        first += kernel.grid[0]
        inside = f"blockIdx.x < {first} && threadIdx.x < {kernel.block}"
        lines.append(f"    if ({inside}) {{\n        {call}\n        return;\n    }}")
        if number < len(kernels) - 1:
            lines.append(f"    if (blockIdx.x < {first}) return;")
    threads = max(k.block for k in kernels)
    head = f'extern "C" __global__ void __launch_bounds__({threads}) {name}({", ".join(parameters)})'
    body = "\n".join(lines)
    return CudaKernel(
        name,
        f"{''.join(texts)}{head}\n{{\n{body}\n}}\n",
        (first, 1, 1),
        threads,
        max(k.shared_bytes for k in kernels),
        independent=all(k.independent for k in kernels),
        dependent=all(k.dependent for k in kernels),
    )


def _parameters(kernel: CudaKernel) -> list[str]:
    """``const float *p0``, ..., ``float *y`` of the kernel's block function."""
    found = re.search(rf"{kernel.name}_block\(const int block, ([^)]*)\)", kernel.block_text)
    assert found is not None, kernel.name
    return found.group(1).split(", ")
