"""Outputs whose size depends on the data: their type states the bound, a further output of the graph the actual size.

The further output is int64 of one element per axis, is named after the output it belongs to, and comes after all
outputs of the model. The first elements of the output, as many as the product of those sizes, are its value in
row-major order.
"""

from __future__ import annotations

from typing import Final

from compiler_kernels.ir.graph import Graph

SUFFIX: Final = "#extents"


def extents_name(output: str) -> str:
    """Name of the output that holds the sizes of ``output``."""
    return output + SUFFIX


def model_outputs(graph: Graph) -> list[tuple[str, str, str]]:
    """Name, value id and the id of the actual sizes ("" where the type says them) of every output of the model."""
    named = dict(zip(graph.output_names or graph.outputs, graph.outputs, strict=True))
    return [
        (name, value, named.get(extents_name(name), "")) for name, value in named.items() if not name.endswith(SUFFIX)
    ]
