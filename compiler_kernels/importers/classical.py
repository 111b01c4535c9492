"""Operators of ai.onnx.ml beside trees: encoders, scalers, linear models. Numbers only: strings are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.folding import to_array
from compiler_kernels.importers.post_transform import by_largest, labels_of, post_transform, two_classes
from compiler_kernels.importers.trees import rows_of
from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.ir.graph import Attr

Array = NDArray[Any]


def _single(ctx: Context, index: int = 0) -> Tensor:
    """Input as binary32, in which most of these operators compute."""
    return ctx.cast(ctx.wide(index), "float32")


def _floats(ctx: Context, key: str) -> Array:
    return np.array(ctx.at.floats(key), dtype=np.float32)


def binarizer(ctx: Context) -> None:
    """1 where x is above the threshold, compared as binary64; the type stays."""
    x = ctx.wide(0)
    limit = ctx.scalar(ctx.at.float_("threshold", 0.0), "float64")
    above = ctx.emit("greater", [ctx.cast(x, "float64"), limit])
    ctx.bind(ctx.cast(above, ctx.tensor(0).type.dtype))


def _per_feature(ctx: Context, x: Tensor, values: Array, what: str) -> Tensor:
    if values.size not in (1, x.shape[-1] if x.rank else 1):
        ctx.at.invalid(f"has {values.size} values as {what} for {x.shape[-1] if x.rank else 1} features")
    return constant(values)


def scaler(ctx: Context) -> None:
    """(x - offset) * scale."""
    x = _single(ctx)
    offset, scale = _floats(ctx, "offset"), _floats(ctx, "scale")
    if offset.size:
        x = ctx.emit("sub", [x, _per_feature(ctx, x, offset, "its offset")])
    if scale.size:
        x = ctx.emit("mul", [x, _per_feature(ctx, x, scale, "its scale")])
    ctx.bind(x)


def normalizer(ctx: Context) -> None:
    """Rows divided by their largest element (MAX), the sum of absolute values (L1), or the root of the sum of squares,
    which is taken of every quotient (L2: sign(x) sqrt(x x / sum)); a row whose divisor is zero stays as it is."""
    x, norm = _single(ctx), ctx.at.str_("norm", "MAX")
    if x.rank not in (1, 2) or norm not in ("MAX", "L1", "L2"):
        ctx.at.invalid(f"has norm {norm!r} and an input of shape {list(x.shape)}")
    over: dict[str, Attr] = {"axes": (x.rank - 1,), "keepdims": True}
    zero = ctx.scalar(0.0)
    square = ctx.emit("mul", [x, x])
    if norm == "MAX":
        divisor = ctx.emit("reduce_max", [x], over)
        y = ctx.emit("div", [x, divisor])
    elif norm == "L1":
        divisor = ctx.emit("reduce_sum", [ctx.emit("abs", [x])], over)
        y = ctx.emit("div", [x, divisor])
    else:
        divisor = ctx.emit("reduce_sum", [square], over)
        size = ctx.emit("sqrt", [ctx.emit("div", [square, divisor])])
        y = ctx.emit("where", [ctx.emit("less", [x, zero]), ctx.emit("neg", [size]), size])
    ctx.bind(ctx.emit("where", [ctx.emit("equal", [divisor, zero]), x, y]))


def imputer(ctx: Context) -> None:
    """The value to replace (possibly NaN) becomes the feature's own or the common one."""
    x = ctx.wide(0)
    whole = "imputed_value_int64s" in ctx.at.attrs
    if whole == (x.type.dtype == "float32") or "imputed_value_strings" in ctx.at.attrs:
        ctx.at.unsupported(f"replaces values of a {x.type.dtype} tensor by those of another type")
    if whole:
        values = np.array(ctx.at.ints("imputed_value_int64s")).astype(numpy_dtype(x.type.dtype))
        old = ctx.at.int_("replaced_value_int64", 0)
    else:
        values = _floats(ctx, "imputed_value_floats")
        old = ctx.at.float_("replaced_value_float", 0.0)  # type: ignore[assignment]
    fresh = _per_feature(ctx, x, values, "its imputed values")
    if old != old:
        found = ctx.emit("logical_not", [ctx.emit("equal", [x, x])])
    else:
        found = ctx.emit("equal", [x, ctx.scalar(old, x.type.dtype)])
    ctx.bind(ctx.emit("where", [found, fresh, x]))


def one_hot_encoder(ctx: Context) -> None:
    """1 at the category; an unknown value gives zeros or, with zeros = 0, a refusal."""
    if ctx.at.attrs.get("cats_strings"):
        ctx.at.unsupported("encodes strings; engines compute on numbers only")
    categories = np.array(ctx.at.ints("cats_int64s"), dtype=np.int64)
    if not categories.size:
        ctx.at.invalid("has no category")
    x = ctx.cast(ctx.wide(0), "int64")
    hit = ctx.emit("equal", [ctx.reshape(x, (*x.shape, 1)), constant(categories)])
    y = ctx.cast(hit, "float32")
    if not ctx.at.int_("zeros", 1):
        count = prod(x.shape)
        message = f"input {ctx.at.inputs[0]!r} of node {ctx.at.name!r} (OneHotEncoder) holds a value of no category"
        y = ctx.emit("checked", [y, ctx.emit("count_nonzero", [hit])], {"expected": (count,), "message": message})
    ctx.bind(y)


_KINDS = {"int64s": np.int64, "floats": np.float32}


def _table(ctx: Context, side: str) -> Array:
    """Keys or values of a LabelEncoder, in whichever attribute they stand."""
    for kind, dtype in _KINDS.items():
        if f"{side}_{kind}" in ctx.at.attrs:
            values = ctx.at.ints(f"{side}_{kind}") if kind == "int64s" else ctx.at.floats(f"{side}_{kind}")
            return np.array(values, dtype=dtype)
    tensor = ctx.at.attr(f"{side}_tensor")
    if isinstance(tensor, onnx.TensorProto) and tensor.data_type != onnx.TensorProto.STRING:
        return to_array(tensor).reshape(-1)
    ctx.at.unsupported(f"has no numeric {side}; engines compute on numbers only")


def _default(ctx: Context, dtype: np.dtype[Any]) -> Array:
    tensor = ctx.at.attr("default_tensor")
    if isinstance(tensor, onnx.TensorProto):
        return to_array(tensor).reshape(-1)[:1].astype(dtype)
    if dtype.kind == "f":
        return np.array([ctx.at.float_("default_float", -0.0)], dtype=dtype)
    return np.array([ctx.at.int_("default_int64", -1)], dtype=dtype)


def label_encoder(ctx: Context) -> None:
    """The value of the first key that x equals, or the default; from version 4 on a key of NaN is equal to NaN."""
    for unused in ("default_string", "default_float", "default_int64"):
        ctx.at.attr(unused)
    keys, values = _table(ctx, "keys"), _table(ctx, "values")
    if keys.size != values.size or not keys.size:
        ctx.at.invalid(f"has {keys.size} keys and {values.size} values")
    x = ctx.wide(0)
    column = ctx.reshape(x, (*x.shape, 1))
    own = constant(keys.astype(numpy_dtype(x.type.dtype)))
    hit = ctx.emit("equal", [column, own])
    if ctx.at.version >= 4 and keys.dtype.kind == "f" and np.isnan(keys).any():
        missing = ctx.emit("logical_not", [ctx.emit("equal", [column, column])])
        hit = ctx.emit("logical_or", [hit, ctx.emit("logical_and", [missing, constant(np.isnan(keys))])])
    place = ctx.emit("arg_max", [hit], {"axis": x.rank, "keepdims": False, "select_last": False})
    found = ctx.reshape(
        ctx.emit("gather_elements", [hit, ctx.reshape(place, (*x.shape, 1))], {"axis": x.rank}), x.shape
    )
    fresh = ctx.emit("gather", [constant(values), place], {"axis": 0})
    ctx.bind(ctx.emit("where", [found, fresh, constant(_default(ctx, values.dtype))]))


def _linear(ctx: Context, intercepts: Array, rows: int) -> Tensor:
    """Products of the rows of x with ``rows`` rows of coefficients, intercepts added."""
    x = ctx.cast(rows_of(ctx), "float32")
    weights = _floats(ctx, "coefficients")
    if weights.size != rows * x.shape[1] or intercepts.size not in (0, rows):
        ctx.at.invalid(
            f"has {weights.size} coefficients and {intercepts.size} intercepts for {rows} results from {x.shape[1]}"
        )
    operands = [x, constant(weights.reshape(rows, -1)), constant(intercepts) if intercepts.size else None]
    attrs: dict[str, Attr] = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": True}
    return ctx.emit("gemm", operands, attrs)


def linear_regressor(ctx: Context) -> None:
    y = _linear(ctx, _floats(ctx, "intercepts"), ctx.at.int_("targets", 1))
    ctx.bind(post_transform(ctx, y, ctx.at.str_("post_transform", "NONE")))


def linear_classifier(ctx: Context) -> None:
    """One score per class, or one for two classes: the second where it is above zero."""
    labels = labels_of(ctx, "classlabels_ints")
    words = ctx.at.attr("classlabels_strings", [])
    classes = len(labels) if labels else len(words) if isinstance(words, list) else 0
    ctx.at.int_("multi_class", 0)
    form = ctx.at.str_("post_transform", "NONE")
    features = rows_of(ctx).shape[1]
    scores = len(ctx.at.floats("coefficients")) // features
    y = _linear(ctx, _floats(ctx, "intercepts"), scores)
    if classes == 2 and scores == 1:
        two_classes(ctx, y, form, labels, 0.0, True)
        return
    if scores != classes:
        ctx.at.invalid(f"has coefficients for {scores} of {classes} classes")
    by_largest(ctx, y, form, labels)


def zip_map(ctx: Context) -> None:
    ctx.at.unsupported("gives a sequence of maps; end the model at its input, a tensor of scores")


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Binarizer": binarizer,
    "Scaler": scaler,
    "Normalizer": normalizer,
    "Imputer": imputer,
    "OneHotEncoder": one_hot_encoder,
    "LabelEncoder": label_encoder,
    "LinearRegressor": linear_regressor,
    "LinearClassifier": linear_classifier,
    "ZipMap": zip_map,
}
