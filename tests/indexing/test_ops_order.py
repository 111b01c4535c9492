"""TopK, ArgMax, cumulative sums, OneHot, Trilu, pooling indices and Einsum; ties and NaN as the text has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from index_models import INTS, TYPES, Array, draw, failures, judged

from evidence.conformance.cases import Case

Draw = Callable[[np.random.Generator], Iterator[Case]]
NUMBERS = tuple(t for t in TYPES if t != "bool")


def _stable(x: Array, axis: int, k: int, largest: bool) -> Array:
    key = x.astype(np.float64)
    return np.argsort(-key if largest else key, axis=axis, kind="stable").take(range(k), axis=axis)


def top(rng: np.random.Generator) -> Iterator[Case]:
    for n, dtype in enumerate(NUMBERS):
        x, axis, largest = draw(rng, (3, 7, 4), dtype), n % 3, bool(n % 2)
        k = 1 + rng.integers(x.shape[axis])
        where = _stable(x, axis, int(k), largest)
        operands, expected = {"x": x, "k": np.array([k])}, [np.take_along_axis(x, where, axis), where]
        yield judged("TopK", operands, ("v", "i"), expected=expected, axis=axis, largest=int(largest))
        yield judged("TopK", operands, ("_v", "i"), expected=expected, axis=axis, largest=int(largest), constants=["k"])
    x = rng.integers(0, 90, (2, 333)).astype(np.float32)
    where = _stable(x, 1, 300, True)
    operands = {"x": x, "k": np.array([300])}
    yield judged("TopK", operands, ("v", "_i"), expected=[np.take_along_axis(x, where, 1), where], sorted=0)
    for n, dtype in enumerate(NUMBERS):
        x, axis = draw(rng, (3, 5, 4), dtype), n % 3
        for op, key in (("ArgMax", x.astype(np.float64)), ("ArgMin", -x.astype(np.float64))):
            first = np.argmax(key, axis=axis)
            last = key.shape[axis] - 1 - np.argmax(np.flip(key, axis), axis=axis)
            yield judged(op, {"x": x}, expected=[first], axis=axis, keepdims=0)
            kept = [np.expand_dims(last, axis)]
            yield judged(op, {"x": x}, expected=kept, axis=axis - 3, select_last_index=1)


def not_a_number(rng: np.random.Generator) -> Iterator[Case]:
    """NaN is above every number for TopK and wins both ArgMax and ArgMin; zeros of both signs are equal."""
    x = np.array([1, np.nan, 3, np.nan, -np.inf, np.inf, -0.0, 0.0], dtype=np.float32)
    for dtype in ("float32", "float64", "float16"):
        y = x.astype(dtype)
        down, up = [1, 3, 5, 2, 0, 6, 7, 4], [4, 6, 7, 0, 2, 5, 1, 3]
        operands = {"x": y, "k": np.array([8])}
        yield judged("TopK", operands, ("v", "i"), expected=[y[down], np.array(down)])
        yield judged("TopK", operands, ("v", "i"), expected=[y[up], np.array(up)], largest=0)
        for op in ("ArgMax", "ArgMin"):
            yield judged(op, {"x": y}, expected=[np.array([1])])
            yield judged(op, {"x": y}, expected=[np.array([3])], select_last_index=1)


def running(rng: np.random.Generator) -> Iterator[Case]:
    for n, dtype in enumerate(("float32", "float64", "float16", "int32", "int64", "uint8")):
        x = draw(rng, (3, 4, 2), dtype)
        for op, function in (("CumSum", np.add), ("CumProd", np.multiply)):
            axis, exclusive, reverse = n % 3, n % 2, n // 2 % 2
            y = np.flip(x, axis) if reverse else x
            wide = function.accumulate(y.astype(np.float64 if y.dtype.kind == "f" else y.dtype), axis=axis, dtype=None)
            wide = wide.astype(dtype)
            if exclusive:
                start = np.full_like(y.take([0], axis), function.identity)
                wide = np.concatenate([start, wide.take(range(y.shape[axis] - 1), axis)], axis)
            expected = [np.ascontiguousarray(np.flip(wide, axis) if reverse else wide)]
            attributes = {"exclusive": exclusive, "reverse": reverse}
            for constants in ((), ("a",)):
                operands = {"x": x, "a": np.array(axis - 3 * (n % 2), dtype=np.int32)}
                yield judged(op, operands, expected=expected, constants=constants, opset=26, **attributes)
    yield judged("CumSum", {"x": np.array([-0.0, 0.0, -0.0], np.float32), "a": np.array(0)}, rtol=0)


def masks(rng: np.random.Generator) -> Iterator[Case]:
    for n, dtype in enumerate(TYPES):
        x = draw(rng, (2, 4, 5), dtype)
        for upper, function in ((1, np.triu), (0, np.tril)):
            k = int(rng.integers(-5, 6))
            expected = [function(x, k)]
            constants = ("k",) if n % 2 else ()
            yield judged("Trilu", {"x": x, "k": np.array(k)}, expected=expected, constants=constants, upper=upper)
        where = rng.integers(-6, 7, (2, 3))
        values, axis = draw(rng, (2,), dtype), n % 4 - 1
        hot = (where[..., None] % 5 == np.arange(5)) & (abs(where[..., None] + 0.5) < 5.5)
        y = np.moveaxis(np.where(hot, values[1], values[0]), -1, axis).astype(values.dtype)
        index = where.astype(("int64", "int32", "float32")[n % 3])
        operands = {"i": index, "d": np.array(5), "v": values}
        yield judged(
            "OneHot", operands, expected=[np.ascontiguousarray(y)], axis=axis, constants=("d",) if n % 2 else ()
        )


def pools(rng: np.random.Generator) -> Iterator[Case]:
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]}
    for dtype in ("float32", "float16", "int8", "uint8"):
        x = draw(rng, (2, 3, 6, 5), dtype)
        for order in (0, 1):
            yield judged("MaxPool", {"x": x}, ("y", "i"), storage_order=order, opset=12, **attributes)
    x = draw(rng, (1, 2, 4, 5, 6), "float32")
    cube = {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2]}
    yield judged("MaxPool", {"x": x}, ("_v", "i"), storage_order=1, opset=12, expected=[x, _cube(x)], **cube)
    values, places = draw(rng, (1, 2, 2, 3), "float32"), rng.permutation(48)[:12].reshape(1, 2, 2, 3)
    yield judged("MaxUnpool", {"x": values, "i": places}, kernel_shape=[2, 2], strides=[2, 2])
    y = np.zeros(48, np.float32)
    y[places] = values
    y = np.pad(y.reshape(1, 2, 4, 6), ((0, 0), (0, 0), (0, 1), (0, 2)))
    operands = {"x": values, "i": places, "s": np.array(y.shape)}
    yield judged("MaxUnpool", operands, expected=[y], kernel_shape=[2, 2], strides=[2, 2])


def _cube(x: Array) -> Array:
    """Indices of a 2x2x3 window at strides 1, 2, 2, first spatial axis fastest."""
    n, c, d, h, w = x.shape
    y = np.empty((n, c, d - 1, (h - 2) // 2 + 1, (w - 3) // 2 + 1), dtype=np.int64)
    for p in np.ndindex(y.shape):
        window = x[p[0], p[1], p[2] : p[2] + 2, 2 * p[3] : 2 * p[3] + 2, 2 * p[4] : 2 * p[4] + 3]
        a, b, e = np.unravel_index(np.argmax(window), window.shape)
        y[p] = (p[0] * c + p[1]) * d * h * w + (p[2] + a) + (2 * p[3] + b) * d + (2 * p[4] + e) * d * h
    return y


EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (3, 4, 2)),
    "i,i->": ((5,), (5,)),
    "i,j->ij": ((3,), (4,)),
    "ii->i": ((4, 4),),
    "bii->b": ((2, 3, 3),),
    "ijk->kji": ((2, 3, 4),),
    "ij->": ((3, 4),),
    "...ii->...i": ((2, 3, 3),),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "ij,kj->i": ((3, 4), (2, 4)),
    "abc,cd,de->abe": ((2, 3, 4), (4, 3), (3, 2)),
    "ab,bc,ca->": ((2, 3), (3, 4), (4, 2)),
    " b i , i j -> b j ": ((2, 3), (3, 4)),
    "ij,jk->k": ((2, 3), (3, 4)),
    "ij,ik->ijk": ((2, 3), (2, 4)),
    "b...c,cd->b...d": ((2, 3, 2, 4), (4, 5)),
    "iij,jk->ki": ((3, 3, 2), (2, 4)),
    "...,...->...": ((2, 3), (1, 3)),
}


def products(rng: np.random.Generator) -> Iterator[Case]:
    for equation, shapes in EQUATIONS.items():
        operands = {f"x{n}": draw(rng, shape, "float32") for n, shape in enumerate(shapes)}
        expected = [np.asarray(np.einsum(equation, *operands.values()))]
        yield judged("Einsum", operands, expected=expected, equation=equation)
    half = {"a": draw(rng, (2, 3), "float16"), "b": draw(rng, (3, 4), "float16")}
    yield judged("Einsum", half, expected=[half["a"] @ half["b"]], equation="ij,jk->ik")


@pytest.mark.parametrize("family", [top, not_a_number, running, masks, pools, products])
def test_against_onnxruntime_and_the_reference(family: Draw) -> None:
    cases = list(family(np.random.default_rng(3)))
    assert failures(cases) == []


def test_integers_wrap_in_running_products() -> None:
    x = np.array([100, 3, 7], dtype=np.int8)
    assert (
        INTS
        and failures(
            [judged("CumProd", {"x": x, "a": np.array(0)}, expected=[np.array([100, 44, 52], np.int8)], opset=26)]
        )
        == []
    )
