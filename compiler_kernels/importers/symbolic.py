"""Index arithmetic on sizes that depend on symbols: Shape and what exporters compute from it, evaluated on expressions.

Values are NumPy arrays of objects, numbers and ``Expr``. A comparison that decides the shape of the graph must have one
answer for all sizes (``ir/decisions.py``); an operation without a rule here is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler_kernels.importers.context import Context, Tensor, constant, symbols_in
from compiler_kernels.importers.ratio import Ratio, extreme
from compiler_kernels.importers.ratio import of as ratio_of
from compiler_kernels.ir.dims import Expr, Size, ceildiv, floordiv, maximum, minimum, product
from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import cast_sizes
from compiler_kernels.ir.symbols import Unproved, interval, prover, simplified

Objects = NDArray[Any]

INTEGERS: Final = (6, 7)
"""TensorProto.DataType of int32 and int64."""
FLOAT32: Final = 1


def sizes_tensor(values: Objects, dtype: str = "int64", name: str = "") -> Tensor:
    """``values`` as a constant where all are numbers, otherwise as sizes."""
    flat = [_plain(v) for v in values.reshape(-1).tolist()]
    if not any(isinstance(v, Expr | Ratio) for v in flat):
        return constant(np.array(flat, dtype=dtype).reshape(values.shape), name, index_like=True)
    return Tensor(TensorType(tuple(values.shape), dtype), name=name, index_like=True, sym=_objects(flat, values.shape))


def _plain(value: object) -> object:
    """Simplified; a ratio of numbers is a number."""
    if isinstance(value, Ratio):
        top = simplified(value.top)
        return top / value.bottom if isinstance(top, int) else Ratio(top, value.bottom)
    return simplified(value) if isinstance(value, Expr) else value


def _objects(flat: Sequence[object], shape: Sequence[int]) -> Objects:
    found = np.empty(len(flat), dtype=object)
    for index, value in enumerate(flat):
        found[index] = value
    return found.reshape(tuple(shape))


def shape_of(ctx: Context) -> Tensor:
    """Shape or Size of a tensor with symbolic sizes."""
    shape: list[Size] = list(ctx.tensor(0).shape)
    if ctx.at.op == "Size":
        return sizes_tensor(_objects([product(shape)], ()))
    picked = shape[ctx.at.int_("start", 0) : ctx.at.int_("end", len(shape))]
    return sizes_tensor(_objects(picked, (len(picked),)))


def fold_sizes(ctx: Context) -> bool:
    """Evaluate the current node, some input of which is sizes, where that is index arithmetic.

    False where the node takes the sizes as its own parameters (Reshape, Expand, Resize, Slice, ...) of other data.
    """
    inputs = _inputs(ctx)
    if ctx.at.op in FILLS:
        ctx.bind(FILLS[ctx.at.op](ctx))
        return True
    rule = RULES.get(ctx.at.op)
    moved = [inputs[0]] if ctx.at.op in PARAMETERS else inputs
    if rule is None or all(t.sym is None for t in moved) or any(t.sym is None and t.const is None for t in moved):
        return False
    try:
        results = rule(ctx)
    except (ValueError, IndexError, OverflowError) as error:  # NumPy, on shapes that do not belong together
        ctx.at.invalid(f"cannot be evaluated on sizes: {str(error).splitlines()[0]}")
    for index, result in enumerate(results if isinstance(results, list) else [results]):
        ctx.bind(result, index)
    return True


def _inputs(ctx: Context) -> list[Tensor]:
    return [ctx.tensor(i) for i in range(len(ctx.at.inputs)) if ctx.at.has_input(i)]


def values(tensor: Tensor) -> Objects:
    """The numbers and expressions of a constant or of sizes."""
    if tensor.sym is not None:
        return tensor.sym
    assert tensor.const is not None
    return _objects(tensor.const.reshape(-1).tolist(), tensor.const.shape)


def _dtype(ctx: Context) -> str:
    return ctx.tensor(0).type.dtype


# arithmetic ----------------------------------------------------------------------------------------------------------
def _elementwise(function: Callable[..., Any], real: Callable[..., Any] | None = None) -> Callable[[Context], Tensor]:
    """``function`` of integers; ``real`` of ratios where the tensor is float32."""

    def rule(ctx: Context) -> Tensor:
        operands = [values(t) for t in _inputs(ctx)]
        dtype = _dtype(ctx)
        chosen = function if dtype in ("int32", "int64") else real if dtype == "float32" else None
        if chosen is None:
            ctx.at.unsupported(f"computes in {dtype} on sizes, which is not followed")
        try:
            arrays = np.broadcast_arrays(*operands)
        except ValueError:
            ctx.at.invalid(f"combines sizes of shapes {[list(o.shape) for o in operands]}")
        flat = [chosen(*items) for items in zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)]
        return sizes_tensor(_objects(flat, arrays[0].shape), dtype)

    return rule


def _divide(a: Size, b: Size) -> Size:
    """ONNX divides integers towards zero: for sizes, which are not negative, that is rounding down."""
    if b == 0:
        raise Unproved(f"{a} is divided by 0", {})
    if b < 0:
        a, b = -a, -b
    return floordiv(a, b) if a >= 0 else -floordiv(-a, b)


def _modulo(ctx: Context) -> Tensor:
    """``fmod`` 0 has the sign of the divisor, as Python's remainder."""
    if ctx.at.int_("fmod", 0):
        ctx.at.unsupported("takes an fmod of sizes")
    return _elementwise(lambda a, b: a % b)(ctx)


def _compare(function: Callable[[Any, Any], bool]) -> Callable[[Context], Tensor]:
    def rule(ctx: Context) -> Tensor:
        a, b = np.broadcast_arrays(*(values(t) for t in _inputs(ctx)))
        pairs = list(zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True))
        if _dtype(ctx) == "float32":  # the difference has the sign that decides, and its denominator is positive
            pairs = [(ratio_of(x).plus(ratio_of(y), -1).top, 0) for x, y in pairs]
        flat = [bool(function(x, y)) for x, y in pairs]
        return constant(np.array(flat, dtype=bool).reshape(a.shape), index_like=True)

    return rule


def _where(ctx: Context) -> Tensor:
    condition = ctx.const(0, "its condition")
    c, a, b = np.broadcast_arrays(condition, values(ctx.tensor(1)), values(ctx.tensor(2)))
    picked = [x if k else y for k, x, y in zip(*(v.reshape(-1).tolist() for v in (c, a, b)), strict=True)]
    return sizes_tensor(_objects(picked, c.shape), ctx.tensor(1).type.dtype)


def _cast(ctx: Context) -> Tensor:
    """To integers, and to float32 where that is exact."""
    to, data = ctx.at.int_("to", 0), values(ctx.tensor(0))
    if to not in (*INTEGERS, FLOAT32):
        ctx.at.unsupported(f"casts sizes that depend on {symbols_in(data)} to another type than integers and float32")
    flat = data.reshape(-1).tolist()
    if to == FLOAT32:
        return sizes_tensor(_objects([ratio_of(v) for v in flat], data.shape), "float32")
    whole = [ratio_of(v).integer() if isinstance(v, float | Ratio) else v for v in flat]
    return sizes_tensor(_objects(whole, data.shape), "int64" if to == 7 else "int32")


def _product(ctx: Context) -> Tensor:
    """ReduceProd over everything."""
    data = values(ctx.tensor(0))
    axes = ctx.at.optional_ints("axes") or (ctx.const_ints(1, "its axes") if ctx.at.has_input(1) else ())
    if data.ndim > 1 or (axes and data.ndim != len(axes)):
        ctx.at.unsupported("multiplies a part of the sizes")
    keep = ctx.at.flag("keepdims", 1)
    return sizes_tensor(_objects([product(data.reshape(-1).tolist())], (1,) * data.ndim if keep else ()), _dtype(ctx))


# movement ------------------------------------------------------------------------------------------------------------
def _axis(ctx: Context, default: int, rank: int) -> int:
    axis = ctx.at.int_("axis", default)
    if not -rank <= axis < rank:
        ctx.at.invalid(f"names axis {axis} of a tensor of rank {rank}")
    return axis % rank


def _gather(ctx: Context) -> Tensor:
    data, indices = values(ctx.tensor(0)), ctx.const(1, "its indices")
    axis = _axis(ctx, 0, data.ndim)
    size = data.shape[axis]
    if indices.size and not (indices.min() >= -size and indices.max() < size):
        ctx.at.invalid(f"gathers outside the {size} elements of axis {axis}")
    return sizes_tensor(np.asarray(np.take(data, indices.astype(np.int64), axis=axis), dtype=object), _dtype(ctx))


def _slice(ctx: Context) -> Tensor:
    data = values(ctx.tensor(0))
    if ctx.at.version < 10:
        begins, ends, axes = ctx.at.ints("starts"), ctx.at.ints("ends"), ctx.at.optional_ints("axes")
        steps: Sequence[int] | None = None
    else:
        begins, ends = ctx.const_ints(1, "its starts"), ctx.const_ints(2, "its ends")
        axes = ctx.const_ints(3, "its axes") if ctx.at.has_input(3) else None
        steps = ctx.const_ints(4, "its steps") if ctx.at.has_input(4) else None
    axes = tuple(range(len(begins))) if axes is None else axes
    steps = (1,) * len(begins) if steps is None else steps
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        ctx.at.invalid("has starts, ends, axes and steps that do not belong together")
    cut: list[slice] = [slice(None)] * data.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if not -data.ndim <= axis < data.ndim:
            ctx.at.invalid(f"names axis {axis} of a tensor of rank {data.ndim}")
        cut[axis] = slice(begin, end if step > 0 or end >= -data.shape[axis] else None, step)
    return sizes_tensor(data[tuple(cut)], _dtype(ctx))


def _concat(ctx: Context) -> Tensor:
    parts = [values(t) for t in _inputs(ctx)]
    return sizes_tensor(np.concatenate(parts, axis=_axis(ctx, 0, parts[0].ndim)), _dtype(ctx))


def _axes(ctx: Context) -> tuple[int, ...] | None:
    if ctx.at.version >= 13:
        return ctx.const_ints(1, "its axes") if ctx.at.has_input(1) else None
    return ctx.at.optional_ints("axes")


def _squeeze(ctx: Context) -> Tensor:
    data, axes = values(ctx.tensor(0)), _axes(ctx)
    return sizes_tensor(np.squeeze(data, axis=None if axes is None else tuple(axes)), _dtype(ctx))


def _unsqueeze(ctx: Context) -> Tensor:
    data = values(ctx.tensor(0))
    return sizes_tensor(np.expand_dims(data, tuple(_axes(ctx) or ())), _dtype(ctx))


def _reshape(ctx: Context) -> Tensor:
    data, wanted = values(ctx.tensor(0)), ctx.const_ints(1, "its shape")
    return sizes_tensor(data.reshape([data.shape[i] if d == 0 else d for i, d in enumerate(wanted)]), _dtype(ctx))


def _transpose(ctx: Context) -> Tensor:
    data = values(ctx.tensor(0))
    return sizes_tensor(data.transpose(ctx.at.ints("perm", tuple(reversed(range(data.ndim))))), _dtype(ctx))


def _expand(ctx: Context) -> Tensor:
    data = values(ctx.tensor(0))
    shape = np.broadcast_shapes(data.shape, tuple(int(d) for d in ctx.const_ints(1, "its shape")))
    return sizes_tensor(np.broadcast_to(data, shape), _dtype(ctx))


def _split(ctx: Context) -> list[Tensor]:
    data, count = values(ctx.tensor(0)), len(ctx.at.outputs)
    axis = _axis(ctx, 0, data.ndim)
    sizes = ctx.at.optional_ints("split") or (ctx.const_ints(1, "its sizes") if ctx.at.has_input(1) else None)
    each = -(-data.shape[axis] // count)
    cuts = np.cumsum(sizes)[:-1] if sizes is not None else [each * i for i in range(1, count)]
    return [sizes_tensor(part, _dtype(ctx)) for part in np.split(data, cuts, axis=axis)]


def _identity(ctx: Context) -> Tensor:
    return ctx.tensor(0)


def _shape(ctx: Context) -> Tensor:
    return constant(np.array(values(ctx.tensor(0)).shape, dtype=np.int64), index_like=True)


# run-time values whose size depends on symbols -----------------------------------------------------------------------
def _constant_of_shape(ctx: Context) -> Tensor:
    """One value, expanded."""
    value = ctx.at.attr("value")
    fill = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(0, np.float32)
    if fill.size != 1:
        ctx.at.invalid(f"has a value of {fill.size} elements where one is needed")
    shape = ctx.const_ints(0, "its shape")
    return ctx.expand(constant(np.asarray(fill).reshape((1,) * len(shape))), shape)


def _range(ctx: Context) -> Tensor:
    """The first elements of the longest range the bounds allow."""
    for index, what in enumerate(("start", "limit", "delta")):
        given = ctx.tensor(index)
        if given.sym is None and (given.const is None or given.const.size != 1):
            ctx.at.unsupported(f"takes its {what} from a run-time tensor beside sizes that depend on symbols; pin them")
    start, limit, delta = (values(ctx.tensor(i)).reshape(-1).tolist()[0] for i in range(3))
    if not isinstance(start, int) or not isinstance(delta, int) or delta == 0:
        ctx.at.unsupported("is a range whose start or step is no integer constant; only its end may depend on symbols")
    length = simplified(maximum(0, ceildiv(limit - start, delta) if delta > 0 else ceildiv(start - limit, -delta)))
    most = interval(length, prover().symbols)[1]
    if most > LONGEST_RANGE:
        ctx.at.unsupported(f"creates a range of up to {most} elements; bound it to {LONGEST_RANGE}")
    whole = constant(np.arange(most, dtype=_dtype(ctx)) * delta + start)
    return ctx.slice(whole, (0,), (1,), cast_sizes([length]))


LONGEST_RANGE: Final = 1 << 20
FILLS: Final[dict[str, Callable[[Context], Tensor]]] = {"ConstantOfShape": _constant_of_shape, "Range": _range}
PARAMETERS: Final = frozenset("Gather Slice Reshape Expand Squeeze Unsqueeze Split Transpose Cast ReduceProd".split())
"""Operators of which only the first input is data."""

RULES: Final[dict[str, Callable[[Context], Tensor | list[Tensor]]]] = {
    "Add": _elementwise(lambda a, b: a + b, lambda a, b: ratio_of(a).plus(ratio_of(b))),
    "Sub": _elementwise(lambda a, b: a - b, lambda a, b: ratio_of(a).plus(ratio_of(b), -1)),
    "Mul": _elementwise(lambda a, b: a * b, lambda a, b: ratio_of(a).times(ratio_of(b))),
    "Div": _elementwise(_divide, lambda a, b: ratio_of(a).over(ratio_of(b))),
    "Mod": _modulo,
    "Neg": _elementwise(lambda a: -a, lambda a: ratio_of(0).plus(ratio_of(a), -1)),
    "Abs": _elementwise(lambda a: maximum(a, -a)),
    "Floor": _elementwise(lambda a: a, lambda a: ratio_of(a).floor()),
    "Ceil": _elementwise(lambda a: a, lambda a: ratio_of(a).ceil()),
    "Min": _elementwise(lambda *a: minimum(*a), lambda *a: extreme("min", *a)),
    "Max": _elementwise(lambda *a: maximum(*a), lambda *a: extreme("max", *a)),
    "Equal": _compare(lambda a, b: a == b),
    "Less": _compare(lambda a, b: a < b),
    "LessOrEqual": _compare(lambda a, b: a <= b),
    "Greater": _compare(lambda a, b: a > b),
    "GreaterOrEqual": _compare(lambda a, b: a >= b),
    "Where": _where,
    "Cast": _cast,
    "ReduceProd": _product,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Expand": _expand,
    "Split": _split,
    "Identity": _identity,
    "Shape": _shape,
    "Size": lambda ctx: constant(np.array(values(ctx.tensor(0)).size, dtype=np.int64), index_like=True),
}
