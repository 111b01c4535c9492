"""Functions: the model's own, and the ONNX function bodies of operators without an importer, expanded node by node.

An expansion renames: the body's formal inputs and outputs become the caller's tensors, everything else gets the
caller's node name as prefix, subgraphs included. The renamed nodes then go through the ordinary importers, so that
"function operators are their ONNX function bodies op by op" (Canonical Arithmetic 1) holds by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.halves import half_type, import_widened
from compiler_kernels.importers.inline import import_body
from compiler_kernels.importers.node import Node, make_node
from compiler_kernels.ir.dtypes import DTYPES

MOST_NODES: Final = 100_000
"""Most nodes all expansions of one model may create: functions that call functions grow exponentially."""
MOST_LEVELS: Final = 64
"""How deep functions may call functions."""
Key = tuple[str, str, str]
_ONNX_TYPES: Final = {"complex64": 14, "complex128": 15, "string": 8}


def expand(ctx: Context) -> bool:
    """Expand the current node and bind its outputs, or say that it is no function.

    A function of the model hides an operator of the same name. An operator with operands of a half type is expanded
    for binary32 operands and each result is rounded once; a function of the model keeps the types it says.
    ``UsageError`` for a function that calls itself or is given more inputs or outputs than it has;
    ``UnsupportedError`` where all expansions pass ``MOST_NODES``.
    """
    node = ctx.at
    local = ctx.functions.get(function_key(node.proto))
    if local is not None:
        _expand(ctx, local)
        return True
    schema = _schema(node)
    if schema is None or (not schema.has_function and not schema.has_context_dependent_function):
        return False
    for key in ("interleaved", "is_causal"):
        node.flag(key, 0)
    found: list[bool] = []

    def standard(inner: Context) -> None:
        body = schema_body(node, schema, [inner.optional(i) for i in range(len(node.inputs))])
        if body is not None:
            _expand(inner, body)
        found.append(body is not None)

    import_widened(ctx, standard, _output_types(ctx, schema) if half_type(ctx) else ())
    return found[0]


def _expand(ctx: Context, body: FunctionProto) -> None:
    node, key = ctx.at, function_key(ctx.at.proto)
    if key in ctx.open_functions:
        node.invalid("is a function that calls itself")
    if len(node.inputs) > len(body.input) or len(node.outputs) > len(body.output):
        node.invalid(
            f"has {len(node.inputs)} inputs and {len(node.outputs)} outputs, but the function takes {len(body.input)} "
            f"and gives {len(body.output)}"
        )
    coming = 0 if ctx.open_functions else _nodes_within(ctx.functions, body, {}, {key})
    ctx.expanded += len(body.node)
    if max(ctx.expanded, coming) > MOST_NODES:
        node.unsupported(f"expands functions to more than {MOST_NODES} nodes, or more than {MOST_LEVELS} levels deep")
    versions = {standard_domain(d): v for d, v in ctx.domains.items()}  # what the body does not say, the model does
    versions |= {standard_domain(o.domain): int(o.version) for o in body.opset_import}
    renamed = _Renaming(node, body, ctx.tensors)
    inner = [make_node(renamed.node(p), i, versions.get(standard_domain(p.domain), 0)) for i, p in enumerate(body.node)]
    wanted = [i for i in range(len(node.outputs)) if ctx.used(i)]
    ctx.open_functions.append(key)
    try:
        found = import_body(ctx, inner, {}, [renamed.name(body.output[i]) for i in wanted], "")
    finally:
        ctx.open_functions.pop()
    for index, tensor in zip(wanted, found, strict=True):
        ctx.bind(tensor, index)


def _nodes_within(
    functions: Mapping[Key, FunctionProto], body: FunctionProto, known: dict[Key, int], open_: set[Key]
) -> int:
    """Nodes that expanding ``body`` creates, calls of calls included; a cycle counts once and is refused elsewhere."""
    if len(open_) > MOST_LEVELS:
        return MOST_NODES + 1
    total = len(body.node)
    for proto in body.node:
        key = function_key(proto)
        if key in functions and key not in open_:
            if key not in known:
                known[key] = _nodes_within(functions, functions[key], known, open_ | {key})
            total += known[key]
    return total


def local_functions(model: onnx.ModelProto) -> dict[Key, FunctionProto]:
    """The functions ``model`` brings along."""
    return {(standard_domain(f.domain), f.name, f.overload): f for f in model.functions}


def function_key(proto: NodeProto) -> Key:
    """What ``proto`` calls: domain (empty for ai.onnx), name and overload."""
    return standard_domain(proto.domain), proto.op_type, proto.overload


def standard_domain(text: str) -> str:
    return "" if text in ("", "ai.onnx") else text


def _schema(node: Node) -> Any:
    try:
        return onnx.defs.get_schema(node.op, node.version, standard_domain(node.proto.domain))
    except onnx.defs.SchemaError:
        return None


def _output_types(ctx: Context, schema: Any) -> list[str]:
    """Element type of each output: that of the first input with the same type variable, the node's half type where all
    such inputs are absent, and empty where no input has that variable."""
    found: dict[str, str] = {}
    for index in range(len(ctx.at.inputs)):
        if ctx.at.has_input(index) and schema.inputs:
            formal = schema.inputs[min(index, len(schema.inputs) - 1)]
            found.setdefault(formal.type_str, ctx.tensor(index).type.dtype)
    found = {formal.type_str: half_type(ctx) for formal in schema.inputs} | found
    formals = schema.outputs
    return [found.get(formals[min(i, len(formals) - 1)].type_str, "") for i in range(len(ctx.at.outputs))]


def schema_body(node: Node, schema: Any, inputs: Sequence[Tensor | None]) -> FunctionProto | None:
    """The function body that the onnx package's schema gives for ``node`` on operands of these types, or ``None``.

    Bodies exist per opset; the newest one not newer than the model's opset is taken.
    """
    built = [v for v in schema.context_dependent_function_opset_versions if v <= node.version]
    fixed = [v for v in schema.function_opset_versions if v <= node.version]
    try:
        if built:
            data = schema.get_context_dependent_function_with_opset_version(
                max(built), node.proto.SerializeToString(), [_type_proto(t).SerializeToString() for t in inputs]
            )
        elif fixed:
            data = schema.get_function_with_opset_version(max(fixed))
        else:
            return None
    except RuntimeError:  # attributes or types for which the package builds no body
        return None
    body = FunctionProto.FromString(data)
    given = {a.name for a in body.attribute_proto}
    for name, attribute in schema.attributes.items():
        if attribute.default_value.name and name not in given:
            body.attribute_proto.append(attribute.default_value)
    return body if body.node else None


def _graphs(attr: AttributeProto) -> list[GraphProto]:
    return ([attr.g] if attr.HasField("g") else []) + list(attr.graphs)


def _type_proto(tensor: Tensor | None) -> TypeProto:
    """Element type and shape as an ONNX type; an empty message for an absent input."""
    found = TypeProto()
    if tensor is None:
        return found
    name = tensor.type.dtype
    found.tensor_type.elem_type = DTYPES[name].onnx if name in DTYPES else _ONNX_TYPES.get(name, 0)
    for dim in tensor.type.shape:
        size = found.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            size.dim_value = dim
    return found


class _Renaming:
    """Copies of a body's nodes with the caller's names, attribute values and absent inputs put in."""

    def __init__(self, call: Node, body: FunctionProto, taken: Mapping[str, Tensor]) -> None:
        self._prefix, self._taken = f"{call.name}/", taken
        self._names = {"": ""}
        for formal, actual in zip(body.output, call.outputs, strict=False):
            if actual:
                self._names[formal] = actual
        for index, formal in enumerate(body.input):
            self._names[formal] = call.inputs[index] if index < len(call.inputs) else ""
        given = [a for a in call.proto.attribute if not a.ref_attr_name]
        self._attributes = {a.name: a for a in (*body.attribute_proto, *given)}

    def name(self, inner: str) -> str:
        found = self._names.get(inner)
        if found is None:
            found = self._prefix + inner
            while found in self._taken:
                found += "'"
            self._names[inner] = found
        return found

    def node(self, proto: NodeProto) -> NodeProto:
        made = NodeProto()
        made.CopyFrom(proto)
        made.name = self._prefix + (proto.name or (proto.output[0] if proto.output else proto.op_type))
        made.input[:] = [self.name(n) for n in proto.input]
        made.output[:] = [self.name(n) for n in proto.output]
        del made.attribute[:]
        for attr in proto.attribute:
            source = self._attributes.get(attr.ref_attr_name) if attr.ref_attr_name else attr
            if source is None:
                continue  # the caller leaves it out, so the inner node does too
            copy = made.attribute.add()
            copy.CopyFrom(source)
            copy.name = attr.name
            if not attr.ref_attr_name:
                for graph in _graphs(copy):
                    self._graph(graph)
        return made

    def _graph(self, graph: GraphProto) -> None:
        for info in (*graph.input, *graph.output, *graph.value_info):
            info.name = self.name(info.name)
        for tensor in graph.initializer:
            tensor.name = self.name(tensor.name)
        nodes = [self.node(n) for n in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
