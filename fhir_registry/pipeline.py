"""Registering and withdrawing: what `cuvil registry register` and the asset ``model_resource`` do with a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from evidence.verifier.errors import UsageError
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.facts import ReleaseFacts
from fhir_registry.mapping.names import stable_id
from fhir_registry.mapping.reading import properties, status_of
from fhir_registry.mapping.resources import RETIRED, UNKNOWN, model_id, provenance, resources_of
from fhir_registry.search.extract import index_rows
from fhir_registry.store.base import ConflictError, Store, Write, Written
from fhir_registry.validation.walk import validate


@dataclass(frozen=True)
class Registered:
    """The model as it stands: its DeviceDefinition, and how many resources this call changed."""

    id: str
    version: int
    changed: int


_TRIES: Final = 5
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def again(change: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """``change`` anew where another process wrote, between its read and its write, what it had read.

    So a withdrawal is not undone by a registration or recertification that began before it.
    """

    @wraps(change)
    def repeated(*given: Given.args, **named: Given.kwargs) -> Answer:
        for _ in range(_TRIES):
            try:
                return change(*given, **named)
            except ConflictError as error:
                if error.status != 412:
                    raise
        raise UsageError("others change this model version at the same time, and nothing was written; try again")

    return repeated


@again
def register(store: Store, facts: ReleaseFacts) -> Registered:
    """Store everything of a verified release. The same release again changes nothing.

    A release for another target joins the model version: its engine becomes one more part. One for a target that the
    version has already takes that part's place.
    A withdrawn version stays withdrawn: ``UsageError`` says so, since only a new release may replace it.
    """
    stored = store.read("DeviceDefinition", model_id(facts))
    current: Any = read_json(stored.body) if stored is not None and not stored.deleted else {}
    if status_of(current) == RETIRED:
        raise UsageError(
            f"{facts.statement.model_version} was withdrawn from this registry; release a new version and register that"
        )
    if status_of(current) == UNKNOWN:
        raise UsageError(
            f"{facts.statement.model_version} has an engine that failed its recertification; close its nonconformity "
            "record and recertify it, then register"
        )
    resources = resources_of(facts)
    resources[-1] = _joined(store, current, resources[-1], facts)
    *others, model = resources
    expected = stored.version if stored is not None and current else 0
    written = store.commit([*map(put, others), put(model, expected)])
    kept = written[-1]
    signed = put(provenance(facts, kept.stored.version, facts.statement.created))
    # The signatures stay with the version of the model they were registered with.
    if kept.changed or store.read("Provenance", signed.id) is None:
        written += store.commit([signed])
    return Registered(kept.stored.id, kept.stored.version, count_changed(written))


@again
def withdraw(store: Store, model: str, reason: str) -> Registered:
    """Mark a model version (``NAME|VERSION`` or the id of its DeviceDefinition) and its engines as retired.

    The reason becomes a property of the model. ``UsageError`` when there is no such model version.
    """
    found = _find(store, model)
    resource = read_json(found.body)
    assert isinstance(resource, dict)
    # Every engine ever registered with this version, also those that another one has replaced.
    parts = dict.fromkeys([*parts_of(resource), *_targets(store, found.id)])
    stamp = datetime.now(UTC).strftime("%Y-%m-%d")
    said = {"type": names.coded(names.PROPERTY, "withdrawn"), "valueString": f"{stamp}: {reason}"}
    changed = with_status(resource, RETIRED)
    if status_of(resource) != RETIRED:
        changed["property"] = [*changed.get("property", ()), said]
    writes = [put(changed, found.version)]
    for identifier in parts:
        engine = store.read("DeviceDefinition", identifier)
        if engine is not None and not engine.deleted:
            body = read_json(engine.body)
            assert isinstance(body, dict)
            writes.append(put(with_status(body, RETIRED)))
    written = store.commit(writes)
    return Registered(found.id, written[0].stored.version, count_changed(written))


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
            found.append({"id": item.id, "model": model, "status": status_of(resource), "updated": item.updated})
        cursor = page.following
        if not cursor:
            return found


def _joined(store: Store, current: Any, new: dict[str, Any], facts: ReleaseFacts) -> dict[str, Any]:
    """``new`` with the parts for other targets that ``current`` has, and the releases those parts are from.

    Of several releases the last registered describes the model; registering one of them again changes nothing.
    """
    releases = _releases(current)
    kept = [part for part in parts_of(current) if _target(store, part) not in ("", facts.build.target)]
    if kept and facts.digest in releases:
        return {**current, "meta": new["meta"]}
    signed = {value: set(provenance_targets(store, stable_id("provenance", value))) for value in releases}
    others = [value for value, targets in signed.items() if targets & set(kept)]
    joined = [{"system": names.RELEASE, "value": value} for value in others]
    references = sorted(
        {*(f"DeviceDefinition/{part}" for part in kept), *(p["reference"]["reference"] for p in new["hasPart"])}
    )
    return {
        **new,
        "identifier": [*new["identifier"], *joined],
        "hasPart": [{"reference": {"reference": reference}, "count": 1} for reference in references],
    }


def _releases(model: Any) -> list[str]:
    return [i["value"] for i in model.get("identifier", ()) if i.get("system") == names.RELEASE and "value" in i]


def parts_of(model: Any) -> list[str]:
    """Ids of the engines a model lists."""
    listed = [p.get("reference", {}).get("reference", "") for p in model.get("hasPart", ())]
    return [text.partition("/")[2] for text in listed if text.startswith("DeviceDefinition/")]


def _target(store: Store, engine: str) -> str:
    """The target of the engine ``engine``; empty where it is gone."""
    stored = store.read("DeviceDefinition", engine)
    body: Any = read_json(stored.body) if stored is not None and not stored.deleted else {}
    return next(iter(properties(body, "target")), "")


def provenance_targets(store: Store, identifier: str) -> list[str]:
    """Ids of the DeviceDefinitions that the Provenance ``identifier`` is about."""
    stored = store.read("Provenance", identifier)
    body: Any = read_json(stored.body) if stored is not None and not stored.deleted else {}
    listed = [target.get("reference", "") for target in body.get("target", ())]
    return [text.split("/")[1] for text in listed if text.startswith("DeviceDefinition/")]


def _targets(store: Store, model: str) -> list[str]:
    """Ids of all engines that were signed together with ``model``."""
    from fhir_registry.search.query import read_query

    found = store.search(
        read_query("Provenance", [("target", f"DeviceDefinition/{model}"), ("_count", "1000")])
    ).matches
    listed = (target for item in found for target in provenance_targets(store, item.id))
    return [identifier for identifier in listed if identifier != model]


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
    body: Any = read_json(found.body)
    if names.PROFILE not in body.get("meta", {}).get("profile", ()):
        raise UsageError(
            f"DeviceDefinition/{model} is no model version (an engine is withdrawn with the one it is a part of); give "
            "NAME|VERSION as `cuvil registry list` shows it"
        )
    return found


def with_status(resource: dict[str, Any], status: str) -> dict[str, Any]:
    """The resource with another artifact-status, without what the store decides."""
    others = [e for e in resource.get("modifierExtension", ()) if e.get("url") != names.STATUS]
    meta = {k: v for k, v in resource.get("meta", {}).items() if k not in ("versionId", "lastUpdated")}
    return {**resource, "meta": meta, "modifierExtension": [{"url": names.STATUS, "valueCode": status}, *others]}


def put(resource: dict[str, Any], expected: int | None = None) -> Write:
    """The write of a resource this software made, which is therefore valid.

    ``expected``: the version it was made from, 0 where there was none; ``None``: whatever is there.
    """
    wrong = [i for i in validate(resource) if i.severity == "error"]
    if wrong:
        raise UsageError(
            f"this cannot be registered: {resource['resourceType']} would not be valid at {wrong[0].expression}: "
            f"{wrong[0].text}"
        )
    return Write(
        "PUT", resource["resourceType"], resource["id"], resource, tuple(index_rows(resource)), expected=expected
    )


def count_changed(written: Iterable[Written]) -> int:
    """How many writes changed anything."""
    return sum(1 for item in written if item.changed)
