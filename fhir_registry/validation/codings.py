"""Codes out of values that may have any form."""

from __future__ import annotations

from typing import Any


def pairs_of(item: dict[str, Any]) -> list[tuple[str, str]]:
    """System and code of each coding of a Coding, CodeableConcept or CodeableReference, where both are texts."""
    return [pair for pair in map(_pair, _codings(item)) if pair is not None]


def _codings(item: dict[str, Any]) -> list[Any]:
    """The codings; none where ``item`` is not of such a form."""
    concept = item.get("concept", item)
    if isinstance(concept, dict) and ("concept" in item or "coding" in item or "text" in item):
        listed = concept.get("coding")
        return listed if isinstance(listed, list) else []
    return [item]


def _pair(coding: Any) -> tuple[str, str] | None:
    if not isinstance(coding, dict):
        return None
    system, code = coding.get("system", ""), coding.get("code", "")
    return (system, code) if isinstance(system, str) and isinstance(code, str) else None
