"""Gather, Scatter and their kin on every element type against onnxruntime, engine bits against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from index_models import INTS, TYPES, Array, draw, failures, judged

from evidence.conformance.cases import Case

Draw = Callable[[np.random.Generator], Iterator[Case]]


def _places(rng: np.random.Generator, shape: tuple[int, ...], size: int, dtype: str = "int64") -> Array:
    """Indices inside an axis, negative ones included."""
    return rng.integers(-size, size, shape).astype(dtype)


def gathers(rng: np.random.Generator) -> Iterator[Case]:
    for n, dtype in enumerate(TYPES):
        x, axis = draw(rng, (3, 4, 5), dtype), n % 3
        shape: tuple[int, ...] = ((), (3,), (2, 3))[n % 3]
        where = _places(rng, shape, x.shape[axis], ("int64", "int32")[n % 2])
        yield judged("Gather", {"x": x, "i": where}, axis=axis - 3 * (n % 2))
    x = draw(rng, (6, 3), "float32")
    for constant in ([5, 3, 1], [-1, 0, -1], [2, 2]):
        yield judged("Gather", {"x": x, "i": np.array(constant)}, constants=["i"], label=str(constant))
    yield judged("Gather", {"x": x, "i": _places(rng, (4,), 6)}, constants=["x"])
    for n, dtype in enumerate(TYPES):
        x, axis = draw(rng, (3, 4, 2), dtype), n % 3
        shape = tuple(5 if a == axis else d - (n + a) % 2 for a, d in enumerate(x.shape))
        where = _places(rng, shape, x.shape[axis])
        line = x[tuple(slice(None) if a == axis else slice(s) for a, s in enumerate(shape))]
        y = np.take_along_axis(line, where % x.shape[axis], axis)
        yield judged("GatherElements", {"x": x, "i": where}, expected=[y], axis=axis)
    for batch, index_shape in ((0, (3, 2)), (0, (2, 2, 3)), (1, (2, 3, 1)), (1, (2, 2)), (2, (2, 3, 2, 1))):
        x = draw(rng, (2, 3, 2, 2), TYPES[batch * 3])
        bounds = x.shape[batch : batch + index_shape[-1]]
        where = np.stack([_places(rng, index_shape[:-1], b) for b in bounds], axis=-1)
        yield judged("GatherND", {"x": x, "i": where}, batch_dims=batch)


def scatters(rng: np.random.Generator) -> Iterator[Case]:
    for n, (dtype, reduction) in enumerate(
        [(t, "none") for t in TYPES]
        + [(t, r) for t in ("float32", "float64", *INTS) for r in ("add", "mul", "max", "min")]
    ):
        x, axis = draw(rng, (3, 4, 2), dtype), n % 3
        shape = tuple(d - (a != axis and n % 2) for a, d in enumerate(x.shape))
        where = _places(rng, shape, x.shape[axis])
        y = x.copy()
        updates = draw(rng, shape, dtype)
        for place in np.ndindex(shape):
            target = (*place[:axis], where[place], *place[axis + 1 :])
            y[target] = _combined(reduction, y[target], updates[place])
        yield judged(
            "ScatterElements",
            {"x": x, "i": where, "u": updates},
            expected=[y],
            axis=axis,
            reduction=reduction,
            opset=18,
        )
    for n, (dtype, reduction) in enumerate([(t, "none") for t in TYPES] + [("float32", "add"), ("int32", "mul")]):
        depth = 1 + n % 3
        x = draw(rng, (3, 2, 300 if n == 0 else 4), dtype)  # slices of more than one item
        where = np.stack([_places(rng, (2, 3), x.shape[d]) for d in range(depth)], axis=-1)
        updates = draw(rng, (2, 3, *x.shape[depth:]), dtype)
        y = x.copy()
        for place in np.ndindex(2, 3):
            target = tuple(where[place])
            y[target] = _combined(reduction, y[target], updates[place])
        yield judged("ScatterND", {"x": x, "i": where, "u": updates}, expected=[y], reduction=reduction, opset=18)
    x, u = draw(rng, (2, 3), "float32"), draw(rng, (2, 2), "float32")
    yield judged("Scatter", {"x": x, "i": _places(rng, (2, 2), 3), "u": u}, opset=9, axis=1)


def _combined(reduction: str, old: Array, new: Array) -> Array:
    if reduction == "none":
        return new
    return {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction](old, new)


def others(rng: np.random.Generator) -> Iterator[Case]:
    for n, dtype in enumerate(("float32", "float16", "int64", "bool")):
        x, lengths = draw(rng, (4, 3, 2), dtype), np.array([4, 0, 2])
        y = x.copy()
        for b, count in enumerate(lengths):
            y[:count, b] = x[:count, b][::-1]
        yield judged("ReverseSequence", {"x": x, "n": lengths}, expected=[y], time_axis=0, batch_axis=1)
        swapped = np.ascontiguousarray(x.transpose(1, 0, 2)), [np.ascontiguousarray(y.transpose(1, 0, 2))]
        yield judged("ReverseSequence", {"x": swapped[0], "n": lengths}, expected=swapped[1], time_axis=1, batch_axis=0)
        condition = np.array([True, False, True, True][: 3 + n % 2])
        yield judged("Compress", {"x": x, "c": condition}, constants=["c"], axis=n % 2)
    x, update = draw(rng, (2, 3, 5, 2), "float32"), draw(rng, (2, 3, 2, 2), "float32")
    yield judged("TensorScatter", {"x": x, "u": update, "i": np.array([3, 1])}, opset=24)
    yield judged("TensorScatter", {"x": x, "u": update, "i": np.array([4, 1])}, opset=24, mode="circular")
    yield judged("TensorScatter", {"x": x, "u": update, "i": None}, opset=24, mode="circular")
    yield judged("ArrayFeatureExtractor", {"x": x[0, 0], "i": np.array([[1, 0, 1]])}, domain="ai.onnx.ml")
    yield judged("ArrayFeatureExtractor", {"x": x[0], "i": np.array([[1]])}, domain="ai.onnx.ml", constants=["i"])


@pytest.mark.parametrize("family", [gathers, scatters, others])
def test_against_onnxruntime_and_the_reference(family: Draw) -> None:
    assert failures(list(family(np.random.default_rng(7)))) == []


def test_indices_outside_read_the_nearest_and_write_nothing() -> None:
    """ONNX leaves these undefined; the text does not."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    far = np.array([-9, 3, 2**62, -(2**63)])
    nearest = np.array([0, 2, 2, 0])
    ones = np.ones((4, 4), dtype=np.float32)
    column = np.broadcast_to(far[:, None], (4, 4)).copy()
    deep = far.reshape(4, 1)
    kept = [x]
    cases = [
        judged("Gather", {"x": x, "i": far}, expected=[x[nearest]]),
        judged("GatherElements", {"x": x, "i": column}, expected=[x[nearest]], axis=0),
        judged("GatherND", {"x": x, "i": deep}, expected=[x[nearest]]),
        judged("ScatterElements", {"x": x, "i": column, "u": ones}, expected=kept, axis=0),
        judged("ScatterND", {"x": x, "i": deep, "u": ones}, expected=kept),
        judged(
            "TensorScatter",
            {"x": x.reshape(1, 3, 4), "u": ones[None, :1], "i": np.array([-(2**63)])},
            expected=[x.reshape(1, 3, 4)],
            opset=24,
        ),
    ]
    first = np.concatenate([ones[None, :1], x[None, 1:]], axis=1)
    operands = {"x": x.reshape(1, 3, 4), "u": ones[None, :2], "i": np.array([-1])}
    cases.append(judged("TensorScatter", operands, expected=[first], opset=24))
    assert failures(cases) == []
