"""Reference graphs of the elementwise operators and generators of CA-1.4 from their ONNX terms, for vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph, storage, type_name
from evidence.reference.typed import to_storage
from evidence.reference.vector_graph import HALVES, GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]
Steps = Callable[[GraphOf, list[str], Mapping[str, Any]], str]
_ONNX_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
_SAME = {
    name: name.lower() for name in "Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Round Sign".split()
} | {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "BitwiseNot": "bit_not",
     "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "Not": "logical_not"}  # fmt: skip
_BOOLEAN = {
    "Equal": "equal", "Less": "less", "LessOrEqual": "less_or_equal", "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal", "IsNaN": "is_nan",
}  # fmt: skip


def _builder(steps: Steps, moves: bool = False) -> Callable[[OnnxParts], Built]:
    """``steps`` on operands widened to binary32 where they are of a half type, unless they are only moved."""

    def build(parts: OnnxParts) -> Built:
        graph = GraphOf(parts)
        names = [name if moves or not name else graph.wide(name) for name in parts.inputs]
        return graph.finish(steps(graph, names, parts.attributes), "" if moves else graph.half)

    return build


def _same(op: str, dtype: str = "", **attrs: Any) -> Steps:
    def steps(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
        return graph.same(op, *names, dtype=dtype, **attrs)

    return steps


def _number(graph: GraphOf, value: float, like: str) -> str:
    """A constant of the type of ``like``, from a binary32 or integer number."""
    return graph.constant(to_storage(np.array(value, dtype=np.float64), graph.types[like]))


def _attribute(graph: GraphOf, given: Mapping[str, Any], key: str, default: float, like: str) -> str:
    return _number(graph, float(np.float32(given.get(key, default))), like)


def _is_inf(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    sides = {side: bool(given.get(f"detect_{side}", 1)) for side in ("negative", "positive")}
    return graph.same("is_inf", names[0], dtype="bool", **sides)


def _mod(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    return graph.same("mod", *names, fmod=bool(given.get("fmod", 0)))


def _shift(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    return graph.same(f"shift_{str(given['direction']).lower()}", *names)


def _where(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    return graph.same("where", *names, dtype=graph.types[names[1]])


def _cast(op: str) -> Steps:
    def steps(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
        to = _ONNX_TYPES[int(given["to"])]
        return graph.node(op, names, graph.shapes[names[0]], to, to=to)

    return steps


def _bounded(parts: OnnxParts) -> Built:
    """Clip with operands as bounds; an absent one is the extreme finite number of a floating-point type."""
    graph = GraphOf(parts)
    x = graph.wide(parts.inputs[0])
    model_type = graph.types[parts.inputs[0]]
    largest = {
        "float32": float(np.finfo(np.float32).max), "float64": float(np.finfo(np.float64).max), "float16": 65504.0,
        "bfloat16": float.fromhex("0x1.fep+127"),
    }  # fmt: skip
    for index, (op, side) in enumerate((("max", -1.0), ("min", 1.0)), 1):
        given = parts.inputs[index] if index < len(parts.inputs) else ""
        if given:
            x = graph.same(op, x, graph.wide(given))
        elif model_type in largest:
            x = graph.same(op, x, _number(graph, side * largest[model_type], x))
    return graph.finish(x, graph.half)


def _power(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x, y = (graph.wide(name) for name in parts.inputs)
    base, exponent = graph.types[x], graph.types[y]
    common = base
    if storage(base).kind in "iu" and base != exponent:
        common = "int64" if storage(exponent).kind in "iu" else "float64"
    result = graph.same("pow", graph.cast(x, common), graph.cast(y, common))
    return graph.finish(graph.cast(result, base), graph.types[parts.inputs[0]])


def _chain(op: str, mean: bool = False) -> Steps:
    def steps(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
        total = names[0]
        for name in names[1:]:
            total = graph.same(op, total, name)
        return graph.same("div", total, _number(graph, len(names), total)) if mean else total

    return steps


def _selu(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    x = names[0]
    alpha = _attribute(graph, given, "alpha", 1.67326319217681884765625, x)
    gamma = _attribute(graph, given, "gamma", 1.05070102214813232421875, x)
    bent = graph.same("sub", graph.same("mul", alpha, graph.same("exp", x)), alpha)
    negative = graph.same("less", x, _number(graph, 0.0, x), dtype="bool")
    sides = graph.same("mul", gamma, bent), graph.same("mul", gamma, x)
    return graph.same("where", negative, *sides, dtype=graph.types[x])


def _celu(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x = graph.wide(parts.inputs[0])
    alpha = _attribute(graph, parts.attributes, "alpha", 1.0, x)
    scaled = graph.same("div", x, alpha)
    if parts.opset >= 28:
        return graph.finish(graph.same("mul", alpha, graph.same("elu", scaled, alpha=1.0)), graph.half)
    zero, one = (_number(graph, v, x) for v in (0.0, 1.0))
    bent = graph.same("mul", alpha, graph.same("sub", graph.same("exp", scaled), one))
    result = graph.same("add", graph.same("max", zero, x), graph.same("min", zero, bent))
    return graph.finish(result, graph.half)


def _thresholded(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    x = names[0]
    above = graph.same("less", _attribute(graph, given, "alpha", 1.0, x), x, dtype="bool")
    return graph.same("where", above, x, _number(graph, 0.0, x), dtype=graph.types[x])


def _shrink(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    original = graph.types[names[0]]
    x = graph.cast(names[0], "float64") if storage(original).kind in "iu" else names[0]
    kind = graph.types[x]
    bias, lambd = _attribute(graph, given, "bias", 0.0, x), _attribute(graph, given, "lambd", 0.5, x)
    below = graph.same("less", x, graph.same("neg", lambd), dtype="bool")
    above = graph.same("less", lambd, x, dtype="bool")
    upper = graph.same("where", above, graph.same("sub", x, bias), _number(graph, 0.0, x), dtype=kind)
    return graph.cast(graph.same("where", below, graph.same("add", x, bias), upper, dtype=kind), original)


def _softsign(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    x = names[0]
    return graph.same("div", x, graph.same("add", _number(graph, 1.0, x), graph.same("abs", x)))


def _mish(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    return graph.same("mul", names[0], graph.same("tanh", graph.same("softplus", names[0])))


def _swish(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    x, alpha = names[0], float(np.float32(given.get("alpha", 1.0)))
    inner = x if alpha == 1.0 else graph.same("mul", _number(graph, alpha, x), x)
    return graph.same("mul", x, graph.same("sigmoid", inner))


def _hardmax(graph: GraphOf, names: list[str], given: Mapping[str, Any]) -> str:
    return graph.same("hardmax", names[0], axis=int(given.get("axis", -1)) % len(graph.shapes[names[0]]))


def _stated(parts: OnnxParts, default: str) -> str:
    """Attribute ``dtype`` as an element type."""
    return _ONNX_TYPES[int(parts.attributes["dtype"])] if "dtype" in parts.attributes else default


def _seed(attributes: Mapping[str, Any]) -> int:
    return int(np.array(attributes["seed"], dtype=np.float32).view(np.uint32))


class _Draw:
    """Numbers in [0, 1) of one node, whose seed is an attribute."""

    def __init__(self, graph: GraphOf, shape: tuple[int, ...], seed: int, dtype: str) -> None:
        self.graph, self.shape, self.seed, self.dtype = graph, shape, seed, dtype

    def constant(self, value: float) -> str:
        return self.graph.constant(to_storage(np.array(value, dtype=np.float64), self.dtype))

    def _high(self, word: int, bits: int) -> str:
        attrs = {"seed": self.seed, "stream": 0, "word": word}
        words = self.graph.node("random_bits", [], self.shape, "uint32", **attrs)
        shift = self.graph.constant(np.array(32 - bits, dtype=np.uint32))
        return self.graph.cast(self.graph.same("shift_right", words, shift), self.dtype)

    def unit(self, word: int, plus: float = 0.0) -> str:
        graph = self.graph
        if self.dtype == "float64":
            high = graph.same("mul", self._high(word, 27), self.constant(2.0**26))
            total, factor = graph.same("add", high, self._high(word + 1, 26)), 2.0**-53
        else:
            total, factor = self._high(word, 24), 2.0**-24
        if plus:
            total = graph.same("add", total, self.constant(plus))
        return graph.same("mul", total, self.constant(factor))


def _random(parts: OnnxParts) -> Built:
    graph, given = GraphOf(parts), parts.attributes
    like = parts.op_type.endswith("Like")
    shape = graph.shapes[parts.inputs[0]] if like else tuple(given["shape"])
    default = graph.types[parts.inputs[0]] if like else "float32"
    to = _stated(parts, default)
    draw = _Draw(graph, shape, _seed(given), "float64" if to == "float64" else "float32")

    def attribute(key: str, value: float) -> np.float32:
        return np.float32(given.get(key, value))

    if "Uniform" in parts.op_type:
        low, high = attribute("low", 0.0), attribute("high", 1.0)
        result = draw.unit(0)
        if float(low) != 0.0 or float(high) != 1.0:
            width = np.float64(high) - np.float64(low) if draw.dtype == "float64" else high - low
            scaled = graph.same("mul", result, draw.constant(float(width)))
            result = graph.same("add", scaled, draw.constant(float(low)))
    else:
        u, v = draw.unit(0, 1.0), draw.unit(2 if draw.dtype == "float64" else 1)
        radius = graph.same("sqrt", graph.same("mul", draw.constant(-2.0), graph.same("log", u)))
        wave = graph.same("cos", graph.same("mul", draw.constant(2 * np.pi), v))
        spread = graph.same("mul", draw.constant(float(attribute("scale", 1.0))), graph.same("mul", radius, wave))
        result = graph.same("add", draw.constant(float(attribute("mean", 0.0))), spread)
    return graph.finish(result, to if to in HALVES else "")


def _bernoulli(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    p = graph.wide(parts.inputs[0])
    u = _Draw(graph, graph.shapes[p], _seed(parts.attributes), graph.types[p]).unit(0)
    return graph.finish(
        graph.cast(graph.same("less", u, p, dtype="bool"), _stated(parts, graph.types[parts.inputs[0]]))
    )


def _multinomial(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x = graph.cast(parts.inputs[0], "float32")
    shape = (graph.shapes[x][0], int(parts.attributes.get("sample_size", 1)))
    u = _Draw(graph, shape, _seed(parts.attributes), "float32").unit(0)
    return graph.finish(graph.cast(graph.node("multinomial", [x, u], shape, "int32"), _stated(parts, "int32")))


BUILDERS: dict[str, Callable[[OnnxParts], Built]] = {
    **{name: _builder(_same(op)) for name, op in _SAME.items()},
    **{name: _builder(_same(op, "bool")) for name, op in _BOOLEAN.items()},
    "IsInf": _builder(_is_inf),
    "Mod": _builder(_mod),
    "BitShift": _builder(_shift),
    "Where": _builder(_where, moves=True),
    "Cast": _builder(_cast("cast"), moves=True),
    "BitCast": _builder(_cast("bit_cast"), moves=True),
    "Sum": _builder(_chain("add")),
    "Mean": _builder(_chain("add", mean=True)),
    "Selu": _builder(_selu),
    "Celu": _celu,
    "ThresholdedRelu": _builder(_thresholded),
    "Shrink": _builder(_shrink),
    "Softsign": _builder(_softsign),
    "Mish": _builder(_mish),
    "Swish": _builder(_swish),
    "Hardmax": _builder(_hardmax),
    **dict.fromkeys(("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike"), _random),
    "Bernoulli": _bernoulli,
    "Multinomial": _multinomial,
}
"""By ONNX name. Clip and Pow are here only for what vectors before CA-1.4 do not have: other types, run-time bounds."""


def typed_builder(parts: OnnxParts) -> Callable[[OnnxParts], Built] | None:
    """A builder for Clip and Pow where an operand is not float32 or a bound is known at run time only."""
    arrays = {**parts.graph_inputs, **parts.initializers}
    plain = all(type_name(arrays[name].dtype) == "float32" for name in parts.inputs if name)
    if parts.op_type == "Pow" and not plain:
        return _power
    run_time = any(name in parts.graph_inputs for name in parts.inputs[1:])
    return _bounded if parts.op_type == "Clip" and (not plain or run_time) else None
