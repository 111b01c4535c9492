"""Builds through the real assets: cache, records, staleness, and what happens when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from tiny_models import ModelMaker

from compiler_kernels.errors import CuvilError, RefusedError, UsageError, VerificationFailed
from compiler_kernels.stage import StageResult
from cuvil_assets import chain
from cuvil_assets.assets import ASSETS, LATER
from cuvil_assets.builder import build, open_instance
from cuvil_assets.cli import sbom
from cuvil_assets.execution import Build, run_stage
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions, make_request
from cuvil_assets.request import load_request
from cuvil_assets.store import Action
from evidence.verifier.verify import verify_engine

X86, ARM = "x86_64-linux-musl", "aarch64-linux-musl"


@pytest.fixture(scope="module")
def shared_home(home_maker: Callable[[], Path]) -> Path:
    """One home for the tests that only add builds to it."""
    return home_maker()


@pytest.fixture
def options(
    shared_home: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: ModelMaker, tiny_policy: Path, tmp_path: Path
) -> BuildOptions:
    monkeypatch.setenv("CUVIL_HOME", str(shared_home))
    return BuildOptions(tiny_model(), tiny_policy, X86, tmp_path / "out" / "inference-engine.bin", equivalence_inputs=5)


def data_versions(home: Path, partition: str) -> dict[str, str]:
    found = {}
    with open_instance(Home(home)) as instance:
        for name in chain.NAMES:
            record = instance.get_latest_data_version_record(dg.AssetKey(name), partition_key=partition)
            assert record is not None
            tags = record.asset_materialization.tags if record.asset_materialization else None
            assert tags is not None
            found[name] = tags["dagster/data_version"]
    return found


def materialise(home: Path, name: str, partition: str) -> dg.ExecuteInProcessResult:
    """What the user interface does: one asset of one partition, without any tag of the command line."""
    with open_instance(Home(home)) as instance:
        model_version, target = partition.split("|")
        instance.add_dynamic_partitions("model_version", [model_version])
        key = dg.MultiPartitionKey({"model_version": model_version, "target": target})
        return dg.materialize(
            [*ASSETS, *LATER], selection=[name], partition_key=key, instance=instance, raise_on_error=False
        )


def failure_text(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [e for e in result.all_events if e.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    return str(failure.description)


def test_build_delivers_and_a_second_one_is_all_hits(options: BuildOptions, shared_home: Path) -> None:
    first = build(options)
    assert verify_engine(first.engine, first.proof).ok
    assert first.engine.stat().st_mode & 0o777 == 0o755
    assert sorted(p.name for p in options.output.parent.iterdir()) == [
        "inference-engine.bin",
        "inference-engine.equivalence.json",
        "inference-engine.proof.json",
    ]
    again = build(options)
    stages = again.facts["stages"]
    assert isinstance(stages, dict)
    assert all(isinstance(item, dict) and item["cache_hit"] for item in stages.values())
    assert again.facts["engine_sha3_512"] == first.facts["engine_sha3_512"]
    assert first.facts["equivalence"] == "passed"


def test_data_versions_are_the_digests_of_the_principal_artefacts(options: BuildOptions, shared_home: Path) -> None:
    outcome = build(options)
    found = data_versions(shared_home, str(outcome.facts["partition"]))
    records = Build(Home(shared_home), load_request(Home(shared_home), "tiny-1.0|" + X86, None)).records
    for name in chain.NAMES:
        assert found[name] == f"sha3-512:{records.read(name).result.principal.sha3_512}"
    assert found["engine"] == f"sha3-512:{outcome.facts['engine_sha3_512']}"


def test_the_bill_of_materials_is_an_asset_with_the_bytes_of_the_command(
    options: BuildOptions, shared_home: Path
) -> None:
    outcome = build(options)
    result = materialise(shared_home, chain.SBOM, str(outcome.facts["partition"]))
    assert result.success
    assert all(check.passed for check in result.get_asset_check_evaluations())
    work = Build(Home(shared_home), load_request(Home(shared_home), str(outcome.facts["partition"]), None))
    recorded = work.records.read(chain.SBOM).result.principal
    sbom.run(outcome.engine, None, None, syft=False, json=True)
    assert outcome.engine.with_name(recorded.name).read_bytes() == recorded.data
    assert run_stage(work, chain.SBOM).cache_hit


def test_without_the_cache_everything_runs_and_gives_the_same_engine(options: BuildOptions) -> None:
    first = build(options)
    fresh = build(replace(options, use_cache=False))
    stages = fresh.facts["stages"]
    assert isinstance(stages, dict)
    assert not any(isinstance(item, dict) and item["cache_hit"] for item in stages.values())
    assert fresh.facts["engine_sha3_512"] == first.facts["engine_sha3_512"]
    assert fresh.facts["proof_payload_sha3_512"] == first.facts["proof_payload_sha3_512"]


def test_other_weights_change_data_versions_but_not_what_does_not_depend_on_them(
    options: BuildOptions, shared_home: Path, tiny_model: ModelMaker
) -> None:
    """The text of the IR refers to weights by digest; the C code does not hold them."""
    before = data_versions(shared_home, str(build(options).facts["partition"]))
    after = data_versions(shared_home, str(build(replace(options, model=tiny_model(1))).facts["partition"]))
    changed = {name for name in before if before[name] != after[name]}
    assert {"source_model", "ir_l0", "frozen_graph", "ir_l1", "ir_l2", "engine", "build_proof"} <= changed


def test_another_policy_makes_again_only_what_depends_on_it(options: BuildOptions, tmp_path: Path) -> None:
    """Stages that read the policy run; ir_l1 and ir_l2 read the frozen graph alone, which is the same."""
    build(options)
    policy = tmp_path / "policy.yaml"
    policy.write_text(options.policy.read_text().replace("range: [0.0, 1.0]", "range: [0.0, 0.9]"))
    stages = build(replace(options, policy=policy)).facts["stages"]
    assert isinstance(stages, dict)
    made = [name for name, item in stages.items() if isinstance(item, dict) and not item["cache_hit"]]
    assert made == [name for name in chain.NAMES if name not in ("ir_l1", "ir_l2")]


def test_targets_share_what_does_not_depend_on_them(options: BuildOptions) -> None:
    build(options)
    other = build(replace(options, target=ARM))
    stages = other.facts["stages"]
    assert isinstance(stages, dict)
    shared = [name for name, item in stages.items() if isinstance(item, dict) and item["cache_hit"]]
    assert shared[:5] == ["source_model", "ir_l0", "frozen_graph", "ir_l1", "ir_l2"]


def test_damaged_store_is_repaired_by_the_next_build(options: BuildOptions, shared_home: Path) -> None:
    first = build(options)
    path = shared_home / "store" / "cas" / str(first.facts["engine_sha3_512"])
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    again = build(options)
    stages = again.facts["stages"]
    assert isinstance(stages, dict)
    assert [name for name, item in stages.items() if isinstance(item, dict) and not item["cache_hit"]] == ["engine"]
    assert verify_engine(again.engine, again.proof).ok


def test_one_asset_materialises_again_from_the_user_interface(options: BuildOptions, shared_home: Path) -> None:
    partition = str(build(options).facts["partition"])
    assert materialise(shared_home, "ir_l1", partition).success
    assert materialise(shared_home, "build_proof", partition).success


def test_materialising_without_a_build_says_what_to_do(home: Path) -> None:
    text = failure_text(materialise(home, "ir_l1", f"tiny-1.0|{X86}"))
    assert "cuvil build" in text


def test_materialising_without_the_upstream_record_says_which(options: BuildOptions, shared_home: Path) -> None:
    outcome = build(options)
    (shared_home / "builds" / str(outcome.facts["build"]) / "frozen_graph.json").unlink()
    text = failure_text(materialise(shared_home, "ir_l1", str(outcome.facts["partition"])))
    assert "no record of stage frozen_graph" in text


def test_record_made_from_other_inputs_is_refused(options: BuildOptions, shared_home: Path) -> None:
    outcome = build(options)
    work = Build(Home(shared_home), load_request(Home(shared_home), str(outcome.facts["partition"]), None))
    recorded = work.records.read("ir_l1")
    module = recorded.result.artifacts[0]
    other = replace(module, data=module.data.replace(b"version=1\n", b'version=1\nmeta changed = "yes"\n', 1))
    work.records.write(
        replace(recorded, result=replace(recorded.result, artifacts=(other, *recorded.result.artifacts[1:])))
    )
    with pytest.raises(RefusedError, match=r"stage ir_l2 was made from another ir_l1/ir_l1\.txt"):
        run_stage(work, "build_proof")


def foreign_engine(options: BuildOptions, home: Path, model: Path) -> tuple[Build, StageResult]:
    """The build of ``options`` whose action cache answers with the engine compiled from ``model``."""
    other = build(replace(options, model=model))
    engine = (
        Build(Home(home), load_request(Home(home), str(other.facts["partition"]), None)).records.read("engine").result
    )
    work = Build(Home(home), make_request(options, Home(home)))
    for name in ("source_model", "ir_l0", "frozen_graph", "ir_l1", "ir_l2", "generated_source"):
        recorded = run_stage(work, name)
    generated = {f"generated_source/{a.name}": a.sha3_512 for a in recorded.result.artifacts}
    inputs = {role: generated[role] for role in chain.BY_NAME["engine"].reads}
    config = chain.BY_NAME["engine"].selected_config(work.request.config)
    work.store.remember(
        Action("engine", chain.code_version("engine"), inputs, config).key, replace(engine, inputs=inputs)
    )
    return work, engine


def test_an_engine_that_differs_is_neither_signed_nor_delivered(
    home: Path, tiny_model: ModelMaker, tiny_policy: Path, tmp_path: Path
) -> None:
    """The engine of other weights stands in the cache where ours should: the comparison with the reference finds it."""
    elsewhere = tmp_path / "elsewhere" / "inference-engine.bin"
    options = BuildOptions(tiny_model(0), tiny_policy, X86, elsewhere, equivalence_inputs=4)
    work, engine = foreign_engine(options, home, tiny_model(1))
    output = tmp_path / "out" / "inference-engine.bin"
    with pytest.raises(VerificationFailed) as caught:
        build(replace(options, output=output))
    assert caught.value.check == "equivalence"
    assert "differs from the reference" in str(caught.value)
    assert not output.parent.exists()
    assert work.records.read("engine").result.principal == engine.principal
    assert work.records.read("equivalence").result.facts["verdict"] == "failed"

    # A later run of build_proof alone is not stopped by a check of another asset: the stage itself refuses.
    text = failure_text(materialise(home, "build_proof", f"tiny-1.0|{X86}"))
    assert "differs from the reference" in text
    assert not (work.records.folder / "build_proof.json").exists()

    # With the cache bypassed the right engine is compiled, and everything holds again.
    outcome = build(replace(options, output=output, use_cache=False))
    assert verify_engine(outcome.engine, outcome.proof).ok


def test_a_failing_stage_surfaces_as_its_own_error(options: BuildOptions, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(options.model.read_bytes()[:100])
    with pytest.raises(UsageError, match=r"broken\.onnx"):
        build(replace(options, model=broken))
    assert not options.output.parent.exists()


def test_request_of_another_partition_is_refused(options: BuildOptions, shared_home: Path) -> None:
    outcome = build(options)
    with pytest.raises(UsageError, match="belongs to"):
        load_request(Home(shared_home), f"tiny-1.0|{ARM}", str(outcome.facts["build"]))


@pytest.mark.parametrize("text", ["", "[1]", '{"format": "cuvil-request/1"}'])
def test_damaged_request_is_one_sentence(options: BuildOptions, shared_home: Path, text: str) -> None:
    build(options)
    path = shared_home / "requests" / "tiny-1.0" / f"{X86}.json"
    good = path.read_text()
    path.write_text(text)
    try:
        with pytest.raises(CuvilError, match="damaged"):
            load_request(Home(shared_home), f"tiny-1.0|{X86}", None)
    finally:
        path.write_text(good)


def test_no_path_of_this_machine_enters_the_proof(options: BuildOptions, tmp_path: Path) -> None:
    import base64

    outcome = build(options)
    payload = base64.b64decode(json.loads(outcome.proof.read_text())["payload"]).decode()
    assert str(tmp_path.parent) not in payload
    assert str(options.model.parent) not in payload
    assert str(options.policy.parent) not in payload
