"""An engine's outputs against the suite's values (with its tolerances) and against the reference's bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evidence.conformance.outcome import Kind
from evidence.conformance.prepare import Prepared

Array = npt.NDArray[Any]
_FLOATS: Final = ("float16", "float32", "float64", "bfloat16")


OTHER_BITS: Final = "the reference has other bits than the engine"


def judge(test: Prepared, got: Mapping[str, Array]) -> tuple[Kind, str]:
    """Passed means both: the suite's values and the reference's bits. A wrong value says if the reference has it."""
    case, reference = test.case, test.reference
    for name, want in case.expected.items():
        text = _value_difference(name, got.get(name), want, case.rtol, case.atol)
        if text:
            return Kind.WRONG, f"{text}; {_reference_says(name, got.get(name), reference)}"
    if isinstance(reference, str):
        return Kind.DIFFERS, f"the reference does not evaluate the graph: {reference}"
    for name in case.expected:
        text = bit_difference(name, got[name], reference.get(name))
        if text:
            return Kind.DIFFERS, text
    return Kind.PASSED, ""


def _reference_says(name: str, got: Array | None, reference: Mapping[str, Array] | str) -> str:
    if isinstance(reference, str):
        return f"the reference does not evaluate the graph: {reference}"
    if got is None or bit_difference(name, got, reference.get(name)):
        return OTHER_BITS
    return "the reference has the engine's bits"


def _value_difference(name: str, got: Array | None, want: object, rtol: float, atol: float) -> str:
    """The rule of onnx.backend.test.runner (assert_similar_outputs): shape, type, then closeness, NaN equal to NaN."""
    if not isinstance(want, np.ndarray):
        return f"output {name!r}: the test expects a {type(want).__name__}, engines give tensors"
    if got is None:
        return f"output {name!r} is missing"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"output {name!r} is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.dtype.name == "bfloat16":  # two units in the last place, as the runner has it
        rtol, got, want = max(rtol, 2**-6), got.astype(np.float32), want.astype(np.float32)
    with np.errstate(all="ignore"):
        close = np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    return _first(name, got, want, ~close)


def bit_difference(name: str, got: Array, want: Array | None) -> str:
    """The first element with other bits, NaN being one value; the empty string when there is none."""
    if want is None:
        return f"the reference has no output {name!r}"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"output {name!r} is {got.dtype}{list(got.shape)}, the reference's {want.dtype}{list(want.shape)}"
    width = f"<u{got.dtype.itemsize}"
    bits = [np.ascontiguousarray(canonical(a)).reshape(-1).view(width).reshape(a.shape) for a in (got, want)]
    return _first(name, got, want, bits[0] != bits[1])


def canonical(array: Array) -> Array:
    """Every NaN as the one quiet NaN that engines give at their outputs."""
    if array.dtype.name not in _FLOATS:
        return array
    return np.where(np.isnan(array), array.dtype.type("nan"), array).astype(array.dtype)


def _first(name: str, got: Array, want: Array, differs: Array) -> str:
    count = int(np.count_nonzero(differs))
    if not count:
        return ""
    place = tuple(int(i) for i in np.argwhere(differs)[0])
    return (
        f"output {name!r} {got.dtype}{list(got.shape)} at {list(place)}: got {_shown(got[place])}, "
        f"expected {_shown(want[place])} ({count} of {got.size} elements differ)"
    )


def _shown(value: Any) -> str:
    if value.dtype.name in ("float32", "float64", "float16"):
        return f"{value:.9g} ({float(value).hex()})"
    return str(value)
