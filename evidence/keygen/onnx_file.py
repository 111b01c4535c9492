"""Canonical form of an ONNX model: its computation, its interface and its weights, as lines of text.

Source: ONNX's onnx.proto and "External Data" (docs/ExternalData.md).
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from evidence.keygen.onnx_graph import Graph, Node, attribute_kind, read_function, read_graph
from evidence.keygen.text import Unreadable, quoted

_KIND: Final = onnx.AttributeProto
_TYPES: Final = onnx.TensorProto
# Width in bytes of one entry of int32_data by data type; the 4-bit types are packed two to an entry.
_NARROW: Final = {
    **dict.fromkeys((_TYPES.INT32,), "<i4"),
    **dict.fromkeys((_TYPES.INT16, _TYPES.UINT16, _TYPES.FLOAT16, _TYPES.BFLOAT16), "<u2"),
}
_WIDE: Final = {_TYPES.UINT32: "<u4", _TYPES.UINT64: "<u8"}


def canonical(data: bytes, folder: Path) -> bytes:
    """The canonical form; external weights are read from ``folder``. Raises ``Unreadable``."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception:  # protobuf's DecodeError, whose module has no type information
        raise Unreadable("is not an ONNX model or is truncated") from None
    if not model.HasField("graph") or not model.opset_import:
        raise Unreadable("is not an ONNX model (it has no graph or no opset)")
    if model.training_info or model.graph.quantization_annotation:
        raise Unreadable("holds training information or quantization annotations, which have no canonical form")
    try:
        return ("\n".join(_Writer(folder).model(model)) + "\n").encode()
    except RecursionError:
        raise Unreadable("has graphs nested too deeply") from None


class _Writer:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def model(self, model: Any) -> Iterator[str]:
        yield from _opsets(model)
        for item in sorted(model.metadata_props, key=lambda p: (p.key, p.value)):
            yield f"metadata {quoted(item.key)} {quoted(item.value)}"
        for function in sorted(model.functions, key=lambda f: (f.domain, f.name, f.overload)):
            yield f"function {quoted(function.domain)} {quoted(function.name)} {quoted(function.overload)}"
            yield from (f" {line}" for line in _opsets(function))
            yield from (f" attribute {quoted(name)}" for name in function.attribute)
            for attribute in sorted(function.attribute_proto, key=lambda a: str(a.name)):
                yield from (f" {line}" for line in self._attribute(attribute, [], {}, "f"))
            yield from (f" {line}" for line in self._graph(read_function(function), {}, "f", named=False))
        yield "graph"
        yield from (f" {line}" for line in self._graph(read_graph(model.graph), {}, "", named=True))

    def _graph(self, graph: Graph, outside: Mapping[str, str], prefix: str, *, named: bool) -> Iterator[str]:
        """Lines of one graph. ``named``: inputs and outputs keep their names, because callers use them."""
        refs = dict(outside)
        missing = [name for name in graph.captured if name not in outside]
        if missing:
            raise Unreadable(f"uses the value {missing[0]!r}, which nothing makes")
        for index, name in enumerate(graph.inputs):
            refs[name] = f"{prefix}in{index}"
            yield f"{refs[name]}{_declared(graph.proto.input[index], named)}"
            if name in graph.weights:
                yield f" default {self._weight(graph.weights[name])}"
        numbered = set(graph.inputs)
        weights = nodes = 0
        lines: list[str] = []

        def use(name: str) -> str:
            nonlocal weights
            if name in graph.weights and name not in numbered:
                numbered.add(name)
                refs[name] = f"{prefix}w{weights}"
                weights += 1
                lines.append(f"{refs[name]} = {self._weight(graph.weights[name])}")
            return refs[name]

        for node in graph.order:
            taken = [use(name) if name else "-" for name in node.proto.input]
            for name in node.captured:
                use(name)
            made = []
            for name in node.proto.output:
                made.append(f"{prefix}v{nodes}" if name else "-")
                refs[name] = made[-1]
                nodes += 1
            yield from lines
            lines.clear()
            domain = "" if node.proto.domain == "ai.onnx" else node.proto.domain
            overload = f" overload {quoted(node.proto.overload)}" if node.proto.overload else ""
            operator = f"{quoted(domain)} {quoted(node.proto.op_type)}{overload}"
            yield f"{' '.join(made)} = {operator} ({' '.join(taken)})"
            for attribute in sorted(node.proto.attribute, key=lambda a: str(a.name)):
                yield from (f" {line}" for line in self._attribute(attribute, _graphs(node, attribute), refs, prefix))
        for index, name in enumerate(graph.outputs):
            ref = use(name)
            yield from lines
            lines.clear()
            yield f"out{index} = {ref}{_declared(graph.proto.output[index], named)}"

    def _attribute(self, item: Any, graphs: list[Graph], refs: Mapping[str, str], prefix: str) -> Iterator[str]:
        name = quoted(item.name)
        kind = attribute_kind(item)
        if item.ref_attr_name:
            yield f"{name} = attribute {quoted(item.ref_attr_name)} {_KIND.AttributeType.Name(kind)}"
        elif kind in (_KIND.GRAPH, _KIND.GRAPHS):
            for index, graph in enumerate(graphs):
                yield f"{name} = graph {index}"
                inner = f"{prefix}{index}."
                yield from (f" {line}" for line in self._graph(graph, refs, inner, named=False))
        elif kind in (_KIND.TENSOR, _KIND.TENSORS):
            tensors = item.tensors if kind == _KIND.TENSORS else (item.t,)
            yield f"{name} = {' '.join(map(self._weight, tensors))}"
        elif kind in (_KIND.SPARSE_TENSOR, _KIND.SPARSE_TENSORS):
            sparse = item.sparse_tensors if kind == _KIND.SPARSE_TENSORS else (item.sparse_tensor,)
            yield f"{name} = {' '.join(map(self._weight, sparse))}"
        elif kind in (_KIND.TYPE_PROTO, _KIND.TYPE_PROTOS):
            types = item.type_protos if kind == _KIND.TYPE_PROTOS else (item.tp,)
            yield f"{name} = type {' '.join(map(_type, types))}"
        else:
            yield f"{name} = {_plain(item, kind)}"

    def _weight(self, tensor: Any) -> str:
        """``TYPE[dims] sha256:...`` over the elements as ``raw_data`` would hold them."""
        if isinstance(tensor, onnx.SparseTensorProto):
            values, indices = self._weight(tensor.values), self._weight(tensor.indices)
            return f"sparse {_dims(tensor.dims)} values {values} indices {indices}"
        digest = hashlib.sha256()
        if tensor.data_location == _TYPES.EXTERNAL:
            self._external(tensor, digest)
        else:
            digest.update(_content(tensor))
        return f"{_type_name(tensor.data_type)}{_dims(tensor.dims)} sha256:{digest.hexdigest()}"

    def _external(self, tensor: Any, digest: Any) -> None:
        given = {item.key: item.value for item in tensor.external_data}
        location = given.get("location", "")
        parts = Path(location).parts
        where = f"keeps the weights {tensor.name!r} in the file {location!r}"
        if not location or Path(location).is_absolute() or ".." in parts:
            raise Unreadable(f"{where}, which is outside of its own folder")
        path = self._folder / location
        try:
            offset = int(given.get("offset", "0") or 0)
            with path.open("rb") as stream:
                size = path.stat().st_size
                length = int(given.get("length", "") or size - offset)
                if not 0 <= offset <= offset + length <= size:
                    raise Unreadable(f"{where}, which is too short for them")
                if length:
                    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                        digest.update(view[offset : offset + length])
        except OSError as error:
            raise Unreadable(f"{where}, which cannot be read ({error.strerror})") from None
        except ValueError:
            raise Unreadable(f"{where} at a place that is no number") from None


def _opsets(message: Any) -> Iterator[str]:
    found = {("" if o.domain == "ai.onnx" else str(o.domain), int(o.version)) for o in message.opset_import}
    yield from (f"opset {quoted(domain)} {version}" for domain, version in sorted(found))


def _graphs(node: Node, attribute: Any) -> list[Graph]:
    return node.graphs.get(attribute.name, [])


def _declared(info: Any, named: bool) -> str:
    """Name and type of an input or output; a function's are names only, and those nobody outside uses."""
    if isinstance(info, str):
        return ""
    return f"{' ' + quoted(info.name) if named else ''} {_type(info.type)}"


def _type(item: Any) -> str:
    kind = item.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(item, kind)
        shape = _dims(tensor.shape.dim) if tensor.HasField("shape") else ""
        return f"{'sparse ' if kind == 'sparse_tensor_type' else ''}{_type_name(tensor.elem_type)}{shape}"
    if kind in ("sequence_type", "optional_type"):
        return f"{kind[:-5]}({_type(getattr(item, kind).elem_type)})"
    if kind == "map_type":
        return f"map({_type_name(item.map_type.key_type)} {_type(item.map_type.value_type)})"
    return "untyped" if kind is None else f"opaque {quoted(item.opaque_type.domain)} {quoted(item.opaque_type.name)}"


def _type_name(number: int) -> str:
    try:
        return str(_TYPES.DataType.Name(number))
    except ValueError:
        raise Unreadable(f"holds the data type {number}, which ONNX does not define") from None


def _dims(dims: Any) -> str:
    return f"[{','.join(map(_dim, dims))}]"


def _dim(dim: Any) -> str:
    if isinstance(dim, int):
        return str(dim)
    kind = dim.WhichOneof("value")
    return str(dim.dim_value) if kind == "dim_value" else quoted(dim.dim_param) if kind == "dim_param" else "?"


def _plain(item: Any, kind: int) -> str:
    if kind in (_KIND.FLOAT, _KIND.FLOATS):
        values = item.floats if kind == _KIND.FLOATS else [item.f]
        bits = [f"{int(b):08x}" for b in np.array(values, dtype="<f4").view("<u4")]
        return f"{'floats' if kind == _KIND.FLOATS else 'float'} {' '.join(bits)}"
    if kind in (_KIND.INT, _KIND.INTS):
        return f"ints {' '.join(map(str, item.ints))}" if kind == _KIND.INTS else f"int {item.i}"
    if kind in (_KIND.STRING, _KIND.STRINGS):
        texts = item.strings if kind == _KIND.STRINGS else [item.s]
        return f"{'strings' if kind == _KIND.STRINGS else 'string'} {' '.join(map(_bytes, texts))}"
    raise Unreadable(f"has the attribute {item.name!r} of the unknown type {kind}")


def _bytes(text: bytes) -> str:
    try:
        return quoted(text.decode())
    except UnicodeDecodeError:
        return f'b"{text.hex()}"'


def _content(tensor: Any) -> bytes:
    """Elements in C order, little-endian, as ``raw_data`` holds them; texts with their lengths before them."""
    if tensor.data_type == _TYPES.STRING:
        return b"".join(len(s).to_bytes(8, "big") + s for s in tensor.string_data)
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    if tensor.float_data:
        return np.array(tensor.float_data, dtype="<f4").tobytes()
    if tensor.double_data:
        return np.array(tensor.double_data, dtype="<f8").tobytes()
    if tensor.int64_data:
        return np.array(tensor.int64_data, dtype="<i8").tobytes()
    if tensor.uint64_data:
        return np.array(tensor.uint64_data, dtype="<u8").astype(_WIDE.get(tensor.data_type, "<u8")).tobytes()
    return np.array(tensor.int32_data, dtype="<i4").astype(_NARROW.get(tensor.data_type, "<u1")).tobytes()
