"""The CapabilityStatement: made from the tables the server itself works by, so that it says no more and no less."""

from __future__ import annotations

from typing import Any, Final

from fhir_registry.definitions.conformance import generated
from fhir_registry.search.parameters import BASE, SERVED, parameters_of
from fhir_registry.server.service import READ_ONLY

_READS: Final = ("read", "vread", "history-instance", "history-type", "search-type")
_WRITES: Final = ("create", "update", "patch", "delete")


_VALIDATE: Final = {"name": "validate", "definition": "http://hl7.org/fhir/OperationDefinition/Resource-validate"}


_OF_R5: Final = {
    "Subscription": [
        {"name": name, "definition": f"http://hl7.org/fhir/OperationDefinition/Subscription-{name}"}
        for name in ("status", "events")
    ]
}


def capability_statement(base: str, version: str, date: str) -> dict[str, Any]:
    """``date``: day from which the software states this (its release)."""
    return {
        "resourceType": "CapabilityStatement",
        "url": f"{BASE}/CapabilityStatement/registry",
        "name": "CuvilRegistry",
        "title": "Cuvil model registry",
        "status": "active",
        "date": date,
        "kind": "instance",
        "software": {"name": "Cuvil", "version": version},
        "implementation": {"description": "Registry of medical imaging models", "url": base},
        "fhirVersion": "5.0.0",
        "format": ["json"],
        "patchFormat": ["application/json-patch+json"],
        "rest": [
            {
                "mode": "server",
                "resource": [_resource(kind) for kind in SERVED],
                "interaction": [{"code": "transaction"}, {"code": "batch"}, {"code": "history-system"}],
                "operation": [_VALIDATE],
            }
        ],
    }


def _resource(kind: str) -> dict[str, Any]:
    codes = _READS + (() if kind in READ_ONLY else _WRITES)
    references = [c for c, p in parameters_of(kind).items() if p.type == "reference"]
    found: dict[str, Any] = {
        "type": kind,
        "interaction": [{"code": code} for code in codes],
        "versioning": "versioned-update",
        "readHistory": True,
        "updateCreate": kind not in READ_ONLY,
        "conditionalCreate": kind not in READ_ONLY,
        "conditionalUpdate": kind not in READ_ONLY,
        "referencePolicy": ["literal", "local"],
        "searchParam": [
            {"name": code, "definition": parameter.url, "type": parameter.type}
            for code, parameter in parameters_of(kind).items()
        ],
    }
    if references:
        found["searchInclude"] = [f"{kind}:{code}" for code in references]
    own = generated().values()
    profiles = [p["url"] for p in own if p["resourceType"] == "StructureDefinition" and p["type"] == kind]
    if profiles:
        found["supportedProfile"] = profiles
    operations = [p for p in own if p["resourceType"] == "OperationDefinition" and kind in p["resource"]]
    found["operation"] = [
        _VALIDATE,
        *({"name": p["code"], "definition": p["url"]} for p in operations),
        *_OF_R5.get(kind, ()),
    ]
    return found
