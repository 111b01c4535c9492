"""Reading resources that others may have written: what is absent or of another form reads as empty."""

from __future__ import annotations

from typing import Any


def at(value: Any, *path: str | int) -> Any:
    """What lies at ``path`` in nested objects and lists, or ``None``."""
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def text(value: Any, *path: str | int) -> str:
    """A text or number at ``path`` as text; empty for anything else."""
    found = at(value, *path)
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int | float) or type(found).__name__ == "Decimal" else ""


def objects(value: Any, *path: str | int) -> list[dict[str, Any]]:
    """The objects in the list at ``path``."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def values(value: Any, *path: str | int) -> list[Any]:
    """The list at ``path``."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def table(value: Any, *path: str | int) -> dict[str, Any]:
    """The object at ``path``."""
    found = at(value, *path)
    return found if isinstance(found, dict) else {}


def codes(concept: Any) -> list[str]:
    """The codes of a CodeableConcept."""
    return [text(coding, "code") for coding in objects(concept, "coding")]


def concept_text(concept: Any) -> str:
    """A CodeableConcept as people read it: its text, else a display, else a code."""
    found = text(concept, "text")
    for coding in objects(concept, "coding"):
        found = found or text(coding, "display") or text(coding, "code")
    return found


def number(value: Any, *path: str | int) -> int:
    """A count of bytes (integer64 is a JSON string in R5); 0 where there is none."""
    found = text(value, *path)
    return int(found) if found.isascii() and found.isdigit() and len(found) < 19 else 0
