"""Invariants of StructureDefinition and ElementDefinition that the path engine lacks, or takes minutes for.

sdf-24 and sdf-25 compare every element with every other; eld-11 uses a literal that the engine's grammar lacks.
"""

from __future__ import annotations

from typing import Any, Final

# CodeableReference is not in the published rule, but bound a hundred times in the published definitions.
_CODED: Final = frozenset(
    {"code", "Coding", "CodeableConcept", "CodeableReference", "Quantity", "string", "uri", "Duration"}
)


def binding_of_coded(value: Any, root: Any) -> bool:
    """eld-11 as its text says; the published expression asks whether a list of truth values is empty, and never is."""
    if not isinstance(value, dict) or "binding" not in value:
        return True
    kinds = _kinds(value)
    return not kinds or any(":" in kind or kind in _CODED for kind in kinds)


def targets_on_codeable_reference(value: Any, root: Any) -> bool:
    """sdf-24: target profiles stand on the CodeableReference, not on its ``reference``."""
    return not any(
        "Reference" in _kinds(item) and any(isinstance(t, dict) and "targetProfile" in t for t in item.get("type", ()))
        for item in _below(value, ".reference")
    )


def binding_on_codeable_reference(value: Any, root: Any) -> bool:
    """sdf-25: a binding stands on the CodeableReference, not on its ``concept``."""
    return not any("CodeableConcept" in _kinds(item) and "binding" in item for item in _below(value, ".concept"))


def _below(value: Any, end: str) -> list[dict[str, Any]]:
    """Elements whose path is that of a CodeableReference followed by ``end``."""
    listed = value.get("element", ()) if isinstance(value, dict) else ()
    items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    above = {item.get("path") for item in items if "CodeableReference" in _kinds(item)}
    return [i for i in items if isinstance(p := i.get("path"), str) and p.endswith(end) and p[: -len(end)] in above]


def _kinds(item: dict[str, Any]) -> list[str]:
    listed = item.get("type", ())
    return [str(t.get("code", "")) for t in listed if isinstance(t, dict)] if isinstance(listed, list) else []
