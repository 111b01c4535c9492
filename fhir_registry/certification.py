"""What a recertification changes in the registry: a failed one puts a model version in doubt, a passed one restores it.

The code is ``unknown`` of PublicationStatus ("the authoring system does not know which status applies"). Retired is a
person's word, and stays; a nonconformity is a finding that may be resolved.
"""

from __future__ import annotations

import base64
from typing import Any

from evidence.verifier.digests import digest_bytes
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.names import coded, stable_id
from fhir_registry.mapping.reading import status_of
from fhir_registry.mapping.resources import ACTIVE, UNKNOWN
from fhir_registry.pipeline import Registered, again, count_changed, parts_of, provenance_targets, put, with_status
from fhir_registry.search.query import read_query
from fhir_registry.store.base import Store, Write

KIND = "nonconformity"
_TITLE = "Nonconformity record"


@again
def suspend(store: Store, engine_sha3_512: str, identifier: str, finding: str, record: bytes) -> Registered | None:
    """Put the model version of an engine in doubt, with the signed ``record`` as evidence.

    ``identifier`` and ``finding`` are the record's. ``None`` where the engine is not registered or its model version is
    not active any more. The same again changes nothing.
    """
    engine, model = _registered(store, engine_sha3_512)
    if engine is None or model is None or status_of(model) not in (ACTIVE, UNKNOWN):
        return None
    said = {"type": coded(names.PROPERTY, KIND), "valueString": f"{identifier}: {finding}"}
    changed = with_status(model, UNKNOWN)
    if said not in model.get("property", ()):
        changed["property"] = [*model.get("property", ()), said]
    writes = [
        *map(put, _evidence(model["id"], identifier, record)),
        put(with_status(engine, UNKNOWN), _version(engine)),
        put(changed, _version(model)),
    ]
    written = store.commit(writes)
    return Registered(model["id"], written[-1].stored.version, count_changed(written))


@again
def restore(store: Store, engine_sha3_512: str) -> Registered | None:
    """The engine passed, and no record about it is open: it is active, and so is its model version with its last one.

    ``None`` where nothing of this engine was in doubt.
    """
    engine, model = _registered(store, engine_sha3_512)
    if engine is None or model is None or status_of(engine) != UNKNOWN or status_of(model) != UNKNOWN:
        return None
    writes = [put(with_status(engine, ACTIVE), _version(engine))]
    if all(part == engine["id"] or status_of(_read(store, part)) != UNKNOWN for part in parts_of(model)):
        changed = with_status(model, ACTIVE)
        kept = [
            p for p in model.get("property", ()) if not any(c.get("code") == KIND for c in p["type"].get("coding", ()))
        ]
        writes += [put({**changed, "property": kept}, _version(model)), *_superseded(store, model["id"])]
    written = store.commit(writes)
    current = store.read("DeviceDefinition", model["id"])
    assert current is not None
    return Registered(model["id"], current.version, count_changed(written))


def _registered(store: Store, engine_sha3_512: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The engine with that digest, and the model version it is a part of."""
    query = read_query("DeviceDefinition", [("identifier", f"{names.SHA3_512}|{engine_sha3_512}")])
    found = [read_json(item.body) for item in store.search(query).matches]
    engine: Any = next((e for e in found if names.ENGINE_PROFILE in e.get("meta", {}).get("profile", ())), None)  # type: ignore[union-attr]
    if engine is None:
        return None, None
    signed = store.search(
        read_query("Provenance", [("target", f"DeviceDefinition/{engine['id']}"), ("_count", "1000")])
    )
    for item in signed.matches:
        for target in provenance_targets(store, item.id):
            model = _read(store, target)
            if engine["id"] in parts_of(model):
                return engine, model
    return engine, None


def _read(store: Store, identifier: str) -> dict[str, Any]:
    stored = store.read("DeviceDefinition", identifier)
    found: Any = read_json(stored.body) if stored is not None and not stored.deleted else {}
    return dict(found)


def _version(resource: dict[str, Any]) -> int:
    return int(resource["meta"]["versionId"])


def _evidence(model: str, identifier: str, record: bytes) -> list[dict[str, Any]]:
    digests = digest_bytes(record)
    binary = {
        "resourceType": "Binary",
        "id": stable_id("file", digests.sha3_512),
        "contentType": "application/json",
        "data": base64.b64encode(record).decode(),
    }
    attachment = {
        "contentType": "application/json",
        "url": f"Binary/{binary['id']}",
        "size": str(len(record)),
        "title": f"{identifier}.json",
    }
    reference = {
        "resourceType": "DocumentReference",
        "id": stable_id("doc", model, identifier),
        "meta": {"profile": [names.DOCUMENT_PROFILE]},
        "identifier": [
            {"system": names.SHA3_512, "value": digests.sha3_512},
            {"system": names.SHA_256, "value": digests.sha256},
        ],
        "status": "current",
        "type": coded(names.DOCUMENT, KIND, _TITLE),
        "subject": {"reference": f"DeviceDefinition/{model}"},
        "description": _TITLE,
        "content": [{"attachment": attachment}],
    }
    return [binary, reference]


def _superseded(store: Store, model: str) -> list[Write]:
    """The records about a model that holds again: kept, and no longer current."""
    pairs = [("subject", f"DeviceDefinition/{model}"), ("type", f"{names.DOCUMENT}|{KIND}"), ("_count", "1000")]
    writes = []
    for item in store.search(read_query("DocumentReference", pairs)).matches:
        found: Any = read_json(item.body)
        meta = {k: v for k, v in found["meta"].items() if k not in ("versionId", "lastUpdated")}
        writes.append(put({**found, "meta": meta, "status": "superseded"}))
    return writes
