"""``surveil``: look at every model version and target of this home without rebuilding anything.

Per partition: the records of its latest build hold together and every artefact has its digest; the proof verifies; the
keys that signed it are trusted and not revoked; compiler and code are those it was made with; the policy in force is
the one it was made from; no advisory is about a component. Once for the home: certificates, keys and revocation lists,
and whether trust root, clause table and advisories are those of the run before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from compiler_kernels.errors import CuvilError
from compiler_kernels.policy import load_policy
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.toolchain.zig import zig_version
from cuvil_assets import chain
from cuvil_assets.execution import Build
from cuvil_assets.home import Home
from cuvil_assets.latest import keep_report, kept_report
from cuvil_assets.records import Recorded
from cuvil_assets.request import load_request
from cuvil_assets.watch import Watch
from evidence.clauses.table import clause_table
from evidence.surveillance.advisories import Advisory, check_advisories, read_advisories
from evidence.surveillance.certificates import check_certificates, check_signers
from evidence.surveillance.findings import LEVELS, Finding, in_order
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UsageError, VerifierError
from evidence.verifier.report import Checks
from evidence.verifier.trust import TRUST_ROOT_FILE, TrustRoot, default_trust_root, load_trust_root
from evidence.verifier.verify import check_build_proof

FORMAT = "cuvil-surveillance/1"
FOLDER = "surveillance"
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Surveillance:
    """One run: the partitions looked at, what was found, and the conditions it was found under."""

    at: str
    partitions: tuple[str, ...]
    findings: tuple[Finding, ...]
    conditions: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """No failure; what is due and warnings are for people to plan."""
        return not any(item.level == "failure" for item in self.findings)

    def count(self, level: str) -> int:
        return sum(1 for item in self.findings if item.level == level)

    def summary(self) -> dict[str, Json]:
        """Counts for logs and metadata."""
        counts = {level: self.count(level) for level in LEVELS}
        return {"partitions": len(self.partitions), **counts}

    @property
    def sentence(self) -> str:
        failures, due, warnings = (self.count(level) for level in LEVELS)
        return f"{len(self.partitions)} partitions looked at: {failures} failures, {due} due, {warnings} warnings"

    def to_json(self) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "at": self.at,
            "ok": self.ok,
            "partitions": [*self.partitions],
            "findings": [item.to_json() for item in self.findings],
            "conditions": dict(self.conditions),
        }


def partitions_of(home: Home) -> tuple[str, ...]:
    """Every model version and target something was built for, in order."""
    return tuple(sorted(f"{path.parent.name}|{path.stem}" for path in home.requests.glob("*/*.json")))


def surveil(home: Home, watch: Watch, now: datetime, progress: Progress = lambda done, of, name: None) -> Surveillance:
    """Look at everything. ``UsageError`` when the trust root, a watched policy or the advisories cannot be read."""
    root = trust_of(home)
    advisories = read_advisories(watch.advisories) if watch.advisories is not None else ()
    policies = _policies(watch.policies)
    conditions = conditions_of(home, watch)
    found = list(check_certificates(root, now, watch.certificate_days))
    found += _changed(latest(home), conditions)
    partitions = partitions_of(home)
    for number, partition in enumerate(partitions):
        progress(number, len(partitions), partition)
        found += _partition(home, partition, root, advisories, policies)
    return Surveillance(f"{now:%Y-%m-%dT%H:%M:%SZ}", partitions, in_order(found), conditions)


def conditions_of(home: Home, watch: Watch) -> dict[str, str]:
    """What certification rests on besides the models, as text that changes when it does."""
    return {
        "compiler": f"zig {zig_version()}",
        "code": sha3_512_hex("".join(chain.code_version(name) for name in chain.NAMES).encode()),
        "trust root": sha3_512_hex(trust_of(home).encode()),
        "clauses": clause_table().sha3_512,
        "advisories": _digest(watch.advisories),
        "policies": sha3_512_hex("".join(_digest(path) for path in watch.policies).encode()),
    }


def keep(home: Home, report: Surveillance) -> Path:
    """Write the report as the latest of ``home``."""
    return keep_report(home, FOLDER, report.to_json())


def latest(home: Home) -> dict[str, Json] | None:
    """The report ``keep`` wrote last, or ``None``; a damaged one counts as none."""
    return kept_report(home, FOLDER, FORMAT)


def trust_of(home: Home) -> TrustRoot:
    """The authority's trust root where this home has an authority, else that of its development keys."""
    authority = home.root / "keys" / "ca" / TRUST_ROOT_FILE
    return load_trust_root(authority if authority.exists() else default_trust_root(home.root))


def _policies(paths: Sequence[Path]) -> dict[tuple[str, str], tuple[Path, str]]:
    """SHA3-512 of the canonical form by model name and version."""
    found = {}
    for path in paths:
        try:
            policy = load_policy(path.read_bytes(), str(path))
        except OSError as error:
            raise UsageError(
                f"{path}: the watched policy cannot be read ({error.strerror}); correct the list"
            ) from None
        found[policy.model.name, policy.model.version] = (path, sha3_512_hex(policy.canonical_json()))
    return found


def _digest(path: Path | None) -> str:
    if path is None:
        return ""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    try:
        return sha3_512_hex(b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); correct what is watched") from None


def _changed(before: dict[str, Json] | None, now: Mapping[str, str]) -> Iterator[Finding]:
    then = before.get("conditions") if before is not None else None
    for name in ("trust root", "clauses", "advisories"):
        if isinstance(then, dict) and then.get(name) != now[name]:
            yield Finding(
                "due", "condition-changed", name, f"changed since the surveillance of {before and before['at']}"
            )


def _partition(
    home: Home,
    partition: str,
    root: TrustRoot,
    advisories: Sequence[Advisory],
    policies: Mapping[tuple[str, str], tuple[Path, str]],
) -> Iterator[Finding]:
    try:
        build = Build(home, load_request(home, partition, None))
        records = build.records.consistent((chain.BUILD_PROOF,))
    except (CuvilError, VerifierError) as error:
        yield Finding("failure", "records", partition, str(error))
        return
    yield from _proof(partition, build, records, root)
    yield from _made_with(partition, records)
    facts = records["source_model"].result.facts
    known = policies.get((str(facts["model_name"]), str(facts["model_version"])))
    if known is not None and known[1] != records["source_model"].result.artifact("policy.json").sha3_512:
        yield Finding(
            "due", "policy", partition, f"{known[0].name} is not the policy it was built from; build it again"
        )
    if advisories:
        yield from _advisories(partition, build, advisories)


def _proof(partition: str, build: Build, records: Mapping[str, Recorded], root: TrustRoot) -> Iterator[Finding]:
    engine, proof = records["engine"].result.principal, records[chain.BUILD_PROOF].result.principal
    signers = [item.key_id for item in read_envelope(proof.data).signatures]
    untrusted = list(check_signers(root, partition, signers))
    yield from untrusted
    checks = Checks()
    check_build_proof(checks, build.request.engine_name, digest_bytes(engine.data), proof.data, root)
    for item in checks.items:
        if item.status == "failed" and not untrusted:
            yield Finding("failure", item.name, partition, f"{item.sentence}; build it again")


def _made_with(partition: str, records: Mapping[str, Recorded]) -> Iterator[Finding]:
    changed = [name for name in chain.BY_NAME if records[name].result.code_version != chain.code_version(name)]
    if changed:
        yield Finding(
            "due",
            "code",
            partition,
            f"Cuvil changed since it was built ({changed[0]} and {len(changed) - 1} more stages)",
        )
    report = json.loads(records["engine"].result.artifact("build.json").data)
    used = str(report["compiler"]["version"])
    if used != zig_version():
        yield Finding(
            "due", "compiler", partition, f"it was built with zig {used}, and zig {zig_version()} is installed"
        )


def _advisories(partition: str, build: Build, advisories: Sequence[Advisory]) -> Iterator[Finding]:
    try:
        bill = build.records.read(chain.SBOM).result.principal.data
    except CuvilError:
        yield Finding(
            "warning",
            "advisory",
            partition,
            "its components are not compared with the advisories: materialise the asset sbom of this partition",
        )
        return
    yield from check_advisories(partition, bill, advisories)
