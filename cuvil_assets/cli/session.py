"""``cuvil session`` and ``cuvil erase``: list, show, verify, seal, export and erase archives of inferences."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets import audit
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.cli.release import stamper
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from evidence.keys import load_keys
from evidence.sessions import inputs
from evidence.sessions.archive import Archive
from evidence.sessions.check import SessionReport, check_archive
from evidence.sessions.forgetting import forget_subject
from evidence.sessions.record import ERASURE, INFERENCE, REPAIR, Record, Tensor
from evidence.sessions.seal import make_seal
from evidence.signing_keys import created_now
from evidence.verifier.files import read_small
from evidence.verifier.signing import key_id
from evidence.verifier.trust import TrustRoot, default_trust_root, load_trust_root

COLUMNS = (
    *("index", "kind", "status", "failure", "guard", "model", "model_version", "target", "isa", "threads"),
    *("subject", "kept", "trace_id", "decisions", "guards", "inputs", "outputs", "config_digest", "record"),
)


def split_record(text: str) -> tuple[Archive, int | None]:
    """``FOLDER:N`` to archive and number, ``FOLDER`` to the archive; ``UsageError`` where neither exists."""
    folder, colon, number = text.rpartition(":")
    if colon and number.isascii() and number.isdigit() and not Path(text).is_dir():
        return Archive(Path(folder)), int(number)
    return Archive(Path(text)), None


def record_at(archive: Archive, number: int) -> Record:
    """Record ``number``; ``UsageError`` when there is none."""
    records = archive.records()
    if number >= len(records):
        raise UsageError(f"{archive.folder}: there is no record {number}; the archive holds {len(records)}, from 0")
    return records[number]


def list_records(folder: Path, subject: str, as_json: bool) -> None:
    """One line for each record; with JSON the records."""
    archive = Archive(folder)
    token = _token(archive, subject) if subject else ""
    chosen = [item for item in archive.records() if not token or item.subject == token]
    if as_json:
        print_json({"records": [document(item) for item in chosen]})
        return
    rows = [("", "model", "result", "subject", "decisions", "trace"), *map(_row, chosen)]
    widths = [max((len(row[n]) for row in rows), default=0) for n in range(6)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(f"{len(chosen)} record{'' if len(chosen) == 1 else 's'}")


def show(text: str, as_json: bool) -> None:
    """Every field of a record, for people."""
    archive, number = split_record(text)
    if number is None:
        raise UsageError(f"{text}: names no record; add its number, as in {text}:0")
    item = record_at(archive, number)
    if as_json:
        print_json(document(item))
        return
    for label, value in _lines(archive, item):
        print(f"{label:14} {value}".rstrip())


def verify(folder: Path, trust_root: Path | None, against: Path | None, without_inputs: bool, as_json: bool) -> int:
    """The exit code; ``VerificationFailed`` but for JSON."""
    archive = Archive(folder)
    kept = None if against is None else read_small(against, "seal", "give a line of seals.jsonl", 1 << 20)
    report = _check(archive, _trust(trust_root), kept, without_inputs)
    if as_json:
        print_json(report.to_json())
        return 0 if report.ok else 1
    report.raise_if_failed()
    print(
        f"{folder}: the archive holds: {_counted(report.records, 'record')}, {_counted(report.inferences, 'inference')}"
    )
    if report.seals:
        later = report.records - report.sealed
        after = f"; {later} came after it and rest on the chain alone" if later else ""
        print(f"sealed: {report.sealed}, last {report.last_seal} (the host's clock){after}")
        if report.stamped:
            print(f"timestamp: {report.stamped}, by an authority of the trust root")
    else:
        print("sealed: none; the chain alone shows changes within it, but not a rewritten or shortened archive")
    if report.kept:
        print(f"inputs kept: of {_counted(report.kept, 'inference')}" + (", not checked" if without_inputs else ""))
    if report.erased:
        print(f"erased: {_counted(report.erased, 'subject')}")
    if report.repairs:
        print(f"cut-off ends were repaired: records {', '.join(map(str, report.repairs))}")
    return 0


def seal(folder: Path, trust_root: Path | None, timestamp_command: str, as_json: bool) -> None:
    """Check, then sign the end."""
    archive = Archive(folder)
    archive.require()
    keys = load_keys(current_home().root)
    root = keys.trust_root if trust_root is None else load_trust_root(trust_root)
    _check(archive, root, None, False).raise_if_failed()
    stamp = stamper(timestamp_command) if timestamp_command else None
    made = make_seal(archive, keys.signers, created_now(os.environ), stamp)
    use: dict[str, Json] = {
        "keys": [key_id(item.spki) for item in keys.signers],
        "purpose": "session seal",
        "records": made.count,
        "head": made.head,
    }
    remark = audit.record(current_home().root, "key-use", use)
    if as_json:
        print_json(
            {"records": made.count, "head": made.head, "time": made.time, **({"audit": remark} if remark else {})}
        )
        return
    if remark:
        note(remark)
    print(f"sealed: {_counted(made.count, 'record')}, head {made.head[:32]}..., {made.time}")
    print(f"keep a copy of the last line of {archive.seals.path} elsewhere: `cuvil session verify --against` reads it")


def export(folder: Path, output: Path, as_json: bool) -> None:
    """Write the records as CSV or JSON."""
    archive = Archive(folder)
    records = archive.records()
    if output.suffix == ".csv":
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([_plain(_flat(item)[column]) for column in COLUMNS] for item in records)
        data = stream.getvalue().encode()
    elif output.suffix == ".json":
        data = (json.dumps({"records": [document(i) for i in records]}, indent=1, ensure_ascii=False) + "\n").encode()
    else:
        raise UsageError(f"{output}: the name must end in .csv or .json, which says what is written")
    try:
        write_atomic(output, data)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    if as_json:
        print_json({"output": str(output), "records": len(records)})
        return
    print(f"{output}: {_counted(len(records), 'record')}")


def erase(folder: Path, subject: str, as_json: bool) -> None:
    """Erase one subject of an archive."""
    images = forget_subject(current_home().root, Archive(folder), subject)
    record = inputs.erase(current_home().root, Archive(folder), subject)
    remark = audit.record(current_home().root, "session-erasure", {"subject": record.subject, "record": record.leaf})
    if as_json:
        erased: dict[str, Json] = {"record": record.index, "subject": record.subject, "images_forgotten": images}
        print_json({**erased, **({"audit": remark} if remark else {})})
        return
    if remark:
        note(remark)
    print(f"erased; record {record.index} says so for the token {record.subject}")
    print("key, salt and name are gone from this home: copies of the archive can not be decrypted any more")
    if images:
        print(f"the identifiers of {_counted(images, 'image')} are gone from this home")
    print("copies of the home made before (backups, snapshots) are out of reach: erase them where they lie")


def document(item: Record) -> dict[str, Json]:
    """A record with its digest, for ``--json``."""
    return {"index": item.index, "kind": item.kind, "record": item.leaf, "previous": item.previous, **item.fields}


def _check(archive: Archive, root: TrustRoot | None, against: bytes | None, without_inputs: bool) -> SessionReport:
    look = None if without_inputs else inputs.kept_check(current_home().root, archive)
    return check_archive(archive, root, look, against)


def _trust(path: Path | None) -> TrustRoot | None:
    if path is None and not default_trust_root().exists():
        return None
    return load_trust_root(path or default_trust_root())


def _token(archive: Archive, subject: str) -> str:
    vault = inputs.vault_of(current_home().root, archive)
    found = vault.token_of(subject) if vault else None
    if found is None and not any(item.subject == subject for item in archive.records()):
        raise UsageError(f"{archive.folder}: this home knows no subject of that name or token in the archive")
    return found or subject


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _flat(item: Record) -> dict[str, Json]:
    """The columns of a table."""
    fields = item.fields
    found: dict[str, Json] = dict.fromkeys(COLUMNS)
    found |= {"index": item.index, "kind": item.kind, "record": item.leaf, "subject": item.subject or None}
    if item.kind != INFERENCE:
        return found
    engine, run, failure, trace = (fields[key] for key in ("engine", "run", "failure", "trace"))
    assert isinstance(engine, dict) and isinstance(run, dict)
    found |= {key: engine[key] for key in ("model", "model_version", "target", "config_digest")}
    found |= {"isa": run["isa"], "threads": run["threads"], "status": fields["status"], "kept": fields["kept"]}
    if isinstance(failure, dict):
        found |= {"failure": failure["kind"], "guard": failure["guard"]}
    if isinstance(trace, dict):
        found["trace_id"] = str(trace["parent"])[3:35]
    found |= {"decisions": _truths(fields["decisions"]), "guards": _truths(fields["guards"])}
    return found | {"inputs": _digests(item.inputs), "outputs": _digests(item.outputs)}


def _truths(value: Json) -> str:
    assert isinstance(value, dict)
    return "; ".join(f"{name}={'yes' if truth else 'no'}" for name, truth in value.items())


def _digests(tensors: tuple[Tensor, ...]) -> str:
    return "; ".join(f"{item.name}={item.digest}" for item in tensors)


def _plain(value: Json) -> str:
    """A cell that a spreadsheet does not take for a formula (OWASP, "CSV Injection")."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _row(item: Record) -> tuple[str, str, str, str, str, str]:
    flat = _flat(item)
    if item.kind == REPAIR:
        return (str(item.index), "repair", f"{item.fields['dropped_bytes']} bytes dropped", "", "", "")
    if item.kind == ERASURE:
        return (str(item.index), "erasure", "", item.subject, "", "")
    failed = ":".join(str(flat[key]) for key in ("failure", "guard") if flat[key])
    what = f"{flat['status']} ({failed})" if failed else str(flat["status"])
    decided = str(flat["decisions"]) or "-"
    who, trace = item.subject or "-", str(flat["trace_id"] or "-")
    return (str(item.index), f"{flat['model']} {flat['model_version']}", what, who, decided, trace)


def _lines(archive: Archive, item: Record) -> list[tuple[str, str]]:
    flat, fields = _flat(item), item.fields
    rows: list[tuple[str, str]] = [("record", f"{item.index} of {archive.folder}"), ("kind", item.kind)]
    if item.kind == INFERENCE:
        engine, run = fields["engine"], fields["run"]
        assert isinstance(engine, dict) and isinstance(run, dict)
        failed = " of ".join(str(flat[key]) for key in ("failure", "guard") if flat[key])
        rows += [
            ("status", str(flat["status"])),
            *([("failure", failed)] if failed else []),
            *(("decision", part) for part in str(flat["decisions"]).split("; ") if part),
            *(("guard", part) for part in str(flat["guards"]).split("; ") if part),
            ("model", f"{engine['model']} {engine['model_version']}, {engine['arithmetic']}"),
            ("computed on", f"{engine['target']}, {flat['isa']}, {_counted(int(str(flat['threads'])), 'thread')}"),
            *([("device", str(run["device"]))] if "device" in run else []),
            *_tensor_lines("input", item.inputs),
            *_tensor_lines("output", item.outputs),
            ("subject", f"{item.subject} (digests are salted)" if fields["salted"] else item.subject or "none named"),
            ("inputs", "kept, encrypted" if fields["kept"] else "not kept"),
        ]
        trace = fields["trace"]
        rows += [("traceparent", str(trace["parent"]))] if isinstance(trace, dict) else [("traceparent", "none")]
        rows += [("tracestate", str(trace["state"]))] if isinstance(trace, dict) and trace["state"] else []
        rows += [
            (key.replace("_", " "), str(engine[key])) for key in ("frozen_graph", "weights_digest", "config_digest")
        ]
    elif item.kind == ERASURE:
        rows.append(("subject", f"{item.subject}: key, salt and kept inputs were destroyed"))
    else:
        rows.append(("dropped", f"{fields['dropped_bytes']} bytes, SHA3-512 {fields['dropped_sha3_512']}"))
    return [*rows, ("previous", item.previous), ("this record", item.leaf)]


def _tensor_lines(kind: str, tensors: tuple[Tensor, ...]) -> list[tuple[str, str]]:
    return [
        (kind, f"{item.name}  {item.dtype} [{', '.join(map(str, item.shape))}]  {item.digest[:32]}...")
        for item in tensors
    ]
