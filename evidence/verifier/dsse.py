"""DSSE envelopes around in-toto statements (secure-systems-lab/dsse, protocol and envelope v1).

What is signed is the pre-authentication encoding of type and payload, never a parsed object. The reader is strict:
one spelling of base64, no duplicate keys, no unknown top-level key except ``verificationMaterial``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
    strict_base64,
    strict_json,
)
from evidence.verifier.signing import Signer, key_id

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MAX_SIGNATURES = 16


@dataclass(frozen=True)
class Signature:
    """One signature: the signer's key id (a hint, not authenticated) and the DER bytes."""

    key_id: str
    value: bytes


@dataclass(frozen=True)
class Envelope:
    """Type, payload bytes and signatures; ``verification_material`` is carried along and never trusted."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]
    verification_material: Json = None

    @property
    def signed_bytes(self) -> bytes:
        return pae(self.payload_type, self.payload)

    def encode(self) -> bytes:
        """The file form: one field a line, so that standard shell tools can take it apart."""
        body: dict[str, Json] = {
            "payload": _base64(self.payload),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": item.key_id, "sig": _base64(item.value)} for item in self.signatures],
        }
        if self.verification_material is not None:
            body["verificationMaterial"] = self.verification_material
        return (json.dumps(body, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: ``"DSSEv1" SP len(type) SP type SP len(payload) SP payload``."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, signers: Sequence[Signer]) -> Envelope:
    """Sign ``payload`` (an in-toto statement) once with every signer."""
    message = pae(PAYLOAD_TYPE, payload)
    signatures = tuple(Signature(key_id(signer.spki), signer.sign(message)) for signer in signers)
    return Envelope(PAYLOAD_TYPE, payload, signatures)


def read_envelope(data: bytes) -> Envelope:
    """Read an envelope strictly; ``MalformedError`` names the field. The payload type is returned, not judged."""
    item = expect_object(
        strict_json(data), "the envelope", ("payload", "payloadType", "signatures"), ("verificationMaterial",)
    )
    signatures = []
    for index, entry in enumerate(expect_list(item["signatures"], "signatures")):
        where = f"signatures[{index}]"
        fields = expect_object(entry, where, ("keyid", "sig"))
        value = strict_base64(expect_text(fields["sig"], f"{where}.sig"), f"{where}.sig")
        signatures.append(Signature(expect_text(fields["keyid"], f"{where}.keyid"), value))
    if not 1 <= len(signatures) <= _MAX_SIGNATURES:
        raise MalformedError(f"signatures does not hold 1 to {_MAX_SIGNATURES} entries")
    if len({signature.key_id for signature in signatures}) != len(signatures):
        raise MalformedError("signatures holds two entries of one keyid")
    material = item.get("verificationMaterial")
    return Envelope(
        expect_text(item["payloadType"], "payloadType"),
        strict_base64(expect_text(item["payload"], "payload"), "payload"),
        tuple(signatures),
        expect_map(material, "verificationMaterial") if "verificationMaterial" in item else None,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
