"""From a resource to the rows of its search index (FHIR R5, search.html)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from fhir_registry.definitions.types import SearchParameter
from fhir_registry.search.parameters import parameters_of
from fhir_registry.validation.moments import interval
from fhir_registry.validation.paths import evaluate


@dataclass(frozen=True)
class Row:
    """One index row. What the columns hold, by the type of the parameter:

    token: ``v1`` code, ``v2`` system. string: ``v1`` folded, ``v2`` as written. date: ``v1`` first moment, ``v2`` the
    one after the last. reference: ``v1`` "Type/id", ``v2`` an address as written. uri: ``v1``. number: ``n1``.
    """

    param: str
    v1: str = ""
    v2: str = ""
    n1: float | None = None


def fold(text: str) -> str:
    """The form in which strings are compared: without case and accents, white space as one space."""
    plain = unicodedata.normalize("NFKD", text)
    return " ".join("".join(c for c in plain if not unicodedata.combining(c)).casefold().split())


def moment(value: datetime) -> str:
    """Text that sorts as the moments do."""
    return value.strftime("%Y-%m-%dT%H:%M:%S.%f")


def index_rows(resource: dict[str, Any]) -> list[Row]:
    """All rows of ``resource``, each once, in the order of the parameters."""
    found: dict[Row, None] = {}
    for code, parameter in parameters_of(resource["resourceType"]).items():
        for value in values_of(resource, code, parameter):
            for row in _rows(code, parameter, value):
                found[row] = None
    return list(found)


def values_of(resource: dict[str, Any], code: str, parameter: SearchParameter) -> list[Any]:
    """What the parameter's expression finds in ``resource``."""
    if code == "_id":
        return [resource["id"]] if "id" in resource else []
    if code == "_lastUpdated":
        return [text] if (text := resource.get("meta", {}).get("lastUpdated")) else []
    # None: an expression over elements this resource has in another form, so there is nothing to find.
    return evaluate(parameter.expression, resource, {"resource": resource, "rootResource": resource}) or []


def _rows(code: str, parameter: SearchParameter, value: Any) -> Iterator[Row]:
    kind = parameter.type
    if kind == "token":
        yield from (Row(code, v1, system) for system, v1 in _tokens(value))
    elif kind == "string":
        yield from (Row(code, fold(text), text) for text in _strings(value))
    elif kind == "date":
        yield from (Row(code, low, high) for low, high in _dates(value))
    elif kind == "reference":
        yield from _references(code, value)
    elif kind == "uri":
        yield from (Row(code, text) for text in _strings(value))
    elif kind in ("number", "quantity"):
        number = value.get("value") if isinstance(value, dict) else value
        if isinstance(number, int | float | Decimal) and not isinstance(number, bool):
            unit = str(value.get("code") or value.get("unit") or "") if isinstance(value, dict) else ""
            yield Row(code, v1=unit, n1=float(number))


def _tokens(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, bool):
        yield "", "true" if value else "false"
    elif isinstance(value, str):
        yield "", value
    elif isinstance(value, dict):
        if "coding" in value or "text" in value:  # CodeableConcept
            for coding in value.get("coding", ()):
                yield from _tokens(coding)
        elif "concept" in value:  # CodeableReference
            yield from _tokens(value["concept"])
        elif "value" in value:  # Identifier, ContactPoint
            yield str(value.get("system", "")), str(value["value"])
        elif "code" in value:  # Coding
            yield str(value.get("system", "")), str(value["code"])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _dates(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        found = interval(value)
        if found is not None:
            yield moment(found[0]), moment(found[1])
    elif isinstance(value, dict) and ("start" in value or "end" in value):
        low, high = interval(str(value.get("start", "0001"))), interval(str(value.get("end", "9998")))
        if low is not None and high is not None:
            yield moment(low[0]), moment(high[1])


def _references(code: str, value: Any) -> Iterator[Row]:
    if isinstance(value, str):  # canonical
        yield Row(code, v2=value)
    elif isinstance(value, dict):
        if "concept" in value or isinstance(value.get("reference"), dict):  # CodeableReference
            value = value.get("reference") or {}
        text = value.get("reference")
        if isinstance(text, str):
            yield Row(code, "/".join(relative) if (relative := local_target(text)) else "", text)


def local_target(text: str) -> tuple[str, str] | None:
    """``(type, id)`` of a relative reference, a version left out; ``None`` for any other address."""
    parts = text.split("/")
    if len(parts) >= 2 and parts[0][:1].isupper() and "://" not in text:
        return parts[0], parts[1]
    return None
