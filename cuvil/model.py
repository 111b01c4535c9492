"""What an ONNX model says of itself: inputs and outputs as declared, and its metadata."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.model_file import load
from compiler_kernels.importers.signature import dtype_name
from cuvil.errors import InvalidModel
from cuvil.values import ModelMetadata, NodeArg, type_name


@dataclass(frozen=True)
class Signature:
    """Inputs without initialisers, outputs, metadata; ``unranked`` are the inputs without a declared shape."""

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    unranked: frozenset[str]
    metadata: ModelMetadata

    @property
    def ranked(self) -> bool:
        return not self.unranked


def read_signature(data: bytes, filename: str) -> Signature:
    """Parse and check a model.

    ``InvalidModel`` names ``filename``; ``UnsupportedError`` where an input or output is no tensor.
    """
    try:
        model = load(data, filename)
    except UnsupportedError:
        raise
    except UsageError as error:
        raise InvalidModel(str(error)) from None
    graph = model.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in weights]
    for info in (*inputs, *graph.output):
        if not info.type.HasField("tensor_type"):
            raise UnsupportedError(f"{filename}: {info.name!r} is not a tensor; only tensors are compiled")
    metadata = ModelMetadata(
        model.producer_name,
        graph.name,
        model.domain,
        model.doc_string,
        graph.doc_string,
        int(model.model_version),
        {entry.key: entry.value for entry in model.metadata_props},
    )
    unranked = frozenset(info.name for info in inputs if not info.type.tensor_type.HasField("shape"))
    return Signature(tuple(map(_arg, inputs)), tuple(map(_arg, graph.output)), unranked, metadata)


def _arg(info: onnx.ValueInfoProto) -> NodeArg:
    tensor = info.type.tensor_type
    shape: list[int | str | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(int(dim.dim_value) if dim.dim_value >= 0 else None)
        else:
            shape.append(str(dim.dim_param) or None)
    return NodeArg(info.name, type_name(dtype_name(tensor.elem_type)), shape)


def self_contained(path: Path, data: bytes) -> bytes:
    """The model in ``path`` with the weights it keeps in files beside it; ``data`` itself where it keeps none."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # no ONNX model: read_signature says so
        return data
    if not any(t.data_location == onnx.TensorProto.EXTERNAL for t in _tensors(model.graph)):
        return data
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
        return bytes(model.SerializeToString())
    except Exception as error:  # missing file, path outside the folder, more than 2 GB
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidModel(f"{path}: the weights it keeps in another file cannot be read ({reason})") from None


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for sub in (attribute.g, *attribute.graphs):
                yield from _tensors(sub)
