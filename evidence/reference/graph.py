"""The neutral form of a frozen graph, read without any code of the compiler (docs/architecture.md)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.errors import ReferenceError
from evidence.reference.sizes import at_sizes, bounds_of

FORMAT = "cuvil-graph/1"
Array = npt.NDArray[Any]


def storage(dtype: str) -> np.dtype[Any]:
    """How values of an element type are kept: as NumPy's type of that name, bfloat16 as two opaque bytes (``V2``)."""
    return np.dtype("V2") if dtype == "bfloat16" else np.dtype(dtype)


def type_name(dtype: np.dtype[Any]) -> str:
    """The element type kept as ``dtype``: inverse of :func:`storage`."""
    return "bfloat16" if dtype.kind == "V" else dtype.name


@dataclass(frozen=True)
class RefTensor:
    """A graph input: value id, name in the model, static shape, NumPy dtype name."""

    id: str
    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RefNode:
    """One operation of docs/ir.md; an absent optional input is the empty string."""

    op: str
    inputs: tuple[str, ...]
    output: str
    shape: tuple[int, ...]
    dtype: str
    attrs: Mapping[str, Any]
    node: str = ""
    tensor: str = ""


@dataclass(frozen=True)
class RefGraph:
    """A frozen graph with its weights; nodes are in an order in which every operand precedes its use."""

    name: str
    inputs: tuple[RefTensor, ...]
    weights: Mapping[str, Array]
    nodes: tuple[RefNode, ...]
    outputs: tuple[tuple[str, str], ...]  # (value id, name)
    extents: tuple[tuple[str, str], ...] = ()  # (value id of an output, id of its actual sizes)


def _known(dtype: str) -> str:
    storage(dtype)
    return dtype


def graph_bounds(json_bytes: bytes) -> dict[str, range]:
    """Sizes that each symbol of ``frozen_graph.json`` may take; empty for a graph without symbols."""
    return bounds_of(json.loads(json_bytes))


def load_graph(json_bytes: bytes, weights_bytes: bytes, sizes: Mapping[str, int] | None = None) -> RefGraph:
    """Read ``frozen_graph.json`` and ``weights.bin``; a graph with symbols at the given ``sizes``.

    Raises :class:`ReferenceError` for another format, a weight outside the file or whose SHA3-512 differs, and a
    missing field.
    """
    try:
        document = json.loads(json_bytes)
        if document["format"] != FORMAT:
            raise ReferenceError(f"frozen graph: format is {document['format']!r}; this reference reads {FORMAT!r}")
        document = at_sizes(document, sizes or {})
        return RefGraph(
            name=document["name"],
            inputs=tuple(
                RefTensor(t["id"], t["name"], tuple(t["shape"]), _known(t["dtype"])) for t in document["inputs"]
            ),
            weights={w["id"]: _weight(w, weights_bytes) for w in document["weights"]},
            nodes=tuple(
                RefNode(
                    n["op"], tuple(n["inputs"]), n["output"], tuple(n["shape"]), _known(n["dtype"]),
                    n["attrs"], n.get("node", ""), n.get("tensor", ""),
                )
                for n in document["nodes"]
            ),
            outputs=tuple((o["id"], o["name"]) for o in document["outputs"]),
            extents=tuple((o["id"], o["extents"]) for o in document["outputs"] if "extents" in o),
        )  # fmt: skip
    except ReferenceError:
        raise
    except KeyError as error:
        raise ReferenceError(f"frozen graph: field {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ReferenceError(f"frozen graph: not a {FORMAT} document: {error}") from error


def _weight(entry: Mapping[str, Any], data: bytes) -> Array:
    dtype = storage(entry["dtype"]).newbyteorder("<")
    shape = tuple(entry["shape"])
    start = entry["offset"]
    end = start + math.prod(shape) * dtype.itemsize
    if start < 0 or end > len(data):
        raise ReferenceError(f"weight {entry['id']}: bytes {start}..{end} lie outside weights.bin ({len(data)} bytes)")
    raw = data[start:end]
    digest = entry.get("sha3_512", "")
    if digest and hashlib.sha3_512(raw).hexdigest() != digest.removeprefix("sha3-512:"):
        raise ReferenceError(f"weight {entry['id']}: its bytes in weights.bin do not have the SHA3-512 of the graph")
    return np.frombuffer(raw, dtype=dtype).astype(dtype.newbyteorder("="), copy=False).reshape(shape)
