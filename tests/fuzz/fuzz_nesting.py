"""Mutations that put nodes into bodies and functions, and constants that ask for far more memory than there is."""

from __future__ import annotations

import random

import numpy as np
from fuzz_structure import Change, name, typed
from fuzz_tensors import integer
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def _take(model: ModelProto, rng: random.Random) -> tuple[int, NodeProto] | None:
    if not model.graph.node:
        return None
    place = rng.randrange(len(model.graph.node))
    copy = NodeProto()
    copy.CopyFrom(model.graph.node[place])
    return place, copy


def wrap_in_if(model: ModelProto, rng: random.Random) -> None:
    """A node moves into both branches of an If, whose condition is constant or an input; one branch may differ."""
    if not (taken := _take(model, rng)):
        return
    place, node = taken
    branches = []
    for side in ("then", "else"):
        inner = NodeProto()
        inner.CopyFrom(node)
        inner.output[:] = [f"{o}_{side}" if o else "" for o in node.output]
        outputs = [o for o in inner.output if o]
        infos = typed(model, [o for o in node.output if o])
        for info, output in zip(infos, outputs, strict=True):
            info.name = output
        body = helper.make_graph([inner], side, [], infos)
        if rng.random() < 0.2 and outputs:
            body.node.append(helper.make_node("Neg", [outputs[0]], ["other"]))
            body.output[0].name = "other"
        if rng.random() < 0.1:
            del body.output[:]
        branches.append(body)
    condition = rng.choice(("cond", "cond", name(model, rng)))
    made = helper.make_node(
        "If", [condition], [o for o in node.output if o], name="if", then_branch=branches[0], else_branch=branches[1]
    )
    model.graph.node[place].CopyFrom(made)
    if rng.random() < 0.5:
        model.graph.initializer.append(numpy_helper.from_array(np.array(rng.random() < 0.5), "cond"))
    else:
        model.graph.input.append(helper.make_tensor_value_info("cond", TensorProto.BOOL, rng.choice(([], [1], [2]))))


def wrap_in_loop(model: ModelProto, rng: random.Random) -> None:
    """A node moves into a Loop of a constant, huge, negative or run-time trip count, carried or stacked."""
    if not (taken := _take(model, rng)):
        return
    place, node = taken
    outputs = [o for o in node.output if o]
    if not outputs:
        return
    inner = NodeProto()
    inner.CopyFrom(node)
    inner.output[:] = [f"{o}_in" if o else "" for o in node.output]
    nodes = [inner, helper.make_node("Identity", ["go"], ["on"])]
    ins = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
    ]
    carried = rng.random() < 0.5 and bool(node.input) and bool(node.input[0])
    if carried:
        ins.extend(typed(model, [node.input[0]]))
        ins[-1].name = "state"
        inner.input[0] = "state"
    infos = [helper.make_tensor_value_info("on", TensorProto.BOOL, []), *typed(model, outputs)]
    for info in infos[1:]:
        info.name += "_in"
    body = helper.make_graph(nodes, "body", ins, infos)
    trips = rng.choice((0, 1, 2, 3, 3, -1, 4096, 5000, 2**31, 2**63 - 1))
    words = ["trips", rng.choice(("", "", "cond")), *([node.input[0]] if carried else [])]
    model.graph.node[place].CopyFrom(helper.make_node("Loop", words, outputs, name="loop", body=body))
    if rng.random() < 0.8:
        model.graph.initializer.append(numpy_helper.from_array(np.array(trips, np.int64), "trips"))
    else:
        model.graph.input.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "cond"))


def wrap_in_function(model: ModelProto, rng: random.Random) -> None:
    """A node becomes a function of the model: of one name, calling itself, or growing exponentially."""
    if not (taken := _take(model, rng)):
        return
    place, node = taken
    inputs = list(dict.fromkeys(n for n in node.input if n))
    outputs = [o for o in node.output if o]
    kind = rng.randrange(4)
    body = [node]
    if kind == 1:
        body = [helper.make_node("f0", inputs, outputs, domain="local")]
    imports = [helper.make_opsetid(o.domain, o.version) for o in model.opset_import] + [helper.make_opsetid("local", 1)]
    try:
        model.functions.append(helper.make_function("local", "f0", inputs, outputs, body, imports))
    except (TypeError, ValueError):
        return
    call = "f0"
    if kind == 2 and len(inputs) == 1 and len(outputs) == 1:
        doubling = rng.random() < 0.7
        for level in range(1, rng.choice((3, 30)) if doubling else rng.choice((50, 1500))):
            twice = [
                helper.make_node(f"f{level - 1}", ["a"], ["b"], domain="local"),
                helper.make_node(
                    f"f{level - 1}" if doubling else "Identity", ["b"], ["c"], domain="local" if doubling else ""
                ),
            ]
            model.functions.append(helper.make_function("local", f"f{level}", ["a"], ["c"], twice, imports))
            call = f"f{level}"
    made = helper.make_node(call, inputs[: len(inputs) - (kind == 3)], outputs, name="call", domain="local")
    model.graph.node[place].CopyFrom(made)
    if rng.random() < 0.9:
        model.opset_import.append(helper.make_opsetid("local", 1))


def ask_for_much(model: ModelProto, rng: random.Random) -> None:
    """A constant, or a run-time tensor, of up to 2^62 elements, made of very few bytes."""
    sizes = [rng.choice((1, 3, 1024, 2**16, 2**20, 2**31, 2**40, -1, 0)) for _ in range(rng.randrange(1, 5))]
    shape = numpy_helper.from_array(np.array(sizes, np.int64), "much")
    model.graph.initializer.append(shape)
    source = name(model, rng)
    one = numpy_helper.from_array(np.ones(rng.choice(([], [1], [1] * len(sizes))), np.float32), "one")
    model.graph.initializer.append(one)
    scalars = [numpy_helper.from_array(np.array(v, np.int64), f"s{n}") for n, v in enumerate((0, integer(rng), 1))]
    model.graph.initializer.extend(scalars)
    base = rng.choice(("one", "one", source))
    node = rng.choice(
        (
            helper.make_node("ConstantOfShape", ["much"], ["huge"], name="ask"),
            helper.make_node("Expand", [base, "much"], ["huge"], name="ask"),
            helper.make_node("Tile", [base, "much"], ["huge"], name="ask"),
            helper.make_node("Range", ["s0", "s1", "s2"], ["huge"], name="ask"),
            helper.make_node("OneHot", ["s0", "s1", "much"], ["huge"], name="ask"),
            helper.make_node("Pad", [base, "much"], ["huge"], name="ask"),
            helper.make_node("Resize", [base, "", "", "much"], ["huge"], name="ask"),
            helper.make_node("Reshape", [base, "much"], ["huge"], name="ask"),
            helper.make_node("HannWindow", ["s1"], ["huge"], name="ask"),
            helper.make_node("EyeLike", [base], ["huge"], name="ask"),
            helper.make_node("RandomNormal", [], ["huge"], name="ask", shape=[max(0, s) for s in sizes]),
            helper.make_node("ConvTranspose", [source, "one"], ["huge"], strides=[max(1, s) for s in sizes]),
            helper.make_node("DepthToSpace", [base], ["huge"], name="ask", blocksize=max(1, sizes[0])),
        )
    )  # fmt: skip
    model.graph.node.insert(0, node) if rng.random() < 0.5 else model.graph.node.append(node)
    if rng.random() < 0.5:
        model.graph.node.append(helper.make_node("Shape", ["huge"], ["size"], name="size"))
        model.graph.output.append(helper.make_tensor_value_info("size", TensorProto.INT64, None))
    else:
        model.graph.output.extend(typed(model, ["huge"]))


NESTING: tuple[Change, ...] = (wrap_in_if, wrap_in_loop, wrap_in_function, ask_for_much)
