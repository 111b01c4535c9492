"""The keyring: which key belongs to which person, for which roles, from when to when; signed by the root keys.

A DSSE envelope with ``payloadType`` ``application/vnd.cuvil.keyring+json``; the payload is RFC 8785 JSON. When a key is
replaced, the old key signs the entry of its successor (``endorsement``), so that a new key of a person is vouched for
by that person's old one and not by the root alone.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_object,
    expect_text,
    strict_base64,
    strict_json,
)
from evidence.verifier.crl import judge_revocation
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.public_keys import verifier_of
from evidence.verifier.signing import REQUIRED_ALGORITHMS, key_id
from evidence.verifier.times import parse_time, time_text

PAYLOAD_TYPE = "application/vnd.cuvil.keyring+json"
FORMAT = "cuvil-keyring/1"
ROLES = ("developer", "tester", "quality", "rebuilder", "builder", "device")
REASONS = ("key_compromise", "affiliation_changed", "superseded", "cessation_of_operation", "privilege_withdrawn")
_ENDORSEMENT_PREFIX = b"cuvil-keyring-successor-v1\0"
_FIELDS = ("algorithm", "public_key", "person", "roles", "not_before", "not_after")
_OPTIONAL = ("successor", "revoked_at", "reason", "invalidity_date", "endorsement")


@dataclass(frozen=True)
class KeyEntry:
    """One key: its owner, roles and validity; times are aware, in UTC. ``spki`` is the public key's DER.

    ``successor``: key id of the key that replaces it. ``endorsement``: the predecessor's signature over this entry.
    """

    algorithm: str
    spki: bytes
    person: str
    roles: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    successor: str | None = None
    revoked_at: datetime | None = None
    reason: str | None = None
    invalidity_date: datetime | None = None
    endorsement: bytes | None = None

    @property
    def key_id(self) -> str:
        return key_id(self.spki)

    @property
    def endorsed_bytes(self) -> bytes:
        """What the predecessor signs: whose key this is and for what, without what may change later."""
        return _ENDORSEMENT_PREFIX + canonical_bytes({name: self.to_json()[name] for name in _FIELDS})

    def to_json(self) -> dict[str, Json]:
        fields: dict[str, Json] = {
            "algorithm": self.algorithm,
            "public_key": base64.b64encode(self.spki).decode("ascii"),
            "person": self.person,
            "roles": list[Json](self.roles),
            "not_before": time_text(self.not_before),
            "not_after": time_text(self.not_after),
        }
        optional: dict[str, Json] = {
            "successor": self.successor,
            "revoked_at": None if self.revoked_at is None else time_text(self.revoked_at),
            "reason": self.reason,
            "invalidity_date": None if self.invalidity_date is None else time_text(self.invalidity_date),
            "endorsement": None if self.endorsement is None else base64.b64encode(self.endorsement).decode("ascii"),
        }
        return fields | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True)
class Keyring:
    """All entries; ``version`` grows with every change, so that two keyrings can be told apart."""

    version: int
    entries: tuple[KeyEntry, ...]

    def entry(self, identifier: str) -> KeyEntry | None:
        """The entry of a key id, or ``None``."""
        return next((item for item in self.entries if item.key_id == identifier), None)

    def check(self, identifier: str, role: str, at: datetime, *, stamped: bool) -> KeyEntry:
        """The entry of key ``identifier`` when it may act as ``role`` at ``at``.

        ``stamped``: whether ``at`` is a verified timestamp's. Raises ``CertificateFailure``: ``unknown-key``
        (``not-in-keyring``), ``certificate-purpose`` (``role``), ``clock-before-issue``, ``certificate-expired``,
        ``certificate-revoked``.
        """
        entry = self.entry(identifier)
        if entry is None:
            raise CertificateFailure("unknown-key", "not-in-keyring", f"key {identifier[:16]} is not in the keyring")
        what = f"the key {identifier[:16]} of {entry.person}"
        if role not in entry.roles:
            raise CertificateFailure(
                "certificate-purpose", "role", f"{what} is for {', '.join(entry.roles)}, not for {role}"
            )
        if at < entry.not_before:
            raise CertificateFailure(
                "clock-before-issue", "not-yet-valid", f"{what} is valid from {time_text(entry.not_before)}"
            )
        if at > entry.not_after:
            raise CertificateFailure("certificate-expired", "expired", f"{what} expired {time_text(entry.not_after)}")
        if entry.revoked_at is not None:
            judge_revocation(what, entry.revoked_at, entry.reason, entry.invalidity_date, at, stamped=stamped)
        return entry

    def payload(self) -> bytes:
        """RFC 8785 bytes of the statement that the root keys sign."""
        entries: list[Json] = [item.to_json() for item in self.entries]
        return canonical_bytes({"format": FORMAT, "version": self.version, "keys": entries})


def read_keyring(data: bytes, root_keys: Sequence[bytes]) -> Keyring:
    """The keyring in envelope ``data``, signed with SM2 and P-384 by keys among ``root_keys`` (SubjectPublicKeyInfo).

    Raises ``MalformedError`` for a wrong form, ``CertificateFailure`` (``unknown-key``) for signatures of other keys
    or wrong ones, and when an entry's successor is not endorsed by it.
    """
    envelope = read_envelope(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError(f"payloadType of the keyring is not {PAYLOAD_TYPE}")
    if envelope.encode() != data:
        raise MalformedError("the keyring's envelope is not in its one written form")
    trusted = {key_id(spki): verifier_of(spki) for spki in root_keys}
    signed = []
    for item in envelope.signatures:
        verifier = trusted.get(item.key_id)
        if verifier is None:
            raise CertificateFailure(
                "unknown-key", "keyring-signer", f"the keyring is signed by {item.key_id[:16]}, which is no root key"
            )
        if not verifier.verify(envelope.signed_bytes, item.value):
            raise CertificateFailure("unknown-key", "keyring-signature", "the keyring or its signature was changed")
        signed.append(verifier.algorithm)
    if tuple(signed) != REQUIRED_ALGORITHMS:
        raise CertificateFailure(
            "unknown-key", "keyring-signer", f"the keyring is not signed with {' and '.join(REQUIRED_ALGORITHMS)}"
        )
    return _parse(envelope.payload)


def _parse(payload: bytes) -> Keyring:
    value = expect_object(strict_json(payload), "the keyring", ("format", "version", "keys"))
    version = value["version"]
    if value["format"] != FORMAT:
        raise MalformedError(f"the keyring's format is not {FORMAT!r}")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MalformedError("the keyring's version is not a positive whole number")
    keys = expect_list(value["keys"], "the keyring's keys")
    ring = Keyring(version, tuple(_entry(item, f"keyring keys[{index}]") for index, item in enumerate(keys)))
    if ring.payload() != payload:
        raise MalformedError("the keyring's payload is not in its RFC 8785 form")
    if len({item.spki for item in ring.entries}) != len(ring.entries):
        raise MalformedError("the keyring holds one key twice")
    _check_successors(ring)
    return ring


def _entry(value: Json, where: str) -> KeyEntry:
    item = expect_object(value, where, _FIELDS, _OPTIONAL)
    spki = strict_base64(expect_text(item["public_key"], f"{where}.public_key"), f"{where}.public_key")
    roles = tuple(expect_text(role, f"{where}.roles") for role in expect_list(item["roles"], f"{where}.roles"))
    if not roles or len(set(roles)) != len(roles) or set(roles) - set(ROLES):
        raise MalformedError(f"{where}.roles is not a list of distinct roles among {', '.join(ROLES)}")
    reason = None if "reason" not in item else expect_text(item["reason"], f"{where}.reason")
    if reason is not None and reason not in REASONS:
        raise MalformedError(f"{where}.reason is not one of {', '.join(REASONS)}")
    endorsement = item.get("endorsement")
    entry = KeyEntry(
        expect_text(item["algorithm"], f"{where}.algorithm"),
        spki,
        expect_text(item["person"], f"{where}.person"),
        roles,
        parse_time(item["not_before"], f"{where}.not_before"),
        parse_time(item["not_after"], f"{where}.not_after"),
        expect_hex(item["successor"], f"{where}.successor", 64) if "successor" in item else None,
        parse_time(item["revoked_at"], f"{where}.revoked_at") if "revoked_at" in item else None,
        reason,
        parse_time(item["invalidity_date"], f"{where}.invalidity_date") if "invalidity_date" in item else None,
        strict_base64(expect_text(endorsement, where), f"{where}.endorsement") if "endorsement" in item else None,
    )
    if entry.revoked_at is None and (entry.reason is not None or entry.invalidity_date is not None):
        raise MalformedError(f"{where} gives a reason or an invalidity date without revoked_at")
    if entry.not_after < entry.not_before:
        raise MalformedError(f"{where}.not_after is before not_before")
    if verifier_of(spki).algorithm != entry.algorithm:
        raise MalformedError(f"{where}.algorithm is not that of its public key")
    return entry


def _check_successors(ring: Keyring) -> None:
    """Every successor exists, belongs to the same person, and is endorsed by exactly its predecessor."""
    predecessors = {item.successor: item for item in ring.entries if item.successor is not None}
    if len(predecessors) != sum(item.successor is not None for item in ring.entries):
        raise MalformedError("the keyring names one successor for two keys")
    for identifier, old in predecessors.items():
        new = ring.entry(str(identifier))
        if new is None or new.person != old.person or new.algorithm != old.algorithm:
            raise MalformedError(f"the successor of key {old.key_id[:16]} is no key of {old.person} in the keyring")
        if new.endorsement is None or not verifier_of(old.spki).verify(new.endorsed_bytes, new.endorsement):
            raise CertificateFailure(
                "unknown-key", "endorsement", f"key {new.key_id[:16]} is not signed by the key it replaces"
            )
    for item in ring.entries:
        if item.endorsement is not None and item.key_id not in predecessors:
            raise MalformedError(f"key {item.key_id[:16]} carries an endorsement but replaces no key")
