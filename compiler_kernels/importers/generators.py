"""Operators whose result is not computed from values of their input: identity matrices, masks, random numbers.

A random number is a function of a recorded seed and its place (docs/arithmetic.md, section on random numbers), so an
engine draws the same numbers at every inference. The seed is the node's ``seed`` or the policy's ``random_seed``;
without either the node is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.ir.dtypes import BY_ONNX, DTYPES, numpy_dtype

FLOAT: Final = 1
"""TensorProto.DataType of float32."""
_DOUBLE_BITS: Final = 53
_SINGLE_BITS: Final = 24
MASK_IS_BOOL: Final = 10
"""The opset from which Dropout's mask is bool; before, it has the type of the input."""


def dropout(ctx: Context) -> None:
    """Identity and a mask of ones: inference, or training that drops nothing."""
    x = ctx.tensor(0)
    ctx.at.float_("ratio", 0.5)
    ctx.at.int_("seed", 0)
    y = _not_training(ctx, x)
    ctx.bind(y)
    if ctx.used(1):
        kept = "bool" if ctx.at.version >= MASK_IS_BOOL else x.type.dtype
        one = constant(np.ones((), dtype=numpy_dtype(kept)))
        ctx.bind(constant(np.ones(x.shape, one.type.dtype)) if x.type.is_static else ctx.expand(one, x.shape), 1)


def _not_training(ctx: Context, x: Tensor) -> Tensor:
    """``x`` where neither constants nor run-time inputs ask for elements to be dropped."""
    training = ctx.optional(2)
    if training is None:
        return x
    ratio = ctx.optional(1)
    drops = training
    if training.const is not None and not training.const.any():
        return x
    if ratio is None or (ratio.const is not None and ratio.const.any()):
        if training.const is not None:
            ctx.at.unsupported("is in training mode; export the model for inference")
    elif ratio.const is not None:
        return x
    else:
        zero = ctx.cast(ctx.reshape(ratio, ()), "bool")
        drops = ctx.emit("logical_and", [ctx.reshape(training, ()), zero])
    message = (
        f"node {ctx.at.name!r} (Dropout) is compiled for inference, and its inputs ask for training with a ratio that "
        "is not 0; give training_mode false"
    )
    return ctx.emit("checked", [x, drops], {"expected": (0,), "message": message})


def eye_like(ctx: Context) -> None:
    x = ctx.tensor(0)
    if x.rank != 2 or not x.type.is_static:
        ctx.at.unsupported(f"makes an identity matrix of shape {list(x.type.shape)}; two fixed sizes are needed")
    to = _type(ctx, x.type.dtype)
    rows, columns = x.type.dims
    ones = np.eye(rows, columns, k=ctx.at.int_("k", 0))
    ctx.bind(constant(ones.astype(numpy_dtype(to))))


def _type(ctx: Context, default: str) -> str:
    """Attribute ``dtype`` as an element type that is compiled."""
    code = ctx.at.int_("dtype", DTYPES[default].onnx if default in DTYPES else FLOAT)
    row = BY_ONNX.get(code)
    if row is None:
        ctx.at.unsupported(f"makes numbers of ONNX element type {code}, which is not compiled")
    return row.name


# random numbers ------------------------------------------------------------------------------------------------------
def _bits(ctx: Context, shape: Sequence[int], seed: int, stream: int, word: int) -> Tensor:
    attrs = {"seed": seed, "stream": stream, "word": word}
    return ctx.emit("random_bits", [], {**attrs}, shape=shape, dtype="uint32")


def _seed(ctx: Context) -> tuple[int, int]:
    """Seed and stream of the current node: nodes with the same seed of their own draw the same numbers, those that
    share the policy's seed draw from streams of their own."""
    if "seed" in ctx.at.attrs:
        return int(np.float32(ctx.at.float_("seed", 0.0)).view(np.uint32)), 0
    if ctx.random_seed is None:
        ctx.at.unsupported(
            "draws random numbers without a seed; set its attribute seed, or random_seed in the policy, so that the "
            "engine's numbers are recorded"
        )
    ctx.random_streams += 1
    return ctx.random_seed, ctx.random_streams


def _fraction(ctx: Context, shape: Sequence[int], place: tuple[int, int], first: int, dtype: str, plus: int) -> Tensor:
    """(w + plus) 2^-24 with the high 24 bits w of word ``first``, in float64 2^-53 with 53 bits of two words."""
    words = [_bits(ctx, shape, *place, first + i) for i in range(2 if dtype == "float64" else 1)]
    kept = (27, 26) if dtype == "float64" else (_SINGLE_BITS,)
    parts = [
        ctx.cast(ctx.emit("shift_right", [w, ctx.scalar(32 - n, "uint32")]), dtype)
        for w, n in zip(words, kept, strict=True)
    ]
    total = parts[0]
    if dtype == "float64":
        total = ctx.emit("add", [ctx.emit("mul", [total, ctx.scalar(2.0**26, dtype)]), parts[1]])
    if plus:
        total = ctx.emit("add", [total, ctx.scalar(float(plus), dtype)])
    unit = 2.0 ** -(_DOUBLE_BITS if dtype == "float64" else _SINGLE_BITS)
    return ctx.emit("mul", [total, ctx.scalar(unit, dtype)])


def _computed(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _uniform(ctx: Context, shape: Sequence[int], dtype: str, place: tuple[int, int]) -> Tensor:
    """low + u * (high - low)."""
    low, high = ctx.at.float_("low", 0.0), ctx.at.float_("high", 1.0)
    u = _fraction(ctx, shape, place, 0, dtype, 0)
    if (low, high) == (0.0, 1.0):
        return u
    width = numpy_dtype(dtype).type(high) - numpy_dtype(dtype).type(low)
    return ctx.emit("add", [ctx.emit("mul", [u, ctx.scalar(float(width), dtype)]), ctx.scalar(low, dtype)])


def _normal(ctx: Context, shape: Sequence[int], dtype: str, place: tuple[int, int]) -> Tensor:
    """mean + scale * (sqrt(-2 log u) cos(2 pi v)), u in (0, 1], v in [0, 1) (Box and Muller)."""
    second = 2 if dtype == "float64" else 1
    u, v = _fraction(ctx, shape, place, 0, dtype, 1), _fraction(ctx, shape, place, second, dtype, 0)
    radius = ctx.emit("sqrt", [ctx.emit("mul", [ctx.scalar(-2.0, dtype), ctx.emit("log", [u])])])
    wave = ctx.emit("cos", [ctx.emit("mul", [ctx.scalar(2 * np.pi, dtype), v])])
    scaled = ctx.emit("mul", [ctx.scalar(ctx.at.float_("scale", 1.0), dtype), ctx.emit("mul", [radius, wave])])
    return ctx.emit("add", [ctx.scalar(ctx.at.float_("mean", 0.0), dtype), scaled])


def random(ctx: Context) -> None:
    """RandomUniform, RandomNormal and their Like forms."""
    like = ctx.at.op.endswith("Like")
    shape = ctx.tensor(0).shape if like else ctx.at.ints("shape")
    dtype = _type(ctx, ctx.tensor(0).type.dtype if like else "float32")
    if DTYPES[dtype].kind != "float":
        ctx.at.unsupported(f"draws {dtype} numbers; ONNX defines floating-point ones")
    draw = _uniform if "Uniform" in ctx.at.op else _normal
    ctx.bind(ctx.cast(draw(ctx, shape, _computed(dtype), _seed(ctx)), dtype))


def bernoulli(ctx: Context) -> None:
    """One with probability x: u < x, u uniform in [0, 1)."""
    x = ctx.tensor(0)
    to = _type(ctx, x.type.dtype)
    wide = ctx.cast(x, _computed(x.type.dtype))
    u = _fraction(ctx, x.shape, _seed(ctx), 0, wide.type.dtype, 0)
    ctx.bind(ctx.cast(ctx.emit("less", [u, wide]), to))


def multinomial(ctx: Context) -> None:
    """Draws of classes from unnormalised logarithms of probabilities, computed in binary32."""
    x, count = ctx.tensor(0), ctx.at.int_("sample_size", 1)
    to = _type(ctx, "int32")
    if x.rank != 2 or count < 1 or to not in ("int32", "int64"):
        ctx.at.invalid(f"draws {count} samples of type {to} from a tensor of shape {list(x.type.shape)}")
    u = _fraction(ctx, (x.shape[0], count), _seed(ctx), 0, "float32", 0)
    ctx.bind(ctx.cast(ctx.emit("multinomial", [ctx.cast(x, "float32"), u]), to))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Dropout": dropout,
    "EyeLike": eye_like,
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    **dict.fromkeys(("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike"), random),
}
