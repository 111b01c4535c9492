"""``cuvil audit``: show, check, prove, sign and erase."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from evidence.audit import AuditLog
from evidence.keys import load_keys
from evidence.verifier.audit import Event, verify_proof
from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.files import read_small
from evidence.verifier.trust import TrustRoot, default_trust_root, load_trust_root


def show(kind: str, personal: bool, json_wanted: bool) -> None:
    """One line for each event; with JSON every field."""
    log = AuditLog(current_home().root)
    chosen = [event for event in log.events() if not kind or event.kind == kind.lower()]
    if json_wanted:
        print_json({"events": [_document(log, event, personal) for event in chosen]})
        return
    for event in chosen:
        print(_row(log, event, personal))
    print(_counted(len(chosen), "event"))


def check(trust_root: Path | None, against: Path | None, proof: Path | None, events_only: bool, as_json: bool) -> int:
    """The exit code; ``VerificationFailed`` but for JSON."""
    root = _trust(trust_root)
    if proof is not None:
        return _check_proof(proof, root, as_json)
    kept = None if against is None else read_small(against, "checkpoint", "give a line of checkpoints.jsonl", 1 << 20)
    report = AuditLog(current_home().root).check(root, personal=not events_only, against=kept)
    if as_json:
        print_json(report.to_json())
        return 0 if report.ok else 1
    report.raise_if_failed()
    print(f"the audit log holds: {_counted(report.events, 'event')}, {_counted(report.checkpoints, 'checkpoint')}")
    later = report.events - report.covered
    print(f"under a signed checkpoint: {report.covered}" + (f"; {later} came after the last" if later else ""))
    if report.repairs:
        print(f"cut-off ends were repaired: events {', '.join(map(str, report.repairs))}")
    if report.clock_went_back:
        print(f"the clock went back before events {', '.join(map(str, report.clock_went_back))}")
    if events_only:
        print("personal data was not checked")
    return 0


def prove(index: int, output: Path | None, as_json: bool) -> None:
    """Write a proof, or print it."""
    proof = AuditLog(current_home().root).prove(index)
    if output is None:
        sys.stdout.write(proof.decode())
        return
    try:
        write_atomic(output, proof)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    if as_json:
        print_json({"proof": str(output), "event": index})
        return
    print(f"{output}: inclusion proof of event {index}")


def checkpoint(trust_root: Path | None, as_json: bool) -> None:
    """Sign the head."""
    keys = load_keys(current_home().root)
    root = keys.trust_root if trust_root is None else load_trust_root(trust_root)
    log = AuditLog(current_home().root)
    head = log.checkpoint(keys.signers, root)
    if as_json:
        print_json({"size": head.size, "root": head.root.hex(), "time": head.time})
        return
    print(f"signed: {_counted(head.size, 'event')}, root {head.root.hex()}")
    print(
        f"keep a copy of the last line of {log.checkpoints_file.path} elsewhere: `cuvil audit check --against` reads it"
    )


def erase(subject: str, as_json: bool) -> None:
    """Erase one subject."""
    event = AuditLog(current_home().root).erase(subject)
    if as_json:
        print_json({"event": event.index, "subject": event.fields["subject"]})
        return
    print(f"erased; event {event.index} records it for the token {event.fields['subject']}")
    print("copies of the home made before (backups, snapshots) are out of reach: erase them where they lie")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _trust(path: Path | None) -> TrustRoot:
    if path is None and not default_trust_root().exists():
        raise UsageError(
            f"{default_trust_root()}: this machine has no trust root; give --trust-root FILE with the keys you trust, "
            "or run `cuvil keys init` to make development keys"
        )
    return load_trust_root(path or default_trust_root())


def _check_proof(path: Path, root: TrustRoot, as_json: bool) -> int:
    data = read_small(path, "proof", "write one with `cuvil audit prove`", 1 << 20)
    try:
        event, head = verify_proof(data, root)
    except MalformedError as error:
        raise VerificationFailed("audit-proof", f"{path}: {error}") from None
    if as_json:
        print_json({"ok": True, "size": head.size, "event": json.loads(event.encode())})
        return 0
    print(f"event {event.index} of {head.size} ({event.kind}, {event.time}) is in the log that was signed {head.time}")
    return 0


def _document(log: AuditLog, event: Event, personal: bool) -> Json:
    document = json.loads(event.encode())
    if personal:
        document["about"] = as_json(log.personal(event))
    found: Json = document
    return found


def _row(log: AuditLog, event: Event, personal: bool) -> str:
    fields = json.dumps(event.fields, ensure_ascii=False, separators=(",", ":"))
    row = f"{event.index:6} {event.time} {event.kind:12} {fields}"
    if personal:
        about = [
            f"{name}: {'erased' if kept is None else json.dumps(kept, ensure_ascii=False)}"
            for name, kept in log.personal(event).items()
        ]
        return f"{row} {'; '.join(about)}".rstrip()
    return f"{row} {' '.join(item.subject for item in event.personal)}".rstrip()
