"""A search request, read strictly (FHIR R5, search.html): an unknown parameter is an error, not a wider result."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from fhir_registry.definitions.types import SearchParameter
from fhir_registry.search.extract import fold, moment
from fhir_registry.search.parameters import SERVED, parameters_of
from fhir_registry.validation.moments import interval

LARGEST_PAGE: Final = 1000
PAGE: Final = 50
MOST_VALUES: Final = 200
_PREFIXES: Final = ("eq", "ne", "gt", "lt", "ge", "le", "sa", "eb")
_MODIFIERS: Final = {
    "token": {"not", "missing"},
    "string": {"exact", "contains", "missing"},
    "reference": {"missing", "identifier"},
    "date": {"missing"},
    "uri": {"below", "missing"},
    "number": {"missing"},
    "quantity": {"missing"},
}
_RESULT: Final = (
    "_count",
    "_sort",
    "_include",
    "_revinclude",
    "_summary",
    "_elements",
    "_total",
    "_totalMethod",  # no parameter of FHIR: fhirpy sends it when it counts
    "_cursor",
    "_format",
    "_pretty",
)


_LONG: Final = (":contains", ":missing", ":not", "_sort", "_total", "_summary", "_revinclude")


class SearchError(ValueError):
    """What is wrong with a search; ``code`` is an issue type of OperationOutcome."""

    def __init__(self, text: str, code: str = "invalid") -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Value:
    """One alternative of a filter. token: ``text`` code, ``system`` (``None``: any). date and number: ``prefix``."""

    text: str
    system: str | None = None
    prefix: str = "eq"
    high: str = ""
    number: float = 0.0


@dataclass(frozen=True)
class Filter:
    """``param`` with any of ``values``. ``chain``: the type and the filter that the target of a reference must meet."""

    param: SearchParameter
    modifier: str
    values: tuple[Value, ...]
    chain: tuple[str, Filter] | None = None


@dataclass(frozen=True)
class Sort:
    param: str
    descending: bool


@dataclass(frozen=True)
class Query:
    """A search over one type; ``filters`` must all hold."""

    type: str
    filters: tuple[Filter, ...] = ()
    count: int = PAGE
    sort: tuple[Sort, ...] = ()
    include: tuple[tuple[str, str], ...] = ()
    revinclude: tuple[tuple[str, str], ...] = ()
    summary: str = ""
    elements: tuple[str, ...] = ()
    total: bool = False
    cursor: tuple[str, ...] = ()


def read_query(kind: str, pairs: Sequence[tuple[str, str]], *, lenient: bool = False) -> Query:
    """The query of the pairs of name and value, as they came. ``SearchError`` names the parameter.

    ``lenient``: unknown parameters are left out, as ``Prefer: handling=lenient`` asks.
    """
    filters: list[Filter] = []
    result: dict[str, str] = {}
    many: dict[str, list[str]] = {"_include": [], "_revinclude": []}
    for name, text in pairs:
        if "\0" in text:
            raise SearchError(f"{name[:60]} has the character U+0000, which no resource may hold")
        if name in many:
            many[name].append(text)
        elif name in _RESULT:
            if name in result:
                raise SearchError(f"{name} is given twice; give it once")
            result[name] = text
        else:
            try:
                filters.append(_filter(kind, name, text))
            except UnknownParameterError:
                if not lenient:
                    raise
    if len(filters) > 20:
        raise SearchError("more than 20 conditions; a search has at most so many", "too-costly")
    return Query(
        kind,
        tuple(filters),
        _count(result.get("_count")),
        _sorts(kind, result.get("_sort", "")),
        tuple(_include(kind, text) for text in many["_include"]),
        tuple(_revinclude(kind, text) for text in many["_revinclude"]),
        _summary(result.get("_summary", "")),
        tuple(filter(None, result.get("_elements", "").split(","))),
        _total(result.get("_total", "")) or "_totalMethod" in result,
        read_cursor(result["_cursor"]) if "_cursor" in result else (),
    )


def may_be_long(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether a search with these parameters may have to look at every resource, and not only at an index."""
    return any(mark in name for name, _ in pairs for mark in _LONG)


class UnknownParameterError(SearchError):
    """A parameter this type has not."""


def _filter(kind: str, name: str, text: str) -> Filter:
    first, dot, rest = name.partition(".")
    code, _, modifier = first.partition(":")
    known = parameters_of(kind)
    if code not in known:
        near = difflib.get_close_matches(code, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
        raise UnknownParameterError(f"{kind} has no search parameter {code!r}; {hint}", "not-supported")
    parameter = known[code]
    if dot:
        return _chained(parameter, code, modifier, rest, text)
    target = ""
    if parameter.type == "reference" and modifier[:1].isupper():
        target, modifier = modifier, ""
    if modifier and modifier not in _MODIFIERS.get(parameter.type, set()):
        raise SearchError(f"the modifier {modifier!r} of {code} is not supported", "not-supported")
    if not text:
        raise SearchError(f"{name} has no value")
    if modifier == "missing":
        if text not in ("true", "false"):
            raise SearchError(f"{name} is true or false, not {text[:40]!r}")
        return Filter(parameter, modifier, (Value(text),))
    parts = _split(text, ",")
    if len(parts) > MOST_VALUES:
        raise SearchError(f"{name} has {len(parts)} values, and {MOST_VALUES} are allowed", "too-costly")
    return Filter(parameter, modifier, tuple(_value(parameter, modifier, target, part) for part in parts))


def _chained(parameter: SearchParameter, code: str, target: str, rest: str, text: str) -> Filter:
    if parameter.type != "reference":
        raise SearchError(f"{code} is no reference, so nothing can be chained to it")
    allowed = sorted(parameter.target & set(SERVED))
    if target:
        if target not in allowed:
            raise SearchError(f"{code} does not refer to {target[:40]!r}; allowed: {', '.join(allowed)}")
    elif len(allowed) == 1:
        target = allowed[0]
    else:
        raise SearchError(
            f"{code} refers to several types; write {code}:TYPE.{rest[:40]} with one of {', '.join(allowed)}"
        )
    if "." in rest:
        raise SearchError(f"{code}.{rest[:60]} is chained more than once, which is not supported", "not-supported")
    return Filter(parameter, "", (), (target, _filter(target, rest, text)))


def _value(parameter: SearchParameter, modifier: str, target: str, text: str) -> Value:
    kind, name = parameter.type, parameter.code
    if not text:
        raise SearchError(f"{name} has an empty value between commas")
    if kind == "token":
        parts = _split(text, "|")
        if len(parts) > 2:
            raise SearchError(f"{name} is [system|]code, not {text[:60]!r}")
        if name == "identifier" and parts[0] and len(parts) == 2 and ":" not in parts[0]:
            # Without this a model's NAME|VERSION, as people write it, would be looked for as VERSION in a system NAME.
            raise SearchError(f"identifier: {parts[0][:60]!r} is no system (a URI); a | within a value is written \\|")
        return Value(_unescaped(parts[-1]), _unescaped(parts[0]) if len(parts) == 2 else None)
    if kind not in ("number", "quantity"):
        text = _unescaped(text)
    if kind == "string":
        folded = text if modifier == "exact" else fold(text)
        if not folded:
            raise SearchError(f"{name} has a value without a letter")
        return Value(folded)
    if kind == "date":
        prefix, rest = _prefix(text)
        found = interval(rest)
        if found is None:
            raise SearchError(f"{name} is a date such as 2026-01 or 2026-01-31T12:00:00Z, not {rest[:40]!r}")
        return Value(moment(found[0]), prefix=prefix, high=moment(found[1]))
    if kind in ("number", "quantity"):
        prefix, rest = _prefix(text)
        number, *unit = _split(rest, "|")
        try:
            exact = Decimal(number)
        except InvalidOperation:
            exact = Decimal("NaN")
        if not exact.is_finite() or abs(exact) > Decimal("1e300"):
            raise SearchError(f"{name} is a number, not {rest[:40]!r}")
        return Value(_unescaped(unit[-1]) if unit else "", prefix=prefix, number=float(exact))
    if kind == "reference" and modifier != "identifier":
        return Value(f"{target}/{text}" if target and "/" not in text else text)
    if kind == "reference":
        raise SearchError(f"the modifier identifier of {name} is not supported", "not-supported")
    return Value(text)


def _prefix(text: str) -> tuple[str, str]:
    return (text[:2], text[2:]) if text[:2] in _PREFIXES else ("eq", text)


def _split(text: str, mark: str) -> list[str]:
    """Parts between marks that no backslash escapes; escapes stay, for what splits them further."""
    if "\\" not in text:
        return text.split(mark)
    parts, current, at = [], "", 0
    while at < len(text):
        if text[at] == "\\" and at + 1 < len(text):
            current += text[at : at + 2]
            at += 2
            continue
        if text[at] == mark:
            parts.append(current)
            current = ""
        else:
            current += text[at]
        at += 1
    return [*parts, current]


def _unescaped(text: str) -> str:
    """A value as it is meant (search.html, escaping search parameters)."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if "\\" in text else text


def _count(text: str | None) -> int:
    if text is None:
        return PAGE
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise SearchError(f"_count is a whole number, not {text[:40]!r}")
    return min(int(text), LARGEST_PAGE)


def _sorts(kind: str, text: str) -> tuple[Sort, ...]:
    found = []
    for part in filter(None, text.split(",")):
        code = part.removeprefix("-")
        if code not in parameters_of(kind):
            raise SearchError(f"_sort: {kind} has no search parameter {code[:60]!r}", "not-supported")
        found.append(Sort(code, part.startswith("-")))
    if len(found) > 3:
        raise SearchError("_sort takes at most three parameters", "too-costly")
    return tuple(found)


def _include(kind: str, text: str) -> tuple[str, str]:
    source, _, rest = text.partition(":")
    code, _, target = rest.partition(":")
    parameter = parameters_of(kind).get(code)
    if source != kind or parameter is None or parameter.type != "reference":
        raise SearchError(f"_include is {kind}:PARAMETER[:TYPE] with a reference, not {text[:60]!r}")
    return code, target


def _revinclude(kind: str, text: str) -> tuple[str, str]:
    source, _, rest = text.partition(":")
    code = rest.partition(":")[0]
    parameter = parameters_of(source).get(code) if source in SERVED else None
    if parameter is None or kind not in parameter.target:
        raise SearchError(f"_revinclude is TYPE:PARAMETER with a reference to {kind}, not {text[:60]!r}")
    return source, code


def _summary(text: str) -> str:
    if text not in ("", "true", "false", "count", "data", "text"):
        raise SearchError(f"_summary is true, false, count, data or text, not {text[:40]!r}")
    return "" if text == "false" else text


def _total(text: str) -> bool:
    if text not in ("", "none", "estimate", "accurate"):
        raise SearchError(f"_total is none, estimate or accurate, not {text[:40]!r}")
    return text in ("estimate", "accurate")


def write_cursor(values: Sequence[str]) -> str:
    """Where a page ended, as text for a link."""
    return base64.urlsafe_b64encode(json.dumps(list(values), ensure_ascii=False).encode()).decode().rstrip("=")


def _storable(text: str) -> bool:
    """Text that a database takes: Unicode without U+0000 and halves of surrogate pairs."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def read_cursor(text: str) -> tuple[str, ...]:
    try:
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(item, str) for item in found) or len(found) > 4:
        raise SearchError("_cursor is not one of this server's; follow the link next as it is")
    if not found[-1].isdigit() or len(found[-1]) > 18 or not found[-1].isascii() or not all(map(_storable, found)):
        raise SearchError("_cursor is not one of this server's; follow the link next as it is")
    return tuple(found)
