"""An engine on one machine: the Device, and the statement of that machine as a document."""

from __future__ import annotations

from typing import Any

from evidence.verifier.deployment import NO_SERIAL
from evidence.verifier.digests import digest_bytes
from fhir_registry.mapping import names
from fhir_registry.mapping.facts import Deployed, ReleaseFacts
from fhir_registry.mapping.names import coded, stable_id


def manufacturer_of(facts: ReleaseFacts) -> str:
    """As the policy names it; empty where it does not."""
    return str((facts.policy.get("sbom") or {}).get("manufacturer", "")).strip()


def device_id(facts: ReleaseFacts, deployed: Deployed) -> str:
    """One for each engine and machine: the same engine deployed there again is a new version of it."""
    return stable_id("device", facts.build.subject_digests["sha3_512"], deployed.statement.fingerprint.digest)


def device_of(facts: ReleaseFacts, deployed: Deployed, engine: str) -> dict[str, Any]:
    """The Device; ``engine``: id of the DeviceDefinition it is one of. Network addresses stay in the statement."""
    said, config = deployed.statement, deployed.statement.compile_config
    assert isinstance(config, dict)
    manufacturer = manufacturer_of(facts)
    versions = [
        ("model-version", said.model_version, {"installDate": said.created}),
        ("compile-config", str(config["sha3_512"]), {}),
        ("hardware-fingerprint", said.fingerprint.digest, {}),
    ]
    return {
        "resourceType": "Device",
        "id": device_id(facts, deployed),
        "meta": {"profile": [names.DEPLOYED_PROFILE]},
        "identifier": [{"system": names.DEPLOYMENT, "value": digest_bytes(deployed.data).sha3_512}],
        "definition": {"reference": {"reference": f"DeviceDefinition/{engine}"}},
        "status": "active",
        **({"manufacturer": manufacturer} if manufacturer else {}),
        **({"serialNumber": said.fingerprint.serial} if said.fingerprint.serial != NO_SERIAL else {}),
        "name": [{"value": f"{said.model} for {facts.build.target}", "type": "registered-name"}],
        "modelNumber": str(facts.policy["model"]["version"]),
        "version": [
            {"type": coded(names.VERSION_KIND, kind), **more, "value": value} for kind, value, more in versions
        ],
        "property": [
            {"type": coded(names.PROPERTY, "fingerprintGrade"), "valueString": said.fingerprint.grade},
        ],
    }
