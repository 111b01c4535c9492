"""The nonconformity records of this home, and which engines they withdraw from release.

``$CUVIL_HOME/nonconformities/NC-*.json`` are records, ``NC-*.closed.json`` their closures. An engine with an open
record is withdrawn: `cuvil release` and `cuvil deploy` refuse it here. A record nobody can read withdraws every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.errors import RefusedError, UsageError
from cuvil_assets import audit
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home
from cuvil_assets.surveil import trust_of
from evidence.log import Log
from evidence.nonconformity import Nonconformity, close_record, read_closure, read_record, signed_record
from evidence.signing_keys import SigningKeys, load_signing_keys
from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import digest_bytes
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.log import WITHDRAWAL, encode_entry
from evidence.verifier.trust import TrustRoot

FOLDER = "nonconformities"
CLOSED = ".closed.json"


@dataclass(frozen=True)
class Listed:
    """One record of this home; ``record`` is ``None`` when it cannot be read.

    ``closed``: by whom and why, empty while it is open. ``fault``: what cannot be read or does not hold.
    """

    id: str
    record: Nonconformity | None
    closed: str
    fault: str = ""

    @property
    def open(self) -> bool:
        return not self.closed


def folder_of(home: Home) -> Path:
    return home.root / FOLDER


def listed(home: Home, root: TrustRoot | None = None) -> list[Listed]:
    """Every record, verified with ``root`` (that of this home)."""
    paths = [p for p in sorted(folder_of(home).glob("NC-*.json")) if not p.name.endswith(CLOSED)]
    trusted = root or (trust_of(home) if paths else None)
    return [_listed(path, trusted) for path in paths if trusted is not None]


def _listed(path: Path, root: TrustRoot) -> Listed:
    identifier = path.name.removesuffix(".json")
    try:
        data = path.read_bytes()
        record = read_record(data, root)
    except (OSError, MalformedError, VerificationFailed) as error:
        return Listed(identifier, None, "", f"the record cannot be read: {error}")
    closure = path.with_name(identifier + CLOSED)
    if not closure.exists():
        return Listed(identifier, record, "")
    try:
        person, reason = read_closure(closure.read_bytes(), path.name, data, root)
    except (OSError, MalformedError, VerificationFailed) as error:
        return Listed(identifier, record, "", f"its closure does not hold: {error}")
    return Listed(identifier, record, f"{person}: {reason}")


def withdrawn(home: Home, engine_sha3_512: str) -> list[Listed]:
    """Open records about the engine with this digest; those that nobody can read count for every engine."""
    return [
        item
        for item in listed(home)
        if item.open and (item.record is None or item.record.engine.sha3_512 == engine_sha3_512)
    ]


def refuse_withdrawn(home: Home, engine_sha3_512: str) -> None:
    """``RefusedError`` (exit code 3) when the engine is withdrawn."""
    found = withdrawn(home, engine_sha3_512)
    if found:
        first = found[0]
        said = first.fault if first.record is None else f"{first.record.check}: {first.record.finding}"
        remedy = "close it with `cuvil nonconformity close` once it is resolved"
        raise RefusedError(f"this engine is withdrawn by {first.id} ({said}); {remedy}")


def open_nonconformity(home: Home, found: Nonconformity) -> str:
    """Write and log ``found`` unless it is there already; its id. The withdrawal enters the transparency log."""
    keys = load_signing_keys(home.root)
    path = folder_of(home) / f"{found.id}.json"
    if path.exists() and path.with_name(found.id + CLOSED).exists():
        # Found again after it was closed: the closure did not hold true.
        path.with_name(found.id + CLOSED).unlink()
        audit.record(home.root, "nonconformity", {"id": found.id, "state": "opened again"})
        return found.id
    if path.exists():
        return found.id
    data = signed_record(found, keys)
    _write(home, path, data)
    entry = encode_entry(
        WITHDRAWAL,
        found.model_version,
        (found.engine.name, found.engine.sha3_512),
        (path.name, digest_bytes(data).sha3_512),
    )
    Log(home.root).append(entry, keys.signers)
    audit.record(
        home.root, "nonconformity", {"id": found.id, "state": "opened", "sha3_512": digest_bytes(data).sha3_512}
    )
    return found.id


def close_nonconformity(home: Home, identifier: str, person: str, reason: str, keys: SigningKeys) -> Path:
    """Sign the closure of an open record; ``UsageError`` when there is none of that id, or it would not hold."""
    item = next((one for one in listed(home) if one.id == identifier), None)
    if item is None or item.record is None:
        known = ", ".join(one.id for one in listed(home) if one.open) or "none"
        raise UsageError(f"{identifier!r} is no readable nonconformity record of this home; the open ones are: {known}")
    if item.closed:
        raise UsageError(f"{identifier} is closed already ({item.closed})")
    path = folder_of(home) / f"{identifier}.json"
    data = path.read_bytes()
    closure = close_record(path.name, data, person, reason, keys)
    try:
        read_closure(closure, path.name, data, trust_of(home))
    except (MalformedError, VerificationFailed) as error:
        raise UsageError(f"the closure would not hold: {error}; sign with the keys of that person") from None
    target = path.with_name(identifier + CLOSED)
    _write(home, target, closure)
    fields = {"id": identifier, "state": "closed", "sha3_512": digest_bytes(closure).sha3_512}
    audit.record(home.root, "nonconformity", fields, person=person)
    return target


def _write(home: Home, path: Path, data: bytes) -> None:
    try:
        home.ensure(path.parent)
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); free space or set CUVIL_HOME elsewhere"
        ) from None
