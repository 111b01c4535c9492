"""The frozen graph in neutral JSON (docs/architecture.md), for readers that share no code with the compiler."""

from __future__ import annotations

import json

from compiler_kernels.ir.extents import model_outputs
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.symbols import Symbols
from compiler_kernels.ir.weights import layout
from compiler_kernels.stage import Json, as_json


def neutral_json(graph: Graph, symbols: Symbols | None = None) -> bytes:
    """``frozen_graph.json`` of a graph; weights by their offset in ``weights.bin``, sizes that depend on ``symbols`` as
    texts."""
    offsets, _ = layout(graph.weights)
    document: dict[str, Json] = {
        "format": "cuvil-graph/1",
        "name": graph.name,
        **({"symbols": {name: str(bound) for name, bound in symbols.items()}} if symbols else {}),
        "inputs": [
            {"id": v.id, "name": v.name or v.id, "shape": list(v.type.shape), "dtype": v.type.dtype}
            for v in graph.inputs
        ],
        "weights": [
            {
                "id": w.id,
                "shape": list(w.type.dims),
                "dtype": w.type.dtype,
                "offset": offsets[w.ref],
                "sha3_512": w.ref.removeprefix("sha3-512:"),
            }
            for w in graph.weights
        ],
        "nodes": [
            {
                "op": op.kind,
                "inputs": list(op.operands),
                "output": op.result,
                "shape": list(op.out.shape),
                "dtype": op.out.dtype,
                "attrs": as_json(dict(op.attrs)),
                "node": op.node,
                "tensor": op.tensor,
            }
            for op in graph.ops
        ],
        "outputs": [
            {"id": value, "name": name, **({"extents": sizes} if sizes else {})}
            for name, value, sizes in model_outputs(graph)
        ],
    }
    return (json.dumps(document, indent=1, allow_nan=True) + "\n").encode()
