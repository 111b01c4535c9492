"""The resources of one release. They refer to each other by ids that depend on the release alone.

DeviceDefinition (R5) is the kind of product a model version is: the model itself, and one part for each target it was
compiled for. FHIR has no resource for models; "ModelResource" is a profile and a flat view (docs/registry.md).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from evidence.verifier.deployment import DEPLOYMENT_SUFFIX
from evidence.verifier.digests import digest_bytes
from fhir_registry.mapping import names
from fhir_registry.mapping.device import device_id, device_of, manufacturer_of
from fhir_registry.mapping.facts import ReleaseFacts, Signed
from fhir_registry.mapping.names import coded, stable_id

ACTIVE: Final = "active"
RETIRED: Final = "retired"
UNKNOWN: Final = "unknown"
"""It was certified, and whether it still holds is not known: a recertification failed."""
_SIGNATURE = {
    "system": "urn:iso-astm:E1762-95:2013",
    "code": "1.2.840.10065.1.12.1.5",
    "display": "Verification Signature",
}
_FORMATS: Final = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".html": "text/html",
    ".zip": "application/zip",
}
_TITLES: Final = {
    "release": "Release statement",
    "proof": "Build proof",
    "policy": "Clinical policy",
    "equivalence": "Equivalence with the independent reference",
    "coverage": "Structural coverage of the clinical logic",
    "reproducibility": "Reproducibility",
    "sbom": "Bill of materials",
    "intoto": "in-toto statements",
    "dataset": "Data sets",
    "page": "Proof as a page",
    "bundle": "The whole release",
    "decisions": "Decisions on the test set",
    "deployment": "Deployment statement",
    "nonconformity": "Nonconformity record",
}


def model_id(facts: ReleaseFacts) -> str:
    return stable_id("model", facts.statement.model_version)


def engine_id(facts: ReleaseFacts) -> str:
    return stable_id("engine", facts.build.subject_digests["sha3_512"])


def resources_of(facts: ReleaseFacts, status: str = ACTIVE) -> list[dict[str, Any]]:
    """Everything but the Provenance, which names a version of the model that exists only once these are stored."""
    organisation = _organisation(facts)
    documents = [item for name, data in _files(facts).items() for item in _document(facts, name, data, facts.digest)]
    if facts.deployed is not None:
        deployed = facts.deployed
        documents += _document(facts, deployed.name, deployed.data, device_id(facts, deployed))
        documents.append(device_of(facts, deployed, engine_id(facts)))
    return [*([organisation] if organisation else []), *documents, _engine(facts, status), _model(facts, status)]


def provenance(facts: ReleaseFacts, model_version: int, recorded: str) -> dict[str, Any]:
    """Who signed what: target is the stored version ``model_version`` of the model, signatures are the release's."""
    documents = [stable_id("doc", facts.digest, name) for name in _files(facts)]
    return {
        "resourceType": "Provenance",
        "id": stable_id("provenance", facts.digest),
        "meta": {"profile": [names.PROVENANCE_PROFILE]},
        "target": [
            {"reference": f"DeviceDefinition/{model_id(facts)}/_history/{model_version}"},
            {"reference": f"DeviceDefinition/{engine_id(facts)}"},
        ],
        "recorded": recorded,
        "activity": coded("http://terminology.hl7.org/CodeSystem/v3-DocumentCompletion", "LA", "legally authenticated"),
        "agent": [{"who": _signer(item)} for item in facts.signatures],
        "entity": [
            {"role": "source", "what": {"reference": f"DocumentReference/{identifier}"}} for identifier in documents
        ],
        "signature": [
            {
                "type": [_SIGNATURE],
                "when": recorded,
                "who": _signer(item),
                "sigFormat": f"application/vnd.cuvil.{item.algorithm or 'signature'}",
                "data": item.value,
            }
            for item in facts.signatures
        ],
    }


def _signer(item: Signed) -> dict[str, Any]:
    """Whose key it is, as far as that is known: keys identify signers here, not people."""
    return {
        "identifier": {"system": names.KEY, "value": item.key_id},
        "display": item.person or f"key {item.key_id[:16]}",
    }


def _files(facts: ReleaseFacts) -> dict[str, bytes]:
    stem = facts.statement.engine.rpartition(".")[0] or facts.statement.engine
    return {**facts.documents, f"{stem}.release.zip": facts.zip}


def _kind(facts: ReleaseFacts, name: str) -> str:
    by_file = {part.file: kind for kind, part in facts.statement.parts.items()}
    by_file |= {facts.statement.proof.file: "proof", facts.statement.policy.file: "policy", "proof.html": "page"}
    if name in by_file:
        return by_file[name]
    if name.endswith(DEPLOYMENT_SUFFIX):
        return "deployment"
    return "bundle" if name.endswith(".zip") else "release"


def _organisation(facts: ReleaseFacts) -> dict[str, Any] | None:
    name = manufacturer_of(facts)
    return (
        {"resourceType": "Organization", "id": stable_id("org", name), "active": True, "name": name} if name else None
    )


def _document(facts: ReleaseFacts, name: str, data: bytes, owner: str) -> list[dict[str, Any]]:
    """The bytes as a Binary, and the DocumentReference that says what they are; ``owner``: whose file ``name`` is."""
    digests, kind = digest_bytes(data), _kind(facts, name)
    content_type = next((form for end, form in _FORMATS.items() if name.endswith(end)), "application/octet-stream")
    binary = {
        "resourceType": "Binary",
        "id": stable_id("file", digests.sha3_512),
        "contentType": content_type,
        "data": base64.b64encode(data).decode(),
    }
    reference = {
        "resourceType": "DocumentReference",
        "id": stable_id("doc", owner, name),
        "meta": {"profile": [names.DOCUMENT_PROFILE]},
        "identifier": [
            {"system": names.SHA3_512, "value": digests.sha3_512},
            {"system": names.SHA_256, "value": digests.sha256},
        ],
        "status": "current",
        "type": coded(names.DOCUMENT, kind, _TITLES.get(kind, kind)),
        "subject": {"reference": f"DeviceDefinition/{model_id(facts)}"},
        "description": _TITLES.get(kind, kind),
        "content": [
            {
                "attachment": {
                    "contentType": content_type,
                    "url": f"Binary/{binary['id']}",
                    "size": str(len(data)),
                    "title": name,
                }
            }
        ],
    }
    return [binary, reference]


def _status(status: str) -> list[dict[str, Any]]:
    return [{"url": names.STATUS, "valueCode": status}]


def _property(code: str, text: str) -> dict[str, Any]:
    return {"type": coded(names.PROPERTY, code), "valueString": text}


def _versions(facts: ReleaseFacts) -> list[dict[str, Any]]:
    triple = facts.statement.triple
    config = triple["compile_config"]
    assert isinstance(config, dict)
    found = [
        ("model-version", facts.statement.model_version),
        ("compile-config", str(config["sha3_512"])),
        ("hardware-fingerprint", str(triple["hardware_fingerprint"])),
    ]
    return [{"type": coded(names.VERSION_KIND, kind), "value": value} for kind, value in found if value]


def _owner(facts: ReleaseFacts) -> dict[str, Any]:
    organisation = _organisation(facts)
    if organisation is None:
        return {}
    reference = {"reference": f"Organization/{organisation['id']}", "display": organisation["name"]}
    return {"manufacturer": reference, "owner": reference}


def _stated(section: Mapping[str, Any]) -> dict[str, Any]:
    """What the manufacturer states in the policy's section ``registry``; what it does not state is left out."""
    numbers = [
        {
            "type": item["type"],
            "deviceIdentifier": item["number"],
            "issuer": item["issuer"],
            "jurisdiction": item["jurisdiction"],
        }
        for item in section.get("regulatory_identifiers", ())
    ]
    classes = [
        {
            "type": {
                **({"coding": [{"system": c["system"], "code": c["code"]}]} if "code" in c else {}),
                "text": c["text"],
            }
        }
        for c in section.get("classification", ())
    ]
    standards = [
        {
            **({"category": {"text": item["category"]}} if "category" in item else {}),
            "specification": {"text": item["specification"]},
            **({"version": list(item["versions"])} if item.get("versions") else {}),
        }
        for item in section.get("conforms_to", ())
    ]
    found = {"regulatoryIdentifier": numbers, "classification": classes, "conformsTo": standards}
    return {name: listed for name, listed in found.items() if listed}


def _coding(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"system": item["system"], "code": item["code"]}


def _model(facts: ReleaseFacts, status: str) -> dict[str, Any]:
    policy, statement = facts.policy, facts.statement
    purpose = str(policy["model"].get("purpose", "")).strip()
    number = str(policy["model"]["version"])
    confidence = [_property("outputConfidence", item.name) for item in facts.outputs[1:2]]
    return {
        "resourceType": "DeviceDefinition",
        "id": model_id(facts),
        "meta": {"profile": [names.PROFILE]},
        "modifierExtension": _status(status),
        "identifier": [
            {"system": names.MODEL_VERSION, "value": f"{statement.model}|{number}"},
            {"system": names.RELEASE, "value": facts.digest},
            {"system": names.SHA3_512, "value": facts.build.sources["model.onnx"]},
        ],
        **_owner(facts),
        "deviceName": [{"name": statement.model, "type": "registered-name"}],
        "modelNumber": number,
        **({"description": purpose} if purpose else {}),
        **_stated(policy.get("registry") or {}),
        "version": _versions(facts),
        "property": [
            *(_property("inputProfile", f"{item.name}: {item.profile}") for item in facts.inputs),
            *(_property("outputProfile", f"{item.name}: {item.profile}") for item in facts.outputs),
            *confidence,
            _property("arithmetic", facts.build.arithmetic),
            _property("equivalence", f"{facts.build.equivalence.verdict} ({facts.build.equivalence.grade})"),
        ],
        "hasPart": [{"reference": {"reference": f"DeviceDefinition/{engine_id(facts)}"}, "count": 1}],
        **({"guideline": {"intendedUse": purpose}} if purpose else {}),
    }


def _engine(facts: ReleaseFacts, status: str) -> dict[str, Any]:
    digests = facts.build.subject_digests
    return {
        "resourceType": "DeviceDefinition",
        "id": engine_id(facts),
        "meta": {"profile": [names.ENGINE_PROFILE]},
        "modifierExtension": _status(status),
        "identifier": [
            {"system": names.SHA3_512, "value": digests["sha3_512"]},
            {"system": names.SHA_256, "value": digests["sha256"]},
        ],
        **_owner(facts),
        "deviceName": [{"name": f"{facts.statement.model} for {facts.build.target}", "type": "registered-name"}],
        "version": _versions(facts),
        "property": [_property("target", facts.build.target), _property("arithmetic", facts.build.arithmetic)],
    }
