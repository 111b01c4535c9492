"""All rebuilds of one build, some at a time, and their comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.zig import warm
from evidence.reproducibility.difference import Comparison, Difference
from evidence.reproducibility.inputs import COMPILE, Recorded
from evidence.reproducibility.launch import CODE, Rebuilt, rebuild
from evidence.reproducibility.plan import KEPT, Variation

Step = Callable[[int, Rebuilt, Difference | None], None]
"""Called after each rebuild, in the order they end: how many have ended, the rebuild, its difference."""


@dataclass(frozen=True)
class Rebuilds:
    """The rebuilds in the order of the plan, and the differences among them."""

    rebuilt: tuple[Rebuilt, ...]
    differences: tuple[Difference, ...]


def rebuild_all(
    recorded: Recorded,
    plan: Sequence[Variation],
    comparison: Comparison,
    *,
    jobs: int = 1,
    stages: Sequence[str] = COMPILE,
    step: Step = lambda done, rebuilt, difference: None,
    code: Path = CODE,
) -> Rebuilds:
    """Make every rebuild of ``plan``, ``jobs`` at a time. A difference ends nothing; raises what ``rebuild`` raises."""
    if any(item.compiler_cache == KEPT for item in plan):
        # What a rebuild takes a copy of must be complete before.
        warm([resolve_target(recorded.statement.target)])
    found: dict[int, tuple[Rebuilt, Difference | None]] = {}

    def one(variation: Variation) -> Rebuilt:
        return rebuild(recorded, variation, stages, code)

    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        waiting = [pool.submit(one, variation) for variation in plan]
        try:
            for future in as_completed(waiting):
                rebuilt = future.result()
                difference = comparison.first(rebuilt)
                found[rebuilt.variation.number] = (rebuilt, difference)
                step(len(found), rebuilt, difference)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    ordered = [found[number] for number in sorted(found)]
    return Rebuilds(
        tuple(rebuilt for rebuilt, _ in ordered), tuple(difference for _, difference in ordered if difference)
    )
