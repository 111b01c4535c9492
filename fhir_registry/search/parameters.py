"""Which search parameters each served type has: those of FHIR R5, and the registry's own."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from fhir_registry.definitions.conformance import generated
from fhir_registry.definitions.types import SearchParameter, r5

SERVED: Final = (
    "Binary",
    "CodeSystem",
    "ConceptMap",
    "Device",
    "DeviceDefinition",
    "DocumentReference",
    "NamingSystem",
    "OperationDefinition",
    "Organization",
    "Provenance",
    "SearchParameter",
    "StructureDefinition",
    "Subscription",
    "SubscriptionTopic",
    "ValueSet",
)
"""Resource types with a REST interface; others are refused by name."""

BASE: Final = "https://cuvil.org/fhir"
"""Canonical base of the registry's own definitions: a name, not an address somebody must serve."""

_COMMON = frozenset({"Resource", "DomainResource"})
# Of the general parameters those that mean something here; _text, _content, _query, _list need engines of their own.
_GENERAL = frozenset({"_id", "_lastUpdated", "_profile", "_security", "_source", "_tag"})


@lru_cache(maxsize=1)
def own_parameters() -> tuple[SearchParameter, ...]:
    """The registry's own, from the very resources it serves."""
    return tuple(
        SearchParameter(
            item["code"],
            item["url"],
            item["type"],
            frozenset(item["base"]),
            item["expression"],
            frozenset(item.get("target", ())),
        )
        for item in generated().values()
        if item["resourceType"] == "SearchParameter"
    )


@lru_cache(maxsize=64)
def parameters_of(kind: str) -> dict[str, SearchParameter]:
    """Parameters of the resource type ``kind`` by code; composite and special ones are not served."""
    found: dict[str, SearchParameter] = {}
    for item in (*r5().search_parameters, *own_parameters()):
        general = bool(item.base & _COMMON) and item.code in _GENERAL
        if (kind in item.base or general) and item.type not in ("composite", "special"):
            # "Resource.meta" finds nothing in a DeviceDefinition: the path engine knows no inheritance.
            found[item.code] = replace(item, expression=item.expression.removeprefix("Resource.")) if general else item
    return found
