"""What the registry says of a release: read from the folder or bundle after it was verified, and from nowhere else."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evidence.bundle import bundle
from evidence.verifier.certificate import read_certificate
from evidence.verifier.deployment import DEPLOYMENT_SUFFIX, Deployment, read_deployment
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import Envelope, read_envelope
from evidence.verifier.errors import UsageError
from evidence.verifier.listing import Listing, list_release
from evidence.verifier.release import verify_release
from evidence.verifier.release_statement import RELEASE_SUFFIX, ReleaseStatement, read_release_statement
from evidence.verifier.signers import read_material
from evidence.verifier.signing import key_id
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.trust import TrustRoot, default_trust_root, load_trust_root

_FORMAT: Final = re.compile(r"(.+) ([a-z0-9]+)\[([^\[\]]*)\]", re.DOTALL)


@dataclass(frozen=True)
class Tensor:
    """An input or output: its name and its type as text, ``tensor(float32)[1,1,28,28]``."""

    name: str
    profile: str


@dataclass(frozen=True)
class Signed:
    """One signature over the release statement: algorithm, key id, DER in base64, and whose key it is where that is
    known."""

    algorithm: str
    key_id: str
    value: str
    person: str


@dataclass(frozen=True)
class Deployed:
    """The deployment statement found beside a release: file name, bytes and what they say."""

    name: str
    data: bytes
    statement: Deployment


@dataclass(frozen=True)
class ReleaseFacts:
    """A verified release. ``zip``: the whole of it as a bundle, for whoever wants to verify it again, without the
    deployment, which is one machine's; ``documents``: what people read, by name; ``digest``: SHA3-512 of the release
    statement's file; ``deployed``: on which machine, where the release lies on one."""

    statement: ReleaseStatement
    build: Statement
    policy: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    signatures: tuple[Signed, ...]
    zip: bytes
    documents: Mapping[str, bytes]
    digest: str
    deployed: Deployed | None = None


def read_facts(release: Path, trust_root: Path | None = None) -> ReleaseFacts:
    """Verify ``release`` (a folder, a bundle, or a file of a folder) and read it.

    Raises ``VerificationFailed`` for the first check that does not hold, ``UsageError`` for what is no release or has
    no bill of materials, from which the tensors are read.
    """
    place = release.parent if release.is_file() and release.suffix != ".zip" else release
    if place.is_dir() and not any(place.glob(f"*{RELEASE_SUFFIX}")):
        raise UsageError(
            f"{place}: no release lies here (it has no file *{RELEASE_SUFFIX}); "
            "`cuvil release ENGINE --output FOLDER` makes one"
        )
    verify_release(place, trust_root).raise_if_failed()
    listing = list_release(place)
    (name,) = [n for n in listing.digests if n.endswith(RELEASE_SUFFIX) and "/" not in n]
    data = listing.read(name)
    envelope = read_envelope(data)
    statement = read_release_statement(envelope.payload)
    build = read_statement(read_envelope(listing.read(statement.proof.file)).payload)
    sbom = statement.parts.get("sbom")
    if sbom is None:
        raise UsageError(
            f"{place}: the release has no bill of materials; run `cuvil sbom ENGINE`, "
            "then `cuvil release` into another folder"
        )
    inputs, outputs = _tensors(json.loads(listing.read(sbom.file)))
    wanted = [name, statement.proof.file, statement.policy.file, *(part.file for part in statement.parts.values())]
    wanted += [n for n in ("proof.html",) if n in listing.digests]
    deployed = _deployed(listing, name.removesuffix(RELEASE_SUFFIX) + DEPLOYMENT_SUFFIX)
    return ReleaseFacts(
        statement,
        build,
        json.loads(listing.read(statement.policy.file)),
        inputs,
        outputs,
        _signatures(envelope, load_trust_root(trust_root or default_trust_root())),
        place.read_bytes()
        if place.is_file() and deployed is None
        else bundle(place, [deployed.name] if deployed else []),
        {n: listing.read(n) for n in dict.fromkeys(wanted)},
        digest_bytes(data).sha3_512,
        deployed,
    )


def _own_names(deployed: Deployed | None) -> tuple[str, ...]:
    return () if deployed is None else (deployed.name,)


def _deployed(listing: Listing, name: str) -> Deployed | None:
    """The deployment statement, which ``verify_release`` has checked with everything else."""
    if name not in listing.digests:
        return None
    data = listing.read(name)
    return Deployed(name, data, read_deployment(read_envelope(data).payload))


def _signatures(envelope: Envelope, root: TrustRoot) -> tuple[Signed, ...]:
    """Every signature with the algorithm of its key: the trust root's, or that of a certificate beside them."""
    material = read_material(envelope.verification_material)
    algorithms = {key_id(c.spki): c.verifier.algorithm for c in map(read_certificate, material.certificates)}
    algorithms.update({item.key_id: item.algorithm for item in root.keys})
    owners: dict[str, str] = {}
    for entry in root.keyring.entries if root.keyring is not None else ():
        algorithms[entry.key_id], owners[entry.key_id] = entry.algorithm, entry.person
    return tuple(
        Signed(
            algorithms.get(item.key_id, ""),
            item.key_id,
            base64.b64encode(item.value).decode(),
            owners.get(item.key_id, ""),
        )
        for item in envelope.signatures
    )


def _tensors(bill: dict[str, Any]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    models = [c for c in bill.get("components", ()) if c.get("type") == "machine-learning-model"]
    card = models[0].get("modelCard", {}).get("modelParameters", {}) if models else {}
    return tuple(map(_tensor, card.get("inputs", ()))), tuple(map(_tensor, card.get("outputs", ())))


def _tensor(item: dict[str, str]) -> Tensor:
    """``image float32[1, 1, 28, 28]`` as the bill writes it; a name may hold anything."""
    match = _FORMAT.fullmatch(item["format"])
    if match is None:
        raise UsageError(
            f"the bill of materials has the tensor {item['format'][:80]!r}; make it again with `cuvil sbom`"
        )
    name, dtype, shape = match.groups()
    return Tensor(name, f"tensor({dtype})[{shape.replace(' ', '')}]")
