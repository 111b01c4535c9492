"""``cuvil sbom``: the bill of materials of an engine built on this machine, and its SOUP list."""

from __future__ import annotations

import datetime
from pathlib import Path

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.policy import policy_from_json
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.sbom.make import Bill, make_sbom
from evidence.sbom.soup import findings, soup_csv, soup_markdown, soup_rows, soup_xlsx
from evidence.sbom.syft import compare_with_syft
from evidence.verifier.digests import digest_bytes, digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.files import read_small
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.verify import default_proof

SOUP_FORMATS = {".csv": soup_csv, ".xlsx": soup_xlsx, ".md": soup_markdown}


def run(engine: Path, output: Path | None, soup: Path | None, syft: bool, json: bool) -> None:
    """Write the bill beside the engine (or to ``output``) with ``licences/`` next to it, and the SOUP list to ``soup``.

    Raises ``RefusedError`` for a gate of the policy or a component only syft knows, ``UsageError`` for files.
    """
    if engine.is_dir():
        raise UsageError(f"{engine}: is a directory, not an engine; give the engine file")
    if soup is not None and soup.suffix not in SOUP_FORMATS:
        raise UsageError(f"--soup {soup}: unknown form; use a name ending in {', '.join(SOUP_FORMATS)}")
    statement = statement_of(engine)
    store = ContentStore(current_home().store)
    bill = make_sbom(statement, store.find)
    second = compare_with_syft(engine.read_bytes(), bill) if syft else None
    if second is not None and not second.ok:
        raise RefusedError(f"{second.sentence}; find out where it comes from before a release")
    path = output or engine.with_name(bill.name)
    files: dict[Path, bytes] = {
        path.with_name("licences") / Path(name).name: text for name, text in bill.licences.items()
    }
    files[path] = bill.data
    missing: list[str] = []
    if soup is not None:
        rows = _rows(bill, statement, store)
        files[soup] = SOUP_FORMATS[soup.suffix](rows)
        missing = [item.sentence for item in findings(rows, datetime.datetime.now(datetime.UTC).date())]
    for place, data in files.items():
        _write(place, data, engine)
    document: dict[str, Json] = {
        "sbom": str(path),
        "sha3_512": digest_bytes(bill.data).sha3_512,
        "licences": len(bill.licences),
        "soup": str(soup) if soup is not None else None,
        "soup_findings": [*missing],
        "syft": as_json(second.to_json()) if second is not None else None,
    }
    summary = as_json(bill.summary())
    assert isinstance(summary, dict)
    document.update(summary)
    if json:
        print_json(document)
        return
    groups = ", ".join(f"{count} {name}" for name, count in bill.summary()["groups"].items())
    print(f"sbom       {path} ({len(bill.data):,} bytes, {groups})")
    for name, version in bill.summary()["libraries"].items():
        print(f"library    {name} {version}")
    if second is not None:
        print(f"syft       {second.sentence}")
    if soup is not None:
        print(f"soup list  {soup}")
    for sentence in missing:
        note(f"SOUP list: {sentence}; state it in sbom.soup of the policy")


def statement_of(engine: Path) -> Statement:
    """The build statement of the proof beside ``engine``; signatures are what ``cuvil verify`` checks."""
    digests = digest_file(engine)
    proof = default_proof(engine)
    envelope = read_envelope(read_small(proof, "proof", "give an engine with its proof beside it"))
    statement = read_statement(envelope.payload)
    if statement.subject_digests["sha256"] != digests.sha256:
        raise UsageError(f"{engine}: is not the engine of {proof}; run `cuvil verify` on it")
    return statement


def _rows(bill: Bill, statement: Statement, store: ContentStore) -> list[list[str]]:
    data = store.find(statement.policy)
    return soup_rows(bill.parts, policy_from_json(data).sbom if data is not None else None)


def _write(path: Path, data: bytes, engine: Path) -> None:
    if path.exists() and path.samefile(engine):
        raise UsageError(f"{path}: is the engine, which would be overwritten; choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another place") from None
