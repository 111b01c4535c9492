"""``mlir_text``: a module before fusion as one ``builtin.module`` of linalg on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.targets.isa import SCALAR, VARIANTS, Isa
from compiler_kernels.targets.mlir import moves, products, rows, windows
from compiler_kernels.targets.mlir.resize import resize
from compiler_kernels.targets.mlir.scalars import elementwise
from compiler_kernels.targets.mlir.writer import FLOATS, Tensor, Writer, attribute, static, string
from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.targets.vector.tile import tile_blocks, tile_pixels

INLINE: Final = 256
"""Constants of more elements than this become arguments of ``@main``."""
Lowering = Callable[[Op, Writer, Sequence[Tensor]], Tensor | None]


def _one(rule: Callable[[Op, Writer, Tensor], Tensor | None]) -> Lowering:
    return lambda op, writer, operands: rule(op, writer, operands[0])


LOWERINGS: Final[Mapping[str, Lowering]] = {
    "conv": windows.conv,
    "conv_transpose": windows.conv_transpose,
    "max_pool": _one(windows.pool),
    "average_pool": _one(windows.pool),
    "global_average_pool": _one(rows.global_pool),
    "global_max_pool": _one(rows.global_pool),
    "gemm": products.gemm,
    "matmul": products.matmul,
    "softmax": _one(rows.softmax),
    "log_softmax": _one(rows.softmax),
    "resize": _one(resize),
    "batch_normalization": rows.batch_norm,
    "layer_normalization": rows.norm,
    "instance_normalization": rows.norm,
    "group_normalization": rows.norm,
    **{f"reduce_{how}": _one(rows.reduce) for how in ("mean", "sum", "max", "min")},
}
MOVES: Final[Mapping[str, Lowering]] = {
    "transpose": _one(moves.transposed),
    "expand": _one(moves.expanded),
    "reshape": lambda op, writer, x: moves.reshape(writer, op.result, x[0], op.out.dims),
    "concat": moves.joined,
    "slice": _one(moves.sliced),
    "pad": _one(moves.pad),
}
"""These work on any element type, the others on floating point only."""


def mlir_text(module: Module, store: WeightStore, target: str = "", inline: int = INLINE) -> str:
    """The entry graph of an ``l0`` or ``frozen`` module; ``target`` is a triple of the registry or empty.

    The text is accepted by MLIR 16 and xDSL 0.75. Every statement carries ``cuvil.node``, the model's node; sums of
    products and elementwise statements carry ``cuvil.tile``, one size per loop (0: not cut), of the kernels generated
    for the target. Constants up to ``inline`` elements are written out, larger ones are arguments after the inputs with
    ``cuvil.ref``, their digest. What has no linalg form calls a declared function ``@cuvil_<operation>``.
    The order of sums is whatever a tool makes of it: this is no definition of any bit.

    ``UnsupportedError``: another level, a symbolic shape, an empty tensor.
    """
    if module.level not in ("l0", "frozen"):
        raise UnsupportedError(f"the MLIR export takes the level l0 or frozen, not {module.level}")
    graph = module.main
    writer = Writer()
    writer.tile = tile_sizes(target)
    values: dict[str, Tensor] = {}
    arguments: list[str] = []
    for value in graph.inputs:
        values[value.id] = found = Tensor(
            writer.name(value.id), static(value.type, f"input %{value.id}"), value.type.dtype
        )
        arguments.append(f"%{found.name}: {found.text} {{cuvil.name = {string(value.name or value.id)}}}")
    for weight in graph.weights:
        dims = static(weight.type, f"constant %{weight.id}")
        if weight.type.count <= inline:
            values[weight.id] = writer.constant(weight.id, np.asarray(store.get(weight)), weight.type.dtype)
        else:
            values[weight.id] = found = Tensor(writer.name(weight.id), dims, weight.type.dtype)
            arguments.append(f"%{found.name}: {found.text} {{cuvil.ref = {string(weight.ref)}}}")
    for op in graph.ops:
        values[op.result] = _statement(op, writer, values)
    outputs = [values[o] for o in graph.outputs]
    names = graph.output_names or graph.outputs
    results = ", ".join(f"{t.text} {{cuvil.name = {string(n)}}}" for t, n in zip(outputs, names, strict=True))
    returned = f"{', '.join(f'%{t.name}' for t in outputs)} : {', '.join(t.text for t in outputs)}"
    head = {"cuvil.level": string(module.level), "cuvil.model": string(graph.name)}
    if target:
        head["cuvil.target"] = string(target)
    lines = [f"module attributes {{{', '.join(f'{k} = {v}' for k, v in head.items())}}} {{"]
    lines += [f"  func.func private @{name}{signature}" for (_, signature), name in writer.externals.items()]
    lines += [f"  func.func @main({', '.join(arguments)}) -> ({results}) {{", *(f"    {x}" for x in writer.lines)]
    return "\n".join([*lines, f"    func.return {returned}", "  }", "}"]) + "\n"


def tile_sizes(target: str) -> tuple[int, int]:
    """Pixels (or rows) and outputs of the register tile of the best instruction set of ``target``."""
    known = TARGETS.get(target)
    isa: Isa = VARIANTS.get(known.machine, (SCALAR,))[0] if known else SCALAR
    blocks = tile_blocks(isa)
    return tile_pixels(isa, blocks), blocks * BLOCK


def _statement(op: Op, writer: Writer, values: Mapping[str, Tensor]) -> Tensor:
    what = f"node '{op.node}' ({op.kind})"
    operands = [values[o] for o in op.operands if o]
    if 0 in static(op.out, what) or any(0 in t.dims for t in operands):
        raise UnsupportedError(f"{what}: an empty tensor, which the MLIR export cannot write")
    writer.notes = {"cuvil.node": string(op.node or op.tensor or op.result)}
    mark = len(writer.lines)
    floats = op.out.dtype in FLOATS and all(t.dtype == op.out.dtype for t in operands)
    lowering = MOVES.get(op.kind) or (LOWERINGS.get(op.kind) if floats else None)
    complete = all(op.operands)  # an absent operand in the middle is left to the external function
    found = lowering(op, writer, operands) if lowering and complete else None
    if found is None and complete:
        found = elementwise(op, writer, operands)
    if found is None:
        del writer.lines[mark:]
        attrs = "{" + ", ".join(f"{k} = {attribute(v)}" for k, v in op.attrs) + "}"
        found = writer.external(op.kind, op.result, operands, op.out, attrs)
    return found
