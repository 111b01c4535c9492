"""Verifier of all levels: a table of rules per level, each yielding the sentences that say what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.graph import ANONYMOUS, DTYPE_BYTES, LEVELS, Graph, Module, Op, TensorType
from compiler_kernels.ir.layout import parse_layout
from compiler_kernels.ir.ops import infer
from compiler_kernels.ir.shapes_recurrent import STEPS, steps
from compiler_kernels.ir.symbols import Unproved, magnitude, scope, symbols_of
from compiler_kernels.ir.verify_memory import buffers, calls, lifetimes

Rule = Callable[[Module, Graph], Iterator[str]]

_ID: Final = re.compile(r"[A-Za-z0-9_.]+")
_REF: Final = re.compile(r"sha3-512:[0-9a-f]{128}")
# Operations that exist only after L0, with the number of their operands; all keep the first operand's type.
LATER_OPS: Final[Mapping[str, int]] = {"affine": 3, "copy": 1, "relayout": 1}


def identifiers(module: Module, graph: Graph) -> Iterator[str]:
    """Ids are printable and defined once; nothing is used before it is defined; attributes are sorted."""
    defined: set[str] = set()
    for vid in (*(v.id for v in graph.inputs), *(w.id for w in graph.weights)):
        if not _ID.fullmatch(vid):
            yield f"{vid!r} is not a value id"
        if vid in defined:
            yield f"%{vid} is defined twice"
        defined.add(vid)
    for op in graph.ops:
        for operand in (*op.operands, op.into):
            if operand and operand not in defined:
                yield f"{op.name} uses %{operand} before its definition"
        for key in (k for k, _ in op.attrs):
            if not _ID.fullmatch(key):
                yield f"{op.name} has the unprintable attribute {key!r}"
        if list(op.attrs) != sorted(op.attrs, key=lambda item: item[0]):
            yield f"the attributes of {op.name} are not sorted"
        if op.result:
            if not _ID.fullmatch(op.result):
                yield f"{op.result!r} is not a value id"
            if op.result in defined:
                yield f"%{op.result} is defined twice"
            defined.add(op.result)


def outputs(module: Module, graph: Graph) -> Iterator[str]:
    """Every graph returns something, under one name each, and only what exists."""
    types = graph.types()
    if not graph.outputs:
        yield "the graph returns nothing"
    if graph.output_names and len(graph.output_names) != len(graph.outputs):
        yield f"{len(graph.outputs)} outputs have {len(graph.output_names)} names"
    yield from (f"%{out} is returned but not defined" for out in graph.outputs if out not in types)


def weights(module: Module, graph: Graph) -> Iterator[str]:
    """References are SHA3-512 digests and constants have static types."""
    for w in graph.weights:
        if not _REF.fullmatch(w.ref):
            yield f"weight %{w.id} has the malformed reference {w.ref[:24]!r}"
        if not w.type.is_static or w.type.dtype not in DTYPE_BYTES:
            yield f"weight %{w.id} has the type {w.type.dtype}{list(w.type.shape)}, which is not a static type"


def layouts(module: Module, graph: Graph) -> Iterator[str]:
    """Element types are known, and a layout fits its static shape; L0 knows no layouts."""
    for vid, found in graph.types().items():
        if found.dtype not in DTYPE_BYTES:
            yield f"%{vid} has the unknown element type {found.dtype}"
        if not found.layout:
            continue
        if module.level == "l0" or not found.is_static:
            yield f"%{vid} has the layout {found.layout!r}, which level {module.level} or its shape does not allow"
            continue
        try:
            parse_layout(found.layout, found.dims)
        except ValueError as error:
            yield f"%{vid}: {error}"


def pure(module: Module, graph: Graph) -> Iterator[str]:
    """L0: only operations of the table, no buffers, no bodies, a type for every result."""
    types = graph.types()
    for op in graph.ops:
        if not op.name.startswith("op.") or op.kind in LATER_OPS or op.kind in STEPS:
            yield f"{op.name} does not belong to this level"
        elif op.into or op.body:
            yield f"{op.name} has a buffer or a body, which this level does not know"
        else:
            yield from _typed(op, types)


def statements(module: Module, graph: Graph) -> Iterator[str]:
    """After the freeze: L0 operations, ``affine``, ``copy`` and fused statements, types as the rules infer them."""
    types = graph.types()
    for op in graph.ops:
        dialect = op.name.partition(".")[0]
        if dialect == "op":
            yield from _typed(op, types)
        elif dialect == "fused":
            yield from _fused(op, types)
        elif dialect == "view":
            yield from _typed(replace(op, name=f"op.{op.kind}"), types)
        elif op.name not in ("tensor.alloc", "tensor.part", "tensor.free") and not (
            dialect == "call" and module.level == "l2"
        ):
            yield f"{op.name} does not belong to level {module.level}"


def conditions(module: Module, graph: Graph) -> Iterator[str]:
    """``when`` names single bool values that are defined before the statement and still in their buffers."""
    types = graph.types()
    defined = {v.id for v in graph.inputs} | {w.id for w in graph.weights}
    for op in graph.ops:
        if op.has("when"):
            names = op.attr("when")
            for name in names if isinstance(names, tuple) else ():
                value = str(name).removeprefix("!")
                found = types.get(value)
                if value not in defined or found is None or found.dtype != "bool" or found.count != 1:
                    yield f"{op.name} runs when %{value}, which is not one bool defined before it"
        if op.result:
            defined.add(op.result)


def _typed(op: Op, types: Mapping[str, TensorType]) -> Iterator[str]:
    """The result type is what the operation's shape rule gives."""
    if not op.result or op.type is None:
        yield f"{op.name} has no result or no type"
        return
    found = [types.get(o) if o else None for o in op.operands]
    operands = [t.logical if t else None for t in found]
    result = op.type.logical
    attrs = {k: v for k, v in op.attrs if k not in ("in_place", "rows", "runtime_weights", "when")}
    try:
        if op.kind in STEPS:
            steps(STEPS[op.kind], operands, attrs, result)
        elif op.kind in LATER_OPS:
            if len(operands) != LATER_OPS[op.kind] or operands[0] != result or attrs:
                yield f"{op.name} must have {LATER_OPS[op.kind]} operands, no attributes and the type of the first"
        else:
            infer(op.kind, operands, attrs, result)
    except (IRError, Unproved) as error:
        yield f"%{op.result}: {error}"


def _fused(op: Op, types: Mapping[str, TensorType]) -> Iterator[str]:
    """The body reads operands or its own earlier values, uses every operand, and its last operation is the result."""
    if not op.body:
        yield f"{op.name} has no body"
        return
    known = {o: types[o] for o in op.operands if o in types}
    used: set[str] = set()
    for inner in op.body:
        if not inner.name.startswith("op.") or inner.body or inner.into:
            yield f"{inner.name} cannot stand in the body of {op.name}"
        for operand in inner.operands:
            if operand and operand not in known:
                yield f"{inner.name} in the body of {op.name} reads %{operand}, which is neither operand nor body value"
        used.update(inner.operands)
        yield from _typed(inner, known)
        if inner.result in types and inner is not op.body[-1]:
            yield f"%{inner.result} is defined inside and outside {op.name}"
        if inner.type is not None:
            known[inner.result] = inner.type
    if (op.body[-1].result, op.body[-1].type) != (op.result, op.type):
        yield f"the last operation of {op.name} does not define %{op.result} with its type"
    yield from (f"{op.name} does not use its operand %{o}" for o in op.operands if o and o not in used)
    # Kernels know their parameters by position: the root's come first.
    made = {inner.result for inner in op.body}
    order = list(dict.fromkeys(o for inner in op.body for o in inner.operands if o and o not in made))
    if sorted(order) == sorted(op.operands) and order != list(op.operands):
        yield f"the operands of {op.name} are not in the order in which its body first uses them"


def symbols(module: Module, graph: Graph) -> Iterator[str]:
    """Where a module declares symbols, it declares all that its types use, and 64 bits suffice to compute the sizes."""
    declared = symbols_of(module.meta)
    if not declared:
        return
    for vid, found in graph.types().items():
        if ANONYMOUS in found.shape:
            yield f"%{vid} has the anonymous dimension ?, which no bound declares"
            continue
        sizes = [size for size in found.extents if isinstance(size, Expr)]
        for name in sorted({name for size in sizes for name in size.symbols} - declared.keys()):
            yield f"%{vid} uses the symbol {name}, for which the module declares no bounds"
        for size in sizes:
            if magnitude(size, declared) >= 1 << 62:
                yield f"%{vid} has the size {size}, which 64 bits do not compute for all sizes within the bounds"


_COMMON: Final[tuple[Rule, ...]] = (identifiers, layouts, outputs, weights, symbols)
RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "l0": (*_COMMON, pure),
    "frozen": (*_COMMON, statements),
    "l1": (*_COMMON, statements, conditions, buffers, lifetimes),
    "l2": (*_COMMON, statements, conditions, calls, buffers, lifetimes),
}


def complaints(module: Module) -> Iterator[str]:
    """Every rule the module breaks, one sentence each, prefixed by level and graph."""
    try:
        declared = symbols_of(module.meta)
    except IRError as error:
        yield f"{module.level}: {error}"
        return
    with scope(declared):
        found = list(_complaints(module))
    yield from found


def _complaints(module: Module) -> Iterator[str]:
    if module.level not in LEVELS:
        yield f"unknown level {module.level!r}"
        return
    if len(module.graphs) != 1 and module.level != "l2":
        yield f"level {module.level} has {len(module.graphs)} graphs where one is needed"
    names = [g.name for g in module.graphs]
    yield from (f"graph @{n} is defined twice" for n in sorted({n for n in names if names.count(n) > 1}))
    for graph in module.graphs:
        for rule in RULES[module.level]:
            found = [f"{module.level} @{graph.name}: {text}" for text in rule(module, graph)]
            yield from found
            if found:
                break  # later rules build on earlier ones


def verify(module: Module) -> None:
    """Check ``module`` against the rules of its level; ``IRError`` with the first complaint."""
    for text in complaints(module):
        raise IRError(text)
