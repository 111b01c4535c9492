"""The asset ``dataset``: a shared item blocks, a waiver of exactly that passes, and a later finding blocks again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from tiny_models import POLICY, ModelMaker

from cuvil_assets import chain
from cuvil_assets.assets import ASSETS, LATER
from cuvil_assets.builder import build, open_instance
from cuvil_assets.cli import main
from cuvil_assets.execution import Build, run_stage
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions
from cuvil_assets.request import load_request
from evidence.dataset.items import array_items
from evidence.dataset.manifest import Manifest, manifest_of


def splits(seed: int) -> dict[str, Any]:
    """Two splits that share one image."""
    made = {name: np.random.default_rng(seed + i).integers(0, 256, (3, 9, 9), np.uint8) for i, name in enumerate("ab")}
    made["b"][1] = made["a"][2]
    return {"train": made["a"], "test": made["b"]}


def manifest(array: Any) -> Manifest:
    return manifest_of(list(array_items(array)))


@pytest.fixture
def home(home_maker: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home_maker()
    monkeypatch.setenv("CUVIL_HOME", str(folder))
    return folder


def policy_at(path: Path, arrays: Mapping[str, Any], version: str) -> Path:
    lines = "".join(f"    {name}: {{sha256: {manifest(array).sha256}}}\n" for name, array in arrays.items())
    assert '"1.0"' in POLICY
    path.write_text(POLICY.replace('"1.0"', f'"{version}"') + (f"dataset:\n  splits:\n{lines}" if arrays else ""))
    return path


def materialise(home: Path, partition: str) -> dg.ExecuteInProcessResult:
    with open_instance(Home(home)) as instance:
        model_version, target = partition.split("|")
        instance.add_dynamic_partitions("model_version", [model_version])
        key = dg.MultiPartitionKey({"model_version": model_version, "target": target})
        return dg.materialize(
            [*ASSETS, *LATER], selection=[chain.DATASET], partition_key=key, instance=instance, raise_on_error=False
        )


def the_check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (found,) = result.get_asset_check_evaluations()
    return found


def test_a_shared_image_blocks_until_it_is_waived(home: Path, tiny_model: ModelMaker, tmp_path: Path) -> None:
    arrays = splits(1)
    policy = policy_at(tmp_path / "p.yaml", arrays, "1.0")
    engine = tmp_path / "out" / "inference-engine.bin"
    outcome = build(BuildOptions(tiny_model(), policy, "x86_64-linux-musl", engine, equivalence_inputs=2))
    partition = str(outcome.facts["partition"])
    missing = materialise(home, partition)
    assert not missing.success
    assert "cuvil dataset check" in str([e for e in missing.all_events if e.is_step_failure])

    np.savez(tmp_path / "s.npz", **arrays)
    words = ["dataset", "check", *(f"{name}={tmp_path / 's.npz'}:{name}" for name in arrays), "--engine", str(engine)]
    assert main(words) == 1
    blocked = the_check(materialise(home, partition))
    assert (blocked.passed, blocked.severity, blocked.blocking) == (False, dg.AssetCheckSeverity.ERROR, True)

    report = engine.with_name("inference-engine.dataset.json")
    waiver = ["waive", str(report), "--person", "Ada", "--reason", "one image", "--output"]
    assert main([*waiver, str(tmp_path / "w.json")]) == 0
    passed = materialise(home, partition)
    assert passed.success and the_check(passed).passed
    assert "Ada waived" in str(the_check(passed).description)
    work = Build(Home(home), load_request(Home(home), partition, None))
    recorded = run_stage(work, chain.DATASET)
    assert recorded.cache_hit
    assert json.loads(recorded.result.principal.data)["verdict"] == "waived"
    # with the manifests and the waiver kept, the command needs no data, and its report is the asset's
    assert main(["dataset", "check", "--engine", str(engine), "--waiver", str(tmp_path / "w.json")]) == 0
    assert report.read_bytes() == recorded.result.principal.data

    kept = home / "datasets" / f"{manifest(arrays['test']).sha256}.json"
    kept.write_bytes(manifest(splits(7)["test"]).encode())
    assert not materialise(home, partition).success


@pytest.mark.slow
def test_without_the_section_nothing_is_claimed(home: Path, tiny_model: ModelMaker, tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "p.yaml", {}, "1.0")
    engine = tmp_path / "out" / "inference-engine.bin"
    outcome = build(BuildOptions(tiny_model(), policy, "x86_64-linux-musl", engine, equivalence_inputs=2))
    result = materialise(home, str(outcome.facts["partition"]))
    found = the_check(result)
    assert result.success
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert main(["dataset", "check", "--engine", str(engine)]) == 2
