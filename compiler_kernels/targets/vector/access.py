"""Where the elements of a value lie: a linear function of batch, channel block and up to three spatial axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.vector.vec import Vec

Three = tuple[int, int, int]


def three(values: Sequence[int], fill: int) -> Three:
    """``values`` of the spatial axes as (depth, height, width); missing leading axes get ``fill``."""
    padded = [*[fill] * (3 - len(values)), *values]
    return padded[0], padded[1], padded[2]


@dataclass(frozen=True, slots=True)
class Access:
    """Parameter ``name``; steps in floats. ``broadcast``: one float serves all channels, so it has no lanes."""

    name: str
    batch: int
    block: int
    spatial: Three
    origin: int
    broadcast: bool = False

    def at(self, n: str, cb: str, position: Sequence[str]) -> str:
        """C expression of the address of batch ``n``, channel block ``cb`` and spatial ``position``."""
        terms = [(n, self.batch), (cb, self.block), *zip(position, self.spatial, strict=True)]
        return f"{self.name} + {linear(terms, self.origin)}"

    def offset(self, position: Sequence[int], lane: int) -> int:
        """Floats from the first position of a tile to ``position`` and channel ``lane`` (counted across blocks)."""
        inside = sum(p * s for p, s in zip(position, self.spatial, strict=True))
        return inside + (0 if self.broadcast else lane // 16 * self.block + lane % 16)


def full_access(name: str, ttype: TensorType) -> Access:
    """Access to a whole ``c16`` or ``planar`` value (``block``: step between channel blocks, or channels)."""
    layout = ttype.physical
    return Access(name, layout.steps[0], layout.steps[1], three(layout.steps[2:], 0), layout.origin)


def plain_access(name: str, ttype: TensorType) -> Access:
    """Access to a plain value ``[N, C, spatial]``; ``block`` is the step between channels."""
    dims = ttype.dims
    steps = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    return Access(name, steps[0], steps[1], three(steps[2:], 0), 0)


def operand_access(name: str, ttype: TensorType, out: TensorType) -> Access:
    """Access to an operand of an elementwise operation on the ``c16`` value ``out``, broadcasting included."""
    layout = ttype.physical
    if layout.kind == "packed":
        return Access(name, 0, 16, (0, 0, 0), 0)
    if layout.kind == "plain":
        assert ttype.count == 1, ttype
        return Access(name, 0, 0, (0, 0, 0), 0, True)
    steps = [s if d == o else 0 for s, d, o in zip(layout.steps, ttype.dims, out.dims, strict=True)]
    return Access(name, steps[0], steps[1], three(steps[2:], 0), layout.origin, ttype.dims[1] != out.dims[1])


def flat_function(function: Graph) -> Graph:
    """``function`` with the spatial axes of every blocked value joined into one."""

    def joined(t: TensorType) -> TensorType:
        return TensorType((*t.dims[:2], prod(t.dims[2:])), t.dtype, "c16 0" if t.layout else "")

    inputs = tuple(replace(v, type=joined(v.type)) if v.type.layout.startswith("c16") else v for v in function.inputs)
    last = replace(function.ops[-1], type=joined(function.ops[-1].out))
    return replace(function, inputs=inputs, ops=(*function.ops[:-1], last))


class Chain:
    """The elementwise operations of a fused statement, applied to vectors of its root's result in graph order."""

    def __init__(self, function: Graph, vec: Vec, skip_root: bool = True) -> None:
        self.vec = vec
        self.ops: tuple[Op, ...] = function.ops[1:] if skip_root else function.ops
        types: Mapping[str, TensorType] = function.types()
        out = function.ops[-1].out
        self.channels = out.dims[1]
        self.accesses: dict[str, Access] = {}
        params = {v.id for v in function.inputs}
        for op in self.ops:
            for operand in op.operands:
                if operand in params:
                    self.accesses[operand] = operand_access(operand, types[operand], out)
        self.y = full_access("y", out) if out.layout else plain_access("y", out)

    def emit(self, code: Code, value: str, position: Sequence[int], lane: int, tail: int) -> None:
        """Statements storing the chain applied to ``value`` (named ``t0`` in the body) through the pointers in force.

        ``tail``: number of channels in the last block when this vector belongs to it and it is not full, else 0.
        """
        vec = self.vec
        target = linear([("y", 1)], self.y.offset(position, lane))
        if tail and lane % 16 >= tail:
            code.add(vec.store(target, vec.set1("0.0f")))
            return
        names = {"t0": value} if value else {}
        result = value
        parts: list[str] = []
        for op in self.ops:
            arguments = []
            for operand in op.operands:
                access = self.accesses.get(operand)
                if access is None:
                    arguments.append(names.get(operand, operand))
                    continue
                address = linear([(operand, 1)], access.offset(position, lane))
                arguments.append(vec.set1(f"*({address})") if access.broadcast else vec.load(address))
            parts.append(vec.statement(op, arguments))
            result = op.result
        if tail:
            result = vec.masked(result, tail, lane % 16)
        parts.append(vec.store(target, result))
        code.add("{ " + " ".join(parts) + " }" if len(parts) > 1 else parts[0])
