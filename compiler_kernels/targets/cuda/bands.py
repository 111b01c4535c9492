"""Convolutions in bands of rows, where that makes the arena smaller.

At the top of a U-Net the joined input and the result of a convolution are alive together, and nothing else is as large.
Computed from the last rows to the first, in launches one after another, the result can lie where input rows lay that no
later band needs; the planner finds where (arena.py). The sums are the same, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.stage import Json
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.arena import least, planned
from compiler_kernels.targets.cuda.families.conv import conv
from compiler_kernels.targets.cuda.families.winograd import winograd
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

COUNTS: Final = (2, 4)
"""Bands that are tried."""
TRIED: Final = 16
"""Convolutions that are tried, those with the largest results."""


@dataclass(frozen=True)
class Thrift:
    """When bands pay: they save at least ``bytes`` of the arena, and each has blocks for ``filled`` of the chip."""

    bytes: int
    filled: float


THRIFT: Final = Thrift(1 << 20, 0.9)
"""A launch more costs a microsecond or two."""


@dataclass(frozen=True)
class Order:
    """An L2 module and its statements in the order of launches, with the moments of the calls and the kernels by
    function."""

    module: Module
    ops: tuple[Op, ...]
    moment: tuple[int, ...]
    kernels: Mapping[str, CudaKernel]

    def planned(self, apart: bool = False) -> Plan:
        """With a place in the arena for everything; ``apart`` as of ``arranged``."""
        return Plan(self, *planned(self.module, self.ops, self.moment, self._workspaces, apart))

    @property
    def least(self) -> int:
        """Bytes of an arena that no plan can do without."""
        return least(self.module, self.ops, self.moment, self._workspaces)

    @property
    def _workspaces(self) -> dict[str, int]:
        return {name: kernel.workspace_bytes for name, kernel in self.kernels.items()}


@dataclass(frozen=True)
class Plan:
    """An order, the module with its arena planned for it, and the arena's report."""

    order: Order
    module: Module
    memory: dict[str, Json]

    @property
    def bytes(self) -> int:
        """Of the arena."""
        size = self.memory["arena_bytes"]
        assert isinstance(size, int)
        return size


def in_bands(plan: Plan, gpu: Gpu, prefix: str, thrift: Thrift = THRIFT) -> Plan:
    """``plan``, or a smaller one with convolutions in bands, as long as one more pays."""
    while True:
        order = plan.order
        found = [
            changed
            for call in _candidates(order)
            for count in COUNTS
            if order.kernels[call.kind].grid[0] >= count * thrift.filled * gpu.multiprocessors
            if (changed := _with_bands(order, call, count, gpu, prefix)) is not None
        ]
        best = min(found, key=lambda o: o.least, default=order)
        if best is order or best.least > plan.bytes - thrift.bytes:
            return plan
        smaller = best.planned()
        if smaller.bytes > plan.bytes - thrift.bytes:
            return plan
        plan = smaller


def _candidates(order: Order) -> list[Op]:
    able = {f.name for f in order.module.graphs[1:] if bandable(f)}
    calls = [op for op in order.ops if op.name.startswith("call.") and op.kind in able]
    return sorted(calls, key=lambda op: -op.out.nbytes)[:TRIED]


def bandable(function: Graph) -> bool:
    """Whether ``function`` is a convolution of one image to one block of channels that could be computed in bands: its
    other operands are constants of channels, and no fused operation reads what the convolution reads."""
    op, out = root_of(function), function.ops[-1].out
    if op.kind != "conv" or op.has("rows") or out.dims[0] != 1 or out.dims[1] > BLOCK or len(out.dims) != 4:
        return False
    x, *others = function.inputs
    return (
        op.operands[0] == x.id
        and op.int_("group") == 1
        and x.type.layout.startswith("c16 ")
        and out.layout.startswith("c16 ")
        and all(v.type.layout.startswith("packed ") for v in others)
        and not any(x.id in inner.operands for inner in function.ops[1:])
    )


def borders(height: int, count: int) -> list[int]:
    """The first row of each of ``count`` bands, and ``height``; even, as the tiles of a Winograd form begin at even
    rows."""
    return [height * n // count // 2 * 2 for n in range(count)] + [height]


def _with_bands(order: Order, call: Op, count: int, gpu: Gpu, prefix: str) -> Order | None:
    """``order`` with ``call`` in ``count`` bands, the last rows first; ``None`` where no kernel does that."""
    edges = borders(call.out.dims[2], count)
    if len(set(edges)) <= count:
        return None
    graphs = {f.name: f for f in order.module.graphs[1:]}
    functions = [_band(graphs[call.kind], *edges[n : n + 2]) for n in range(count)]
    kernels = dict(order.kernels)
    for f in functions:
        kernel = kernels.get(f.name) or band_kernel(f, gpu, prefix)
        if kernel is None:
            return None
        kernels[f.name] = kernel
    names = [f"{call.result}_rows{first}" for first in edges[:-1]]
    calls = [replace(call, name=f"call.{f.name}", result=name) for f, name in zip(functions, names, strict=True)]
    calls[0] = replace(calls[0], result=call.result).with_attrs(after=tuple(names[1:]))
    ops: list[Op] = []
    moment: list[int] = []
    later = 0
    moments = iter(order.moment)
    for op in order.ops:
        if op is call:
            ops += reversed(calls)
            first = next(moments) + later
            moment += range(first, first + count)
            later += count - 1
            continue
        ops.append(op)
        if op.name.startswith("call."):
            moment.append(next(moments) + later)
    graphs |= {f.name: f for f in functions}
    used = {op.kind for op in ops if op.name.startswith("call.")}
    module = replace(order.module, graphs=(order.module.main, *(f for f in graphs.values() if f.name in used)))
    return Order(module, tuple(ops), tuple(moment), kernels)


def _band(function: Graph, first: int, last: int) -> Graph:
    root = function.ops[0].with_attrs(rows=(first, last))
    return replace(function, name=f"{function.name}_rows{first}_{last}", ops=(root, *function.ops[1:]))


def band_kernel(function: Graph, gpu: Gpu, prefix: str) -> CudaKernel | None:
    """The kernel of a band, from the families that know bands."""
    families: tuple[Callable[[Graph, Gpu, str], CudaKernel | None], ...] = (conv, winograd)
    found = (family(function, gpu, f"{prefix}_{function.name}") for family in families)
    kernel = next((k for k in found if k is not None), None)
    return kernel if kernel is None or gpu.clusters else replace(kernel, dependent=False)
