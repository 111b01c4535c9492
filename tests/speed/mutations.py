"""Random changes of a module, such as a wrong pass could make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler_kernels.ir.graph import Module, Op


def mutated(module: Module, rng: np.random.Generator) -> Module:
    """``module`` with one random change of its main graph (or, at L2, of a function)."""
    while True:
        graphs = list(module.graphs)
        which = int(rng.integers(len(graphs))) if len(graphs) > 1 and rng.random() < 0.4 else 0
        graph = graphs[which]
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        ops = change(list(graph.ops), graph, rng)
        if ops is not None and tuple(ops) != graph.ops:
            graphs[which] = replace(graph, ops=tuple(ops))
            return replace(module, graphs=tuple(graphs))
        if rng.random() < 0.1 and len(graph.weights) > 1 and which == 0:
            a, b = (graph.weights[int(i)] for i in rng.choice(len(graph.weights), 2, replace=False))
            if a.type.nbytes == b.type.nbytes and a.ref != b.ref:
                weights = tuple(replace(w, ref=b.ref) if w is a else w for w in graph.weights)
                graphs[which] = replace(graph, weights=weights)
                return replace(module, graphs=tuple(graphs))


def _pick(ops, rng, wanted):
    found = [i for i, op in enumerate(ops) if wanted(op)]
    return found[int(rng.integers(len(found)))] if found else None


def _in_body(change):
    """Apply ``change`` to an operation or, half the time, to one inside a fused statement's body."""

    def apply(ops, graph, rng):
        i = _pick(ops, rng, lambda op: bool(op.body))
        if i is not None and rng.random() < 0.5:
            body = change(list(ops[i].body), graph, rng)
            if body is None:
                return None
            ops[i] = replace(ops[i], body=tuple(body))
            return ops
        return change(ops, graph, rng)

    return apply


@_in_body
def swap_operands(ops, graph, rng):
    i = _pick(ops, rng, lambda op: len(op.operands) > 1)
    if i is None:
        return None
    a, b = (int(v) for v in rng.choice(len(ops[i].operands), 2, replace=False))
    operands = list(ops[i].operands)
    operands[a], operands[b] = operands[b], operands[a]
    ops[i] = replace(ops[i], operands=tuple(operands))
    return ops


@_in_body
def other_operand(ops, graph, rng):
    types = graph.types()
    i = _pick(ops, rng, lambda op: any(o in types for o in op.operands))
    if i is None:
        return None
    place = int(rng.integers(len(ops[i].operands)))
    mine = types.get(ops[i].operands[place])
    same = [v for v, t in types.items() if t == mine and v != ops[i].operands[place]]
    if not same:
        return None
    operands = list(ops[i].operands)
    operands[place] = same[int(rng.integers(len(same)))]
    ops[i] = replace(ops[i], operands=tuple(operands))
    return ops


@_in_body
def other_attribute(ops, graph, rng):
    i = _pick(ops, rng, lambda op: bool(op.attrs))
    if i is None:
        return None
    key, value = ops[i].attrs[int(rng.integers(len(ops[i].attrs)))]
    if isinstance(value, bool):
        value = not value
    elif isinstance(value, int):
        value = value + int(rng.choice([-64, -1, 1, 64]))
    elif isinstance(value, float):
        value = value * 1.5 + 0.25
    elif isinstance(value, tuple) and value:
        at = int(rng.integers(len(value)))
        value = (*value[:at], value[at] + 1, *value[at + 1 :])
    else:
        return None
    ops[i] = ops[i].with_attrs(**{key: value})
    return ops


@_in_body
def other_kind(ops, graph, rng):
    swaps = {"op.relu": "op.abs", "op.add": "op.sub", "op.sigmoid": "op.tanh", "op.softmax": "op.log_softmax"}
    i = _pick(ops, rng, lambda op: op.name in swaps)
    if i is None:
        return None
    ops[i] = replace(ops[i], name=swaps[ops[i].name])
    return ops


@_in_body
def exchange(ops, graph, rng):
    if len(ops) < 2:
        return None
    i = int(rng.integers(len(ops) - 1))
    ops[i], ops[i + 1] = ops[i + 1], ops[i]
    return ops


def other_buffer(ops, graph, rng):
    i = _pick(ops, rng, lambda op: bool(op.into))
    rooms = [op.result for op in ops if op.name in ("tensor.alloc", "tensor.part")]
    if i is None:
        return None
    ops[i] = replace(ops[i], into=rooms[int(rng.integers(len(rooms)))])
    return ops


def other_layout(ops, graph, rng):
    i = _pick(ops, rng, lambda op: op.type is not None and op.type.layout.startswith("c16"))
    if i is None:
        return None
    word, *halo = ops[i].out.layout.split(" ")
    at = int(rng.integers(len(halo)))
    halo[at] = str(max(0, int(halo[at]) + int(rng.choice([-1, 1]))))
    new = replace(ops[i].out, layout=" ".join([word, *halo]))
    ops[i] = _retyped(ops[i], new)
    return ops


def _retyped(op: Op, ttype) -> Op:
    body = tuple(replace(o, type=ttype) if o is op.body[-1] else o for o in op.body)
    return replace(op, type=ttype, body=body)


def early_free(ops, graph, rng):
    i = _pick(ops, rng, lambda op: op.name == "tensor.free")
    if i is None:
        return None
    op = ops.pop(i)
    ops.insert(max(0, i - int(rng.integers(1, 6))), op)
    return ops


def no_conversion(ops, graph, rng):
    i = _pick(ops, rng, lambda op: op.name in ("op.relayout", "op.copy"))
    if i is None:
        return None
    ops[i] = replace(ops[i], name="op.reshape")
    return ops


CHANGES = (
    swap_operands, other_operand, other_attribute, other_kind, exchange, other_buffer, other_layout, early_free,
    no_conversion,
)  # fmt: skip
