"""``cuvil trace lookup`` and ``forget``: from a pseudonym to identifiers, the other way, and no longer."""

from __future__ import annotations

from dataclasses import asdict

from compiler_kernels.errors import UsageError, VerificationFailed
from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.home import current_home
from evidence.audit import AuditLog
from evidence.sessions.binding import Recomputed, forget, recompute
from evidence.sessions.identifier_store import Entry, IdentifierStore
from evidence.sessions.pseudonym import KEYWORDS, Identifiers, is_pseudonym
from evidence.sessions.trace_context import MEMBER, read_tracestate

EVENT = "pseudonym-lookup"
ERASURE = "identifiers-erasure"


def run(given: str, subject: Identifiers, from_keys: bool, as_json: bool) -> None:
    """Entries on standard output; ``VerificationFailed`` ``lookup`` where nothing is known."""
    if bool(given) == bool(subject):
        raise UsageError("give either a pseudonym or identifiers of an image; see `cuvil trace lookup --help`")
    if given and from_keys:
        raise UsageError("--recompute goes from identifiers to pseudonyms; a pseudonym cannot be reversed")
    home = current_home().root
    value = _pseudonym(given) if given else ""
    # Written before anything is shown: who cannot be recorded learns nothing.
    kind = "recompute" if from_keys else "identifiers" if given else "pseudonyms"
    AuditLog(home).append(EVENT, {"asked": kind, **({"pseudonym": value} if value else {})})
    if from_keys:
        _print_recomputed(recompute(home, subject), as_json)
        return
    store = IdentifierStore(home)
    found = [entry for entry in [store.find(value)] if entry] if value else store.search(**asdict(subject))
    if not found:
        what = f"the pseudonym {value}" if value else "an image with these identifiers"
        raise VerificationFailed(
            "lookup", f"{store.path}: does not know {what}; it may be another machine's, or have been erased"
        )
    _print(found, as_json)


def forget_patient(subject: str, as_json: bool) -> None:
    """Erase a patient's entries; ``VerificationFailed`` ``lookup`` where there are none."""
    home = current_home().root
    count = len(forget(home, subject))
    if not count:
        raise VerificationFailed("lookup", f"{IdentifierStore(home).path}: knows no image of that patient")
    AuditLog(home).append(ERASURE, {"images": count})
    if as_json:
        print_json({"images": count})
        return
    print(f"the identifiers of {count} image{'' if count == 1 else 's'} are erased")
    print("copies of the home made before (backups, snapshots) are out of reach: erase them where they lie")


def _pseudonym(text: str) -> str:
    """``text``, a pseudonym or a whole ``tracestate``, as a pseudonym."""
    value = dict(read_tracestate(text) or ()).get(MEMBER, text)
    if not is_pseudonym(value):
        raise UsageError(
            f"{text!r} is no pseudonym: give the 43 characters after `{MEMBER}=` in a record's tracestate, or all of it"
        )
    return value


def _print(entries: list[Entry], as_json: bool) -> None:
    if as_json:
        print_json({"images": [_document(entry) for entry in entries]})
        return
    for entry in entries:
        print(f"{entry.pseudonym}  epoch {entry.epoch}, first seen {entry.first_seen}")
        for field, keyword in KEYWORDS.items():
            print(f"  {keyword:18} {getattr(entry.subject, field)!r}")


def _print_recomputed(found: list[Recomputed], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "pseudonyms": [
                    {"epoch": item.epoch, "pseudonym": item.pseudonym, "in_store": item.entry is not None}
                    for item in found
                ]
            }
        )
        return
    for item in found:
        print(f"{item.pseudonym}  epoch {item.epoch}, {'in' if item.entry else 'not in'} the store")
    if not found:
        print("no key of pseudonyms is left on this machine")


def _document(entry: Entry) -> Json:
    names = {KEYWORDS[field]: value for field, value in asdict(entry.subject).items()}
    return {"pseudonym": entry.pseudonym, "epoch": entry.epoch, "first_seen": entry.first_seen, **names}
