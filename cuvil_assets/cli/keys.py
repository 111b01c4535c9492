"""The work of ``cuvil keys`` beyond ``init``."""

from __future__ import annotations

from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from evidence.ca import Authority, Identity, init_authority, utc_now
from evidence.register import Issued
from evidence.verifier.errors import UsageError
from evidence.verifier.signing import P384, REQUIRED_ALGORITHMS, key_id
from evidence.verifier.times import parse_time, time_text
from evidence.verifier.trust import TRUST_ROOT_FILE
from evidence.verifier.x509 import CODE_SIGNING, DEPLOYMENT, DOCUMENT_SIGNING

_PURPOSES = {"code": CODE_SIGNING, "document": DOCUMENT_SIGNING, "deployment": DEPLOYMENT}


def list_keys(json: bool) -> None:
    """One line per set: name, state, role, person."""
    authority = Authority()
    rows: list[Json] = [_row(item) for item in authority.register.issued]
    if json:
        print_json({"folder": str(authority.folder), "issued": rows})
        return
    for item in authority.register.issued:
        print(f"{item.name}  {_state(item)}  {item.role}  {item.person}")
    if not rows:
        print("no keys issued; run `cuvil keys issue`")


def ca_init(organisation: str, json: bool) -> None:
    """Make the authority, or say which one is there."""
    if not 1 <= len(organisation) <= 40 or not organisation.isprintable():
        raise UsageError("--organisation is not a name of 1 to 40 printable characters; give the organisation's name")
    authority = init_authority(utc_now(), organisation=organisation)
    _recorded(authority, "keys-ca-init", {})
    _say_trust(authority, json, {"folder": str(authority.folder)}, f"certificate authority in {authority.folder}")


def issue(person: str, role: str, purpose: str, p384_only: bool, days: int, json: bool) -> None:
    """Issue a set; refused when the person has a current one in that role."""
    if purpose and purpose not in _PURPOSES:
        raise UsageError(f"--purpose {purpose!r} is not one of {', '.join(_PURPOSES)}")
    algorithms = (P384,) if p384_only else REQUIRED_ALGORITHMS
    authority = Authority()
    made = authority.issue(person, role, utc_now(), purpose=_PURPOSES.get(purpose), days=days, algorithms=algorithms)
    _recorded(authority, "keys-issue", _ids(made), person)
    _say_identity(authority, made, json)


def rotate(person: str, role: str, days: int, json: bool) -> None:
    """Replace a set by one that it endorses."""
    authority = Authority()
    made = authority.rotate(person, role, utc_now(), days=days)
    _recorded(authority, "keys-rotate", _ids(made), person)
    _say_identity(authority, made, json)


def revoke(name: str, reason: str, invalid_since: str, json: bool) -> None:
    """Revoke a set from now on."""
    since = parse_time(invalid_since, "--invalid-since") if invalid_since else None
    authority = Authority()
    item = authority.revoke(name, reason.replace("-", "_"), utc_now(), since)
    _recorded(authority, "keys-revoke", {"role": item.role, "reason": reason}, item.person)
    _say_trust(authority, json, _row(item), f"revoked {item.name} ({reason})")


def crl(days: int, json: bool) -> None:
    """New lists of all four authorities."""
    authority = Authority()
    authority.write_crls(utc_now(), days)
    _recorded(authority, "keys-crl", {"days": days})
    files = sorted(str(path) for path in authority.folder.glob("*.crl.pem"))
    _say_trust(authority, json, {"crls": list[Json](files)}, "\n".join(files))


def keyring_show(json: bool) -> None:
    """The keyring after its signatures and endorsements were verified."""
    ring = Authority().trust_root().keyring
    if ring is None:
        raise UsageError("the trust root holds no keyring; run `cuvil keys crl`")
    if json:
        entries: list[Json] = [{"key_id": item.key_id, **item.to_json()} for item in ring.entries]
        print_json({"version": ring.version, "keys": entries})
        return
    print(f"keyring version {ring.version}, signed by the root keys")
    for item in ring.entries:
        until = f"{time_text(item.not_before)} to {time_text(item.not_after)}"
        revoked = f"  revoked {time_text(item.revoked_at)} ({item.reason})" if item.revoked_at else ""
        print(f"{item.key_id[:16]}  {item.algorithm}  {'/'.join(item.roles)}  {item.person}  {until}{revoked}")


def _recorded(authority: Authority, event: str, fields: dict[str, Json], person: str = "") -> None:
    """Put a use of the authority's keys into the audit log; the person it is about can be erased there."""
    remark = audit.record(authority.home, event, fields, person=person)
    if remark:
        note(remark)


def _ids(made: Identity) -> dict[str, Json]:
    return {"role": made.role, "keys": [key_id(signer.spki) for signer in made.signers]}


def _say_identity(authority: Authority, made: Identity, json: bool) -> None:
    ids: dict[str, Json] = {signer.algorithm: key_id(signer.spki) for signer in made.signers}
    fields: dict[str, Json] = {"name": made.folder.name, "person": made.person, "role": made.role, "keys": ids}
    lines = [f"keys of {made.person} as {made.role}: {made.folder}", *(f"{name}: {ids[name]}" for name in ids)]
    _say_trust(authority, json, {**fields, "folder": str(made.folder)}, "\n".join(lines))


def _say_trust(authority: Authority, json: bool, fields: dict[str, Json], text: str) -> None:
    trust_root = str(authority.folder / TRUST_ROOT_FILE)
    if json:
        print_json({**fields, "trust_root": trust_root})
    else:
        print(f"{text}\ntrust root to hand out: {trust_root}")


def _state(item: Issued) -> str:
    if item.revoked_at is not None:
        return f"revoked ({item.reason})"
    return "replaced" if item.successor else "current"


def _row(item: Issued) -> dict[str, Json]:
    return {**item.to_json(), "state": _state(item)}
