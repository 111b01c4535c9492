"""Offline verification of a release folder or bundle against a trust root that the verifier gives.

Order of belief: the envelope's form, its signatures, the right of their keys, then the list of files, and only then the
content of any file. Verification uses no network and no private key; a clock only when the caller gives ``at``.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.dsse import PAYLOAD_TYPE, Envelope, read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.listing import Listing, list_release
from evidence.verifier.release_parts import Contents
from evidence.verifier.release_statement import RELEASE_SUFFIX, ReleaseStatement, read_release_statement
from evidence.verifier.report import Findings, VerifyReport
from evidence.verifier.signers import (
    LABELS,
    Material,
    Moment,
    SignerKey,
    Used,
    check_algorithms,
    check_role,
    check_used,
    find_keys,
    judge,
    read_material,
    stated_time,
)
from evidence.verifier.signing import P384, SM2
from evidence.verifier.timestamp import imprint_of, read_timestamp
from evidence.verifier.trust import DEVELOPMENT, TrustRoot, default_trust_root, load_trust_root
from evidence.verifier.x509 import CODE_SIGNING

KEY_CHECKS = (
    "self-embedded-key",
    "certificate-path",
    "certificate-expired",
    "certificate-revoked",
    "certificate-purpose",
)
_SIGNATURE_CHECKS = {SM2: "signature-sm2", P384: "signature-p384"}


def verify_release(
    path: Path, trust_root: Path | None = None, *, this_device: bool = False, at: datetime | None = None
) -> VerifyReport:
    """Verify the release at ``path``, a folder or a bundle (zip).

    ``trust_root`` defaults to the development one under ``$CUVIL_HOME``. ``this_device``: the deployment statement must
    be there and its fingerprint that of this machine. ``at`` (aware): the verifier's clock, which may not lie before
    the release. Raises ``UsageError`` when the release or the trust root cannot be read, ``UnsupportedError`` without
    SM2; everything else is a check in the report.
    """
    root = load_trust_root(trust_root or default_trust_root())
    work = _Verification(list_release(path), root, this_device, at)
    reason = work.run()
    engine = work.statement.engine if work.statement else ""
    digests = work.listing.digests.get(engine)
    return VerifyReport(
        engine=f"{path}/{engine}" if engine else str(path),
        proof=f"{path}/{work.name}" if work.name else str(path),
        trust=DEVELOPMENT if trust_root is None else "given",
        trust_grade=root.grade,
        checks=work.findings.checks(reason),
        digests=digests.digest_set() if digests else {},
        evidence=work.summary(),
        names=work.findings.names,
    )


def is_release(path: Path) -> bool:
    """Whether ``path`` looks like something ``verify_release`` takes, rather than an engine."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"PK\x03\x04"
    except OSError:
        return False


class _Verification:
    def __init__(self, listing: Listing, root: TrustRoot, this_device: bool, at: datetime | None) -> None:
        self.listing, self.root, self.this_device, self.at = listing, root, this_device, at
        self.findings = Findings()
        self.name = ""
        self.statement: ReleaseStatement | None = None
        self.moment: Moment | None = None
        self.contents: Contents | None = None

    def run(self) -> str:
        """Make the checks; returns why those that were not reached were not."""
        read = self.findings.run("release-readable", self._read)
        if read is None:
            return "the release cannot be read"
        envelope, material, data = read
        self.findings.run("release-encoding", partial(_encoding, envelope, data))
        self.findings.run("payload-type", partial(_payload_type, envelope))
        if self.findings.failed:
            return "the release is not in its one form"
        keys = self.findings.run("unknown-key", partial(self._keys, envelope, material))
        if keys is None:
            return "no signature is by a key that is known"
        for key in keys:
            if key.algorithm in _SIGNATURE_CHECKS:
                self.findings.run(_SIGNATURE_CHECKS[key.algorithm], partial(_holds, key, keys, envelope.signed_bytes))
        if self.findings.failed:
            return "not all signatures hold for the payload"
        statement = self.findings.run(
            "statement", lambda: (read_release_statement(envelope.payload), "the statement is well formed")
        )
        if statement is None:
            return "the statement cannot be read"
        stamp = self.findings.run("timestamp", partial(self._time, statement, envelope, material))
        if stamp is None:
            return "the time of the release is not known"
        moment, used = stamp
        self.findings.run("clock-before-issue", partial(self._clock, statement, moment))
        self._judge(statement, keys, material, moment, used)
        if self.findings.failed:
            return "the keys were not allowed to sign this release"
        self.statement, self.moment = statement, moment
        self.contents = Contents(self.listing, self.root, self.findings, self.name, statement, moment, keys)
        return self.contents.check(self.this_device)

    def summary(self) -> dict[str, Json]:
        if self.statement is None or self.moment is None:
            return {}
        found = self.statement
        return {
            "model": found.model,
            "model_version": found.model_version,
            "triple": dict(found.triple),
            "head": found.proof_head,
            "parts": {name: part.verdict for name, part in found.parts.items()},
            "approvals": [{"role": item.role, "person": item.person} for item in found.approvals],
            "demanded": list(found.demanded),
            "files": len(found.subjects),
            "time": self.moment.at.isoformat(),
            "time_grade": "timestamp" if self.moment.stamped else "asserted",
            "created": found.created,
            "created_source": found.created_source,
            "log": None if found.log is None else found.log.to_json(),
            **({} if self.contents is None else self.contents.summary()),
        }

    def _read(self) -> tuple[tuple[Envelope, Material, bytes], str]:
        names = [name for name in self.listing.digests if name.endswith(RELEASE_SUFFIX) and "/" not in name]
        if len(names) != 1:
            said = "no" if not names else f"{len(names)}"
            raise MalformedError(
                f"{self.listing.where} holds {said} files *{RELEASE_SUFFIX}; a release has exactly one"
            )
        self.name = names[0]
        data = self.listing.read(self.name)
        envelope = read_envelope(data)
        material = read_material(envelope.verification_material)
        return (envelope, material, data), f"{self.name} is a well-formed DSSE envelope"

    def _keys(self, envelope: Envelope, material: Material) -> tuple[list[SignerKey], str]:
        keys = find_keys(envelope, self.root, material.certificates)
        check_algorithms(keys)
        return keys, "an SM2 and a P-384 signature carry keys of the trust root or of certificates"

    def _time(
        self, statement: ReleaseStatement, envelope: Envelope, material: Material
    ) -> tuple[tuple[Moment, Used], str]:
        created = stated_time(statement.created)
        if len(material.timestamps) != int(statement.stamped):
            raise MalformedError(
                f"{len(material.timestamps)} timestamps are beside the signatures, the statement says "
                f"{int(statement.stamped)}"
            )
        if not statement.stamped:
            return (Moment(created, False), Used()), f"no timestamp; the time is asserted: {statement.created}"
        roots = list(self.root.tsa_roots)
        imprint = imprint_of(item.value for item in envelope.signatures)
        stamp = read_timestamp(
            material.timestamps[0], imprint, roots, intermediates=material.certificates, crls=material.crls
        )
        used = Used(frozenset(stamp.certificates) - frozenset(roots), frozenset(stamp.crls))
        return (Moment(stamp.gen_time, True), used), f"{stamp.tsa} saw the signatures at {stamp.gen_time.isoformat()}"

    def _clock(self, statement: ReleaseStatement, moment: Moment) -> tuple[bool, str]:
        if stated_time(statement.created) > moment.at:
            raise MalformedError(
                f"the release states {statement.created}, after its timestamp {moment.at.isoformat()}: a clock "
                "was wrong"
            )
        if self.at is not None and self.at < moment.at:
            raise MalformedError(
                f"the clock of this verification, {self.at.isoformat()}, lies before the release of "
                f"{moment.at.isoformat()}; correct it"
            )
        return True, "no clock lies before what it dates"

    def _judge(
        self, statement: ReleaseStatement, keys: list[SignerKey], material: Material, moment: Moment, used: Used
    ) -> None:
        how = "certificates" if any(item.leaf for item in keys) else "the trust root's own entries"
        for name in KEY_CHECKS:
            self.findings.hold(name, f"the release keys are accepted by {how} at {moment.at.isoformat()}")

        def check() -> tuple[bool, str]:
            if statement.material != material.digest:
                raise MalformedError(
                    "the certificates or CRLs beside the signatures are not those that were signed with"
                )
            everything = used | judge(keys, self.root, material, moment, CODE_SIGNING)
            check_used(material, everything)
            check_role(keys, self.root, moment, "builder")
            return True, f"the release keys are accepted by {how} at {moment.at.isoformat()}"

        self.findings.run("certificate-path", check)


def _encoding(envelope: Envelope, data: bytes) -> tuple[bool, str]:
    if envelope.encode() != data:
        raise MalformedError("the envelope is not byte for byte its own encoding: white space or spelling was changed")
    return True, "the envelope is byte for byte its own encoding"


def _payload_type(envelope: Envelope) -> tuple[bool, str]:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    return True, f"the payload type is {PAYLOAD_TYPE}"


def _holds(key: SignerKey, keys: list[SignerKey], message: bytes) -> tuple[bool, str]:
    label = LABELS[key.algorithm]
    if key.holds(message):
        return True, f"the {label} signature holds for the payload"
    others = any(item.holds(message) for item in keys if item is not key and item.algorithm in _SIGNATURE_CHECKS)
    reason = "the signature was changed, since another holds" if others else "the payload was changed after signing"
    raise VerificationFailed(
        _SIGNATURE_CHECKS[key.algorithm], f"the {label} signature does not match the payload: {reason}"
    )
