"""Varied rebuilds of one build and the second compiler, for the command line and the asset ``reproducibility``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import Policy, policy_from_json
from compiler_kernels.policy.reproducibility import REBUILDS
from compiler_kernels.stage import Artifact, Json, StageResult
from cuvil_assets import chain
from cuvil_assets.store import Action
from evidence.reproducibility.difference import Comparison
from evidence.reproducibility.inputs import Recorded, recorded_build
from evidence.reproducibility.plan import DEFAULT_SEED, make_plan
from evidence.reproducibility.report import Outcome
from evidence.reproducibility.run import Step, rebuild_all
from evidence.reproducibility.second import SecondCompiler, compare_with_second
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.subjects import Subject, subject_of

if TYPE_CHECKING:
    from cuvil_assets.execution import Build

Find = Callable[[str], bytes | None]


@dataclass(frozen=True)
class Wanted:
    """What to do; ``rebuilds`` of ``None`` are the policy's or 20, ``jobs`` of ``None`` up to four processors."""

    rebuilds: int | None = None
    seed: int = DEFAULT_SEED
    jobs: int | None = None
    fresh_caches: int = 1
    given: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)


def policy_of(statement: Statement, find: Find) -> Policy | None:
    """The policy of the build, or ``None`` where the store does not have it."""
    data = find(statement.policy)
    return None if data is None else policy_from_json(data)


def rebuilds_of(statement: Statement, find: Find, wanted: Wanted) -> int:
    """How many rebuilds there will be."""
    policy = policy_of(statement, find)
    section = policy.reproducibility if policy is not None else None
    return wanted.rebuilds if wanted.rebuilds is not None else section.rebuilds if section is not None else REBUILDS


def reproduced(
    statement: Statement,
    find: Find,
    engine: Subject,
    proof: Subject,
    wanted: Wanted,
    *,
    started: Callable[[Recorded], None] = lambda recorded: None,
    step: Step = lambda done, rebuilt, difference: None,
    remark: Callable[[str], None] = lambda sentence: None,
) -> Outcome:
    """Rebuild and compare. ``started`` hears the record before the long work, ``remark`` why the second
    compiler was left out.

    Raises ``UsageError`` when model or policy is missing, or an artefact that a demanded second compiler needs.
    """
    recorded = recorded_build(statement, find, wanted.given)
    policy = policy_of(statement, find)
    section = policy.reproducibility if policy is not None else None
    started(recorded)
    worlds = make_plan(rebuilds_of(statement, find, wanted), wanted.seed, wanted.fresh_caches)
    jobs = wanted.jobs or min(4, len(os.sched_getaffinity(0)))
    done = rebuild_all(recorded, worlds, Comparison(recorded, find), jobs=jobs, step=step)
    second: SecondCompiler | None = None
    try:
        second = compare_with_second(recorded, find)
    except UsageError as error:
        if section is not None and len(section.compilers) > 1:
            raise
        remark(f"no second compiler: {error}")
    return Outcome(
        recorded,
        proof,
        engine,
        wanted.seed,
        done.rebuilt,
        done.differences,
        second,
        section.rebuilds if section is not None else 0,
        section.compilers if section is not None else (),
    )


def plan(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """Varied rebuilds of the engine this build's proof is about; a difference is a report, and its check fails."""
    proof = build.records.consistent((chain.BUILD_PROOF,))[chain.BUILD_PROOF].result.principal
    statement = read_statement(read_envelope(proof.data).payload)
    inputs = {f"{chain.BUILD_PROOF}/{proof.name}": proof.sha3_512}
    version, wanted = chain.code_version(chain.REPRODUCIBILITY), Wanted()
    config: dict[str, Json] = {"seed": wanted.seed, "fresh_caches": wanted.fresh_caches}

    def work() -> StageResult:
        engine = Subject(statement.subject, **statement.subject_digests)
        outcome = reproduced(
            statement, build.store.find, engine, subject_of(proof.name, digest_bytes(proof.data)), wanted
        )
        stem = proof.name.removesuffix(".proof.json")
        facts: dict[str, Json] = {
            "verdict": outcome.verdict,
            "rebuilds": len(outcome.rebuilds),
            "differing": len(outcome.differences),
            "first_difference": outcome.differences[0].sentence() if outcome.differences else "",
            "second_compiler": outcome.second.sentence if outcome.second is not None else "left out",
            "shortfalls": [*outcome.shortfalls],
        }
        files = (
            Artifact(f"{stem}.reproducibility.json", outcome.encode(), "application/json"),
            Artifact(f"{stem}.reproducibility.log", outcome.log(), "text/plain"),
        )
        return StageResult(chain.REPRODUCIBILITY, version, inputs, config, files, facts)

    return Action(chain.REPRODUCIBILITY, version, inputs, config), work
