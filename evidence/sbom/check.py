"""Whether a document is a sound bill of materials: the schema, and what no schema can say.

Duplicate and dangling references pass the schema of CycloneDX; both are refused here, and so is a component that the
engine does not reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from compiler_kernels.errors import UsageError
from evidence.sbom.document import REMEDY

TOOL_ROOT = "pypi:cuvil"


def problems(data: bytes) -> list[str]:
    """What is wrong, one sentence each; empty for a sound document. ``UsageError`` without the schema's package."""
    try:
        found = json.loads(data)
    except ValueError as error:
        return [f"it is not JSON ({error})"]
    if not isinstance(found, dict):
        return ["it is not a JSON object"]
    return [*_schema(data.decode("utf-8", "replace")), *referential(found)]


def _schema(text: str) -> Iterator[str]:
    try:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    except Exception as failure:  # the library raises its own class when an optional dependency is missing
        if type(failure).__name__ in ("ModuleNotFoundError", "ImportError", "MissingOptionalDependencyException"):
            raise UsageError(f"the schema of CycloneDX cannot be checked: {REMEDY}") from None
        raise
    if error is not None:
        yield f"it is not valid CycloneDX 1.6: {' '.join(str(error).split())[:300]}"


def refs(found: Mapping[str, Any]) -> Iterator[str]:
    """Every bom-ref in the document, in order."""
    if isinstance(found.get("bom-ref"), str):
        yield found["bom-ref"]
    for value in found.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Mapping):
                yield from refs(item)


def referential(found: Mapping[str, Any]) -> list[str]:
    """Duplicate references, dangling ones, components without an entry, and components nothing reaches."""
    names = list(refs(found))
    known = set(names)
    wrong = [f"the bom-ref {name!r} is given twice" for name in sorted(known) if names.count(name) > 1]
    edges: dict[str, list[str]] = {}
    for entry in found.get("dependencies", []):
        if entry["ref"] in edges:
            wrong.append(f"{entry['ref']!r} has two entries of dependencies")
        edges[entry["ref"]] = [*entry.get("dependsOn", []), *entry.get("provides", [])]
    used = {name for ref, needs in edges.items() for name in (ref, *needs)}
    used.update(name for entry in found.get("compositions", []) for name in entry.get("dependencies", []))
    wrong += [f"{name!r} is referred to and does not exist" for name in sorted(used - known)]
    root = found.get("metadata", {}).get("component", {}).get("bom-ref", "")
    reached = _reached(edges, root)
    tools = _reached(edges, TOOL_ROOT)
    for item in found.get("components", []):
        wrong += _placed(item["bom-ref"], edges, reached, "the engine")
    for formula in found.get("formulation", []):
        for item in formula.get("components", []):
            wrong += _placed(item["bom-ref"], edges, tools, "Cuvil")
    for entry in _data_refs(found):
        if entry not in known:
            wrong.append(f"the model card refers to {entry!r}, which does not exist")
    return wrong


def _placed(ref: str, edges: Mapping[str, list[str]], reached: set[str], what: str) -> list[str]:
    if ref not in edges:
        return [f"{ref!r} has no entry of dependencies"]
    return [] if ref in reached else [f"{ref!r} is reached from nothing {what} depends on"]


def _reached(edges: Mapping[str, list[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += edges.get(name, [])
    return seen


def _data_refs(found: Mapping[str, Any]) -> Iterator[str]:
    for item in found.get("components", []):
        for entry in item.get("modelCard", {}).get("modelParameters", {}).get("datasets", []):
            if "ref" in entry:
                yield entry["ref"]
