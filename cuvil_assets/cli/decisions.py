"""``cuvil decisions``: two engines on a frozen test set; ``cuvil waive``: a person's reason to pass a failed report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rfc8785
from pydantic import ValidationError

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import load_policy, policy_from_json
from compiler_kernels.policy.recertification import Recertification
from compiler_kernels.stage import Json, sha3_512_hex
from cuvil_assets import audit
from cuvil_assets.cli.bar import Bar
from cuvil_assets.cli.outcome import note, print_json
from cuvil_assets.datasets import keep_waiver
from cuvil_assets.decisions import keep_report
from cuvil_assets.files import write_atomic
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from evidence.classify.build import Build, read_build
from evidence.decisions.compare import Comparison, compare
from evidence.decisions.data import TestSet, read_test_set
from evidence.decisions.sides import EngineSide, OnnxRuntimeSide, Side
from evidence.decisions.statement import signed_result
from evidence.delivered import DECISIONS_SIGNED, REPORT_SUFFIXES
from evidence.signing_keys import load_signing_keys
from evidence.timing.picture import need_matplotlib
from evidence.verifier.canonical import MalformedError, expect_map
from evidence.verifier.decisions import SECTION, section_json
from evidence.verifier.digests import digest_bytes, digest_file
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.files import read_small
from evidence.verifier.subjects import subject_of
from evidence.verifier.trust import default_trust_root, load_trust_root
from evidence.verifier.waiver import FAILED, WAIVED, Waiver, gate_of, read_report, read_waiver, with_waiver
from evidence.waiver import waive as sign_waiver

_SHOWN = 20
"""Flipped items shown to a person; the report lists more."""


@dataclass(frozen=True)
class Options:
    """Options of ``cuvil decisions``. ``stated``: fields of the section as options give them, where the policy has
    none."""

    before: Path
    after: Path
    data: str
    labels: str
    stated: Mapping[str, Any]
    policy: Path | None
    waiver: Path | None
    trust_root: Path | None
    key: Path | None
    output: Path | None
    picture: Path | None
    jobs: int | None


def run(options: Options, as_json: bool) -> int:
    """Compare, print, write report and signed result; the exit code is 1 when a limit is broken and nobody waived that.

    Raises ``UsageError``, and ``VerificationFailed`` for data that is not the policy's and a waiver that does not hold.
    """
    if options.picture is not None:
        need_matplotlib()
    keys = load_signing_keys(options.key or current_home().root)  # before the long work
    build = read_build(options.after, options.trust_root, ContentStore(current_home().store).find)
    data = read_test_set(options.data, options.labels)
    rule, own = _rule(options, build, data)
    before, after = _side(options), EngineSide(build.engine)
    _check_data(rule, data, before)
    bar = None if as_json else Bar(len(data.items), "items", 100)
    try:
        found = compare(
            before,
            after,
            data,
            rule,
            section_of(rule),
            jobs=options.jobs or min(4, len(os.sched_getaffinity(0))),
            progress=lambda flips: bar.step(f"{flips} flipped") if bar is not None else None,
        )
    finally:
        if bar is not None:
            bar.close()
    report, encoded = found.report, found.encode()
    verdict, waived = found.verdict, None
    if options.waiver is not None and verdict == FAILED:
        waived, encoded = _waived(options.waiver, report, options.trust_root)
        verdict, report = WAIVED, {**report, "verdict": WAIVED}
    paths = _places(options, build, own)
    if "report" in paths:
        name = build.files.stem + REPORT_SUFFIXES["decisions"]
        file = subject_of(name, digest_bytes(encoded))
        engine = subject_of(build.engine.name, digest_file(build.engine))
        _write(paths["report"], encoded)
        _write(paths["signed"], signed_result(report, engine, file, keys))
    if own:
        keep_report(current_home(), after.sha3_512, encoded)
    if options.picture is not None:
        from evidence.decisions.picture import draw

        draw(found, options.picture)
        paths["picture"] = options.picture
    fields: dict[str, Json] = {"verdict": verdict, "engine": build.engine.name, "sha3_512": sha3_512_hex(encoded)}
    remark = audit.record(current_home().root, "decisions", fields)
    if remark:
        note(remark)
    if as_json:
        _print_json(report, waived, paths)
    else:
        _print(found, verdict, waived, paths)
    return 1 if verdict == FAILED else 0


def section_of(rule: Recertification) -> dict[str, Json]:
    """The section as a report states it."""
    written = rfc8785.dumps(rule.model_dump(mode="json", exclude_none=True))  # numbers as policy.json has them
    return section_json(expect_map(json.loads(written), SECTION))


def _side(options: Options) -> Side:
    if options.before.suffix == ".onnx":
        return OnnxRuntimeSide(options.before)
    return EngineSide(read_build(options.before, options.trust_root, lambda digest: None).engine)


def _rule(options: Options, build: Build, data: TestSet) -> tuple[Recertification, bool]:
    """The section of B's policy, else that of the options; and whether it is the policy's."""
    stored = ContentStore(current_home().store).find(build.statement.policy)
    if options.policy is not None:
        stored = load_policy(
            read_small(options.policy, "policy", "give the policy file"), str(options.policy)
        ).canonical_json()
        if sha3_512_hex(stored) != build.statement.policy:
            raise UsageError(f"{options.policy}: is not the policy of {build.engine}; give the one it was built with")
    given = {key: value for key, value in options.stated.items() if value is not None}
    if stored is None and not given:
        raise UsageError(f"{build.engine}: this machine's store does not hold its policy; give it with --policy")
    section = policy_from_json(stored).recertification if stored is not None else None
    if section is not None:
        if given:
            option = "--" + next(iter(given)).replace("_", "-")
            raise UsageError(
                f"{option}: the policy of {build.engine} has a section {SECTION}, which counts; leave it out"
            )
        return section, True
    if "score" not in given:
        raise UsageError(
            f"the policy of {build.engine} has no section {SECTION}; say with --score which output to judge"
        )
    try:
        return (
            Recertification.model_validate({"data": data.manifest_sha256, "labels": data.labels_sha256, **given}),
            False,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"--{str(first['loc'][0]).replace('_', '-')}" if first["loc"] else "--threshold or --decision"
        raise UsageError(f"{where}: {str(first['msg']).removeprefix('Value error, ')}") from None


def _check_data(rule: Recertification, data: TestSet, before: Side) -> None:
    for name, found, wanted, check in (
        ("test set", data.manifest_sha256, rule.data, "decisions-data"),
        ("labels", data.labels_sha256, rule.labels, "decisions-data"),
        ("engine or model before", before.sha3_512, rule.before, "decisions-before"),
    ):
        if wanted is not None and found != wanted:
            raise VerificationFailed(check, f"the {name} has the digest {found}, and the policy names {wanted}")


def _waived(path: Path, report: dict[str, Json], trust_root: Path | None) -> tuple[Waiver, bytes]:
    signed = read_small(path, "waiver", "make it with `cuvil waive`")
    try:
        waiver = read_waiver(signed, report, load_trust_root(trust_root or default_trust_root()))
    except MalformedError as error:
        raise UsageError(f"{path}: is no waiver ({error}); make it with `cuvil waive`") from None
    return waiver, with_waiver(report, signed)


def _places(options: Options, build: Build, own: bool) -> dict[str, Path]:
    """Where report and signed result go: ``--output``, else beside B where its policy has the section."""
    if options.output is not None:
        return {"report": options.output, "signed": options.output.with_suffix(".intoto.json")}
    if not own:
        return {}
    if list(build.engine.parent.glob("*.release.json")):
        raise UsageError(f"{build.engine.parent}: is a release, which may hold nothing else; say where with --output")
    beside = {"report": REPORT_SUFFIXES["decisions"], "signed": DECISIONS_SIGNED}
    return {kind: build.engine.with_name(build.files.stem + suffix) for kind, suffix in beside.items()}


def waive(report: Path, person: str, reason: str, output: Path, key: Path | None, as_json: bool) -> None:
    """Write the signed waiver of a failed report, and keep it in the home."""
    remedy = "write it with `cuvil dataset check --output` or `cuvil decisions --output`"
    data = read_small(report, "report", remedy)
    keys = load_signing_keys(key or current_home().root)
    try:
        signed = sign_waiver(data, person, reason, keys)
        gate = gate_of(read_report(data))
    except MalformedError as error:
        raise UsageError(f"{report}: is no report ({error}); {remedy}") from None
    _write(output, signed)
    keep_waiver(current_home(), data, signed)
    fields: dict[str, Json] = {"gate": gate, "keys": list(keys.key_ids), "sha3_512": audit.digest_of(output)}
    remark = audit.record(current_home().root, "waiver", fields, person=person)
    if remark:
        note(remark)
    if as_json:
        print_json({"waiver": str(output), "gate": gate, "person": person, "reason": reason})
        return
    print(f"{output}: {person} waives what {report} lists")


def _print_json(report: Mapping[str, Json], waived: Waiver | None, paths: Mapping[str, Path]) -> None:
    more: dict[str, Json] = {"files": {kind: str(path) for kind, path in paths.items()}}
    if waived is not None:
        more["waiver"] = {"person": waived.person, "reason": waived.reason, "signer": waived.signer}
    if report["verdict"] == FAILED:
        more |= {"error": "VerificationFailed", "check": "decisions", "exit_code": 1}
    print_json({**report, **more})


def _print(found: Comparison, verdict: str, waived: Waiver | None, paths: Mapping[str, Path]) -> None:
    report: Any = json.loads(found.encode())
    data, outputs, flips, paired = (report[key] for key in ("data", "outputs", "flips", "paired"))
    print(f"data       {data['items']:,} items, {data['positive']:,} positive; manifest {data['manifest_sha256']}")
    print(f"labels     sha256 {data['labels_sha256']}")
    print(f"outputs    {outputs['elements_differing']:,} of {outputs['elements']:,} elements differ in bits, on "
          f"{outputs['items_differing']:,} items, by at most {float(outputs['largest_difference']):.3g}")  # fmt: skip
    print(f"decisions  flipped: {flips['items']:,} of {data['items']:,}")
    for name, turned in flips["by_decision"].items():
        print(f"  {name}: {turned['turned_true']:,} turned true, {turned['turned_false']:,} turned false")
    print(f"{'':12} {'before':30} {'after':30}")
    for name in ("auc", "sensitivity", "specificity"):
        print(f"{name:12} {_interval(report['before'][name]):30} {_interval(report['after'][name]):30}")
    gone = [report[side]["without_decision"] for side in ("before", "after")]
    if any(gone):
        print(f"{'no decision':12} {gone[0]:<30} {gone[1]:<30}")
    moved = (f"{float(paired['auc_difference'][key]):+.6f}" for key in ("estimate", "low", "high"))
    print("AUC after minus before {} [{}, {}]; only before right ".format(*moved) +
          f"{paired['only_before_right']}, only after right {paired['only_after_right']}, "
          f"McNemar p = {paired['mcnemar_p']}")  # fmt: skip
    for item in flips["listed"][:_SHOWN]:
        scores = [item[side]["score"] or item[side]["status"] for side in ("before", "after")]
        print(f"  flipped {item['item']}, label {item['label']}: score {scores[0]} to {scores[1]}")
    if flips["items"] > _SHOWN:
        print(f"  flipped: {flips['items'] - _SHOWN:,} further items")
    if waived is not None:
        print(f"waived by {waived.person}, {waived.created}: {waived.reason} ({waived.signer})")
    for kind, path in paths.items():
        print(f"{kind}: {path}")
    print(f"verdict: {verdict}")
    if verdict == FAILED:
        print(f"cuvil: the test set breaks the limits: {', '.join(report['findings'])} [decisions]", file=sys.stderr)


def _interval(found: Mapping[str, str]) -> str:
    return f"{float(found['estimate']):.4f} [{float(found['low']):.4f}, {float(found['high']):.4f}]"


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomic(path, data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a writable folder") from None
