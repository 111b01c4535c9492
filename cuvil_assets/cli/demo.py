"""``cuvil demo``: the demonstration, built by the same assets as ``cuvil build``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cuvil_assets.builder import BuildOutcome, build
from cuvil_assets.cli.build import Progress
from cuvil_assets.cli.outcome import note
from cuvil_assets.demo import run_demo
from cuvil_assets.inputs import BuildOptions
from evidence.verify import verify_engine


def run(output_dir: Path, target: str, json: bool) -> None:
    """Run the demonstration in ``output_dir``. Raises ``CuvilError``."""

    def build_demo(
        *, model: Path, policy: Path, target: str, output: Path, input_shape: Mapping[str, tuple[int, ...]]
    ) -> BuildOutcome:
        outcome = build(BuildOptions(model, policy, target, output, input_shape), None if json else Progress())
        if outcome.facts["keys_created"] and not json:
            note(f"made a development key set in {outcome.facts['keys']}")
        return outcome

    run_demo(output_dir, json=json, build=build_demo, verify=verify_engine, target=target or None)
