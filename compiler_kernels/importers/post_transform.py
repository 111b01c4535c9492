"""What classifiers and regressors of ai.onnx.ml do with their scores: post_transform, and the label of two classes.

Where the specification is silent (a single score for two classes), this is what onnxruntime does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.node import f32
from compiler_kernels.ir.graph import Attr

_LAST: dict[str, Attr] = {"axes": (1,), "keepdims": True}


def post_transform(ctx: Context, x: Tensor, form: str) -> Tensor:
    """Scores ``x`` (rows, classes or targets) in the named form."""
    if form == "NONE":
        return x
    if form == "LOGISTIC":
        return ctx.emit("sigmoid", [x])
    if form == "SOFTMAX":
        return ctx.emit("softmax", [x], {"axis": 1})
    if form == "SOFTMAX_ZERO":
        return _softmax_zero(ctx, x)
    if form == "PROBIT":
        return _probit(ctx, x)
    ctx.at.invalid(f"has post_transform {form!r}, which ONNX does not define")


def _number(ctx: Context, x: Tensor, value: float) -> Tensor:
    return ctx.scalar(f32(value), x.type.dtype)


def _softmax_zero(ctx: Context, x: Tensor) -> Tensor:
    """Softmax over the scores that are not zero (by more than 1e-7); a zero stays one."""
    top = ctx.emit("reduce_max", [x], _LAST)
    some = ctx.emit("greater", [ctx.emit("abs", [x]), _number(ctx, x, 1e-7)])
    raised = ctx.emit("exp", [ctx.emit("sub", [x, top])])
    summed = ctx.emit("reduce_sum", [ctx.emit("where", [some, raised, _number(ctx, x, 0)])], _LAST)
    still = ctx.emit("mul", [x, ctx.emit("exp", [ctx.emit("neg", [top])])])
    return ctx.emit("div", [ctx.emit("where", [some, raised, still]), summed])


def _probit(ctx: Context, x: Tensor) -> Tensor:
    """sqrt(2) times Winitzki's approximation of the inverse error function at 2x - 1."""
    v = ctx.emit("sub", [ctx.emit("mul", [x, _number(ctx, x, 2)]), _number(ctx, x, 1)])
    one = _number(ctx, x, 1)
    product = ctx.emit("mul", [ctx.emit("sub", [one, v]), ctx.emit("add", [one, v])])
    log = ctx.emit("log", [product])
    half = ctx.emit("add", [_number(ctx, x, 2 / (np.pi * 0.147)), ctx.emit("mul", [_number(ctx, x, 0.5), log])])
    scaled = ctx.emit("mul", [_number(ctx, x, 1 / 0.147), log])
    root = ctx.emit("sqrt", [ctx.emit("sub", [ctx.emit("mul", [half, half]), scaled])])
    size = ctx.emit("sqrt", [ctx.emit("sub", [root, half])])
    signed = ctx.emit("where", [ctx.emit("less", [v, _number(ctx, x, 0)]), ctx.emit("neg", [size]), size])
    return ctx.emit("mul", [_number(ctx, x, np.sqrt(2)), signed])


def labels_of(ctx: Context, key: str = "classlabels_int64s") -> tuple[int, ...] | None:
    """Integer class labels; ``None`` where the model has others, which is fine as long as nothing needs them."""
    return ctx.at.optional_ints(key)


def no_labels(ctx: Context) -> None:
    ctx.at.unsupported("gives string labels; engines compute on numbers only, so end the model at its scores")


def bind_label(ctx: Context, picked: Tensor, labels: Sequence[int] | None) -> None:
    """Output 0: the label at each index ``picked`` (rows)."""
    if not ctx.used(0):
        return
    if labels is None:
        no_labels(ctx)
    assert labels is not None
    ctx.bind(ctx.emit("gather", [constant(np.array(labels, dtype=np.int64)), picked], {"axis": 0}))


def two_classes(ctx: Context, score: Tensor, form: str, labels: Sequence[int] | None, above: float, one: bool) -> None:
    """One ``score`` (rows, 1) for two classes: the second class where it lies ``above``; both scores from it.

    The first score is 1 - score (``one``) or -score; with LOGISTIC, that of -score; SOFTMAX changes nothing.
    """
    if form == "PROBIT":
        ctx.at.unsupported("applies PROBIT to a single score of two classes, which ONNX does not define")
    rows = score.shape[0]
    picked = ctx.cast(ctx.reshape(ctx.emit("greater", [score, _number(ctx, score, above)]), (rows,)), "int64")
    bind_label(ctx, picked, labels)
    opposite = ctx.emit("neg", [score])
    if form == "LOGISTIC":
        pair = [ctx.emit("sigmoid", [opposite]), ctx.emit("sigmoid", [score])]
    else:
        pair = [ctx.emit("sub", [_number(ctx, score, 1), score]) if one else opposite, score]
    if ctx.used(1):
        ctx.bind(ctx.emit("concat", pair, {"axis": 1}), 1)


def by_largest(ctx: Context, scores: Tensor, form: str, labels: Sequence[int] | None) -> None:
    """The label of the largest score, the first of equal ones; the scores in their form."""
    if ctx.used(0):
        best = ctx.emit("arg_max", [scores], {"axis": 1, "keepdims": False, "select_last": False})
        bind_label(ctx, best, labels)
    if ctx.used(1):
        ctx.bind(post_transform(ctx, scores, form), 1)
