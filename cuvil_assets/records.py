"""The stage results of one build, by build id: what a downstream stage takes its inputs from.

A stage never asks Dagster for the latest event: another run may have written it. It reads the record of the same
build, and refuses with a sentence when that record is absent or does not fit the records before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.stage import Artifact, Json, StageResult
from cuvil_assets.chain import NAMES, ancestors
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home
from cuvil_assets.store import ActionCache


@dataclass(frozen=True)
class Recorded:
    """A stage result and how it came about: from the cache or not, CPU and wall seconds of the work."""

    result: StageResult
    cache_hit: bool
    cpu_seconds: float
    wall_seconds: float


class BuildRecords:
    """Results of the build ``build_id`` under ``home``; artefact bytes lie in ``store``."""

    def __init__(self, home: Home, store: ActionCache, build_id: str) -> None:
        self.home = home
        self.store = store
        self.folder = home.builds / build_id

    def write(self, recorded: Recorded) -> None:
        """Replace the record of this stage. ``UsageError`` when the home cannot be written."""
        document: dict[str, Json] = {
            "result": self.store.save(recorded.result),
            "cache_hit": recorded.cache_hit,
            "cpu_seconds": round(recorded.cpu_seconds, 3),
            "wall_seconds": round(recorded.wall_seconds, 3),
        }
        path = self.folder / f"{recorded.result.stage}.json"
        try:
            self.home.ensure(path.parent)
            write_atomic(path, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written ({error.strerror}); free space or set CUVIL_HOME elsewhere"
            ) from error

    def read(self, stage: str) -> Recorded:
        """The record of ``stage``; ``RefusedError`` when it is absent or damaged."""
        try:
            document = json.loads((self.folder / f"{stage}.json").read_bytes())
            result = self.store.load(document["result"])
            if result is not None and result.stage == stage:
                return Recorded(
                    result,
                    bool(document["cache_hit"]),
                    float(document["cpu_seconds"]),
                    float(document["wall_seconds"]),
                )
        except FileNotFoundError:
            raise RefusedError(
                f"this build has no record of stage {stage}; materialise {stage} first, or run `cuvil build` again"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            pass
        raise RefusedError(f"the record of stage {stage} is damaged or its files are gone; materialise {stage} again")

    def consistent(self, stages: Iterable[str]) -> dict[str, Recorded]:
        """Records of ``stages`` and of all they depend on, each made from exactly the others.

        Raises ``RefusedError`` naming the first stage whose record is absent, or was made from other inputs than the
        records before it now hold (somebody materialised an earlier stage alone).
        """
        wanted = set(stages)
        for stage in tuple(wanted):
            wanted.update(ancestors(stage))
        found: dict[str, Recorded] = {}
        artifacts: dict[str, Artifact] = {}
        for stage in (name for name in NAMES if name in wanted):
            found[stage] = self.read(stage)
            result = found[stage].result
            for role, digest in result.inputs.items():
                if "/" in role and (role not in artifacts or artifacts[role].sha3_512 != digest):
                    raise RefusedError(
                        f"the record of stage {stage} was made from another {role} than this build now has; "
                        f"materialise {stage} again"
                    )
            artifacts.update({f"{stage}/{item.name}": item for item in result.artifacts})
        return found
