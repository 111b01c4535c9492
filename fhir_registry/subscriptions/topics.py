"""The topics one can subscribe to, as SubscriptionTopic resources, and which of them a change of a model touches."""

from __future__ import annotations

from typing import Any, Final

from fhir_registry.mapping import names
from fhir_registry.mapping.reading import status_of
from fhir_registry.search.extract import index_rows
from fhir_registry.search.parameters import BASE, parameters_of
from fhir_registry.search.query import Filter, SearchError, read_query

NEW: Final = f"{BASE}/SubscriptionTopic/new-model-version"
CHANGED: Final = f"{BASE}/SubscriptionTopic/model-status-changed"
WITHDRAWN: Final = f"{BASE}/SubscriptionTopic/model-withdrawn"
RETIRED: Final = "retired"
_FILTERS: Final = {
    "_id": (),
    "identifier": ("not",),
    "artifact-status": ("not",),
    "input-profile": ("contains", "exact"),
    "model-purpose": ("contains", "exact"),
}
_TOPICS: Final = (
    (NEW, "New model version", "A model version was registered for the first time.", "create"),
    (CHANGED, "Status of a model version changed", "The artifact-status of a model version is another one.", "update"),
    (WITHDRAWN, "Model version withdrawn", "The artifact-status of a model version became retired.", "update"),
)


def topics() -> list[dict[str, Any]]:
    """The SubscriptionTopics the registry serves."""
    return [_topic(*item) for item in _TOPICS]


def _topic(url: str, title: str, description: str, interaction: str) -> dict[str, Any]:
    status = "DeviceDefinition.modifierExtension.where(url = '" + names.STATUS + "').value"
    path = {
        NEW: "%previous.empty()",
        CHANGED: f"%previous.exists() and %current.{status} != %previous.{status}",
        WITHDRAWN: f"%current.{status} = 'retired' and (%previous.{status} = 'retired').not()",
    }[url]
    return {
        "resourceType": "SubscriptionTopic",
        "id": url.rsplit("/", 1)[1],
        "url": url,
        "version": "1.0.0",
        "title": title,
        "status": "active",
        "date": "2026-12-01",
        "description": description,
        "resourceTrigger": [
            {
                "description": f"{description} Engines, which are parts of model versions, trigger nothing.",
                "resource": "http://hl7.org/fhir/StructureDefinition/DeviceDefinition",
                "supportedInteraction": [interaction],
                "fhirPathCriteria": path.replace("DeviceDefinition.", ""),
            }
        ],
        "canFilterBy": [
            {
                "resource": "http://hl7.org/fhir/StructureDefinition/DeviceDefinition",
                "filterParameter": code,
                "filterDefinition": parameters_of("DeviceDefinition")[code].url,
                **({"modifier": list(modifiers)} if modifiers else {}),
            }
            for code, modifiers in _FILTERS.items()
        ],
        "notificationShape": [{"resource": "http://hl7.org/fhir/StructureDefinition/DeviceDefinition"}],
    }


def touched(previous: Any, current: Any) -> set[str]:
    """Topics a change from ``previous`` to ``current`` belongs to (``None``: not there)."""
    if not isinstance(current, dict) or not _is_model(current):
        return set()
    before, after = status_of(previous or {}), status_of(current)
    found = {NEW} if previous is None else set()
    if previous is not None and before != after:
        found.add(CHANGED)
    if after == RETIRED and before != RETIRED:
        found.add(WITHDRAWN)
    return found


def _is_model(resource: dict[str, Any]) -> bool:
    return any(item.get("system") == names.MODEL_VERSION for item in resource.get("identifier", ()))


def read_filters(listed: list[dict[str, Any]]) -> tuple[Filter, ...]:
    """``Subscription.filterBy``; ``SearchError`` for what no topic here can be filtered by."""
    found: list[Filter] = []
    for number, item in enumerate(listed):
        place, code = f"Subscription.filterBy[{number}]", str(item.get("filterParameter", ""))
        kind = str(item.get("resourceType", "DeviceDefinition")).rsplit("/", 1)[-1]
        modifier = str(item.get("modifier", ""))
        if kind != "DeviceDefinition" or code not in _FILTERS:
            known = ", ".join(_FILTERS)
            raise SearchError(f"{place}: one filters DeviceDefinition by {known}, not {kind[:40]} by {code[:40]!r}")
        if item.get("comparator", "eq") != "eq" or (modifier and modifier not in _FILTERS[code]):
            raise SearchError(f"{place}: {code} knows no such comparator or modifier; see the topic's canFilterBy")
        name = f"{code}:{modifier}" if modifier else code
        found += read_query("DeviceDefinition", [(name, str(item.get("value", "")))]).filters
    return tuple(found)


def passes(filters: tuple[Filter, ...], resource: dict[str, Any]) -> bool:
    """Whether ``resource`` meets all of ``filters``, as a search for them would find it."""
    rows = index_rows(resource)
    for item in filters:
        own = [row for row in rows if row.param == item.param.code]
        hit = any(_meets(item, value.text, value.system, row.v1, row.v2) for value in item.values for row in own)
        if hit is (item.modifier == "not"):
            return False
    return True


def _meets(item: Filter, text: str, system: str | None, first: str, second: str) -> bool:
    if item.param.type == "token":
        return (system is None or system == second) and (first == text or (system is not None and not text))
    if item.modifier == "exact":
        return second == text
    return text in first if item.modifier == "contains" else first.startswith(text)
