"""``cuvil trace export``: the inferences of a session archive as OpenTelemetry spans, to a collector or a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.files import write_atomic
from evidence.sessions.archive import Archive
from evidence.sessions.check import check_archive
from evidence.sessions.otlp import SPANS_A_REQUEST, moments, requests
from evidence.sessions.otlp_http import endpoint, send
from evidence.sessions.record import INFERENCE
from evidence.sessions.seal import read_seal
from evidence.verifier.trust import default_trust_root, load_trust_root


def run(folder: Path, place: str, strict: bool, trust_root: Path | None, as_json: bool) -> None:
    """Nothing is exported of an archive that does not verify."""
    url = endpoint(place) if "://" in place else ""
    archive = Archive(folder)
    archive.require()
    root = trust_root or default_trust_root()
    known = load_trust_root(root) if trust_root is not None or root.exists() else None
    check_archive(archive, known).raise_if_failed()
    records = archive.records()
    seals = [read_seal(line)[0] for line in archive.seals.read()[0]]
    when = moments(len(records), seals, archive.file.path.stat().st_mtime_ns)
    spans = sum(item.kind == INFERENCE for item in records)
    made = requests(records, when, strict)
    if url:
        for request in _shown(made, -(-spans // SPANS_A_REQUEST), as_json):
            send(url, request)
    else:
        _write(Path(place), made)
    if as_json:
        print_json({"spans": spans, "place": url or place, "strict": strict})
        return
    print(f"{url or place}: {spans} span{'' if spans == 1 else 's'}")


def _write(path: Path, made: Iterable[dict[str, Json]]) -> None:
    """One request a line, as OpenTelemetry's file exporter writes and the collector's ``otlpjsonfile`` reads them."""
    lines = [json.dumps(request, separators=(",", ":"), ensure_ascii=False) + "\n" for request in made]
    try:
        write_atomic(path, "".join(lines).encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another place for --otlp") from None


def _shown(made: Iterator[dict[str, Json]], count: int, quiet: bool) -> Iterator[dict[str, Json]]:
    """``made`` with a progress bar where there is more than one request and someone to see it."""
    if quiet or count < 2:
        yield from made
        return
    with typer.progressbar(made, length=count, label="sending", file=typer.get_text_stream("stderr")) as shown:
        yield from shown
