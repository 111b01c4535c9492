"""A model version as a page shows it: gathered from its resources in the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fhir_registry.fields import at, codes, concept_text, number, objects, text, values
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.reading import identifier_value, properties, status_of, value_of
from fhir_registry.pages.evidence_view import ReleaseView, read_release
from fhir_registry.search.query import read_query
from fhir_registry.server.operations import document_bytes
from fhir_registry.store.base import Store, Stored

MOST_READ = 32 << 20
"""Documents larger than this are offered for download and not read for the page."""
MOST_LISTED = 200
_READ = ("release", "proof", "policy")
_OWN_PROPERTIES = (
    "inputProfile",
    "outputProfile",
    "outputConfidence",
    "arithmetic",
    "equivalence",
    "withdrawn",
    "nonconformity",
)


@dataclass(frozen=True)
class Summary:
    """What a list shows of a model version. ``status``: ``active``, ``unknown``, ``retired``, or what else is written
    there; ``findings``: of failed recertifications that are not resolved."""

    id: str
    version: int
    updated: str
    status: str
    name: str
    number: str
    purpose: str
    manufacturer: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    withdrawn: str
    findings: tuple[str, ...] = ()

    @property
    def withdrawn_date(self) -> str:
        return self.withdrawn.partition(": ")[0] if self.withdrawn[:4].isdigit() else ""

    @property
    def withdrawn_reason(self) -> str:
        return self.withdrawn.partition(": ")[2] if self.withdrawn_date else self.withdrawn


@dataclass(frozen=True)
class Document:
    """A file of evidence. ``address``: below the FHIR base; ``kind``: a code of the evidence-document system;
    ``target``: that of the release it is from, where the registry has that release."""

    id: str
    kind: str
    title: str
    file: str
    size: int
    sha3_512: str
    sha_256: str
    address: str
    target: str = ""


@dataclass(frozen=True)
class Engine:
    id: str
    name: str
    target: str
    status: str
    sha3_512: str
    sha_256: str


@dataclass(frozen=True)
class Deployment:
    """An engine on one machine. ``installed``: a date and time; ``fingerprint``: of the hardware, SHA3-512."""

    id: str
    target: str
    serial: str
    installed: str
    fingerprint: str


@dataclass(frozen=True)
class Pair:
    """A label of the resource's own (a system, a kind) and what is written there."""

    label: str
    value: str


@dataclass(frozen=True)
class Signer:
    algorithm: str
    person: str
    key: str


@dataclass(frozen=True)
class Model:
    """``releases``: those the resource names, or all there are where it names none of them; ``earlier``: releases that
    others have replaced, each with its bundle. ``documents`` and ``signers`` are not those of earlier releases.
    """

    summary: Summary
    identifiers: tuple[Pair, ...]
    siblings: tuple[Summary, ...]
    versions: tuple[Pair, ...]
    classifications: tuple[Pair, ...]
    regulatory: tuple[Pair, ...]
    standards: tuple[Pair, ...]
    properties: tuple[Pair, ...]
    confidence: tuple[str, ...]
    engines: tuple[Engine, ...]
    deployments: tuple[Deployment, ...]
    documents: tuple[Document, ...]
    signers: tuple[Signer, ...]
    releases: tuple[ReleaseView, ...]
    earlier: tuple[tuple[ReleaseView, Document | None], ...]
    manufacturer_id: str

    @property
    def bundles(self) -> tuple[Document, ...]:
        return tuple(item for item in self.documents if item.kind == "bundle")


def read_model(store: Store, identifier: str) -> Model | None:
    """The model ``identifier``; ``None`` where there is none, or it was deleted, or it is no model."""
    stored = store.read("DeviceDefinition", identifier)
    if stored is None or stored.deleted:
        return None
    found = read_json(stored.body)
    if not isinstance(found, dict) or not is_model(found):
        return None
    documents = [
        (item, read_json(item.body))
        # A statement of every machine would crowd out the release; the Devices name them.
        for item in _search(store, "DocumentReference", "subject", f"DeviceDefinition/{identifier}", "deployment")
    ]
    signed = [read_json(i.body) for i in _search(store, "Provenance", "target", f"DeviceDefinition/{identifier}")]
    releases, earlier = _split(_releases(store, stored, found, [body for _, body in documents]), found)
    shown = [_of_release(_document(item, body), releases) for item, body in documents]
    replaced = {names.stable_id("doc", r.digest, d.file): r for r in earlier for d in shown}
    left = {names.stable_id("provenance", release.digest) for release in earlier}
    engines = tuple(_engines(store, found))
    return Model(
        summary=summary_of(stored, found),
        identifiers=tuple(Pair(text(i, "system"), text(i, "value")) for i in objects(found, "identifier")),
        siblings=tuple(_siblings(store, stored, found)),
        versions=tuple(_pair(i, i.get("type"), "value") for i in objects(found, "version")),
        classifications=tuple(
            Pair(text(i, "type", "coding", 0, "system"), concept_text(i.get("type")))
            for i in objects(found, "classification")
        ),
        regulatory=tuple(_regulatory(found)),
        standards=tuple(
            Pair(
                concept_text(i.get("category")),
                " ".join([concept_text(i.get("specification")), *(text(v) for v in values(i, "version"))]),
            )
            for i in objects(found, "conformsTo")
        ),
        properties=tuple(
            Pair(concept_text(i.get("type")), value_of(i))
            for i in objects(found, "property")
            if not set(codes(i.get("type"))) & set(_OWN_PROPERTIES)
        ),
        confidence=tuple(properties(found, "outputConfidence")),
        engines=engines,
        deployments=tuple(item for engine in engines for item in _deployments(store, engine)),
        documents=tuple(item for item in shown if item.id not in replaced),
        signers=tuple(
            _signer(s) for item in signed if text(item, "id") not in left for s in objects(item, "signature")
        ),
        releases=releases,
        earlier=tuple(
            (r, next((d for d in shown if d.kind == "bundle" and replaced.get(d.id) is r), None)) for r in earlier
        ),
        manufacturer_id=_id(text(found, "manufacturer", "reference"), "Organization"),
    )


def is_model(resource: dict[str, Any]) -> bool:
    profiles = at(resource, "meta", "profile")
    return isinstance(profiles, list) and names.PROFILE in profiles


def summary_of(stored: Stored, found: dict[str, Any]) -> Summary:
    purpose = text(found, "guideline", "intendedUse") or text(found, "description")
    return Summary(
        id=stored.id,
        version=stored.version,
        updated=stored.updated,
        status=status_of(found),
        name=text(found, "deviceName", 0, "name") or stored.id,
        number=text(found, "modelNumber"),
        purpose=purpose,
        manufacturer=text(found, "manufacturer", "display"),
        inputs=tuple(properties(found, "inputProfile")),
        outputs=tuple(properties(found, "outputProfile")),
        withdrawn=next(iter(properties(found, "withdrawn")), ""),
        findings=tuple(properties(found, "nonconformity")),
    )


def _pair(item: dict[str, Any], label: Any, *path: str) -> Pair:
    return Pair(concept_text(label), text(item, *path))


def _regulatory(found: dict[str, Any]) -> list[Pair]:
    """Numbers with who gave them and where they hold."""
    listed = [
        Pair(
            ", ".join(filter(None, (text(i, name) for name in ("type", "issuer", "jurisdiction")))),
            text(i, "deviceIdentifier"),
        )
        for i in objects(found, "regulatoryIdentifier")
    ]
    listed += [Pair(text(i, "issuer"), text(i, "deviceIdentifier")) for i in objects(found, "udiDeviceIdentifier")]
    return listed


def _signer(signature: dict[str, Any]) -> Signer:
    name, key = text(signature, "who", "display"), text(signature, "who", "identifier", "value")
    # Where the person is not known the mapping writes the key's id as the name.
    person = "" if key and name == f"key {key[:16]}" else name
    return Signer(text(signature, "sigFormat").removeprefix("application/vnd.cuvil."), person, key)


def _id(reference: str, kind: str) -> str:
    start, _, identifier = reference.partition("/")
    return identifier.partition("/")[0] if start == kind else ""


def _search(store: Store, kind: str, code: str, reference: str, but: str = "") -> list[Stored]:
    """At most ``MOST_LISTED`` that refer to ``reference``; ``but``: none of this type."""
    pairs = [(code, reference), *([("type:not", but)] if but else []), ("_count", str(MOST_LISTED))]
    return list(store.search(read_query(kind, pairs)).matches)


def _siblings(store: Store, stored: Stored, found: dict[str, Any]) -> list[Summary]:
    """Other versions of the model: same name and manufacturer, the last changed first."""
    mine = summary_of(stored, found)
    if not text(found, "deviceName", 0, "name"):
        return []
    named = ("device-name:exact", literal(mine.name))
    pairs = [named, ("_profile", names.PROFILE), ("_sort", "-_lastUpdated"), ("_count", "50")]
    others = []
    for item in store.search(read_query("DeviceDefinition", pairs)).matches:
        body = read_json(item.body)
        if isinstance(body, dict) and item.id != stored.id:
            others.append(summary_of(item, body))
    return [other for other in others if (other.name, other.manufacturer) == (mine.name, mine.manufacturer)]


def literal(value: str) -> str:
    """Text in which commas and backslashes mean themselves (search.html, escaping)."""
    return value.replace("\\", "\\\\").replace(",", "\\,")


def _engines(store: Store, found: dict[str, Any]) -> list[Engine]:
    engines = []
    for part in objects(found, "hasPart")[:100]:
        identifier = _id(text(part, "reference", "reference"), "DeviceDefinition")
        stored = store.read("DeviceDefinition", identifier) if identifier else None
        body = read_json(stored.body) if stored is not None and not stored.deleted else None
        if isinstance(body, dict):
            engines.append(engine_of(identifier, body))
    return engines


def _deployments(store: Store, engine: Engine) -> list[Deployment]:
    listed = []
    for item in _search(store, "Device", "definition", f"DeviceDefinition/{engine.id}"):
        body = read_json(item.body)
        kinds = {code: version for version in objects(body, "version") for code in codes(version.get("type"))}
        listed.append(
            Deployment(
                item.id,
                engine.target,
                text(body, "serialNumber"),
                text(kinds.get("model-version"), "installDate"),
                text(kinds.get("hardware-fingerprint"), "value"),
            )
        )
    return listed


def engine_of(identifier: str, body: dict[str, Any]) -> Engine:
    return Engine(
        identifier,
        text(body, "deviceName", 0, "name"),
        next(iter(properties(body, "target")), ""),
        status_of(body),
        identifier_value(body, names.SHA3_512),
        identifier_value(body, names.SHA_256),
    )


def _document(stored: Stored, body: Any) -> Document:
    attachment = ("content", 0, "attachment")
    address = text(body, *attachment, "url")
    return Document(
        stored.id,
        next(iter(codes(body.get("type") if isinstance(body, dict) else None)), ""),
        concept_text(body.get("type")) if isinstance(body, dict) else "",
        text(body, *attachment, "title"),
        number(body, *attachment, "size"),
        identifier_value(body, names.SHA3_512),
        identifier_value(body, names.SHA_256),
        address if _id(address, "Binary") else "",
    )


def _split(
    releases: list[ReleaseView], found: dict[str, Any]
) -> tuple[tuple[ReleaseView, ...], tuple[ReleaseView, ...]]:
    """The releases the resource names, and the others: what an earlier registration left."""
    named = {text(i, "value") for i in objects(found, "identifier") if text(i, "system") == names.RELEASE}
    current = tuple(release for release in releases if release.digest in named)
    return (current, tuple(r for r in releases if r.digest not in named)) if current else (tuple(releases), ())


def _of_release(document: Document, releases: Iterable[ReleaseView]) -> Document:
    """The document with the target of its release: its id is made of the release's digest and its name."""
    made = {names.stable_id("doc", release.digest, document.file): release.target for release in releases}
    return replace(document, target=made.get(document.id, ""))


def _releases(store: Store, stored: Stored, found: dict[str, Any], documents: list[Any]) -> list[ReleaseView]:
    """Every release among the documents, read together with the proof and policy it names."""
    import hashlib

    by_digest: dict[str, bytes] = {}
    statements: list[bytes] = []
    for body in documents:
        kinds = codes(body.get("type")) if isinstance(body, dict) else []
        if not set(kinds) & set(_READ) or number(body, "content", 0, "attachment", "size") > MOST_READ:
            continue
        data = document_bytes(store, body)
        if data is not None:
            by_digest[hashlib.sha3_512(data).hexdigest()] = data
            statements += [data] if "release" in kinds else []
    identifiers = frozenset(text(i, "value") for i in objects(found, "identifier"))
    registered = (f"{stored.id}/{stored.version}", stored.body, identifiers)
    views = (read_release(data, by_digest, registered) for data in statements[:20])
    return [view for view in views if view is not None]
