"""Mutations of the model as a message: nodes, attributes, tensors, signatures, opsets, functions, control flow.

Each mutation changes a ``ModelProto`` in place. Most results are invalid on purpose; those that stay valid compute
something else than before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from fuzz_tensors import FLOATS, damage_tensor, integer, tensor
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

NAMES = (
    "",
    "x",
    "a\nb",
    "it's",
    'quo"te',
    "naïve/张量",
    "v0",
    "w0",
    "inf",
    "n" * 5000,
    "%s",
    "{0}",
    "a b",
    "\x00",
    "\r",
)
TEXTS = (b"", b"linear", b"cubic", b"SAME_UPPER", b"VALID", b"none", b"no such mode", b"\xff\xfe", b"reflect", b"a\nb")
FIXED = {
    **dict.fromkeys("Shape Size NonZero ArgMax ArgMin".split(), TensorProto.INT64),
    **dict.fromkeys("Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Xor".split(), TensorProto.BOOL),
    **dict.fromkeys("QuantizeLinear DynamicQuantizeLinear".split(), TensorProto.UINT8),
    "DequantizeLinear": TensorProto.FLOAT,
}  # fmt: skip
"""Element type of the first result of operators that do not keep their operand's."""
Change = Callable[[ModelProto, random.Random], None]


@cache
def operators() -> tuple[str, ...]:
    """Every operator name of ai.onnx and ai.onnx.ml."""
    found = {s.name for s in onnx.defs.get_all_schemas() if s.domain in ("", "ai.onnx.ml")}
    return tuple(sorted(found))


def graphs(model: ModelProto) -> list[GraphProto]:
    """The main graph and every body in it."""
    return list(_within(model.graph))


def _within(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for attr in node.attribute:
            for body in ([attr.g] if attr.HasField("g") else []) + list(attr.graphs):
                yield from _within(body)


def name(model: ModelProto, rng: random.Random) -> str:
    """Usually a tensor of the model, sometimes a strange or unknown name."""
    if rng.random() < 0.15:
        return rng.choice(NAMES)
    graph = rng.choice(graphs(model))
    known = [o for n in graph.node for o in n.output] + [i.name for i in (*graph.input, *graph.initializer)]
    return rng.choice(known) if known else "x"


def typed(model: ModelProto, names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    """Declarations of tensors by name, of the element type declared, or of the node's first operand, or that its
    operator always gives. (onnx.shape_inference ends the process by an assertion on some damaged models.)"""
    graph = model.graph
    known = {i.name: i.type.tensor_type.elem_type for i in (*graph.input, *graph.value_info, *graph.output)}
    known |= {t.name: t.data_type for t in graph.initializer}
    for node in graph.node:
        to = [a.i for a in node.attribute if a.name == "to"]
        kind = FIXED.get(node.op_type) or (to[0] if to else known.get(node.input[0], 0) if node.input else 0)
        for output in node.output:
            known.setdefault(output, kind)
    return [
        helper.make_tensor_value_info(n, known.get(n) if 0 < (known.get(n) or 0) < 17 else TensorProto.FLOAT, None)
        for n in names
    ]


def _node(model: ModelProto, rng: random.Random) -> tuple[GraphProto, int] | None:
    graph = rng.choice([g for g in graphs(model) if g.node] or [model.graph])
    return (graph, rng.randrange(len(graph.node))) if graph.node else None


def drop_node(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        del found[0].node[found[1]]


def duplicate_node(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        copy = NodeProto()
        copy.CopyFrom(found[0].node[found[1]])
        if rng.random() < 0.5:
            copy.output[:] = [f"{o}_again" for o in copy.output]
        _insert(found[0], found[1] + rng.randrange(2), copy)


def _insert(graph: GraphProto, place: int, node: NodeProto) -> None:
    nodes = list(graph.node)
    nodes.insert(place, node)
    copies = []
    for one in nodes:
        copy = NodeProto()
        copy.CopyFrom(one)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def move_node(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        copy = NodeProto()
        copy.CopyFrom(found[0].node[found[1]])
        del found[0].node[found[1]]
        _insert(found[0], rng.randrange(len(found[0].node) + 1), copy)


def swap_operator(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        node = found[0].node[found[1]]
        node.op_type = rng.choice(operators()) if rng.random() < 0.97 else rng.choice(NAMES)
        if rng.random() < 0.7:  # so that it may fit
            schemas = [s for s in onnx.defs.get_all_schemas() if s.name == node.op_type]
            if schemas:
                node.domain = schemas[0].domain
                kept = [a for a in node.attribute if a.name in schemas[0].attributes]
                del node.attribute[:]
                node.attribute.extend(kept)


def change_domain(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        found[0].node[found[1]].domain = rng.choice(
            ("", "ai.onnx", "ai.onnx.ml", "com.example", "ai.onnx.training", "\n")
        )


def rewire_input(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        node = found[0].node[found[1]]
        kind = rng.randrange(5)
        if kind == 0 or not node.input:
            node.input.append(name(model, rng))
        elif kind == 1:
            del node.input[rng.randrange(len(node.input))]
        elif kind == 2:
            node.input[rng.randrange(len(node.input))] = ""
        elif kind == 3 and node.output:
            node.input[rng.randrange(len(node.input))] = rng.choice(node.output)  # a cycle
        else:
            node.input[rng.randrange(len(node.input))] = name(model, rng)


def change_output(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        node = found[0].node[found[1]]
        kind = rng.randrange(4)
        if kind == 0 or not node.output:
            node.output.append(rng.choice(("more", "", name(model, rng))))
        elif kind == 1:
            del node.output[rng.randrange(len(node.output))]
        elif kind == 2:
            node.output[rng.randrange(len(node.output))] = ""
        else:
            node.output[rng.randrange(len(node.output))] = name(model, rng)


def rename_node(model: ModelProto, rng: random.Random) -> None:
    if found := _node(model, rng):
        found[0].node[found[1]].name = rng.choice(NAMES)


def change_attribute(model: ModelProto, rng: random.Random) -> None:
    """Another value, another type, another name, or gone."""
    nodes = [n for g in graphs(model) for n in g.node if n.attribute]
    if not nodes:
        return add_attribute(model, rng)
    node = rng.choice(nodes)
    place = rng.randrange(len(node.attribute))
    attr = node.attribute[place]
    kind = rng.randrange(8)
    if kind < 5:
        value = _another(attr, rng)
    elif kind == 5:
        del node.attribute[place]
        return None
    elif kind == 6:
        attr.name = rng.choice((*NAMES, "axis", "axes", "mode", "to", "kernel_shape"))
        return None
    else:
        value = _any_value(rng)
    key = attr.name
    if attr.type == AttributeProto.GRAPH and value is None:
        return None
    try:
        made = helper.make_attribute(key, value)
    except (TypeError, ValueError):
        return None
    attr.CopyFrom(made)
    if rng.random() < 0.05:
        attr.ref_attr_name = "outer"
    return None


def _another(attr: AttributeProto, rng: random.Random) -> Any:
    kind = attr.type
    if kind == AttributeProto.INT:
        return rng.choice((attr.i + 1, attr.i - 1, -attr.i, integer(rng))) % 2**63
    if kind == AttributeProto.FLOAT:
        return rng.choice(FLOATS)
    if kind == AttributeProto.STRING:
        return rng.choice(TEXTS)
    if kind == AttributeProto.INTS:
        return _list(list(attr.ints), rng, lambda: integer(rng))
    if kind == AttributeProto.FLOATS:
        return _list(list(attr.floats), rng, lambda: rng.choice(FLOATS))
    if kind == AttributeProto.STRINGS:
        return _list(list(attr.strings), rng, lambda: rng.choice(TEXTS))
    if kind == AttributeProto.TENSOR:
        copy = TensorProto()
        copy.CopyFrom(attr.t)
        damage_tensor(copy, rng)
        return copy
    return None


def _list(values: list[Any], rng: random.Random, draw: Callable[[], Any]) -> list[Any]:
    kind = rng.randrange(5)
    if kind == 0 or not values:
        return [*values, draw()]
    place = rng.randrange(len(values))
    if kind == 1:
        return values[:place] + values[place + 1 :] or [draw()]
    if kind == 2:
        return values[::-1]
    values[place] = draw()
    return values


def _any_value(rng: random.Random) -> Any:
    return rng.choice(
        (
            integer(rng), rng.choice(FLOATS), rng.choice(TEXTS), [integer(rng) for _ in range(rng.randrange(1, 5))],
            [rng.choice(FLOATS)], [rng.choice(TEXTS)], tensor(rng), helper.make_graph([], "empty", [], []),
        )
    )  # fmt: skip


def add_attribute(model: ModelProto, rng: random.Random) -> None:
    """One that the operator knows, with any value, or an unknown one, or one given twice."""
    if not (found := _node(model, rng)):
        return
    node = found[0].node[found[1]]
    schemas = [s for s in onnx.defs.get_all_schemas() if s.name == node.op_type]
    known = list(schemas[0].attributes) if schemas else []
    key = rng.choice(known) if known and rng.random() < 0.9 else rng.choice(("novel", *NAMES))
    value: Any = None
    if key in known and rng.random() < 0.8:
        proto = AttributeProto(name=key, type=int(schemas[0].attributes[key].type.value))
        value = _another(proto, rng)
    attr = helper.make_attribute(key, _any_value(rng) if value is None else value)
    if rng.random() < 0.8:
        kept = [a for a in node.attribute if a.name != key]
        del node.attribute[:]
        node.attribute.extend(kept)
    node.attribute.append(attr)


def change_initialiser(model: ModelProto, rng: random.Random) -> None:
    found = [(g, i) for g in graphs(model) for i in range(len(g.initializer))]
    if not found:
        return make_constant(model, rng)
    graph, place = rng.choice(found)
    kind = rng.randrange(8)
    proto = graph.initializer[place]
    if kind == 0:
        del graph.initializer[place]
    elif kind == 1:
        proto.name = name(model, rng)
    elif kind == 2:  # known at run time only
        info = helper.make_tensor_value_info(proto.name, proto.data_type or 1, list(proto.dims))
        del graph.initializer[place]
        graph.input.append(info)
    elif kind == 3:
        graph.initializer.append(proto)
    else:
        damage_tensor(proto, rng)
    return None


def make_constant(model: ModelProto, rng: random.Random) -> None:
    """A run-time input or a node's input becomes a constant."""
    graph = model.graph
    proto = tensor(rng)
    if graph.input and rng.random() < 0.7:
        info = rng.choice(graph.input)
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if 0 < np.prod([float(d) for d in dims]) < 1e5 and rng.random() < 0.8:
            kind = info.type.tensor_type.elem_type
            try:
                dtype = helper.tensor_dtype_to_np_dtype(kind)
                proto = numpy_helper.from_array(np.ones(dims, np.float32).astype(dtype))
            except Exception:  # an element type without NumPy type
                return
        proto.name = info.name
        if rng.random() < 0.6:
            graph.input.remove(info)
    else:
        proto.name = name(model, rng)
    graph.initializer.append(proto)


def change_signature(model: ModelProto, rng: random.Random) -> None:
    """Inputs, outputs and value_info: shapes, element types, names, kinds, too many and too few."""
    graph = rng.choice(graphs(model))
    infos = rng.choice((graph.input, graph.input, graph.output, graph.value_info))
    if not infos:
        if graph.node and graph.node[0].output:
            graph.value_info.append(helper.make_tensor_value_info(graph.node[0].output[0], 1, [integer(rng)]))
        return
    place = rng.randrange(len(infos))
    info, kind = infos[place], rng.randrange(9)
    dims = info.type.tensor_type.shape.dim
    if kind <= 2 and dims:
        dim = dims[rng.randrange(len(dims))]
        if rng.random() < 0.7:
            dim.dim_value = integer(rng)
        else:
            dim.dim_param = rng.choice(("N", "", "?", "2*N", "-1", "N+", "a\nb", "1e9", "N" * 3000, "((((", "N//0"))
    elif kind == 3 and dims:
        del dims[rng.randrange(len(dims))]
    elif kind == 4:
        info.type.tensor_type.shape.dim.add().dim_value = integer(rng)
    elif kind == 5:
        info.type.tensor_type.elem_type = rng.randrange(30)
    elif kind == 6:
        info.name = name(model, rng)
    elif kind == 7:
        strange = rng.randrange(5)
        if strange == 0:
            info.type.tensor_type.ClearField("shape")
        elif strange == 1:
            info.type.sequence_type.elem_type.tensor_type.elem_type = 1
        elif strange == 2:
            info.type.optional_type.elem_type.tensor_type.elem_type = 1
        elif strange == 3:
            info.ClearField("type")
        else:
            info.type.map_type.key_type = 7
    elif rng.random() < 0.5:
        del infos[place]
    else:
        infos.append(info)


def change_opset(model: ModelProto, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind <= 2 and model.opset_import:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice((*range(1, 30), integer(rng)))
    elif kind == 3:
        model.opset_import.append(
            helper.make_opsetid(rng.choice(("", "ai.onnx.ml", "com.example", "\n")), integer(rng) % 40)
        )
    elif kind == 4 and model.opset_import:
        del model.opset_import[rng.randrange(len(model.opset_import))]
    else:
        model.ir_version = rng.choice((0, 1, 3, 7, 8, 10, 13, 14, 99, -1, 2**31, 2**63 - 1))


def expose_tensor(model: ModelProto, rng: random.Random) -> None:
    """An inner tensor, an input or a constant becomes an output of the model."""
    model.graph.output.extend(typed(model, [name(model, rng)]))


STRUCTURE: tuple[Change, ...] = (
    drop_node, duplicate_node, move_node, swap_operator, swap_operator, change_domain, rewire_input, rewire_input,
    change_output, rename_node, change_attribute, change_attribute, change_attribute, add_attribute, add_attribute,
    change_initialiser, change_initialiser, change_initialiser, make_constant, change_signature, change_signature,
    change_opset, expose_tensor,
)  # fmt: skip
