"""Registering and withdrawing: what `cuvil registry register` and the asset ``model_resource`` do with a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evidence.verifier.errors import UsageError
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.facts import ReleaseFacts
from fhir_registry.mapping.resources import RETIRED, model_id, provenance, resources_of
from fhir_registry.search.extract import index_rows
from fhir_registry.store.base import Store, Write, Written
from fhir_registry.validation.walk import validate


@dataclass(frozen=True)
class Registered:
    """The model as it stands: its DeviceDefinition, and how many resources this call changed."""

    id: str
    version: int
    changed: int


def register(store: Store, facts: ReleaseFacts) -> Registered:
    """Store everything of a verified release. The same release again changes nothing.

    A withdrawn version stays withdrawn: ``UsageError`` says so, since only a new release may replace it.
    """
    current = store.read("DeviceDefinition", model_id(facts))
    if current is not None and not current.deleted and _status_of(read_json(current.body)) == RETIRED:
        raise UsageError(
            f"{facts.statement.model_version} was withdrawn from this registry; release a new version and register that"
        )
    written = store.commit([_put(item) for item in resources_of(facts)])
    model = next(w.stored for w in written if w.stored.id == model_id(facts))
    signed = _put(provenance(facts, model.version, facts.statement.created))
    written += store.commit([signed])
    return Registered(model.id, model.version, _changed(written))


def withdraw(store: Store, model: str, reason: str) -> Registered:
    """Mark a model version (``NAME|VERSION`` or the id of its DeviceDefinition) and its engines as retired.

    The reason becomes a property of the model. ``UsageError`` when there is no such model version.
    """
    found = _find(store, model)
    resource = read_json(found.body)
    assert isinstance(resource, dict)
    parts = [p["reference"]["reference"].partition("/")[2] for p in resource.get("hasPart", ())]
    stamp = datetime.now(UTC).strftime("%Y-%m-%d")
    said = {"type": names.coded(names.PROPERTY, "withdrawn"), "valueString": f"{stamp}: {reason}"}
    changed = _with_status(resource, RETIRED)
    if _status_of(resource) != RETIRED:
        changed["property"] = [*changed.get("property", ()), said]
    writes = [_put(changed)]
    for identifier in parts:
        engine = store.read("DeviceDefinition", identifier)
        if engine is not None and not engine.deleted:
            body = read_json(engine.body)
            assert isinstance(body, dict)
            writes.append(_put(_with_status(body, RETIRED)))
    written = store.commit(writes)
    return Registered(found.id, written[0].stored.version, _changed(written))


def models(store: Store) -> list[dict[str, str]]:
    """Every model version: ``id``, ``model`` as NAME|VERSION, ``status``, ``updated``."""
    from fhir_registry.search.query import read_query

    found: list[dict[str, str]] = []
    cursor = ""
    while True:
        pairs = [("identifier", f"{names.MODEL_VERSION}|"), ("_count", "200")]
        page = store.search(read_query("DeviceDefinition", [*pairs, *([("_cursor", cursor)] if cursor else [])]))
        for item in page.matches:
            resource = read_json(item.body)
            assert isinstance(resource, dict)
            model = next(i["value"] for i in resource["identifier"] if i["system"] == names.MODEL_VERSION)
            found.append({"id": item.id, "model": model, "status": _status_of(resource), "updated": item.updated})
        cursor = page.following
        if not cursor:
            return found


def _find(store: Store, model: str) -> Any:
    from fhir_registry.search.query import read_query

    if "|" in model:
        query = read_query(
            "DeviceDefinition", [("identifier", f"{names.MODEL_VERSION}|{model.replace('|', chr(92) + '|')}")]
        )
        matches = store.search(query).matches
        found = matches[0] if matches else None
    else:
        found = store.read("DeviceDefinition", model)
    if found is None or found.deleted:
        raise UsageError(
            f"the registry has no model version {model!r}; give NAME|VERSION as `cuvil registry list` shows it"
        )
    return found


def _status_of(resource: Any) -> str:
    listed = resource.get("modifierExtension", ()) if isinstance(resource, dict) else ()
    return next((str(e.get("valueCode", "")) for e in listed if e.get("url") == names.STATUS), "")


def _with_status(resource: dict[str, Any], status: str) -> dict[str, Any]:
    others = [e for e in resource.get("modifierExtension", ()) if e.get("url") != names.STATUS]
    meta = {k: v for k, v in resource.get("meta", {}).items() if k not in ("versionId", "lastUpdated")}
    return {**resource, "meta": meta, "modifierExtension": [{"url": names.STATUS, "valueCode": status}, *others]}


def _put(resource: dict[str, Any]) -> Write:
    wrong = [i for i in validate(resource) if i.severity == "error"]
    if wrong:
        raise AssertionError(f"{resource['resourceType']} is not valid at {wrong[0].expression}: {wrong[0].text}")
    return Write("PUT", resource["resourceType"], resource["id"], resource, tuple(index_rows(resource)))


def _changed(written: Iterable[Written]) -> int:
    return sum(1 for item in written if item.changed)
