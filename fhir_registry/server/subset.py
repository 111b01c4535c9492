"""_summary and _elements: less of a resource, marked as such (search.html, SUBSETTED)."""

from __future__ import annotations

from typing import Any, Final

from fhir_registry.definitions.types import r5
from fhir_registry.json_text import read_json, write_json
from fhir_registry.search.query import Query

_TAG: Final = {"system": "http://terminology.hl7.org/CodeSystem/v3-ObservationValue", "code": "SUBSETTED"}
_ALWAYS: Final = ("resourceType", "id", "meta", "modifierExtension", "implicitRules")


def subset(body: bytes, query: Query) -> bytes:
    """The elements ``query`` asks for, those required, and those that change the meaning of others."""
    resource = read_json(body)
    assert isinstance(resource, dict)
    kept: dict[str, Any] = {
        name: value for name, value in resource.items() if _keep(resource["resourceType"], name, query)
    }
    meta = dict(kept.get("meta") or {})
    meta["tag"] = [*meta.get("tag", ()), _TAG]
    kept["meta"] = meta
    return write_json(kept)


def _keep(kind: str, name: str, query: Query) -> bool:
    plain = name.lstrip("_")
    if plain in _ALWAYS:
        return True
    structure = r5().structure(kind)
    known = structure.children[kind].get(plain) if structure is not None else None
    if known is None:
        return False
    element = known[0]
    if query.elements:
        wanted = {item.rpartition(".")[2] for item in query.elements if "." not in item or item.startswith(f"{kind}.")}
        return element.low > 0 or element.name in wanted
    if query.summary == "text":
        return plain == "text" or element.low > 0
    if query.summary == "data":
        return plain != "text"
    return element.summary or element.low > 0
