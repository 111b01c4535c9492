"""The table of L0 operations (docs/ir.md): operand counts, attribute kinds, shape rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compiler_kernels.errors import IRError
from compiler_kernels.ir import (
    shapes,
    shapes_elementwise,
    shapes_index,
    shapes_move,
    shapes_quantized,
    shapes_recurrent,
    shapes_resize,
    shapes_runtime,
    shapes_sampling,
    shapes_trees,
    shapes_window,
)
from compiler_kernels.ir.dtypes import ANY, COMPUTED, INTEGERS, NUMBERS
from compiler_kernels.ir.graph import Attr, TensorType
from compiler_kernels.ir.shapes import Site

KINDS: Final = ("bool", "int", "float", "number", "str", "ints", "sizes", "floats", "numbers")
"""``sizes`` are integers, or texts of expressions (``ir/dims.py``) where one of them depends on a symbol;
``number`` is an int for an integer or bool tensor and a float for a floating-point one."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """``most`` is ``None`` for a variadic operation. ``attrs`` maps each attribute to one of ``KINDS``; a trailing
    ``?`` marks one that may be absent. ``declared`` says that the result type is input to the rule, not its output.
    ``operands`` gives each operand's element type, the last entry standing for all further ones: ``T`` is the one type
    all such operands share, out of ``domain``; anything else is a type or a ``|``-separated choice of types."""

    kind: str
    least: int
    most: int | None
    attrs: Mapping[str, str]
    rule: Callable[[Site], TensorType]
    declared: bool = False
    domain: Sequence[str] = ("float32",)
    operands: str = "T"


_WINDOW: Final = {"strides": "ints", "dilations": "ints", "pads": "ints"}
_GEMM: Final = {"alpha": "float", "beta": "float", "trans_a": "bool", "trans_b": "bool"}
_POOL: Final = {**_WINDOW, "kernel": "ints", "ceil_mode": "bool"}
_RESIZE: Final = {
    "mode": "str",
    "coordinate_mode": "str",
    "nearest_mode": "str",
    "scales": "floats",
    "roi": "floats",
    "extrapolation_value": "float",
    "exclude_outside": "bool",
    "cubic_coefficient": "float?",
    "antialias": "bool?",
}
_RESIZE_BY: Final = {
    **{k: v for k, v in _RESIZE.items() if v != "floats"},
    "axes": "ints",
    "rounded": "bool",
    "message": "str",
}
_PLAIN: Final = "sigmoid tanh erf exp log hard_swish softplus leaky_relu:alpha elu:alpha hard_sigmoid:alpha,beta"
_BINARY64: Final = "sin cos tan asin acos atan sinh cosh asinh acosh atanh"
_COMPARISONS: Final = "equal less less_or_equal greater greater_or_equal"
_NORM: Final = {"epsilon": "float"}
_ROW_NORM: Final = {**_NORM, "axis": "int"}
_TRANSPOSED: Final = {"group": "int", **_WINDOW, "output_padding": "ints"}
_SCAN: Final = {"reverse": "bool", "clip": "float?", "activations": "str?", "alphas": "floats?", "betas": "floats?"}
_MOVE, _WIN, _RNN = shapes_move, shapes_window, shapes_recurrent.recurrent
_INDEX = "int32|int64"


def _table() -> dict[str, OpSpec]:
    rows: list[OpSpec] = [
        OpSpec("conv", 2, 3, {"group": "int", **_WINDOW, "arithmetic": "str?"}, _WIN.conv, domain=COMPUTED),
        OpSpec("conv_transpose", 2, 3, _TRANSPOSED, _WIN.conv_transpose, domain=COMPUTED),
        OpSpec("max_pool", 1, 1, _POOL, _WIN.pool, domain=NUMBERS),
        OpSpec("average_pool", 1, 1, {**_POOL, "count_include_pad": "bool"}, _WIN.pool, domain=COMPUTED),
        OpSpec("global_average_pool", 1, 1, {}, _WIN.global_pool, domain=COMPUTED),
        OpSpec("global_max_pool", 1, 1, {}, _WIN.global_pool, domain=NUMBERS),
        OpSpec("gemm", 2, 3, _GEMM, shapes.gemm, domain=COMPUTED),
        OpSpec("matmul", 2, 2, {}, shapes.matmul, domain=(*COMPUTED, "int32", "int64", "uint32", "uint64")),
        OpSpec("softmax", 1, 1, {"axis": "int"}, shapes.along_axis),
        OpSpec("log_softmax", 1, 1, {"axis": "int"}, shapes.along_axis),
        OpSpec("gelu", 1, 1, {"approximate": "str"}, shapes.unary, domain=COMPUTED),
        OpSpec("clip", 1, 1, {"lo": "number?", "hi": "number?"}, shapes.unary, domain=NUMBERS),
        OpSpec("prelu", 2, 2, {}, shapes.prelu, domain=COMPUTED),
        OpSpec("batch_normalization", 5, 5, _NORM, shapes.per_channel, domain=COMPUTED),
        OpSpec("instance_normalization", 3, 3, _NORM, shapes.per_channel, domain=COMPUTED),
        OpSpec("group_normalization", 3, 3, {**_NORM, "num_groups": "int"}, shapes.per_channel, domain=COMPUTED),
        OpSpec("layer_normalization", 2, 3, _ROW_NORM, shapes.layer_normalization, domain=COMPUTED),
        OpSpec("rms_normalization", 2, 2, _ROW_NORM, shapes.layer_normalization, domain=COMPUTED),
        OpSpec("resize", 1, 1, _RESIZE, shapes_resize.resize, declared=True, domain=ANY),
        OpSpec(
            "resize_by",
            1,
            3,
            _RESIZE_BY,
            shapes_resize.resize_by,
            declared=True,
            domain=ANY,
            operands="T float32",
        ),
        OpSpec("concat", 1, None, {"axis": "int"}, _MOVE.concat, domain=ANY),
        OpSpec("pad", 1, 1, {"mode": "str", "pads": "ints", "value": "number"}, _MOVE.pad, domain=ANY),
        OpSpec("slice", 1, 1, {"starts": "sizes", "steps": "ints"}, _MOVE.slice_, declared=True, domain=ANY),
        OpSpec("transpose", 1, 1, {"perm": "ints"}, _MOVE.transpose, domain=ANY),
        OpSpec("reshape", 1, 1, {}, _MOVE.reshape, declared=True, domain=ANY),
        OpSpec("expand", 1, 1, {}, _MOVE.expand, declared=True, domain=ANY),
        OpSpec("lstm", 3, 7, {**_SCAN, "state": "str", "input_forget": "bool"}, _RNN, domain=COMPUTED),
        OpSpec("gru", 3, 5, {**_SCAN, "linear_before_reset": "bool"}, _RNN, domain=COMPUTED),
        OpSpec("rnn", 3, 5, _SCAN, _RNN, domain=COMPUTED),
    ]
    for entry in _PLAIN.split():
        kind, _, attrs = entry.partition(":")
        rows.append(OpSpec(kind, 1, 1, {a: "float" for a in attrs.split(",") if a}, shapes.unary, domain=COMPUTED))
    rows += [OpSpec(kind, 1, 1, {}, shapes.unary, domain=NUMBERS) for kind in "relu neg abs".split()]
    rows += [OpSpec(kind, 1, 1, {}, shapes.unary, domain=COMPUTED) for kind in "sqrt reciprocal floor ceil".split()]
    rows += [OpSpec(kind, 2, 2, {}, shapes.binary, domain=NUMBERS) for kind in "add sub mul div min max".split()]
    rows += [OpSpec(kind, 2, 2, {}, shapes.compare, domain=(*NUMBERS, "bool")) for kind in _COMPARISONS.split()]
    rows += [OpSpec(f"logical_{kind}", 2, 2, {}, shapes.binary, domain=("bool",)) for kind in "and or xor".split()]
    rows += [
        OpSpec("logical_not", 1, 1, {}, shapes.unary, domain=("bool",)),
        OpSpec("pow", 2, 2, {}, shapes.binary, domain=NUMBERS),
        OpSpec("cast", 1, 1, {"to": "str"}, shapes.cast, domain=ANY),
        OpSpec("where", 3, 3, {}, shapes.where, domain=ANY, operands="bool T T"),
    ]
    steering = "bool|int32|int64|float32|float64"
    rows += [
        OpSpec(
            "checked",
            2,
            2,
            {"expected": "numbers", "wildcard": "number?", "message": "str"},
            shapes_runtime.checked,
            domain=ANY,
            operands=f"T {steering}",
        ),
        OpSpec(
            "by_axes",
            2,
            None,
            {"masks": "ints", "picks": "ints", "rank": "int", "message": "str"},
            shapes_runtime.by_axes,
            domain=ANY,
            operands="int32|int64 T",
        ),
        OpSpec(
            "slice_at",
            3,
            5,
            {"message": "str"},
            shapes_runtime.slice_at,
            declared=True,
            domain=ANY,
            operands="T int32|int64",
        ),
        OpSpec(
            "pad_by",
            3,
            4,
            {"mode": "str", "message": "str"},
            shapes_runtime.pad_by,
            declared=True,
            domain=ANY,
            operands="T int64 T int32|int64",
        ),
        OpSpec("range", 3, 3, {"message": "str"}, shapes_runtime.range_, declared=True, domain=NUMBERS),
        OpSpec(
            "col2im",
            2,
            2,
            {"strides": "ints", "dilations": "ints", "pads": "ints", "message": "str"},
            shapes_runtime.col2im,
            declared=True,
            domain=NUMBERS,
            operands="T int64",
        ),
    ]
    reduced = {"axes": "ints", "keepdims": "bool"}
    for kind in "mean sum prod max min".split():
        extreme = ("bool",) if kind in ("max", "min") else ()
        rows.append(OpSpec(f"reduce_{kind}", 1, 1, reduced, shapes.reduction, domain=(*NUMBERS, *extreme)))
    rows += _index_rows()
    rows += _sampling_rows()
    rows += _quantised_rows()
    rows += _elementwise_rows()
    return {row.kind: row for row in rows}


def _elementwise_rows() -> list[OpSpec]:
    """Functions computed in binary64, signs, remainders, bits, and generators."""
    rule = shapes_elementwise
    rows = [OpSpec(kind, 1, 1, {}, shapes.unary, domain=COMPUTED) for kind in (*_BINARY64.split(), "round")]
    rows += [OpSpec(f"bit_{kind}", 2, 2, {}, shapes.binary, domain=INTEGERS) for kind in "and or xor".split()]
    rows += [OpSpec(f"shift_{side}", 2, 2, {}, shapes.binary, domain=INTEGERS) for side in ("left", "right")]
    return [
        *rows,
        OpSpec("sign", 1, 1, {}, shapes.unary, domain=NUMBERS),
        OpSpec("mod", 2, 2, {"fmod": "bool"}, shapes.binary, domain=NUMBERS),
        OpSpec("bit_not", 1, 1, {}, shapes.unary, domain=INTEGERS),
        OpSpec("bit_cast", 1, 1, {"to": "str"}, rule.bit_cast, domain=ANY),
        OpSpec("is_nan", 1, 1, {}, rule.predicate, domain=COMPUTED),
        OpSpec("is_inf", 1, 1, {"negative": "bool", "positive": "bool"}, rule.predicate, domain=COMPUTED),
        OpSpec("hardmax", 1, 1, {"axis": "int"}, shapes.along_axis, domain=COMPUTED),
        OpSpec("random_bits", 0, 0, {"seed": "int", "stream": "int", "word": "int"}, rule.random_bits, declared=True),
        OpSpec("multinomial", 2, 2, {}, rule.multinomial, operands="float32 float32"),
    ]


def _sampling_rows() -> list[OpSpec]:
    """Reading between elements at run-time coordinates."""
    rule, pooled = shapes_sampling, {"output": "ints", "spatial_scale": "float"}
    sample = {"mode": "str", "padding": "str", "align_corners": "bool"}
    align = {**pooled, "mode": "str", "half_pixel": "bool", "sampling_ratio": "int"}
    deform = {**_WINDOW, "kernel": "ints", "offset_group": "int"}
    return [
        OpSpec("grid_sample", 2, 2, sample, rule.grid_sample, domain=ANY, operands="T float32|float64"),
        OpSpec("roi_align", 3, 3, align, rule.roi_align, domain=COMPUTED, operands="T T int64"),
        OpSpec("max_roi_pool", 2, 2, pooled, rule.max_roi_pool, domain=COMPUTED),
        OpSpec("deform_sample", 2, 3, deform, rule.deform_sample, domain=COMPUTED),
    ]


def _quantised_rows() -> list[OpSpec]:
    """Integers with a scale and a zero point, and exact integer sums of products."""
    rule, few = shapes_quantized, "|".join(shapes_quantized.QUANTISED)
    centred = "int8|uint8|int16|int32"
    conv = {"group": "int", **_WINDOW}
    return [
        OpSpec("quantize", 2, 3, {"to": "str"}, rule.quantize, operands=f"T T {few}"),
        OpSpec("dequantize", 2, 3, {}, rule.dequantize, operands=f"{few}|int32 float32 {few}|int32"),
        OpSpec("conv_integer", 2, 2, conv, rule.conv_integer, operands=centred),
        OpSpec("matmul_integer", 2, 2, {}, rule.matmul_integer, operands=centred),
    ]


def _index_rows() -> list[OpSpec]:
    """Indexing, ordering, scanning and counting."""
    rule, along = shapes_index, {"axis": "int"}
    values = (*NUMBERS, "bool")
    rows = [
        OpSpec("gather", 2, 2, along, rule.gather, domain=ANY, operands=f"T {_INDEX}"),
        OpSpec("gather_elements", 2, 2, along, rule.gather_elements, domain=ANY, operands=f"T {_INDEX}"),
        OpSpec("gather_nd", 2, 2, {"batch_dims": "int"}, rule.gather_nd, domain=ANY, operands=f"T {_INDEX}"),
        OpSpec("scatter_elements", 3, 3, {**along, "reduction": "str"}, rule.scatter_elements, domain=ANY,
               operands=f"T {_INDEX} T"),
        OpSpec("scatter_nd", 3, 3, {"reduction": "str"}, rule.scatter_nd, domain=ANY, operands=f"T {_INDEX} T"),
        OpSpec("tensor_scatter", 2, 3, {**along, "mode": "str"}, rule.tensor_scatter, domain=ANY,
               operands=f"T T {_INDEX}"),
        OpSpec("topk_indices", 1, 1, {**along, "k": "int", "largest": "bool"}, rule.topk_indices, domain=values),
        OpSpec("max_pool_indices", 1, 1, {**_POOL, "column_major": "bool"}, rule.pool_indices),
        OpSpec("nonzero", 1, 1, {}, rule.nonzero, domain=values),
        OpSpec("count_nonzero", 1, 1, {}, rule.count_nonzero, domain=values),
        OpSpec("sort_rows", 1, 1, {}, rule.sort_rows, domain=values),
        OpSpec("compact", 2, 2, {}, rule.compact, domain=ANY, operands="T int64"),
        OpSpec("non_max_suppression", 3, 6, {"center_point": "bool", "limit": "int"}, rule.non_max_suppression,
               operands="T T int64 int64 T T"),
        OpSpec("tree_ensemble", 9, 9, {"targets": "int", "aggregate": "str"}, shapes_trees.tree_ensemble,
               domain=COMPUTED, operands="T int32 int32 T int32 int32 T T T"),
    ]  # fmt: skip
    arg = {**along, "keepdims": "bool", "select_last": "bool"}
    rows += [OpSpec(f"arg_{kind}", 1, 1, arg, rule.arg_extreme, domain=values) for kind in ("max", "min")]
    running = {**along, "exclusive": "bool", "reverse": "bool"}
    rows += [OpSpec(f"cum_{kind}", 1, 1, running, rule.scan, domain=NUMBERS) for kind in ("sum", "prod")]
    return rows


L0_OPS: Final[Mapping[str, OpSpec]] = _table()

FINITE: Final = frozenset("conv conv_transpose gemm matmul lstm gru rnn".split())
"""Operations whose constant operands must be finite: a padding tap gives +0 whether it is executed or skipped."""


def _is(kind: str, value: Attr) -> bool:
    if kind == "sizes":
        return isinstance(value, tuple) and (all(_is("int", v) for v in value) or all(_is("str", v) for v in value))
    if kind in ("ints", "floats", "numbers"):
        return isinstance(value, tuple) and all(_is(kind[:-1], v) for v in value)
    if isinstance(value, bool):
        return kind == "bool"
    if kind == "number":
        return isinstance(value, int | float)
    return isinstance(value, {"bool": bool, "int": int, "float": float, "str": str}[kind])


def check_attrs(spec: OpSpec, attrs: Mapping[str, Attr]) -> None:
    """Every attribute known, of its kind, present where required, and no NaN. ``IRError`` otherwise."""
    for key, value in attrs.items():
        if key not in spec.attrs:
            raise IRError(f"{spec.kind}: unknown attribute {key}")
        kind = spec.attrs[key].rstrip("?")
        if not _is(kind, value):
            raise IRError(f"{spec.kind}: attribute {key} must be {kind}, not {value!r}")
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(v, float) and math.isnan(v) for v in numbers):
            raise IRError(f"{spec.kind}: attribute {key} is NaN")
    for key, kind in spec.attrs.items():
        if key not in attrs and not kind.endswith("?"):
            raise IRError(f"{spec.kind}: attribute {key} is missing")


def check_types(spec: OpSpec, operands: Sequence[TensorType | None]) -> None:
    """Element types of the operands as ``spec.operands`` and ``spec.domain`` allow them. ``IRError`` otherwise."""
    words = spec.operands.split()
    shared = ""
    for index, operand in enumerate(operands):
        if operand is None:
            continue
        word = words[min(index, len(words) - 1)]
        if word == "T":
            shared = shared or operand.dtype
            if operand.dtype != shared:
                raise IRError(f"{spec.kind}: operand {index} is {operand.dtype} where the others are {shared}")
        allowed = spec.domain if word == "T" else word.split("|")
        if operand.dtype not in allowed:
            raise IRError(f"{spec.kind}: operand {index} is {operand.dtype}, not {' or '.join(allowed)}")


def infer(
    kind: str,
    operands: Sequence[TensorType | None],
    attrs: Mapping[str, Attr],
    declared: TensorType | None = None,
) -> TensorType:
    """Result type of L0 operation ``kind`` (``conv``, not ``op.conv``) on operand types, ``None`` = absent.

    ``declared`` is the stated result type: required by resize, slice, reshape and expand, whose attributes do not
    determine it, and otherwise only compared. ``IRError`` in one sentence on any inconsistency.
    """
    spec = L0_OPS.get(kind)
    if spec is None:
        raise IRError(f"{kind} is not an L0 operation")
    if len(operands) < spec.least or (spec.most is not None and len(operands) > spec.most):
        most = "more" if spec.most is None else spec.most
        raise IRError(f"{kind}: {len(operands)} operands where {spec.least} to {most} are allowed")
    check_attrs(spec, attrs)
    site = Site(kind, operands, attrs, declared)
    for index, operand in enumerate(operands):
        if operand is None and (index < spec.least or spec.most is None):
            raise IRError(f"{kind}: operand {index} is absent")
    check_types(spec, operands)
    found = spec.rule(site)
    if declared is not None and found != declared:
        raise IRError(
            f"{kind}: the result is {found.dtype}{list(found.shape)}, not the stated "
            f"{declared.dtype}{list(declared.shape)}"
        )
    return found
