"""Printer of the text form (docs/ir.md). ``parse(print(m)) == m`` for every verified module."""

from __future__ import annotations

import json
import math

from compiler_kernels.ir.graph import Attr, Graph, Module, Op, TensorType

VERSION = 1


def format_type(t: TensorType) -> str:
    """``float32[1, C, ?]``; a scalar is ``float32[]``; with a layout ``float32[1, 64, 7, 7 | c16 1 1]``."""
    return f"{t.dtype}[{format_dims(t)}]"


def format_dims(t: TensorType) -> str:
    dims = ", ".join(str(d) for d in t.shape)
    return f"{dims} | {t.layout}" if t.layout else dims


def format_attr(value: Attr) -> str:
    """One attribute value. Floats use the shortest text that reads back to the same binary64 (``repr``)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, str):
        return json.dumps(value)
    return "[" + ", ".join(format_attr(v) for v in value) + "]"


def _format_float(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


def format_op(op: Op, indent: str = "  ") -> list[str]:
    """Lines of one statement (several for a fused one)."""
    left = f"%{op.result} = " if op.result else ""
    args = ", ".join(f"%{o}" if o else "none" for o in op.operands)
    text = f"{indent}{left}{op.name}({args})" if op.name != "tensor.alloc" else f"{indent}{left}{op.name}"
    if op.into:
        text += f" into %{op.into}"
    for key, value in op.attrs:
        text += f" {key}={format_attr(value)}"
    if op.type is not None:
        if op.name == "tensor.alloc":
            text += f" shape=[{format_dims(op.type)}] dtype={op.type.dtype}"
        else:
            text += f" : {format_type(op.type)}"
    if op.node or op.tensor:
        text += f" @ {json.dumps(op.node)} {json.dumps(op.tensor)}"
    if not op.body:
        return [text]
    lines = [text + " {"]
    for inner in op.body:
        lines += format_op(inner, indent + "  ")
    return [*lines, f"{indent}}}"]


def format_graph(graph: Graph) -> str:
    params = ", ".join(
        f"%{v.id}: {format_type(v.type)}" + (f" {json.dumps(v.name)}" if v.name and v.name != v.id else "")
        for v in graph.inputs
    )
    lines = [f"graph @{graph.name}({params}) {{"]
    lines += [f'  %{w.id} = weight ref="{w.ref}" : {format_type(w.type)}' for w in graph.weights]
    for op in graph.ops:
        lines += format_op(op)
    names = graph.output_names or graph.outputs
    outs = [f"%{o}" + (f" {json.dumps(n)}" if n != o else "") for o, n in zip(graph.outputs, names, strict=True)]
    lines.append(("  return " + ", ".join(outs)).rstrip())
    return "\n".join([*lines, "}"])


def print_module(module: Module) -> str:
    """The whole module, ending in a newline."""
    head = f"cuvil.ir level={module.level} version={VERSION}"
    meta = [f"meta {key} = {json.dumps(value)}" for key, value in module.meta]
    return "\n".join([head, *meta, *(format_graph(g) for g in module.graphs)]) + "\n"
