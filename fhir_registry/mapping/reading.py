"""What the registry's own resources say, read back; what is absent reads as empty."""

from __future__ import annotations

from typing import Any

from fhir_registry.fields import codes, concept_text, objects, text
from fhir_registry.mapping import names


def status_of(found: dict[str, Any]) -> str:
    """``active``, ``unknown`` or ``retired``; empty where no status is written."""
    marks = objects(found, "modifierExtension")
    return next((text(e, "valueCode") for e in marks if text(e, "url") == names.STATUS), "")


def properties(found: dict[str, Any], code: str) -> list[str]:
    """The values of every property with the code ``code``, as text."""
    return [value_of(item) for item in objects(found, "property") if code in codes(item.get("type"))]


def value_of(item: dict[str, Any]) -> str:
    """The value of a property in whatever type it has, as text."""
    for name, value in item.items():
        if name.startswith("value"):
            if isinstance(value, dict):
                quantity = " ".join(filter(None, [text(value, "value"), text(value, "unit") or text(value, "code")]))
                return concept_text(value) or quantity or text(value, "url")
            return text(item, name)
    return ""


def identifier_value(body: Any, system: str) -> str:
    """The first identifier of ``system``; empty where there is none."""
    return next((text(i, "value") for i in objects(body, "identifier") if text(i, "system") == system), "")
