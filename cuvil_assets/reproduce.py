"""Varied rebuilds of one build and the second compiler, for the command line and the asset ``reproducibility``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import Policy, policy_from_json
from compiler_kernels.policy.reproducibility import REBUILDS
from evidence.reproducibility.difference import Comparison
from evidence.reproducibility.inputs import Recorded, recorded_build
from evidence.reproducibility.plan import DEFAULT_SEED, make_plan
from evidence.reproducibility.report import Outcome
from evidence.reproducibility.run import Step, rebuild_all
from evidence.reproducibility.second import SecondCompiler, compare_with_gcc
from evidence.verifier.statement import Statement
from evidence.verifier.subjects import Subject

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
    """Rebuild and compare. ``started`` hears the record before the long work, ``remark`` why gcc was left out.

    Raises ``UsageError`` when model or policy is missing, or an artefact that a demanded second compiler needs.
    """
    recorded = recorded_build(statement, find, wanted.given)
    policy = policy_of(statement, find)
    section = policy.reproducibility if policy is not None else None
    started(recorded)
    plan = make_plan(rebuilds_of(statement, find, wanted), wanted.seed, wanted.fresh_caches)
    jobs = wanted.jobs or min(4, len(os.sched_getaffinity(0)))
    done = rebuild_all(recorded, plan, Comparison(recorded, find), jobs=jobs, step=step)
    second: SecondCompiler | None = None
    try:
        second = compare_with_gcc(recorded, find)
    except UsageError as error:
        if section is not None and "gcc" in section.compilers:
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
