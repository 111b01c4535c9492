"""Published elements with their texts, for the types that the registry's own profiles constrain.

``python -m fhir_registry.definitions.bases PACKAGE EXTENSIONS OUTPUT``: the folders ``package`` of hl7.fhir.r5.core
5.0.0 and of hl7.fhir.uv.extensions.r5 5.3.0-ballot-tc1 (both CC0-1.0), and ``fhir_registry/data/r5-bases.json.xz``. A
snapshot (snapshot.py) repeats what the base says in words, which ``r5.json.xz`` leaves out. Mappings and examples are
left out here, too. The same packages give the same bytes.
"""

from __future__ import annotations

import json
import lzma
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fhir_registry.definitions.compact import encode

FORMAT: Final = "cuvil-fhir-bases/1"
DATA: Final = Path(__file__).parents[1] / "data" / "r5-bases.json.xz"
TYPES: Final = (
    "Attachment",
    "Base",
    "CodeableConcept",
    "CodeableReference",
    "Coding",
    "Device",
    "DeviceDefinition",
    "DocumentReference",
    "Extension",
    "Identifier",
    "Provenance",
    "Reference",
    "Signature",
)
EXTENSIONS: Final = ("artifact-status",)
_LEFT_OUT: Final = ("mapping", "example")


def bases(core: Path, extensions: Path) -> dict[str, Any]:
    """Snapshot elements of ``TYPES`` by address, and the differentials of ``EXTENSIONS``."""
    found = {}
    for name in TYPES:
        document = json.loads((core / f"StructureDefinition-{name}.json").read_bytes())
        found[document["url"]] = [_plain(item) for item in document["snapshot"]["element"]]
    profiles = {}
    for name in EXTENSIONS:
        document = json.loads((extensions / f"StructureDefinition-{name}.json").read_bytes())
        kept = ("resourceType", "id", "url", "version", "name", "status", "kind", "abstract", "type", "baseDefinition")
        profiles[document["url"]] = {
            **{key: document[key] for key in kept},
            "derivation": document["derivation"],
            "differential": {"element": [_plain(item) for item in document["differential"]["element"]]},
        }
    return {"format": FORMAT, "elements": found, "profiles": profiles}


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in _LEFT_OUT}


@lru_cache(maxsize=1)
def read_bases() -> dict[str, Any]:
    """The document as shipped."""
    found: dict[str, Any] = json.loads(lzma.decompress(DATA.read_bytes()))
    if found.get("format") != FORMAT:
        raise ValueError(f"{DATA.name} is not a file of base definitions")
    return found


if __name__ == "__main__":
    Path(sys.argv[3]).write_bytes(encode(bases(Path(sys.argv[1]), Path(sys.argv[2]))))
