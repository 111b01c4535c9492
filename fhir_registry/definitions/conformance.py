"""The registry's own definitions: what SUSHI made of ``fhir_registry/fsh``, with snapshots."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fhir_registry.definitions.bases import read_bases
from fhir_registry.definitions.snapshot import Element, snapshot

GENERATED: Final = Path(__file__).parents[1] / "fsh" / "fsh-generated" / "resources"
PUBLISHER: Final = "Cuvil"
DATE: Final = "2026-12-01"


@lru_cache(maxsize=1)
def generated() -> dict[str, dict[str, Any]]:
    """What SUSHI wrote, by address: differentials only."""
    read = (json.loads(path.read_bytes()) for path in sorted(GENERATED.glob("*.json")))
    return {item["url"]: item for item in read}


@lru_cache(maxsize=1)
def conformance_resources() -> tuple[dict[str, Any], ...]:
    """All resources as the registry serves them, in the order of their file names."""
    return tuple(_served(item) for item in generated().values())


@lru_cache(maxsize=64)
def definition(url: str) -> dict[str, Any] | None:
    """A profile or logical model that is known here, by its address without version: our own, or one they build on."""
    found = generated().get(url) or read_bases()["profiles"].get(url)
    return found if found is not None and found["resourceType"] == "StructureDefinition" else None


@lru_cache(maxsize=64)
def elements(url: str) -> list[Element] | None:
    """Snapshot elements of a type or profile, where they are known with their texts."""
    listed: list[Element] | None = read_bases()["elements"].get(url)
    if listed is not None:
        return listed
    found = definition(url)
    return None if found is None else snapshot(found, elements)


def _served(item: dict[str, Any]) -> dict[str, Any]:
    found = {**item, "publisher": PUBLISHER, "date": DATE}
    if item["resourceType"] == "StructureDefinition":
        found["snapshot"] = {"element": elements(item["url"])}
        # the order in which FHIR lists these members
        found["differential"] = found.pop("differential")
    return found
