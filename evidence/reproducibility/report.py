"""``STEM.reproducibility.json`` and its log: what was varied, what came out, and one verdict.

Neither holds a time, a path of the machine, or anything else that a second run would say differently.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler_kernels.stage import Json
from evidence.reproducibility.difference import Difference
from evidence.reproducibility.inputs import Recorded
from evidence.reproducibility.launch import Rebuilt
from evidence.reproducibility.plan import KEPT
from evidence.reproducibility.second import FAILED, NOT_EXECUTED, PASSED, SECOND_ONES, SecondCompiler
from evidence.verifier.subjects import Subject

FORMAT = "cuvil-reproducibility/1"
CLOCK_TOLERANCE = 600
"""Seconds by which a rebuild's clock may be off from the planned one: the time it takes to start."""
REASONS = {
    "user": "user namespaces are not granted here",
    "uid": "user namespaces are not granted here",
    "hostname": "user namespaces are not granted here",
    "clock": "the library that moves the clock could not be made for this machine",
    "cpus": "only one processor is available",
    "locale": "the C library here has at most one of the planned locales",
    "vectors": "NumPy chooses no vector instructions on this processor",
}


@dataclass(frozen=True)
class Outcome:
    """All rebuilds with their differences and, where it was asked for, the second compiler.

    ``demanded``: rebuilds and compilers the policy asks for.
    """

    recorded: Recorded
    proof: Subject
    engine: Subject
    seed: int
    rebuilds: Sequence[Rebuilt]
    differences: Sequence[Difference]
    second: SecondCompiler | None
    demanded_rebuilds: int = 0
    demanded_compilers: tuple[str, ...] = ()

    @property
    def shortfalls(self) -> list[str]:
        """What the policy asks for and was not done."""
        found = []
        if len(self.rebuilds) < self.demanded_rebuilds:
            found.append(f"the policy asks for {self.demanded_rebuilds} rebuilds, {len(self.rebuilds)} were made")
        for name in (name for name in SECOND_ONES if name in self.demanded_compilers):
            said = ""
            if self.second is None:
                said = "it was left out"
            elif self.second.name != name:
                said = f"it compiles nothing of an engine for {self.recorded.statement.target}"
            elif self.second.verdict == NOT_EXECUTED:
                said = self.second.sentence
            found += [f"the policy asks for {name} as a second compiler: {said}"] if said else []
        return found

    @property
    def verdict(self) -> str:
        """``failed`` for a difference, ``not executed`` when less was done than the policy asks for, ``passed``."""
        if self.differences or (self.second is not None and self.second.verdict == FAILED):
            return FAILED
        return NOT_EXECUTED if self.shortfalls or not self.rebuilds else PASSED

    def to_json(self) -> dict[str, Json]:
        statement = self.recorded.statement
        differing = {item.rebuild for item in self.differences}
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "model_version": statement.model_version,
            "target": statement.target,
            "engine": self.engine.to_json(),
            "proof": self.proof.to_json(),
            "sources": dict(statement.sources),
            "seed": self.seed,
            "rebuilds": len(self.rebuilds),
            "equal": len(self.rebuilds) - len(differing),
            "engine_digests": dict(Counter(_engine_digest(item) for item in self.rebuilds)),
            "artifacts_compared": sum(
                len(made["artifacts"]) for item in self.rebuilds for made in item.stages.values()
            ),
            "stages": [*self.rebuilds[0].stages] if self.rebuilds else [],
            "other_code": list(self.recorded.other_code),
            "varied": self.varied(),
            "plan": [
                {**item.variation.to_json(), "in_effect": [*in_effect(item)], "equal": number not in differing}
                for number, item in enumerate(self.rebuilds, 1)
            ],
            "differences": [item.to_json() for item in self.differences],
            "second_compiler": None if self.second is None else self.second.to_json(),
            "policy": {
                "rebuilds": self.demanded_rebuilds,
                "compilers": list(self.demanded_compilers),
                "shortfalls": list(self.shortfalls),
            },
        }

    def varied(self) -> dict[str, Json]:
        """Per kind the number of rebuilds it was in effect in, of different values, and why it was not varied."""
        found: dict[str, Json] = {}
        effects = [(item, set(in_effect(item))) for item in self.rebuilds]
        for kind in KINDS:
            values = {_value(item, kind) for item, kinds in effects if kind in kinds}
            count = sum(kind in kinds for _, kinds in effects)
            reason = "" if len(values) > 1 or len(effects) < 2 else REASONS.get(kind, "the plan has one value of it")
            found[kind] = {"rebuilds": count, "values": len(values), "not_varied": reason}
        return found

    def encode(self) -> bytes:
        """The report's bytes."""
        return (json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n").encode()

    def log(self) -> bytes:
        """The log: per rebuild the world it ran in and the digest of everything it made, in build order."""
        lines = [f"cuvil reproduce: {self.engine.name}, seed {self.seed}, {len(self.rebuilds)} rebuilds"]
        lines += [f"expected {stage}/{name} sha3-512:{d}" for stage, name, d in _digests(self.recorded.expected)]
        for number, item in enumerate(self.rebuilds, 1):
            world = item.variation.to_json()
            lines.append(f"rebuild {number}")
            effects = in_effect(item)
            for kind in KINDS:
                said = "" if kind in effects else " (not in effect here)"
                lines.append(f"  {kind}={json.dumps(world[_FIELDS.get(kind, kind)], ensure_ascii=False)}{said}")
            made = {stage: found["artifacts"] for stage, found in item.stages.items()}
            lines += [f"  {stage}/{name} sha3-512:{digest}" for stage, name, digest in _digests(made)]
            if item.error is not None:
                lines.append(f"  {item.error['stage']} ended: {item.error['message']}")
        lines += [item.sentence() for item in self.differences]
        if self.second is not None:
            lines.append(f"second compiler: {self.second.verdict}: {self.second.sentence}")
        lines += [*self.shortfalls, f"verdict: {self.verdict}"]
        return ("\n".join(lines) + "\n").encode()


KINDS = (
    "directory", "user", "uid", "umask", "timezone", "locale", "clock", "cpus", "file_order", "hostname", "hash_seed",
    "vectors", "environment", "compiler_cache",
)  # fmt: skip
_FIELDS = {"clock": "clock_offset"}


def in_effect(item: Rebuilt) -> list[str]:
    """Kinds whose planned value the rebuild saw."""
    world, seen = item.variation, item.observed
    found = {
        "directory": str(seen["directory"]).endswith(world.directory),
        "user": seen["user"] == world.user,
        "uid": seen["uid"] == world.uid,
        "umask": seen["umask"] == f"{world.umask:04o}",
        "timezone": seen["utc_offset"] == world.utc_offset,
        "locale": seen["locale"] == world.locale,
        "clock": 0 <= float(seen["clock"]) - item.started - world.clock_offset < CLOCK_TOLERANCE,
        "cpus": world.cpus in (0, seen["cpus"]),
        "file_order": bool(seen["file_order"]),
        "hostname": seen["hostname"] == world.hostname,
        "hash_seed": seen["hash_seed"] == str(world.hash_seed),
        "vectors": bool(seen["vectors"]) == world.vectors,
        "environment": seen["environment"] == world.environment,
        "compiler_cache": world.compiler_cache != KEPT or bool(seen["compiler_cache"]),
    }
    return [kind for kind in KINDS if found[kind]]


def _value(item: Rebuilt, kind: str) -> str:
    """The value of ``kind``; of what a machine may have less than planned, what there was."""
    if kind in ("cpus", "vectors"):
        return str(item.observed[kind])
    return str(item.variation.to_json()[_FIELDS.get(kind, kind)])


def _engine_digest(item: Rebuilt) -> str:
    engine = item.stages.get("engine")
    return str(engine["artifacts"]["inference-engine.bin"]) if engine is not None else "none"


def _digests(made: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    return [(stage, name, digest) for stage, names in made.items() for name, digest in names.items()]
