"""Invariants of values whose expressions need functions that the path engine lacks (boundaries, hasValue, resolve)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

UCUM: Final = "http://unitsofmeasure.org"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


def range_ordered(value: Any, root: Any) -> bool:
    """rng-2: low is not above high, where the units are the same; a decimal stands for all that round to it."""
    return not isinstance(value, dict) or _not_above(value.get("low"), value.get("high"))


def ratio_range_ordered(value: Any, root: Any) -> bool:
    """ratrng-2."""
    return not isinstance(value, dict) or _not_above(value.get("lowNumerator"), value.get("highNumerator"))


def _not_above(low: Any, high: Any) -> bool:
    if not isinstance(low, dict) or not isinstance(high, dict):
        return True
    a, b = _number(low.get("value")), _number(high.get("value"))
    if a is None or b is None or any(low.get(name) != high.get(name) for name in ("system", "code", "unit")):
        return True
    return a - _half(a) <= b + _half(b)


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return Decimal(value)


def _half(value: Decimal) -> Decimal:
    """Half of the last digit written."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(5).scaleb(exponent - 1)


def age_in_time(value: Any, root: Any) -> bool:
    """age-1: an age has a UCUM unit and is above zero."""
    if not isinstance(value, dict):
        return True
    number = _number(value.get("value"))
    return _coded_in_ucum(value) and (number is None or number > 0)


def count_is_whole(value: Any, root: Any) -> bool:
    """cnt-3: a count is a whole number of unit 1."""
    if not isinstance(value, dict):
        return True
    number = _number(value.get("value"))
    whole = number is None or "." not in str(number)
    return _coded_in_ucum(value) and value.get("code", "1") == "1" and whole


def _coded_in_ucum(value: dict[str, Any]) -> bool:
    return ("code" in value or "value" not in value) and value.get("system", UCUM) == UCUM


def expression_named(value: Any, root: Any) -> bool:
    """exp-2: the name of an expression is an identifier; the published pattern is not anchored, and nor is this."""
    name = value.get("name") if isinstance(value, dict) else None
    return not isinstance(name, str) or _NAME.search(name) is not None


def document_dated(value: Any, root: Any) -> bool:
    """bdl-10: a document has a date."""
    return not isinstance(value, dict) or value.get("type") != "document" or isinstance(value.get("timestamp"), str)


def not_for_oneself(value: Any, root: Any) -> bool:
    """prov-1: nobody acts on behalf of oneself. Without resolving: the same reference twice."""
    if not isinstance(value, dict):
        return True
    who, other = value.get("who"), value.get("onBehalfOf")
    if not isinstance(who, dict) or not isinstance(other, dict) or not isinstance(who.get("reference"), str):
        return True
    return bool(who["reference"] != other.get("reference"))
