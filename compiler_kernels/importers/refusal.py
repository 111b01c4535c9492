"""The sentence that refuses a model with symbolic sizes: the smallest sizes that break a node, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.ir.symbols import Symbols, Unproved, listed

REMEDY = "change the policy's shapes, or the model"


def refusal(error: CuvilError, symbols: Symbols, static: Callable[[Mapping[str, int]], None]) -> CuvilError:
    """What to raise for ``error``, which arose under the bounds ``symbols``.

    ``static`` imports the model at given sizes. A comparison with two outcomes does not say which of them is wrong:
    the static import does, in its own words and with numbers. Where it accepts both, the graph itself would differ.
    What is wrong at every size is said with the numbers of the smallest one.
    """
    if not isinstance(error, Unproved):
        least = {n: bound.lo for n, bound in symbols.items()}
        said = _said(static, least) if str(error).startswith("node ") else ""
        if said in ("", str(error)):
            return error
        return UnsupportedError(f"{listed(least)} breaks {said}; {REMEDY}")
    place = error.where or "the model"
    if not error.question:
        breaks = f"{listed(error.values)} breaks {place}" if error.values else place
        return UnsupportedError(f"{breaks}: {error.reason}; {REMEDY}")
    for values in sorted((error.values, error.otherwise), key=lambda v: tuple(v.values())):
        said = _said(static, {n: values.get(n, bound.lo) for n, bound in symbols.items()})
        if said.startswith(place):  # otherwise something else is wrong at the same size
            what = said.removeprefix(place).strip(" :")
            number = f"{error.reason}, so " if "multiple of" in error.reason and values == error.values else ""
            return UnsupportedError(f"{listed(values)} breaks {place}: {number}it {what}; {REMEDY}")
    return UnsupportedError(
        f"{place} depends on whether {error.question}: true at {listed(error.otherwise)}, not at "
        f"{listed(error.values)}; the graph would differ, so bound the sizes to one of the two"
    )


def _said(static: Callable[[Mapping[str, int]], None], values: Mapping[str, int]) -> str:
    """The static import's refusal at these sizes, empty where it accepts them."""
    try:
        static(values)
    except CuvilError as found:
        return str(found)
    return ""
