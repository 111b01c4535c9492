"""A small certificate authority in files: root and issuing authority for SM2 and P-384, keys of persons, keyring.

Under ``$CUVIL_HOME/keys/ca`` (mode 0700): ``root.*`` and ``issuing.*`` (keys, certificates, lists), ``issued/NAME/``
with one key pair, certificate, chain and copies of the lists per algorithm, ``register.json`` (who has which key, what
was revoked), ``keyring.json``,
``tsa-roots/*.pem`` (added by hand), and ``trust-root.json`` to hand out. Its grade is ``development``: root and issuing
keys lie in files of one machine. Certificates, lists and keyring can be made elsewhere with
``evidence.certificates`` and any ``Signer``.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

from evidence.certificates import Profile, issue_certificate, issue_crl
from evidence.keys import STEMS, default_home, init_keys, load_signer, new_private_key
from evidence.register import Issued, Register, replace_file
from evidence.verifier.canonical import MalformedError
from evidence.verifier.certificate import Certificate, read_certificate
from evidence.verifier.crl import Revocation
from evidence.verifier.der import decode_pem, encode_pem
from evidence.verifier.dsse import Envelope, Signature, pae
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small
from evidence.verifier.keyring import PAYLOAD_TYPE, REASONS, ROLES, KeyEntry, Keyring
from evidence.verifier.signing import REQUIRED_ALGORITHMS, Signer, key_id
from evidence.verifier.trust import DEVELOPMENT, TRUST_ROOT_FILE, TrustRoot, default_trust_root, load_trust_root
from evidence.verifier.x509 import CODE_SIGNING, DEPLOYMENT, DOCUMENT_SIGNING

ROLE_PURPOSES: Mapping[str, str] = {
    "developer": DOCUMENT_SIGNING,
    "tester": DOCUMENT_SIGNING,
    "quality": DOCUMENT_SIGNING,
    "rebuilder": DOCUMENT_SIGNING,
    "builder": CODE_SIGNING,
    "device": DEPLOYMENT,
}
_ROOT_DAYS, _ISSUING_DAYS, LEAF_DAYS, CRL_DAYS = 7300, 3650, 1095, 30
_NEEDS = "run `cuvil keys ca init`"


@dataclass(frozen=True)
class Identity:
    """A person's keys in one role: signers and leaf certificates (DER), in the order of ``REQUIRED_ALGORITHMS``."""

    person: str
    role: str
    signers: tuple[Signer, ...]
    certificates: tuple[bytes, ...]
    folder: Path


class Authority:
    """The authority under ``home``; ``UsageError`` when there is none or a file of it is missing or open to others."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or default_home()
        self.folder = self.home / "keys" / "ca"
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder}: no certificate authority there; {_NEEDS}")
        if self.folder.stat().st_mode & 0o022:
            raise UsageError(f"{self.folder}: the folder is writable by others; run `chmod 700 {self.folder}`")
        self.register = Register.load(self.folder / "register.json")
        self._signers: dict[tuple[str, str], Signer] = {}

    @cached_property
    def roots(self) -> tuple[bytes, ...]:
        """DER of the root certificates, SM2 first."""
        return tuple(self._certificate("root", algorithm) for algorithm in REQUIRED_ALGORITHMS)

    @cached_property
    def intermediates(self) -> tuple[bytes, ...]:
        """DER of the issuing authorities' certificates, SM2 first."""
        return tuple(self._certificate("issuing", algorithm) for algorithm in REQUIRED_ALGORITHMS)

    @property
    def crls(self) -> tuple[bytes, ...]:
        """DER of the current lists: those of the roots, then those of the issuing authorities."""
        names = [(level, algorithm) for level in ("root", "issuing") for algorithm in REQUIRED_ALGORITHMS]
        return tuple(_read_pem(self.folder / f"{level}.{STEMS[alg]}.crl.pem", "X509 CRL") for level, alg in names)

    def trust_root(self) -> TrustRoot:
        """What a verifier is given: read from ``trust-root.json`` and verified."""
        return load_trust_root(self.folder / TRUST_ROOT_FILE)

    def identity(self, person: str, role: str) -> Identity:
        """The current keys of ``person`` in ``role``; ``UsageError`` when there are none or all were revoked."""
        item = self._current(person, role)
        folder = self.folder / "issued" / item.name
        algorithms = [
            algorithm for algorithm in REQUIRED_ALGORITHMS if (folder / f"{STEMS[algorithm]}.cert.pem").exists()
        ]
        return Identity(
            person,
            role,
            tuple(load_signer(folder / f"{STEMS[a]}.key.pem", a) for a in algorithms),
            tuple(_read_pem(folder / f"{STEMS[a]}.cert.pem", "CERTIFICATE") for a in algorithms),
            folder,
        )

    # -- changes -----------------------------------------------------------------------------------------------------
    def issue(
        self,
        person: str,
        role: str,
        now: datetime,
        *,
        purpose: str | None = None,
        days: int = LEAF_DAYS,
        algorithms: Sequence[str] = REQUIRED_ALGORITHMS,
    ) -> Identity:
        """New keys and certificates for ``person`` in ``role``; ``UsageError`` when such keys are already in use.

        ``purpose``: the OID in the certificates, that of the role when ``None``. A device without SM2 signing gets
        ``algorithms`` ``(P384,)``.
        """
        _check_person(person, role)
        with self._changing(now):
            if self.register.current(person, role) is not None:
                raise UsageError(f"{person} already has keys as {role}; use `cuvil keys rotate`, or revoke them first")
            self._add(person, role, purpose or ROLE_PURPOSES[role], now, days, algorithms)
        return self.identity(person, role)

    def rotate(self, person: str, role: str, now: datetime, *, days: int = LEAF_DAYS) -> Identity:
        """Keys that replace the current ones, endorsed by them; the old ones stay valid until revoked or expired."""
        old = self.identity(person, role)
        with self._changing(now):
            item = self._current(person, role)
            algorithms = [signer.algorithm for signer in old.signers]
            new = self._add(person, role, item.purpose, now, days, algorithms)
            self.register.put(replace(item, successor=new.name))
            entries = {entry.algorithm: entry for entry in self._entries(new)}
            endorsements = {s.algorithm: s.sign(entries[s.algorithm].endorsed_bytes) for s in old.signers}
            self.register.put(replace(new, endorsements=endorsements))
        return self.identity(person, role)

    def revoke(
        self, name: str, reason: str, now: datetime, invalidity_date: datetime | None = None, at: datetime | None = None
    ) -> Issued:
        """Revoke the keys in ``issued/name`` from ``at`` (``now`` when ``None``); writes new lists and a new keyring.

        ``reason``: one of ``REASONS``. ``invalidity_date``: since when a compromised key was possibly misused.
        """
        if reason not in REASONS:
            raise UsageError(f"--reason {reason!r} is not one of {', '.join(REASONS)}")
        with self._changing(now):
            item = self.register.named(name)
            if item.revoked_at is not None:
                raise UsageError(f"{name}: already revoked; a revocation is not changed")
            item = replace(item, revoked_at=at or now, reason=reason, invalidity_date=invalidity_date)
            self.register.put(item)
        return item

    def write_crls(self, now: datetime, days: int = CRL_DAYS) -> tuple[bytes, ...]:
        """New lists of all four authorities, valid for ``days`` from ``now``; returns ``crls``."""
        with self._locked():
            self._write_crls(now, days)
            self._write_trust_root()
        return self.crls

    # -- parts -------------------------------------------------------------------------------------------------------
    def _current(self, person: str, role: str) -> Issued:
        item = self.register.current(person, role)
        if item is None:
            raise UsageError(f"{person!r} has no valid keys as {role}; run `cuvil keys issue`")
        return item

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.register = Register.load(self.folder / "register.json")
            yield

    @contextmanager
    def _changing(self, now: datetime) -> Iterator[None]:
        """One change of the register; afterwards lists, keyring and trust root follow from it."""
        with self._locked():
            yield
            self.register.keyring_version += 1
            self._write_crls(now, CRL_DAYS)
            self._write_trust_root()

    def _add(self, person: str, role: str, purpose: str, now: datetime, days: int, algorithms: Sequence[str]) -> Issued:
        issued = self.folder / "issued"
        issued.mkdir(mode=0o700, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=issued))
        try:
            name = ""
            for algorithm in algorithms:
                signer = new_private_key(draft / f"{STEMS[algorithm]}.key.pem", algorithm)
                issuer = read_certificate(self._certificate("issuing", algorithm))
                last = min(now + timedelta(days=days), issuer.not_after)
                der = issue_certificate(
                    Profile(person, now, last, purpose=purpose), signer.spki, self._signer("issuing", algorithm), issuer
                )
                replace_file(draft / f"{STEMS[algorithm]}.cert.pem", encode_pem("CERTIFICATE", der).encode())
                chain = encode_pem("CERTIFICATE", issuer.der)
                replace_file(draft / f"{STEMS[algorithm]}.chain.pem", chain.encode())
                name = name or f"{role}-{key_id(signer.spki)[:8]}"
            draft.rename(issued / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        item = Issued(name, person, role, purpose)
        self.register.put(item)
        return item

    def _leaves(self, item: Issued) -> list[Certificate]:
        files = sorted((self.folder / "issued" / item.name).glob("*.cert.pem"), reverse=True)
        return [read_certificate(_read_pem(path, "CERTIFICATE")) for path in files]

    def _entries(self, item: Issued) -> list[KeyEntry]:
        successor = self.register.named(item.successor) if item.successor else None
        following = {} if successor is None else {c.verifier.algorithm: key_id(c.spki) for c in self._leaves(successor)}
        return [
            KeyEntry(
                leaf.verifier.algorithm,
                leaf.spki,
                item.person,
                (item.role,),
                leaf.not_before,
                leaf.not_after,
                following.get(leaf.verifier.algorithm),
                item.revoked_at,
                item.reason,
                item.invalidity_date,
                item.endorsements.get(leaf.verifier.algorithm),
            )
            for leaf in self._leaves(item)
        ]

    def _write_crls(self, now: datetime, days: int) -> None:
        self.register.crl_number += 1
        # The register goes first: a list with a number that was never used is harmless, one used twice is not.
        self.register.save(self.folder / "register.json")
        revoked = [item for item in self.register.issued if item.revoked_at is not None]
        for level in ("root", "issuing"):
            for algorithm in REQUIRED_ALGORITHMS:
                entries = [
                    Revocation(leaf.serial, item.revoked_at, item.reason, item.invalidity_date)
                    for item in revoked
                    for leaf in self._leaves(item)
                    if level == "issuing" and leaf.verifier.algorithm == algorithm and item.revoked_at is not None
                ]
                issuer = read_certificate(self._certificate(level, algorithm))
                der = issue_crl(
                    issuer,
                    self._signer(level, algorithm),
                    self.register.crl_number,
                    now,
                    now + timedelta(days=days),
                    entries,
                )
                replace_file(self.folder / f"{level}.{STEMS[algorithm]}.crl.pem", encode_pem("X509 CRL", der).encode())
        self._hand_out_crls()

    def _hand_out_crls(self) -> None:
        """Copies of the current lists beside every set of keys in use, where signing looks for them."""
        for item in self.register.issued:
            folder = self.folder / "issued" / item.name
            for algorithm in (a for a in REQUIRED_ALGORITHMS if (folder / f"{STEMS[a]}.cert.pem").exists()):
                for level in ("root", "issuing"):
                    name = f"{level}.{STEMS[algorithm]}.crl.pem"
                    replace_file(folder / name, (self.folder / name).read_bytes())

    def _write_trust_root(self) -> None:
        entries = tuple(entry for item in self.register.issued for entry in self._entries(item))
        ring = Keyring(self.register.keyring_version, entries)
        envelope = sign_keyring(ring, [self._signer("root", algorithm) for algorithm in REQUIRED_ALGORITHMS])
        replace_file(self.folder / "keyring.json", envelope)
        stamps = sorted((self.folder / "tsa-roots").glob("*.pem"))
        root = TrustRoot(
            DEVELOPMENT,
            load_trust_root(default_trust_root(self.home)).keys,
            self.roots,
            tuple(_read_pem(path, "CERTIFICATE") for path in stamps),
            self.crls,
            ring,
            envelope,
        )
        replace_file(self.folder / TRUST_ROOT_FILE, root.encode())

    def _certificate(self, level: str, algorithm: str) -> bytes:
        return _read_pem(self.folder / f"{level}.{STEMS[algorithm]}.cert.pem", "CERTIFICATE")

    def _signer(self, level: str, algorithm: str) -> Signer:
        # Opening an encrypted key takes a good part of a second, so each is opened once.
        if (level, algorithm) not in self._signers:
            path = self.folder / f"{level}.{STEMS[algorithm]}.key.pem"
            self._signers[level, algorithm] = load_signer(path, algorithm)
        return self._signers[level, algorithm]


def init_authority(now: datetime, home: Path | None = None, organisation: str = "Cuvil development") -> Authority:
    """Make an authority under ``home`` unless one is there; an existing one is loaded and never changed."""
    home = home or default_home()
    init_keys(home)
    folder = home / "keys" / "ca"
    if folder.is_dir():
        return Authority(home)
    draft = Path(tempfile.mkdtemp(prefix=".ca-", dir=folder.parent))
    try:
        for algorithm in REQUIRED_ALGORITHMS:
            _make_levels(draft, algorithm, now, organisation)
        Register([], 0, 0).save(draft / "register.json")
        draft.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise UsageError(f"{folder}: cannot be written ({error.strerror}); set CUVIL_HOME elsewhere") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    authority = Authority(home)
    with authority._changing(now):
        pass
    return authority


def sign_keyring(ring: Keyring, signers: Sequence[Signer]) -> bytes:
    """The keyring's envelope, signed by the root keys in the order of ``REQUIRED_ALGORITHMS``."""
    payload = ring.payload()
    message = pae(PAYLOAD_TYPE, payload)
    signatures = tuple(Signature(key_id(signer.spki), signer.sign(message)) for signer in signers)
    return Envelope(PAYLOAD_TYPE, payload, signatures).encode()


def load_identity(person: str, role: str, home: Path | None = None) -> Identity:
    """The current keys of ``person`` in ``role`` under ``home``."""
    return Authority(home).identity(person, role)


def utc_now() -> datetime:
    """The clock, in whole seconds, UTC."""
    return datetime.now(UTC).replace(microsecond=0)


def _make_levels(folder: Path, algorithm: str, now: datetime, organisation: str) -> None:
    stem = STEMS[algorithm]
    root = new_private_key(folder / f"root.{stem}.key.pem", algorithm)
    issuing = new_private_key(folder / f"issuing.{stem}.key.pem", algorithm)
    top = Profile(f"{organisation} root {stem}", now, now + timedelta(days=_ROOT_DAYS), path_length=1)
    middle = Profile(f"{organisation} issuing {stem}", now, now + timedelta(days=_ISSUING_DAYS), path_length=0)
    root_der = issue_certificate(top, root.spki, root, None)
    issuing_der = issue_certificate(middle, issuing.spki, root, read_certificate(root_der))
    for name, der in (("root", root_der), ("issuing", issuing_der)):
        replace_file(folder / f"{name}.{stem}.cert.pem", encode_pem("CERTIFICATE", der).encode())


def _check_person(person: str, role: str) -> None:
    if role not in ROLES:
        raise UsageError(f"--role {role!r} is not one of {', '.join(ROLES)}")
    # RFC 5280 bounds commonName to 64 characters.
    if not 1 <= len(person) <= 64 or not person.isprintable() or person != person.strip():
        raise UsageError("--person is not a name of 1 to 64 printable characters; give the person's name")


def _read_pem(path: Path, wanted: str) -> bytes:
    text = read_small(path, wanted.lower(), "restore it, or make the authority again", 1 << 20)
    try:
        label, der = decode_pem(text.decode("ascii", "replace"))
    except MalformedError as error:
        raise UsageError(f"{path}: {error}; restore it") from None
    if label != wanted:
        raise UsageError(f"{path}: holds a {label} block, not a {wanted} one; restore it")
    return der
