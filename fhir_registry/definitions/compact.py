"""Compile the published FHIR R5 package into the small file the registry ships.

``python -m fhir_registry.definitions.compact PACKAGE OUTPUT``: PACKAGE is the folder ``package`` of hl7.fhir.r5.core
5.0.0 (CC0-1.0), as ``npm pack hl7.fhir.r5.core@5.0.0`` and tar unpack it; OUTPUT is ``fhir_registry/data/r5.json.xz``.
Prose, mappings and examples are left out; nothing else is. The same package gives the same bytes.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any, Final

FORMAT: Final = "cuvil-fhir-definitions/1"
_REGEX = "http://hl7.org/fhir/StructureDefinition/regex"
_FHIR_TYPE = "http://hl7.org/fhir/StructureDefinition/structuredefinition-fhir-type"
_MOST_CODES = 5000


def compact(package: Path) -> dict[str, Any]:
    """Types, value sets of required bindings and search parameters of ``package``."""
    structures = {}
    for path in sorted(package.glob("StructureDefinition-*.json")):
        document = json.loads(path.read_bytes())
        if document["kind"] != "logical" and document.get("derivation") != "constraint":
            structures[document["type"]] = _structure(document)
    bound = {
        e["binding"][1] for s in structures.values() for e in s["elements"] if e.get("binding", [""])[0] == "required"
    }
    terms = _Terminology(package)
    sets = {url: terms.expand(url) for url in sorted(bound)}
    params = [_search_parameter(json.loads(p.read_bytes())) for p in sorted(package.glob("SearchParameter-*.json"))]
    return {
        "format": FORMAT,
        "version": "5.0.0",
        "structures": structures,
        "value_sets": {url: codes for url, codes in sets.items() if codes is not None},
        "search": sorted((p for p in params if p["expression"]), key=lambda p: (p["base"], p["code"])),
    }


def _structure(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": document["kind"],
        "abstract": document["abstract"],
        "base": document.get("baseDefinition", "").rsplit("/", 1)[-1],
        "elements": [_element(item, document["kind"]) for item in document["snapshot"]["element"]],
    }


def _element(item: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {"path": item["path"], "min": item["min"], "max": item["max"]}
    types = [_type(entry) for entry in item.get("type", ())]
    if item["path"].endswith(".id") and (kind != "resource" or item["path"].count(".") > 1):
        # The package says id for the ids of elements too, and its own resources have others: R5 text, element.id.
        types = [["string", "", []]]
    if types:
        found["types"] = types
    if "contentReference" in item:
        found["same_as"] = item["contentReference"].rsplit("#", 1)[1]
    if "binding" in item and "valueSet" in item["binding"]:
        found["binding"] = [item["binding"]["strength"], item["binding"]["valueSet"].partition("|")[0]]
    rules = [_constraint(c) for c in item.get("constraint", ()) if c.get("expression")]
    if rules:
        found["constraints"] = rules
    for flag, name in (("isModifier", "modifier"), ("isSummary", "summary")):
        if item.get(flag):
            found[name] = True
    return found


def _type(kind: dict[str, Any]) -> list[Any]:
    """``[code, regular expression or "", target types]``."""
    extensions = {e["url"]: e.get("valueString") or e.get("valueUrl") for e in kind.get("extension", ())}
    code = kind["code"]
    if code.startswith("http://hl7.org/fhirpath/"):
        code = extensions.get(_FHIR_TYPE) or "string"
    targets = sorted(t.rsplit("/", 1)[1] for t in kind.get("targetProfile", ()))
    return [code, extensions.get(_REGEX) or "", targets]


def _constraint(item: dict[str, Any]) -> list[str]:
    return [item["key"], item["severity"], item["human"], item["expression"]]


def _search_parameter(item: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": item["code"],
        "url": item["url"],
        "type": item["type"],
        "base": item["base"],
        "expression": item.get("expression", ""),
        "target": item.get("target", []),
    }


class _Terminology:
    """Value sets whose code systems the package holds completely; others are ``None`` and cannot be checked."""

    def __init__(self, package: Path) -> None:
        self.sets: dict[str, dict[str, Any]] = {}
        self.systems: dict[str, dict[str, Any]] = {}
        for kind, table in (("ValueSet", self.sets), ("CodeSystem", self.systems)):
            for path in sorted(package.glob(f"{kind}-*.json")):
                document = json.loads(path.read_bytes())
                table[document["url"]] = document

    def expand(self, url: str) -> list[list[str]] | None:
        """Pairs of system and code in the order of their text, or ``None``."""
        found = self._set(url, ())
        return None if found is None or len(found) > _MOST_CODES else [list(pair) for pair in sorted(found)]

    def _set(self, url: str, within: tuple[str, ...]) -> set[tuple[str, str]] | None:
        document = self.sets.get(url.partition("|")[0])
        if document is None or url in within:
            return None
        found: set[tuple[str, str]] = set()
        compose = document.get("compose", {})
        for include in compose.get("include", ()):
            part = self._include(include, (*within, url))
            if part is None:
                return None
            found |= part
        for exclude in compose.get("exclude", ()):
            part = self._include(exclude, (*within, url))
            if part is None:
                return None
            found -= part
        return found or None

    def _include(self, include: dict[str, Any], within: tuple[str, ...]) -> set[tuple[str, str]] | None:
        parts: list[set[tuple[str, str]] | None] = [self._set(url, within) for url in include.get("valueSet", ())]
        if "system" in include:
            parts.append(self._system(include))
        if not parts or any(part is None for part in parts):
            return None
        return set.intersection(*(part for part in parts if part is not None))

    def _system(self, include: dict[str, Any]) -> set[tuple[str, str]] | None:
        system = include["system"]
        if "concept" in include:
            return {(system, item["code"]) for item in include["concept"]}
        document = self.systems.get(system)
        if document is None or document.get("content") != "complete":
            return None
        chosen = list(_tree(document.get("concept", ()), ()))
        for rule in include.get("filter", ()):
            if rule["property"] != "concept" or rule["op"] not in ("is-a", "descendent-of"):
                return None
            root, own = rule["value"], rule["op"] == "is-a"
            chosen = [(code, above) for code, above in chosen if root in above or (own and code == root)]
        return {(system, code) for code, _ in chosen}


def _tree(concepts: Any, above: tuple[str, ...]) -> Any:
    for item in concepts:
        yield item["code"], above
        yield from _tree(item.get("concept", ()), (*above, item["code"]))


def encode(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(encode(compact(Path(sys.argv[1]))))
