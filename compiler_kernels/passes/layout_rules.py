"""Which statements can work on blocked activations, and what they ask of their operands.

A statement that no rule takes stays plain and goes to the scalar kernels. The families of targets/vector/ accept
whatever a rule accepts; the two are kept in step by tests/vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.order import LEAF_TAPS, SUM_LEAF
from compiler_kernels.arithmetic.resize import is_two_tap, resize_tables
from compiler_kernels.arithmetic.winograd import DIRECT, WINOGRAD, packing
from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.passes.fuse import ELEMENTWISE, ELEMENTWISE_TYPED, fused_statement

NARROW: Final = 4
PLAIN: Final = "plain"
C16: Final = "c16"
PLANAR: Final = "planar"


@dataclass
class Demand:
    """``operands``: layout kind each operand must have (a packing name for constants); ``halo`` per spatial axis."""

    operands: dict[str, str] = field(default_factory=dict)
    halo: dict[str, tuple[int, ...]] = field(default_factory=dict)
    result: str = C16


@dataclass(frozen=True)
class Site:
    """Types, the layout kind of every value so far (constants have none), and the root operation."""

    types: Mapping[str, TensorType]
    kinds: Mapping[str, str]
    root: Op

    def constant(self, operand: str) -> bool:
        return operand not in self.kinds

    def blocked(self, operand: str) -> bool:
        return self.kinds.get(operand) == C16


def demand(op: Op, types: Mapping[str, TensorType], kinds: Mapping[str, str]) -> Demand | None:
    """What statement ``op`` needs to work on blocked values; ``None`` when it must stay plain."""
    body = op.body or (op,)
    root, out = body[0], op.out
    site = Site(types, kinds, root)
    if any(t.dtype != "float32" for t in (out, *(types[o] for o in op.operands if o))) or out.count == 0:
        return None
    if any(o.kind in ELEMENTWISE_TYPED for o in body):  # scalar code only, which knows no layout
        return None
    elementwise = root.kind in ELEMENTWISE or root.kind == "affine"
    if elementwise:
        found = _elementwise_root(site, body, out)
    else:
        rule = RULES.get(root.kind)
        found = rule(site) if rule and 3 <= len(types[root.operands[0]].dims) <= 5 else None
    if found is None or (found.result == PLAIN and len(body) > 1):
        return None
    inner = {o.result for o in body}
    for inside in body if elementwise else body[1:]:
        for position, operand in enumerate(inside.operands):
            if operand in inner:
                continue
            form = operand_form(types[operand], site.constant(operand), out, inside.kind == "affine" and position > 0)
            if form is None or found.operands.get(operand, form) != form:
                return None
            found.operands[operand] = form
    return found


def is_narrow(op: Op, types: Mapping[str, TensorType], graph: Graph) -> bool:
    """A convolution to few channels that ends the graph: it writes planes, and what follows works on those.

    Blocks of 16 would be mostly padding, and a sigmoid after the convolution would be computed 16 times per pixel.
    """
    body = op.body or (op,)
    root, inner = body[0], {o.result for o in body}
    if root.kind != "conv" or root.int_("group") != 1 or is_winograd(root):
        return False
    if op.out.dims[1] > NARROW or op.result not in graph.outputs:
        return False
    outside = [o for inside in body[1:] for o in inside.operands if o not in inner]
    return all(types[o].count == 1 and graph.weight(o) is not None for o in outside)


def is_winograd(op: Op) -> bool:
    return op.has("arithmetic") and op.str_("arithmetic") != DIRECT


def narrow_parts(op: Op) -> list[Op]:
    """The convolution of a narrow statement, and the rest of it."""
    if not op.body:
        return [op]
    root, rest = op.body[0], list(op.body[1:])
    return [root, rest[0] if len(rest) == 1 else fused_statement(rest)]


def operand_form(ttype: TensorType, constant: bool, out: TensorType, per_channel: bool) -> str | None:
    """How an elementwise operand meets the blocked result ``out``: layout kind or packing, ``None`` = not at all."""
    dims, target = ttype.dims, out.dims
    if ttype.count == 1 and len(dims) <= len(target) and (constant or len(dims) != len(target)):
        return PLAIN
    if constant:
        shape = (target[1], *[1] * (len(target) - 2))
        lead = dims[1:] if len(dims) == len(target) and dims[0] == 1 else dims
        return "channels16" if lead == shape or (per_channel and dims == target[1:2]) else None
    if len(dims) != len(target) or any(d not in (1, t) for d, t in zip(dims, target, strict=True)):
        return None
    return C16


def _elementwise_root(site: Site, body: tuple[Op, ...], out: TensorType) -> Demand | None:
    inner = {o.result for o in body}
    outside = [o for op in body for o in op.operands if o and o not in inner]
    if not 3 <= len(out.dims) <= 5 or not any(site.blocked(o) and site.types[o].dims == out.dims for o in outside):
        return None
    return Demand()


def _conv(site: Site) -> Demand | None:
    op, (x, w) = site.root, site.root.operands[:2]
    bias = op.operands[2] if len(op.operands) > 2 else ""
    if not site.constant(w) or (bias and not site.constant(bias)) or site.constant(x):
        return None
    if is_winograd(op):
        return _winograd(site)
    transposed, group = op.kind == "conv_transpose", op.int_("group")
    dims = site.types[w].dims
    channels, outputs = (dims[0], dims[1]) if transposed else (dims[1], dims[0])
    packing = "oc16"
    if group > 1:
        if transposed:
            return None
        if channels == 1 and outputs == group and prod(dims[2:]) <= LEAF_TAPS:
            packing = "dw16"
        elif channels % BLOCK or outputs // group % BLOCK:
            return None
    found = Demand({x: C16, w: packing})
    if group == 1 and channels < UNIT and not site.blocked(x):
        found.operands[x] = PLANAR
    if bias:
        found.operands[bias] = "channels16"
    found.halo[x] = (
        transposed_halo(op, site.types[x], dims[2:]) if transposed else conv_halo(op, site.types[x], dims[2:])
    )
    return found


def _winograd(site: Site) -> Demand | None:
    """Tiles may read one position beyond what the kept outputs need; the halo is that much wider."""
    op, (x, w) = site.root, site.root.operands[:2]
    dims, name = site.types[w].dims, op.str_("arithmetic")
    if dims[1] < UNIT:
        return None
    found = Demand({x: C16, w: packing(name)})
    if len(op.operands) > 2 and op.operands[2]:
        found.operands[op.operands[2]] = "channels16"
    reach = 3 if WINOGRAD[name].axes == 2 else 3 * WINOGRAD[name].groups(dims[2:])
    widths = []
    for a, size in enumerate(site.types[x].dims[2:]):
        begin, last = op.ints("pads")[a], (op.out.dims[a + 2] - 1) // 2 * 2
        widths.append(max(begin, last - begin + reach - (size - 1), 0))
    found.halo[x] = tuple(widths)
    return found


def conv_halo(op: Op, x: TensorType, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """Per axis, how far the window reaches beyond x on the worse side."""
    rank = len(kernel)
    widths = []
    for a in range(rank):
        begin = op.ints("pads")[a]
        last = (op.out.dims[a + 2] - 1) * op.ints("strides")[a] - begin + (kernel[a] - 1) * op.ints("dilations")[a]
        widths.append(max(begin, last - (x.dims[a + 2] - 1), 0))
    return tuple(widths)


def transposed_halo(op: Op, x: TensorType, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The same for the x indices (o + pad - k * dilation) / stride of a transposed convolution."""
    widths = []
    for a, size in enumerate(kernel):
        stride, dilation, pad = op.ints("strides")[a], op.ints("dilations")[a], op.ints("pads")[a]
        reach = [o + pad - k * dilation for o in range(op.out.dims[a + 2]) for k in range(size)]
        index = [r // stride for r in reach if r % stride == 0] or [0]
        widths.append(max(-min(index), max(index) - (x.dims[a + 2] - 1), 0))
    return tuple(widths)


def _pool(site: Site) -> Demand | None:
    op, x = site.root, site.root.operands[0]
    if not site.blocked(x) or (op.kind == "average_pool" and prod(op.ints("kernel")) > SUM_LEAF):
        return None
    return Demand({x: C16})


def _global_pool(site: Site) -> Demand | None:
    x = site.root.operands[0]
    return Demand({x: C16}) if site.blocked(x) else None


def _mean(site: Site) -> Demand | None:
    """The mean over all spatial axes of rank >= 4 is a global average pool; its result is plain."""
    op, x = site.root, site.root.operands[0]
    rank = len(site.types[x].dims)
    if rank < 4 or op.ints("axes") != tuple(range(2, rank)) or not site.blocked(x):
        return None
    if site.types[x].dims[0] > 1 and site.types[x].dims[1] % BLOCK:
        return None
    return Demand({x: C16}, result=PLAIN)


def _resize(site: Site) -> Demand | None:
    op, x = site.root, site.root.operands[0]
    tables = resize_tables(op, site.types[x].dims) if site.blocked(x) and is_two_tap(op) else []
    if not tables or any(t.axis < 2 or any(t.outside) for t in tables):
        return None
    return Demand({x: C16})


def _concat(site: Site) -> Demand | None:
    """Along a spatial axis, or along the channels when every part, except perhaps the last, is whole blocks of 16."""
    op = site.root
    if op.int_("axis") == 0 or not all(site.blocked(o) for o in op.operands):
        return None
    if op.int_("axis") > 1:
        return Demand(dict.fromkeys(op.operands, C16))
    if any(site.types[o].dims[1] % BLOCK for o in op.operands[:-1]):
        return None
    return Demand(dict.fromkeys(op.operands, C16))


def _move(site: Site) -> Demand | None:
    """Slice or pad that leaves batch and channels alone."""
    op, x = site.root, site.root.operands[0]
    dims = site.types[x].dims
    if not site.blocked(x) or op.out.dims[:2] != dims[:2]:
        return None
    if op.kind == "slice":
        still = op.ints("starts")[:2] == (0, 0) and op.ints("steps")[:2] == (1, 1)
    else:
        pads, rank = op.ints("pads"), len(dims)
        # Amounts that remove elements come first in the definition; they stay with the scalar kernel.
        still = min(pads) >= 0 and not any((*pads[:2], *pads[rank : rank + 2]))
    return Demand({x: C16}) if still else None


RULES: Final[Mapping[str, Callable[[Site], Demand | None]]] = {
    "conv": _conv,
    "conv_transpose": _conv,
    "max_pool": _pool,
    "average_pool": _pool,
    "global_average_pool": _global_pool,
    "global_max_pool": _global_pool,
    "reduce_mean": _mean,
    "resize": _resize,
    "concat": _concat,
    "slice": _move,
    "pad": _move,
}
