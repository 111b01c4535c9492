"""``cuvil recertify`` and ``cuvil nonconformity``."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from cuvil_assets import nonconformities
from cuvil_assets.cli.bar import Bar
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.home import current_home
from cuvil_assets.recertify import PASSED, Recertified, keep, recertify
from cuvil_assets.registry_status import reflect
from cuvil_assets.surveil import partitions_of
from evidence.signing_keys import load_signing_keys


def run(wanted: list[str], kept_cache: bool, as_json: bool) -> int:
    """Recertify the partitions of this home, or those wanted; the exit code: 1 when one failed."""
    home = current_home()
    known = partitions_of(home)
    unknown = [name for name in wanted if name not in known]
    if unknown or not known:
        names = ", ".join(known) or "none; run `cuvil build` first"
        raise UsageError(f"{(unknown or ['this home'])[0]!r} has no build here; those there are: {names}")
    chosen = [name for name in known if not wanted or name in wanted]
    bar = None if as_json else Bar(len(chosen), "builds")

    def step(found: Recertified) -> None:
        if bar is not None:
            bar.step(f"{found.partition}: {found.verdict}")

    try:
        report = recertify(home, chosen, fresh_cache=not kept_cache, step=step)
    finally:
        if bar is not None:
            bar.close()
    path = keep(home, report)
    changes = reflect(home, report)
    if as_json:
        print_json({"report": str(path), "registry": list(changes), **report.to_json()})
    else:
        for item in report.results:
            opened = f" [{item.nonconformity}]" if item.nonconformity else ""
            if item.verdict != PASSED:
                print(f"{item.verdict:7} {item.partition}: {item.sentence}{opened}")
            for stage, reason in (item.left_out or {}).items():
                print(f"{'':7} {item.partition}: {stage} was not run again: {reason}")
        for said in changes:
            print(said)
        print(report.sentence)
    return 0 if report.ok else 1


def list_records(as_json: bool) -> None:
    """Print every nonconformity record of this home."""
    found = nonconformities.listed(current_home())
    if as_json:
        print_json(
            {
                "records": [
                    {
                        "id": item.id,
                        "open": item.open,
                        "closed": item.closed,
                        "fault": item.fault,
                        "model_version": item.record.model_version if item.record else "",
                        "target": item.record.target if item.record else "",
                        "engine_sha3_512": item.record.engine.sha3_512 if item.record else "",
                        "finding": item.record.finding if item.record else "",
                        "created": item.record.created if item.record else "",
                    }
                    for item in found
                ]
            }
        )
        return
    for item in found:
        about = f"{item.record.model_version} for {item.record.target}: {item.record.finding}" if item.record else ""
        print(f"{'open' if item.open else 'closed':7} {item.id}  {about}{item.fault and f' ({item.fault})'}")
        if item.closed:
            print(f"{'':7} closed by {item.closed}")
    print(f"{len(found)} records, {sum(item.open for item in found)} open")


def close(identifier: str, person: str, reason: str, key: Path | None, as_json: bool) -> None:
    """Close a record, as one person."""
    home = current_home()
    path = nonconformities.close_nonconformity(home, identifier, person, reason, load_signing_keys(key or home.root))
    if as_json:
        print_json({"id": identifier, "closure": str(path)})
        return
    print(f"{path}: {person} closed {identifier}")
