"""Concatenations whose parts can be written where they belong: then nothing is copied.

Blocks of 16 channels of one image lie one after another, so the parts of a channel concatenation are stretches of its
buffer when each has the layout of the whole. Concatenations nest: a part may be a concatenation itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler_kernels.ir.graph import DTYPE_BYTES, Graph, Op


@dataclass
class Joins:
    """``place[value]`` is the value of the outermost concatenation and the byte at which ``value`` begins in it."""

    place: dict[str, tuple[str, int]] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)  # results of concatenations that need no statement
    members: dict[str, list[str]] = field(default_factory=dict)  # of every outermost concatenation


def find_joins(graph: Graph) -> Joins:
    """All concatenations of ``graph`` that can be built in place; each value joins one of them at most."""
    makers = {op.result: op for op in graph.ops}
    parent: dict[str, tuple[str, int]] = {}
    found = Joins()
    for op in graph.ops:
        if _whole(op, makers, graph) and all(_free(o, op, makers, parent, graph) for o in op.operands):
            found.joined.add(op.result)
            start = 0
            for operand in op.operands:
                parent[operand] = (op.result, start)
                start += makers[operand].out.nbytes
    for value in parent:
        root, start = value, 0
        while root in parent:
            root, more = parent[root]
            start += more
        found.place[value] = (root, start)
        found.members.setdefault(root, []).append(value)
    return found


def _whole(op: Op, makers: dict[str, Op], graph: Graph) -> bool:
    """A concatenation of distinct values along the channels of a single blocked image."""
    return (
        op.name == "op.concat"
        and op.out.layout.startswith("c16")
        and op.int_("axis") == 1
        and op.out.dims[0] == 1
        and len(set(op.operands)) == len(op.operands)
        and op.result not in graph.outputs
        and sum(makers[o].out.nbytes for o in op.operands if o in makers) == op.out.nbytes
    )


def _free(value: str, op: Op, makers: dict[str, Op], parent: dict[str, tuple[str, int]], graph: Graph) -> bool:
    """Whether ``value`` can be written into the result of ``op``: a statement makes it, and nothing else holds it."""
    maker = makers.get(value)
    return (
        maker is not None
        and maker.kind != "reshape"
        and value not in parent
        and value not in graph.outputs
        and maker.out.layout == op.out.layout
        and maker.out.nbytes % (DTYPE_BYTES[op.out.dtype] * 16) == 0
    )
