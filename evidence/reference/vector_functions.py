"""Reference graphs of the vectors of vector_cases_functions: normalisations, attention, rotary embedding, losses.

Written from section 19 of docs/arithmetic.md and the operators' texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph
from evidence.reference.vector_graph import HALVES, GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]


class _Node(GraphOf):
    """The graph of one node, with the moves that several operators share."""

    def __init__(self, parts: OnnxParts) -> None:
        super().__init__(parts)
        self.names = [*parts.inputs, *[""] * 8]
        self.attr = parts.attributes

    def operand(self, index: int) -> str:
        return self.wide(self.names[index]) if self.names[index] else ""

    def half_of(self, index: int = 0) -> str:
        """Element type of operand ``index`` where it is a half type."""
        own = self.types[self.names[index]]
        return own if own in HALVES else ""

    def scalar(self, value: float, dtype: str = "float32") -> str:
        return self.constant(np.array(value, dtype=dtype))

    def shaped(self, x: str, shape: Sequence[int]) -> str:
        return x if tuple(shape) == self.shapes[x] else self.node("reshape", [x], shape)

    def turned(self, x: str, perm: Sequence[int]) -> str:
        return self.node("transpose", [x], [self.shapes[x][p] for p in perm], perm=list(perm))

    def part(self, x: str, axis: int, start: int, size: int, step: int = 1) -> str:
        shape, rank = list(self.shapes[x]), len(self.shapes[x])
        shape[axis] = size
        starts, steps = [0] * rank, [1] * rank
        starts[axis], steps[axis] = start, step
        return self.node("slice", [x], shape, starts=starts, steps=steps)

    def joined(self, parts: Sequence[str], axis: int) -> str:
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[p][axis] for p in parts)
        return self.node("concat", parts, shape, axis=axis)

    def reduced(self, kind: str, x: str, axes: Sequence[int], keep: bool = True) -> str:
        shape = [1 if i in axes else n for i, n in enumerate(self.shapes[x]) if keep or i not in axes]
        return self.node(kind, [x], shape, axes=list(axes), keepdims=int(keep))


def layer_normalization(parts: OnnxParts) -> Built:
    """Y, or the mean, or the reciprocal of the deviation."""
    g = _Node(parts)
    x = g.operand(0)
    shape, epsilon = g.shapes[x], parts.attributes.get("epsilon", 1e-5)
    axis = parts.attributes.get("axis", -1) % len(shape)
    if parts.output_index == 0:
        operands = [x, *(g.operand(i) for i in (1, 2) if g.names[i])]
        return g.finish(g.node("layer_normalization", operands, shape, axis=axis, epsilon=epsilon), g.half_of())
    rows = g.shaped(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
    mean = g.reduced("reduce_mean", rows, [1])
    result = mean
    if parts.output_index == 2:
        d = g.same("sub", rows, mean)
        var = g.reduced("reduce_mean", g.same("mul", d, d), [1])
        result = g.same("reciprocal", g.same("sqrt", g.same("add", var, g.scalar(epsilon))))
    return g.finish(g.shaped(result, (*shape[:axis], *(1 for _ in shape[axis:]))))


def rms_normalization(parts: OnnxParts) -> Built:
    g = _Node(parts)
    x, scale = g.operand(0), g.operand(1)
    attrs = {"axis": parts.attributes.get("axis", -1), "epsilon": parts.attributes.get("epsilon", 1e-5)}
    return g.finish(g.node("rms_normalization", [x, scale], g.shapes[x], **attrs), g.half_of(1))


def per_channel(parts: OnnxParts) -> Built:
    """Batch, instance and group normalisation; the first also in training mode with its running statistics."""
    g = _Node(parts)
    operands = [g.operand(i) for i, name in enumerate(parts.inputs) if name]
    x, shape = operands[0], g.shapes[operands[0]]
    attrs = {"epsilon": parts.attributes.get("epsilon", 1e-5)}
    if parts.op_type == "GroupNormalization":
        attrs["num_groups"] = parts.attributes["num_groups"]
    if parts.attributes.get("training_mode", 0):
        axes, channels = [a for a in range(len(shape)) if a != 1], (shape[1],)
        mean = g.reduced("reduce_mean", x, axes)
        d = g.same("sub", x, mean)
        var = g.reduced("reduce_mean", g.same("mul", d, d), axes)
        here = [g.shaped(mean, channels), g.shaped(var, channels)]
        if parts.output_index:
            momentum = np.float32(parts.attributes.get("momentum", 0.9))
            kept = g.same("mul", operands[2 + parts.output_index], g.scalar(float(momentum)))
            new = g.same("mul", here[parts.output_index - 1], g.scalar(float(np.float32(1) - momentum)))
            return g.finish(g.same("add", kept, new), g.half_of())
        operands[3:] = here
    kind = {"Batch": "batch", "Insta": "instance", "Group": "group"}[parts.op_type[:5]]
    return g.finish(g.node(f"{kind}_normalization", operands, shape, **attrs), g.half_of())


def lp_normalization(parts: OnnxParts) -> Built:
    g = _Node(parts)
    x, p = g.operand(0), parts.attributes.get("p", 2)
    axis = parts.attributes.get("axis", -1) % len(g.shapes[x])
    norm = g.reduced("reduce_sum", g.same("abs", x) if p == 1 else g.same("mul", x, x), [axis])
    norm = norm if p == 1 else g.same("sqrt", norm)
    zero = g.scalar(0.0)
    nothing = g.same("equal", norm, zero, dtype="bool")
    return g.finish(g.same("where", nothing, zero, g.same("div", x, norm), dtype="float32"), g.half_of())


def local_response(parts: OnnxParts) -> Built:
    g = _Node(parts)
    x, size = g.operand(0), parts.attributes["size"]
    n, c, *rest = g.shapes[x]
    planes = (n, 1, c, math.prod(rest))
    window: dict[str, Any] = {
        "kernel": [size, 1],
        "strides": [1, 1],
        "dilations": [1, 1],
        "ceil_mode": 0,
        "count_include_pad": 1,
    }
    squares = g.shaped(g.same("mul", x, x), planes)
    mean = g.node("average_pool", [squares], planes, **window, pads=[(size - 1) // 2, 0, size // 2, 0])
    base = g.same("mul", g.shaped(mean, (n, c, *rest)), g.scalar(parts.attributes.get("alpha", 1e-4)))
    base = g.same("add", base, g.scalar(parts.attributes.get("bias", 1.0)))
    power = g.same("pow", base, g.scalar(parts.attributes.get("beta", 0.75)))
    return g.finish(g.same("div", x, power), g.half_of())


def attention(parts: OnnxParts) -> Built:
    """Outputs Y, the key and value with their past, or the scores at the stage that the attribute names."""
    g = _Node(parts)
    q, k, v = (_heads(g, i) for i in range(3))
    past = g.shapes[g.names[4]][2] if g.names[4] else 0
    if past:
        k, v = g.joined([g.operand(4), k], 2), g.joined([g.operand(5), v], 2)
    if parts.output_index in (1, 2):
        return g.finish((k, v)[parts.output_index - 1], g.half_of())
    (n, heads, rows, depth), columns = g.shapes[q], g.shapes[k][2]
    bias = _bias(g, past, rows, columns)
    group = heads // g.shapes[k][1]
    keys, values = (_repeated(g, t, group) for t in (k, v))
    scale = np.float32(g.attr["scale"]) if "scale" in g.attr else np.float32(1) / np.sqrt(np.float32(depth))
    root = g.scalar(float(np.sqrt(scale)))
    turned = g.same("mul", g.turned(keys, (0, 1, 3, 2)), root)
    scores = g.node("matmul", [g.same("mul", q, root), turned], (n, heads, rows, columns))
    stages = [scores]
    if g.attr.get("softcap", 0.0):
        cap = g.scalar(g.attr["softcap"])
        scores = g.same("mul", g.same("tanh", g.same("div", scores, cap)), cap)
    stages.append(scores)
    scores = g.same("add", scores, bias)
    stages.append(scores)
    weights = g.node("softmax", [scores], g.shapes[scores], axis=3)
    last = len(g.shapes[bias]) - 1
    nothing = g.same("equal", g.reduced("reduce_max", bias, [last]), g.scalar(-np.inf), dtype="bool")
    weights = g.same("where", nothing, g.scalar(0.0), weights, dtype="float32")
    stages.append(weights)
    if parts.output_index == 3:
        return g.finish(stages[g.attr.get("qk_matmul_output_mode", 0)], g.half_of())
    y = g.node("matmul", [weights, values], (n, heads, rows, g.shapes[values][3]))
    if len(g.shapes[g.names[0]]) == 3:
        y = g.shaped(g.turned(y, (0, 2, 1, 3)), (n, rows, heads * g.shapes[y][3]))
    return g.finish(y, g.half_of())


def _heads(g: _Node, index: int) -> str:
    """Query, key or value as (batch, heads, rows, depth)."""
    x = g.operand(index)
    if len(g.shapes[x]) == 4:
        return x
    heads = g.attr["kv_num_heads" if index else "q_num_heads"]
    n, rows, width = g.shapes[x]
    return g.turned(g.shaped(x, (n, rows, heads, width // heads)), (0, 2, 1, 3))


def _repeated(g: _Node, x: str, group: int) -> str:
    n, heads, rows, depth = g.shapes[x]
    if group == 1:
        return x
    wide = g.node("expand", [g.shaped(x, (n, heads, 1, rows, depth))], (n, heads, group, rows, depth))
    return g.shaped(wide, (n, heads * group, rows, depth))


def _bias(g: _Node, past: int, rows: int, columns: int) -> str:
    """What is added to the scores: the mask, -inf above the diagonal, -inf behind the sequence."""
    bias = g.constant(np.zeros((rows, columns), np.float32))
    if g.names[3]:
        bias = g.operand(3)
        if g.types[bias] == "bool":
            bias = g.same("where", bias, g.scalar(0.0), g.scalar(-np.inf), dtype="float32")
        if g.shapes[bias][-1] < columns:
            rank, missing = len(g.shapes[bias]), columns - g.shapes[bias][-1]
            pads = [0] * (2 * rank - 1) + [missing]
            bias = g.node("pad", [bias], (*g.shapes[bias][:-1], columns), mode="constant", pads=pads, value=-math.inf)
    if g.attr.get("is_causal", 0):
        above = np.arange(rows)[:, None] + past < np.arange(columns)[None]
        bias = g.same("add", bias, g.constant(np.where(above, -np.inf, 0.0).astype(np.float32)))
    if g.names[6]:
        count = g.shaped(g.names[6], (g.shapes[g.names[6]][0], 1))
        inside = g.same("less", g.constant(np.arange(columns, dtype=np.int64)), count, dtype="bool")
        behind = g.same("where", inside, g.scalar(0.0), g.scalar(-np.inf), dtype="float32")
        bias = g.same("add", bias, g.shaped(behind, (g.shapes[count][0], 1, 1, columns)))
    return bias


def rotary_embedding(parts: OnnxParts) -> Built:
    g = _Node(parts)
    x, whole = g.operand(0), g.shapes[g.names[0]]
    heads = g.attr.get("num_heads", 0)
    x = g.turned(x, (0, 2, 1, 3)) if len(whole) == 4 else g.shaped(x, (*whole[:2], heads, whole[2] // heads))
    n, rows, _, depth = g.shapes[x]
    turning = g.attr.get("rotary_embedding_dim", 0) or depth
    half = turning // 2
    waves = []
    for index in (1, 2):
        wave = g.operand(index)
        if g.names[3]:
            wave = g.node("gather", [wave, g.names[3]], (n, rows, g.shapes[wave][1]), axis=0)
        waves.append(g.shaped(g.part(wave, 2, 0, half), (n, rows, 1, half)))
    cosine, sine = waves
    moving = g.part(x, 3, 0, turning)
    apart = g.attr.get("interleaved", 0)
    first = g.part(moving, 3, 0, half, 2 if apart else 1)
    second = g.part(moving, 3, 1 if apart else half, half, 2 if apart else 1)
    real = g.same("sub", g.same("mul", cosine, first), g.same("mul", sine, second))
    imaginary = g.same("add", g.same("mul", sine, first), g.same("mul", cosine, second))
    if apart:
        pair = [g.shaped(t, (*g.shapes[t], 1)) for t in (real, imaginary)]
        result = g.shaped(g.joined(pair, 4), g.shapes[moving])
    else:
        result = g.joined([real, imaginary], 3)
    if turning < depth:
        result = g.joined([result, g.part(x, 3, turning, depth - turning)], 3)
    result = g.turned(result, (0, 2, 1, 3)) if len(whole) == 4 else result
    return g.finish(g.shaped(result, whole), g.half_of())


def loss(parts: OnnxParts) -> Built:
    """NegativeLogLikelihoodLoss, or the loss (output 0) or the logarithms (output 1) of SoftmaxCrossEntropyLoss."""
    g = _Node(parts)
    x, target, weight = g.operand(0), g.names[1], g.operand(2)
    shape = g.shapes[x]
    if parts.op_type == "SoftmaxCrossEntropyLoss":
        flat = g.shaped(x, (*shape[:2], math.prod(shape[2:])))
        logs = g.node("log_softmax", [turned := g.turned(flat, (0, 2, 1))], g.shapes[turned], axis=2)
        x = g.shaped(g.turned(logs, (0, 2, 1)), shape)
        if parts.output_index == 1:
            return g.finish(x, g.half_of())
    ignored, one = g.attr.get("ignore_index"), (shape[0], 1, *shape[2:])
    targets = g.shaped(target, one)
    mask = ""
    if ignored is not None:
        mask = g.same("equal", targets, g.constant(np.array(ignored, dtype=np.int64)), dtype="bool")
        targets = g.same("where", mask, g.constant(np.array(0, dtype=np.int64)), targets, dtype="int64")
    picked = g.node("gather_elements", [x, targets], one, axis=1)
    if mask:
        picked = g.same("where", mask, g.scalar(0.0), picked, dtype="float32")
    value = g.shaped(g.same("neg", picked), (shape[0], *shape[2:]))
    if not weight and mask:  # ignored targets count nothing, as if each class weighed 1
        weight = g.constant(np.ones(shape[1], dtype=np.float32))
    of_target = ""
    if weight:
        of_target = g.node("gather", [weight, targets], one, axis=0)
        if mask:
            of_target = g.same("where", mask, g.scalar(0.0), of_target, dtype="float32")
        of_target = g.shaped(of_target, g.shapes[value])
        value = g.same("mul", value, of_target)
    reduction, axes = g.attr.get("reduction", "mean"), range(len(g.shapes[value]))
    if reduction == "mean" and of_target:
        total = g.reduced("reduce_sum", of_target, axes, False)
        value = g.same("div", g.reduced("reduce_sum", value, axes, False), total)
    elif reduction != "none":
        value = g.reduced(f"reduce_{reduction}", value, axes, False)
    return g.finish(value, g.half_of())


FUNCTION_GRAPHS: dict[str, Callable[[OnnxParts], Built]] = {
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), per_channel),
    "LpNormalization": lp_normalization,
    "LRN": local_response,
    "Attention": attention,
    "RotaryEmbedding": rotary_embedding,
    "NegativeLogLikelihoodLoss": loss,
    "SoftmaxCrossEntropyLoss": loss,
}
"""Builders by ONNX operator."""
