"""Parts into CycloneDX 1.6 JSON.

cyclonedx-python-lib makes components, licences and metadata; what it does not model (model card, formulation, crypto
properties of assets, compositions, ``provides``) is laid over its JSON, which is never read back by it: it would lose
them. The bytes depend on the parts only: the serial number is a UUID of version 5 over the content, so two builds of
the same content have the same one, and the time is the build's.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compiler_kernels.errors import UsageError
from evidence.sbom.crypto import crypto_properties
from evidence.sbom.parts import CRYPTO, TOOL, Part
from evidence.verifier.canonical import canonical_bytes

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cuvil.dev/sbom/v1")
FORMULA = "formulation"
REMEDY = "pip install cyclonedx-python-lib[json-validation]==11.12.0, on which Cuvil depends"


def document(
    root: Part,
    parts: Sequence[Part],
    *,
    created: str,
    manufacturer: str = "",
    model_card: Mapping[str, Any] | None = None,
    embed: Iterable[str] = (),
) -> dict[str, Any]:
    """The bill of materials of ``root``; ``created`` is RFC 3339 in UTC.

    Parts of the group ``tool`` become the formulation, all others components. Licence texts and addresses of the parts
    ``embed`` are in the document, the texts of all others are named by file.
    Raises ``UsageError`` when cyclonedx-python-lib is not installed.
    """
    try:
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.contact import OrganizationalEntity
        from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
        from cyclonedx.output.json import JsonV1Dot6
    except ImportError as error:
        raise UsageError(
            f"the bill of materials needs a package that is not installed ({error.name}): {REMEDY}"
        ) from None
    embedded = frozenset(embed)
    components, tools = [p for p in parts if p.group != TOOL], [p for p in parts if p.group == TOOL]
    listed = [_component(p, embedded) for p in components]
    bom = Bom(components=listed)
    bom.metadata.timestamp = datetime.datetime.fromisoformat(created.replace("Z", "+00:00"))
    bom.metadata.component = _component(root, embedded)
    bom.register_dependency(bom.metadata.component, listed)  # else the library warns; the true graph is laid over
    bom.metadata.lifecycles.add(PredefinedLifecycle(LifecyclePhase.BUILD))
    if manufacturer:
        bom.metadata.manufacturer = OrganizationalEntity(name=manufacturer)
    found = json.loads(JsonV1Dot6(bom).output_as_string())
    for item in found["components"]:
        if item["bom-ref"] == "model" and model_card is not None:
            item["modelCard"] = dict(model_card)
        if item["type"] == "cryptographic-asset":
            item["cryptoProperties"] = crypto_properties(item["bom-ref"])
    found["metadata"]["tools"] = {"components": [_tool(p) for p in tools if p.name == "cuvil"]}
    found["metadata"]["authors"] = [{"name": manufacturer or "not stated by the policy (sbom.manufacturer)"}]
    found["formulation"] = [{"bom-ref": FORMULA, "components": _formulation(tools, embedded)}]
    found["dependencies"] = [_dependency(p) for p in sorted((root, *parts), key=lambda p: p.ref)]
    found["compositions"] = _compositions(root, components, tools)
    found["components"].sort(key=lambda item: str(item["bom-ref"]))
    found.pop("serialNumber", None)
    body = canonical_bytes(_texts(found))
    return {**found, "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, body.decode())}"}


def encode(found: Mapping[str, Any]) -> bytes:
    """The file: JSON with sorted keys, one value a line, in UTF-8."""
    return (json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _component(part: Part, embedded: frozenset[str]) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from packageurl import PackageURL

    hashes, properties = [], dict(part.properties)
    if part.digests is not None:
        hashes.append(HashType(alg=HashAlgorithm.SHA_256, content=part.digests.sha256))
        if part.digests.sha3_512:
            hashes.append(HashType(alg=HashAlgorithm.SHA3_512, content=part.digests.sha3_512))
        if part.digests.sm3:
            properties["cuvil:sm3"] = part.digests.sm3
    if part.licence is not None and part.licence.texts:
        properties["cuvil:licence-files"] = " ".join(part.licence.files)
    if not part.supplier and part.group != CRYPTO:
        properties["cuvil:supplier"] = "unknown"
    return Component(
        name=part.name,
        type=ComponentType(part.kind),
        bom_ref=part.ref,
        version=part.version or None,
        description=part.description or None,
        supplier=OrganizationalEntity(name=part.supplier) if part.supplier else None,
        purl=PackageURL.from_string(part.purl) if part.purl else None,
        hashes=hashes,
        licenses=_licences(part, part.ref in embedded),
        properties=[Property(name=name, value=value) for name, value in properties.items()],
    )


def _licences(part: Part, embed: bool) -> list[Any]:
    from cyclonedx.model import AttachedText, Property, XsUri
    from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
    from cyclonedx.spdx import is_supported_id

    if part.licence is None:
        return []
    if not is_supported_id(part.licence.spdx):
        return [LicenseExpression(part.licence.spdx)]
    text = part.licence.texts[0].decode("utf-8", "replace") if part.licence.texts else ""
    return [
        DisjunctiveLicense(
            id=part.licence.spdx,
            # checking one address against the grammar of RFC 3987 takes the validator 0.3 s
            url=XsUri(part.licence.url) if embed and part.licence.url else None,
            text=AttachedText(content=text) if embed and text else None,
            properties=[Property(name="cuvil:text", value=name) for name in part.licence.files],
        )
    ]


def _formulation(tools: Sequence[Part], embedded: frozenset[str]) -> list[dict[str, Any]]:
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    listed = json.loads(JsonV1Dot6(Bom(components=[_component(p, embedded) for p in tools])).output_as_string())
    return sorted(listed.get("components", []), key=lambda item: str(item["bom-ref"]))


def _tool(part: Part) -> dict[str, Any]:
    return {"type": "application", "name": part.name, "version": part.version, "supplier": {"name": part.supplier}}


def _dependency(part: Part) -> dict[str, Any]:
    found: dict[str, Any] = {"ref": part.ref}
    if part.needs:
        found["dependsOn"] = sorted(part.needs)
    if part.provides:
        found["provides"] = sorted(part.provides)
    return found


def _compositions(root: Part, components: Sequence[Part], tools: Sequence[Part]) -> list[dict[str, Any]]:
    """Known and unknown: the linker's list is the whole engine; beside the tools, the operating system took part."""
    listed = [root.ref, *(p.ref for p in components)]
    return [
        {"aggregate": "complete", "dependencies": sorted(listed)},
        {"aggregate": "incomplete", "dependencies": sorted(p.ref for p in tools)},
    ]


def _texts(value: Any) -> Any:
    """The same JSON value, for hashing: everything CycloneDX puts here is text, list or object already."""
    return json.loads(json.dumps(value))
