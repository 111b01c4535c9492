"""``cuvil demo``: the demonstration, built by the same assets as ``cuvil build``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from compiler_kernels.stage import Json
from cuvil_assets.builder import BuildOutcome, build
from cuvil_assets.cli.build import Progress, accuracy, counted
from cuvil_assets.cli.outcome import note
from cuvil_assets.demo import run_demo
from cuvil_assets.inputs import BuildOptions
from evidence.verifier.verify import verify_engine


def run(output_dir: Path, target: str, json: bool) -> None:
    """Run the demonstration in ``output_dir``. Raises ``CuvilError``."""

    def build_demo(
        *, model: Path, policy: Path, target: str, output: Path, input_shape: Mapping[str, tuple[int, ...]]
    ) -> BuildOutcome:
        outcome = build(BuildOptions(model, policy, target, output, input_shape), None if json else Progress())
        if outcome.facts["keys_created"] and not json:
            note(f"made development keys in {outcome.facts['keys']}: they show what belongs together, not who made it")
        if outcome.facts["audit"] and not json:
            note(str(outcome.facts["audit"]))
        return outcome if json else replace(outcome, facts=_for_people(outcome))

    run_demo(output_dir, json=json, build=build_demo, verify=verify_engine, target=target or None)


def _for_people(outcome: BuildOutcome) -> dict[str, Json]:
    """The facts of a build that its summary shows; with ``--json`` it has all of them."""
    facts = outcome.facts
    compared = f"{facts['equivalence']} ({facts['equivalence_grade']}, {counted(facts['equivalence_inputs'], 'input')})"
    return {
        "equivalence": f"{compared} with the independent reference, bit for bit",
        "accuracy": accuracy(dict(facts)),
        "memory": f"{facts['arena_bytes']:,} bytes for intermediate values, no allocation",
        "time": f"{facts['wall_seconds']} s",
    }
