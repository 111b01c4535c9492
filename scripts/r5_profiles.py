"""Snapshots and profiles beside HL7's own: ``python scripts/r5_profiles.py``.

Fetches hl7.fhir.r5.core and hl7.fhir.r5.examples 5.0.0 with npm into ``--cache`` (default: ``r5-examples`` below the
folder for temporary files). For every profile of the core package the snapshot is made from its differential and
compared with the published one: ids, their order, cardinalities, types, slice names. Then every example that claims
such a profile is held to it. The registry's own definitions are also checked by HL7's JSON Schema of R5. Exit code 1
for a difference or refusal that is not listed below with its reason, 2 when a package cannot be had.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import jsonschema_rs  # noqa: E402
from r5_examples import examples, fetch  # noqa: E402

from fhir_registry.definitions.conformance import conformance_resources, generated  # noqa: E402
from fhir_registry.definitions.snapshot import SnapshotError, snapshot  # noqa: E402
from fhir_registry.json_text import read_json  # noqa: E402
from fhir_registry.validation.issues import ERROR  # noqa: E402
from fhir_registry.validation.profile import ProfileError, compile_profile  # noqa: E402
from fhir_registry.validation.walk import validate  # noqa: E402

OWN = conformance_resources()
COMPARED = ("min", "max", "path", "sliceName")
OTHER = {
    "ebmrecommendation": "its differential constrains citeAs, which its base writes citeAs[x]",
    "catalog": "its differential slices date, which has no slicing; the published snapshot leaves the slice out",
    "executablevalueset": "the published snapshot takes the children of an extension from the extension's own profile",
    "lipidprofile": "slices through resolve(), which are not compiled",
}


def main() -> int:
    reader = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    reader.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "r5-examples")
    words = reader.parse_args()
    try:
        core = fetch(words.cache, "hl7.fhir.r5.core")
        folder = fetch(words.cache)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"a package cannot be had: {error}", file=sys.stderr)
        return 2
    read = (json.loads(path.read_bytes()) for path in sorted(core.glob("StructureDefinition-*.json")))
    documents = {item["url"]: item for item in read if "snapshot" in item}
    profiles = {url: item for url, item in documents.items() if item.get("derivation") == "constraint"}
    failed, equal, held = 0, 0, {}
    for url, item in profiles.items():
        wrong = difference(item, documents)
        try:
            compile_profile(item)
            held[url] = item
        except ProfileError as error:
            wrong = wrong or str(error)
        equal += not wrong
        if wrong:
            failed += item["id"] not in OTHER
            print(f"{item['id']}: {wrong}{' (' + OTHER[item['id']] + ')' if item['id'] in OTHER else ''}")
    print(f"{len(profiles)} profiles of R5, {equal} with the published snapshot and compiled")
    generated().update(held)
    claiming = refused = 0
    for path in examples(folder):
        found = read_json(path.read_bytes())
        meta = found.get("meta", {}) if isinstance(found, dict) else {}
        if not set(meta.get("profile", ())) & set(held):
            continue
        claiming += 1
        for issue in validate(found, invariants=False):
            if issue.severity == ERROR:
                refused += 1
                print(f"{path.name}: {issue.expression}: {issue.text}")
    print(f"{claiming} examples that claim one of them, {refused} refusals")
    refused += by_json_schema(core)
    return 1 if failed or refused else 0


def by_json_schema(core: Path) -> int:
    """How many errors the published JSON Schema finds in the registry's own definitions."""
    text = (core / "openapi" / "fhir.schema.json").read_text(encoding="utf-8")
    # one regular expression of it has a bracket too many
    schema = jsonschema_rs.validator_for(json.loads(text.replace("{1,9}}", "{1,9}")))
    found = [(item["url"], e.message[:200]) for item in OWN for e in schema.iter_errors(item)]
    for url, message in found:
        print(f"{url}: {message}")
    print(f"{len(OWN)} definitions of the registry, {len(found)} errors by the JSON Schema of R5")
    return len(found)


def difference(item: dict[str, Any], documents: dict[str, dict[str, Any]]) -> str:
    """The first thing in which our snapshot of ``item`` is not the published one; empty where there is none."""
    try:
        made = snapshot(item, lambda url: documents[url]["snapshot"]["element"] if url in documents else None)
    except SnapshotError as error:
        return str(error)
    published = item["snapshot"]["element"]
    for ours, theirs in zip(made, published, strict=False):
        if ours["id"] != theirs["id"]:
            return f"{ours['id']} stands where {theirs['id']} is published"
        for name in COMPARED:
            if ours.get(name) != theirs.get(name):
                return f"{ours['id']}: {name} is {ours.get(name)}, and {theirs.get(name)} is published"
        if [t["code"] for t in ours.get("type", ())] != [t["code"] for t in theirs.get("type", ())]:
            return f"{ours['id']}: other types than published"
    return "" if len(made) == len(published) else f"{len(made)} elements, and {len(published)} are published"


if __name__ == "__main__":
    sys.exit(main())
