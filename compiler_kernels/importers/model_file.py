"""Bytes to a checked ``ModelProto``: everything that can be wrong with the file itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import onnx

from compiler_kernels.errors import UnsupportedError, UsageError

MIN_OPSET: Final = 7
_STRING: Final = 9  # FieldDescriptor.TYPE_STRING and TYPE_MESSAGE of protobuf
_MESSAGE: Final = 11


def load(data: bytes, filename: str) -> onnx.ModelProto:
    """Parse and check an ONNX model. ``UsageError`` names ``filename``."""
    if not data:
        raise UsageError(f"{filename} is empty; give an ONNX model")
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf's DecodeError, whose module has no type information
        raise UsageError(f"{filename} is not an ONNX model or is truncated; export or copy it again") from None
    if not model.HasField("graph") or not model.opset_import:
        raise UsageError(f"{filename} is not an ONNX model (it has no graph or no opset); export it again")
    if not _is_unicode(model):
        raise UsageError(f"{filename} is corrupt (a name in it is not UTF-8 text); export or copy it again")
    for tensor in _tensors(model.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise UnsupportedError(
                f"{filename} keeps the weights {tensor.name!r} in another file; save it again with "
                "save_as_external_data=False"
            )
    opset_of(model, filename)
    # ONNX leaves the shape of an input or output optional, but the checker insists on the field
    shapeless = [i for i in (*model.graph.input, *model.graph.output) if _lacks_shape(i)]
    names = {i.name for i in shapeless}
    try:
        for info in shapeless:
            info.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(model)
    except Exception as error:  # the checker raises ValidationError, RuntimeError, DecodeError...
        raise UsageError(f"{filename} is not a valid ONNX model: {_sentence(error)}") from None
    for info in (*model.graph.input, *model.graph.output):
        if info.name in names:
            info.type.tensor_type.ClearField("shape")
    return model


def _is_unicode(message: Any) -> bool:
    """Whether all text fields are text: protobuf hands out ``bytes`` for a name that is not UTF-8."""
    for field, value in message.ListFields():
        if field.type not in (_STRING, _MESSAGE):
            continue
        for item in value if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (value,):
            if isinstance(item, bytes) or (field.type == _MESSAGE and not _is_unicode(item)):
                return False
    return True


def _lacks_shape(info: onnx.ValueInfoProto) -> bool:
    return bool(info.type.HasField("tensor_type")) and not info.type.tensor_type.HasField("shape")


def opset_of(model: onnx.ModelProto, filename: str) -> int:
    """Version of the ai.onnx operator set; ``UnsupportedError`` when this release cannot read it."""
    versions = {int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")}
    newest = int(onnx.defs.onnx_opset_version())
    if not versions and any(o.domain == "ai.onnx.ml" for o in model.opset_import):
        return newest
    if not versions:
        raise UnsupportedError(f"{filename} does not import the ai.onnx operator set; only its operators are compiled")
    if len(versions) > 1:
        raise UsageError(f"{filename} imports the ai.onnx operator set in versions {sorted(versions)}; keep one")
    version = versions.pop()
    changed = _changed_since(model.graph, version) if version < MIN_OPSET else ""
    if not changed and version <= newest:
        return max(version, MIN_OPSET)
    because = f" ({changed} changed before {MIN_OPSET})" if changed else ""
    raise UnsupportedError(
        f"{filename} uses opset {version} of ai.onnx{because}; opsets {MIN_OPSET} to {newest} are compiled, so convert "
        "it with onnx.version_converter"
    )


def _changed_since(graph: onnx.GraphProto, version: int) -> str:
    """The first operator of ai.onnx in ``graph`` that is another one at ``MIN_OPSET``, or the empty string."""
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        try:
            found = {onnx.defs.get_schema(node.op_type, v).since_version for v in (version, MIN_OPSET)}
        except onnx.defs.SchemaError:
            return str(node.op_type)
        bodies = [g for a in node.attribute for g in (a.g, *a.graphs) if g.node]
        inner = next((c for g in bodies if (c := _changed_since(g, version))), "")
        if len(found) > 1 or inner:
            return inner or str(node.op_type)
    return ""


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attr in node.attribute:
            if attr.HasField("t"):
                yield attr.t
            for sub in (attr.g, *attr.graphs):
                yield from _tensors(sub)


def _sentence(error: Exception) -> str:
    """First line of the checker's message, without its trailing context."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]
