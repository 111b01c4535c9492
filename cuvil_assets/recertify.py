"""``recertify``: every build of this home made again and tested again, whatever caches and records say.

Of what lies in the home only the signed proof is believed, once its signatures hold; inputs are taken by the digests in
it. Each build runs all its stages in a fresh process, without the action cache and with the C library compiled again.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.policy import policy_from_json
from compiler_kernels.stage import Json
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.zig import zig_version
from cuvil_assets import audit, chain
from cuvil_assets.execution import Build
from cuvil_assets.home import Home
from cuvil_assets.inputs import runner_words
from cuvil_assets.latest import keep_report, kept_report
from cuvil_assets.nonconformities import open_nonconformity
from cuvil_assets.request import load_request
from cuvil_assets.store import tools
from cuvil_assets.surveil import trust_of
from evidence.nonconformity import open_record
from evidence.peer import peer_version
from evidence.reproducibility.difference import Comparison, Difference
from evidence.reproducibility.inputs import COMPILE, EVERYTHING, Recorded, recorded_build
from evidence.reproducibility.launch import Rebuilt
from evidence.reproducibility.plan import Variation, make_plan
from evidence.reproducibility.run import rebuild_all
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import VerifierError
from evidence.verifier.report import Checks
from evidence.verifier.statement import read_statement
from evidence.verifier.subjects import Subject, subject_of
from evidence.verifier.trust import TrustRoot
from evidence.verifier.verify import check_build_proof

FORMAT = "cuvil-recertification/1"
FOLDER = "recertification"
PASSED, FAILED, DUE = "passed", "failed", "due"


@dataclass(frozen=True)
class Recertified:
    """One partition, and what came of it.

    ``verdict``: ``passed``; ``failed``, then ``nonconformity`` is the id of the record it opened (empty where the proof
    itself does not hold, so that nothing names an engine); or ``due``: it has to be built again, since code, compiler
    or inputs are not those of the proof. ``left_out``: stages not run again, with the reason. ``stages``: CPU and wall
    seconds of those that were.
    """

    partition: str
    verdict: str
    sentence: str
    engine: str = ""
    nonconformity: str = ""
    left_out: Mapping[str, str] | None = None
    stages: Mapping[str, Mapping[str, Json]] | None = None

    def to_json(self) -> dict[str, Json]:
        return {
            "partition": self.partition,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "engine_sha3_512": self.engine,
            "nonconformity": self.nonconformity,
            "left_out": dict(self.left_out or {}),
            "stages": {name: dict(found) for name, found in (self.stages or {}).items()},
        }


@dataclass(frozen=True)
class Recertification:
    """One run over several partitions; times are UTC, ``toolchain`` what took part."""

    started: str
    ended: str
    toolchain: Mapping[str, Json]
    results: tuple[Recertified, ...]

    @property
    def ok(self) -> bool:
        return all(item.verdict != FAILED for item in self.results)

    def count(self, verdict: str) -> int:
        return sum(item.verdict == verdict for item in self.results)

    @property
    def sentence(self) -> str:
        said = f"{self.count(PASSED)} of {len(self.results)} rebuilt and bit-equal"
        said += f"; {self.count(FAILED)} failed" if self.count(FAILED) else ""
        return said + (f"; {self.count(DUE)} due to be built again" if self.count(DUE) else "")

    def to_json(self) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "started": self.started,
            "ended": self.ended,
            "toolchain": dict(self.toolchain),
            "passed": self.count(PASSED),
            "failed": self.count(FAILED),
            "due": self.count(DUE),
            "results": [item.to_json() for item in self.results],
        }


def recertify(
    home: Home,
    partitions: Sequence[str],
    *,
    fresh_cache: bool = True,
    step: Callable[[Recertified], None] = lambda found: None,
) -> Recertification:
    """Recertify ``partitions`` one after the other. A failure opens a nonconformity record and withdraws the engine.

    Raises ``UsageError`` when the trust root or the temporary directory cannot be used.
    """
    root = trust_of(home)
    started = _now()
    results = []
    with _compiler_cache(fresh_cache):
        for number, partition in enumerate(partitions):
            # Errors in equivalence.json are sums in binary64, whose last digits depend on BLAS's vector instructions.
            world = replace(make_plan(number + 1, fresh_caches=0)[number], vectors=True)
            results.append(_one(home, partition, root, world))
            step(results[-1])
    toolchain: dict[str, Json] = {**tools(), "python": platform.python_version(), "zig": zig_version()}
    return Recertification(started, _now(), toolchain, tuple(results))


def keep(home: Home, report: Recertification) -> Path:
    """Write the report as the latest of ``home``."""
    path = keep_report(home, FOLDER, report.to_json())
    counts: dict[str, Json] = {"passed": report.count(PASSED), "failed": report.count(FAILED), "due": report.count(DUE)}
    audit.record(home.root, "recertification", {**counts, "sha3_512": audit.digest_of(path)})
    return path


def latest(home: Home) -> dict[str, Json] | None:
    """The report ``keep`` wrote last, or ``None``; a damaged one counts as none."""
    return kept_report(home, FOLDER, FORMAT)


def _one(home: Home, partition: str, root: TrustRoot, world: Variation) -> Recertified:
    try:
        build = Build(home, load_request(home, partition, None))
        proof = build.records.read(chain.BUILD_PROOF).result.principal.data
        statement = read_statement(read_envelope(proof).payload)
        _check_proof(build, proof, root)
    except (CuvilError, VerifierError) as error:
        return Recertified(partition, FAILED, f"the signed proof does not hold: {error}")
    engine = Subject(statement.subject, **statement.subject_digests)
    try:
        recorded = recorded_build(statement, build.store.find, {})
    except UsageError as error:
        return Recertified(partition, DUE, f"{error}", engine.sha3_512)
    stages, left_out = stages_here(recorded, build.store.find)
    comparison = Comparison(recorded, build.store.find, diffoscope=False)
    try:
        done = rebuild_all(recorded, [world], comparison, stages=stages)
    except CuvilError as error:
        return Recertified(partition, DUE, f"it could not be rebuilt here: {error}", engine.sha3_512)
    rebuilt = done.rebuilt[0]
    times = {name: {key: made[key] for key in ("cpu_seconds", "wall_seconds")} for name, made in rebuilt.stages.items()}
    if not done.differences:
        said = f"every file of {len(rebuilt.stages)} stages is as recorded"
        return Recertified(partition, PASSED, said, engine.sha3_512, "", left_out, times)
    difference = done.differences[0]
    reason = _expected(recorded, rebuilt, build.store.find)
    if reason:
        return Recertified(
            partition,
            DUE,
            f"{reason}, and it comes out otherwise; build it again",
            engine.sha3_512,
            "",
            left_out,
            times,
        )
    finding = _finding(difference)
    record = open_record(
        engine,
        subject_of(f"{Path(statement.subject).stem}.proof.json", digest_bytes(proof)),
        model_version=statement.model_version,
        target=statement.target,
        check="recertification",
        finding=finding,
    )
    identifier = open_nonconformity(home, record)
    return Recertified(partition, FAILED, finding, engine.sha3_512, identifier, left_out, times)


def _finding(difference: Difference) -> str:
    """The difference without the number of the rebuild, so that the same finding is the same record."""
    return difference.sentence().partition(": ")[2]


def _check_proof(build: Build, proof: bytes, root: TrustRoot) -> None:
    """That the proof is signed by keys of ``root`` and about the engine it names, by its own digest."""
    statement = read_statement(read_envelope(proof).payload)
    data = build.store.find(statement.subject_digests["sha3_512"])
    if data is None:
        raise UsageError("the engine of the proof is not in the store; build it again")
    checks = Checks()
    check_build_proof(checks, statement.subject, digest_bytes(data), proof, root)
    for item in checks.items:
        if item.status != "ok":
            raise UsageError(f"{item.name}: {item.sentence}")


def stages_here(recorded: Recorded, find: Callable[[str], bytes | None]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The stages that can be run again with an equal result, and why others cannot."""
    left_out = {}
    data = find(recorded.statement.policy)
    policy = policy_from_json(data) if data is not None else None
    if policy is not None and policy.budget is not None and policy.budget.latency_ms is not None:
        left_out["budget"] = "it measures time, which no two runs share"
    then, now = recorded.config.get("onnxruntime"), peer_version()
    if then != now:
        left_out["equivalence"] = f"it was compared with onnxruntime {then}, and {now or 'none'} is installed"
    words = runner_words(resolve_target(recorded.statement.target))
    if recorded.config.get("runner") != words:
        left_out["equivalence"] = f"its engine ran {recorded.config.get('runner')} then, and here: {words}"
    return tuple(name for name in EVERYTHING if name in COMPILE or name not in left_out), left_out


def _expected(recorded: Recorded, rebuilt: Rebuilt, find: Callable[[str], bytes | None]) -> str:
    """Why a difference says nothing against the engine: other code or another version of the compiler; else empty."""
    if recorded.other_code:
        return f"Cuvil's code changed since the build (stage {recorded.other_code[0]})"
    data = find(recorded.expected["engine"]["build.json"])
    used = str(json.loads(data)["compiler"]["version"]) if data is not None else zig_version()
    if used != zig_version():
        return f"it was built with zig {used}, and zig {zig_version()} is installed"
    return ""


@contextmanager
def _compiler_cache(fresh: bool) -> Iterator[None]:
    """Within, compiled C libraries are kept in an empty folder of this run: what the home holds could be anything."""
    if not fresh:
        yield
        return
    before = os.environ.get("CUVIL_ZIG_CACHE")
    with tempfile.TemporaryDirectory(prefix="cuvil-recertify-") as folder:
        os.environ["CUVIL_ZIG_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["CUVIL_ZIG_CACHE"]
            else:
                os.environ["CUVIL_ZIG_CACHE"] = before


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
