"""Identifiers and code systems of the registry, in one place."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from fhir_registry.search.parameters import BASE

MODEL_VERSION: Final = f"{BASE}/NamingSystem/model-version"
"""``NAME|VERSION`` of a model."""
SHA3_512: Final = f"{BASE}/NamingSystem/sha3-512"
SHA_256: Final = f"{BASE}/NamingSystem/sha-256"
RELEASE: Final = f"{BASE}/NamingSystem/release"
"""SHA3-512 of a release statement."""
DEPLOYMENT: Final = f"{BASE}/NamingSystem/deployment"
"""SHA3-512 of a deployment statement."""
KEY: Final = f"{BASE}/NamingSystem/key"
"""Id of a signing key."""
PROPERTY: Final = f"{BASE}/CodeSystem/model-property"
VERSION_KIND: Final = f"{BASE}/CodeSystem/version-kind"
DOCUMENT: Final = f"{BASE}/CodeSystem/evidence-document"
PROFILE: Final = f"{BASE}/StructureDefinition/cuvil-model-resource"
ENGINE_PROFILE: Final = f"{BASE}/StructureDefinition/cuvil-engine"
DOCUMENT_PROFILE: Final = f"{BASE}/StructureDefinition/cuvil-evidence-document"
PROVENANCE_PROFILE: Final = f"{BASE}/StructureDefinition/cuvil-release-provenance"
DEPLOYED_PROFILE: Final = f"{BASE}/StructureDefinition/cuvil-deployed-engine"
STATUS: Final = "http://hl7.org/fhir/StructureDefinition/artifact-status"


def stable_id(kind: str, *parts: str) -> str:
    """The same id for the same thing on every server, so that registering it again changes nothing."""
    digest = hashlib.sha256("\0".join((kind, *parts)).encode()).hexdigest()
    return f"{kind}-{digest[:40]}"


def coded(system: str, code: str, display: str = "") -> dict[str, Any]:
    coding = {"system": system, "code": code, **({"display": display} if display else {})}
    return {"coding": [coding], "text": display or code}
