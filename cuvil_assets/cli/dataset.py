"""``cuvil dataset``: manifests of splits, and their comparison."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import load_policy, policy_from_json
from compiler_kernels.policy.dataset import Dataset
from compiler_kernels.stage import Json, sha3_512_hex
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.datasets import find_manifests, keep_manifest
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.classify.build import read_build
from evidence.dataset.compare import Check, compare
from evidence.dataset.manifest import Manifest, manifest_of
from evidence.dataset.sources import Progress, read_source
from evidence.delivered import REPORT_SUFFIXES
from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.files import read_small
from evidence.verifier.trust import default_trust_root, load_trust_root
from evidence.verifier.waiver import FAILED, WAIVED, Waiver, read_waiver, with_waiver

_SHOWN = 20
"""Groups and pairs shown to a person; the report has all."""


def manifest(source: str, output: Path, only: Sequence[str], numbers: bool, as_json: bool) -> None:
    """Write the manifest and print its digest, which a policy names."""
    made = manifest_of(read_source(source, only, numbers, _progress(source, as_json)))
    _write(output, made.encode())
    keep_manifest(current_home(), made)
    if as_json:
        print_json({"manifest": str(output), "sha256": made.sha256, "items": len(made.items)})
        return
    print(f"{output}: {len(made.items):,} items, sha256 {made.sha256}")


def check(
    splits: Sequence[str],
    policy: Path | None,
    engine: Path | None,
    only: Sequence[str],
    numbers: bool,
    near: int,
    waiver: Path | None,
    trust_root: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Compare, print, write the report; the exit code is 1 when the splits share something that nobody waived.

    Raises ``UsageError``, and ``VerificationFailed`` for data that is not the policy's and a waiver that does not hold.
    """
    section, beside = _section(policy, engine, trust_root)
    manifests: dict[str, Manifest] = {}
    for text in splits:
        name, equals, source = text.partition("=")
        if not equals or not name or not source:
            raise UsageError(f"{text}: is not NAME=SOURCE; write for example train=images/train")
        if name in manifests:
            raise UsageError(f"{text}: the split {name} is given twice; give it once")
        manifests[name] = manifest_of(read_source(source, only, numbers, _progress(name, as_json)))
    if section is not None and not splits:
        manifests = find_manifests(current_home(), section)
    if len(manifests) < 2:
        raise UsageError("one split cannot overlap; give at least two as NAME=SOURCE")
    if section is not None:
        _compare_digests(manifests, section)
    for item in manifests.values():
        keep_manifest(current_home(), item)
    found = compare(manifests, distance=near, refuse_duplicates=section is not None and section.duplicates == "refuse")
    report, verdict, data = found.to_json(), found.verdict, found.encode()
    waived = None
    if waiver is not None and verdict == FAILED:
        signed = read_small(waiver, "waiver", "make it with `cuvil waive`")
        try:
            waived = read_waiver(signed, report, load_trust_root(trust_root or default_trust_root()))
        except MalformedError as error:
            raise UsageError(f"{waiver}: is no waiver ({error}); make it with `cuvil waive`") from None
        verdict, data = WAIVED, with_waiver(report, signed)
    place = output or beside
    if place is not None:
        _write(place, data)
    if as_json:
        _print_json(report, verdict, waived, place)
    else:
        _print(found, verdict, waived, place)
    return 1 if verdict == FAILED else 0


def _section(policy: Path | None, engine: Path | None, trust_root: Path | None) -> tuple[Dataset | None, Path | None]:
    """``(section of the policy, where the report belongs)``; the policy is the file, or that of the engine."""
    section, beside = None, None
    canonical = None
    if policy is not None:
        text = read_small(policy, "policy", "give the policy file")
        loaded = load_policy(text, str(policy))
        section, canonical = loaded.dataset, loaded.canonical_json()
        if section is None:
            raise UsageError(f"{policy}: has no section dataset; add it (docs/dataset.md)")
    if engine is not None:
        store = ContentStore(current_home().store)
        build = read_build(engine, trust_root, store.find)
        stored = canonical or store.find(build.statement.policy)
        if stored is None:
            raise UsageError(f"{engine}: this machine's store does not hold its policy; give it with --policy")
        if sha3_512_hex(stored) != build.statement.policy:
            raise UsageError(f"{policy}: is not the policy of {engine}; give the one it was built with")
        section = policy_from_json(stored).dataset
        if section is None:
            raise UsageError(f"{engine}: its policy has no section dataset; add it and build again (docs/dataset.md)")
        beside = build.engine.with_name(build.files.stem + REPORT_SUFFIXES["dataset"])
    return section, beside


def _compare_digests(manifests: Mapping[str, Manifest], section: Dataset) -> None:
    wanted = {str(name): split.sha256 for name, split in section.splits.items()}
    if set(wanted) != set(manifests):
        raise UsageError(f"the policy has the splits {', '.join(wanted)}, not {', '.join(manifests)}; give those")
    for name, digest in wanted.items():
        if manifests[name].sha256 != digest:
            raise VerificationFailed(
                "dataset-digest",
                f"the split {name} has the manifest {manifests[name].sha256}, and the policy names {digest}: it is "
                "other data, or was read with another --only or --numbers",
            )


def _print_json(report: dict[str, Json], verdict: str, waived: Waiver | None, place: Path | None) -> None:
    more: dict[str, Json] = {"verdict": verdict, "report": None if place is None else str(place)}
    if waived is not None:
        more["waiver"] = {"person": waived.person, "reason": waived.reason, "signer": waived.signer}
    if verdict == FAILED:
        more |= {"error": "VerificationFailed", "check": "dataset-overlap", "exit_code": 1}
    print_json({**report, **more})


def _print(found: Check, verdict: str, waived: Waiver | None, place: Path | None) -> None:
    for name, item in found.manifests.items():
        blind = sum(not i.pixels for i in item.items)
        unread = f", {blind:,} compared by their bytes only" if blind else ""
        print(f"{name:8} {len(item.items):,} items, {found.repeated(name):,} repeated{unread}; manifest {item.sha256}")
    for pair in found.pairs:
        said = f"share {pair.of_a:,} items of {pair.a} and {pair.of_b:,} of {pair.b}" if pair.of_a else "are disjoint"
        print(f"{pair.a} and {pair.b} {said}")
    for title, groups in (("shared", found.overlaps), ("repeated", found.duplicates)):
        for group in groups[:_SHOWN]:
            print(f"  {title:8} by {group.kind:7} {' = '.join(f'{split} {item}' for split, item in group.places)}")
        if len(groups) > _SHOWN:
            print(f"  {title:8} {len(groups) - _SHOWN:,} further groups are in the report")
    if found.near_count:
        print(f"{found.near_count:,} pairs of different splits look alike; a person should look at them:")
        for (a, one), (b, other) in found.near[:_SHOWN]:
            print(f"  {a} {one} ~ {b} {other}")
    if waived is not None:
        print(f"waived by {waived.person}, {waived.created}: {waived.reason} ({waived.signer})")
    if place is not None:
        print(f"report: {place}")
    print(f"verdict: {verdict}")
    if verdict == FAILED:
        print("cuvil: the splits share items, or repeat them against the policy [dataset-overlap]", file=sys.stderr)


def _progress(what: str, as_json: bool) -> Progress:
    def show(done: int, total: int) -> None:
        if sys.stderr.isatty() and not as_json and (done % 50 == 0 or done == total):
            print(f"\r  {what}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from None
