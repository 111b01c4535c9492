"""``cuvil surveil`` and ``cuvil status``."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from compiler_kernels.errors import CuvilError
from compiler_kernels.stage import Json
from cuvil_assets import audit, chain
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.execution import Build
from cuvil_assets.home import Home, current_home
from cuvil_assets.nonconformities import listed
from cuvil_assets.recertify import latest as latest_recertification
from cuvil_assets.request import load_request
from cuvil_assets.surveil import keep, latest, partitions_of, surveil
from cuvil_assets.watch import load_watch
from evidence.verifier.errors import VerifierError


def run(advisories: Path | None, policies: list[Path], days: int | None, as_json: bool) -> int:
    """The exit code: 1 when something that was stated does not hold any more."""
    home = current_home()
    watch = load_watch(home)
    watch = replace(
        watch,
        advisories=advisories or watch.advisories,
        policies=(*policies,) or watch.policies,
        certificate_days=watch.certificate_days if days is None else days,
    )
    report = surveil(home, watch, datetime.now(UTC), (lambda *_: None) if as_json else _progress)
    path = keep(home, report)
    remark = audit.record(home.root, "surveillance", {**report.summary(), "sha3_512": audit.digest_of(path)})
    if remark:
        note(remark)
    if as_json:
        print_json(report.to_json())
    else:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        for item in report.findings:
            print(f"{item.level:8} {item.check:18} {item.subject}: {item.sentence}")
        print(report.sentence)
    return 0 if report.ok else 1


def _progress(done: int, of: int, name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {done + 1}/{of} {name}", end="", file=sys.stderr, flush=True)


def status(as_json: bool) -> None:
    """One row for each model version and target: what is built, and what the last surveillance said of it."""
    home = current_home()
    seen = latest(home)
    rows = [_row(home, partition, seen) for partition in partitions_of(home)]
    if as_json:
        again = latest_recertification(home)
        print_json(
            {
                "surveillance": seen["at"] if seen else None,
                "recertification": {key: again[key] for key in ("ended", "passed", "failed", "due")} if again else None,
                "certificates_ending": _ending(seen),
                "open_nonconformities": [item.id for item in listed(home) if item.open],
                "partitions": [dict(row) for row in rows],
            }
        )
        return
    width = max((len(str(row["partition"])) for row in rows), default=9)
    print(f"{'partition':{width}}  {'engine':16}  {'equivalence':12}  surveillance")
    for row in rows:
        print(
            f"{row['partition']:{width}}  {str(row['engine'])[:16]:16}  {row['equivalence']!s:12}  "
            f"{row['surveillance']}"
        )
    again = latest_recertification(home)
    if again is not None:
        total = sum(int(str(again[key])) for key in ("passed", "failed", "due"))
        print(f"{again['passed']} of {total} rebuilt and bit-equal at {again['ended']}")
    ending = _ending(seen)
    if ending:
        print(f"{ending} certificates and keys have ended or end soon: run `cuvil surveil`")
    withdrawn = [item.id for item in listed(home) if item.open]
    if withdrawn:
        print(f"withdrawn by open nonconformity records: {', '.join(withdrawn)}")
    good = sum(1 for row in rows if row["surveillance"] == "nothing found")
    print(f"{len(rows)} partitions; " + (f"{good} without findings at {seen['at']}" if seen else "run `cuvil surveil`"))


def _ending(seen: dict[str, Json] | None) -> int:
    """Certificates and keys that the last surveillance found ended, or about to end."""
    findings = seen["findings"] if seen is not None else []
    assert isinstance(findings, list)
    return sum(1 for f in findings if isinstance(f, dict) and f["check"] == "certificate-expiry")


def _row(home: Home, partition: str, seen: dict[str, Json] | None) -> dict[str, Json]:
    row: dict[str, Json] = {"partition": partition, "engine": "", "equivalence": "no record", "surveillance": "not yet"}
    try:
        build = Build(home, load_request(home, partition, None))
        row["engine"] = build.records.read("engine").result.principal.sha3_512
        row["equivalence"] = build.records.read("equivalence").result.facts["verdict"]
        build.records.read(chain.BUILD_PROOF)
    except (CuvilError, VerifierError) as error:
        row["equivalence"] = str(error)
    if seen is not None:
        partitions, findings = seen["partitions"], seen["findings"]
        assert isinstance(partitions, list) and isinstance(findings, list)
        if partition in partitions:
            mine = [f for f in findings if isinstance(f, dict) and f["subject"] == partition]
            row["surveillance"] = ", ".join(sorted({f"{f['level']}: {f['check']}" for f in mine})) or "nothing found"
    return row
