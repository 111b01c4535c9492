"""``cuvil recertify``: caches cannot change its answer, a changed byte opens a record and withdraws the engine."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from rebuild_case import Delivered

from compiler_kernels.errors import RefusedError, UsageError
from cuvil_assets import nonconformities as records
from cuvil_assets import recertify
from cuvil_assets.automation import RECERTIFY_SCHEDULE, recertify_job
from cuvil_assets.cli import main
from cuvil_assets.home import Home
from cuvil_assets.store import ContentStore
from evidence.log import Log
from evidence.nonconformity import Nonconformity, close_record, open_record
from evidence.reproducibility.plan import Variation, make_plan
from evidence.signing_keys import load_signing_keys
from evidence.verifier.digests import digest_file
from evidence.verifier.subjects import subject_of

PARTITION = "tiny-1.0|x86_64-linux-musl"
QUICK = ("recertify", "--kept-cache", "--json")


@pytest.fixture
def home(delivered: Delivered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A copy of the home that built the engine."""
    shutil.copytree(delivered.home, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


@pytest.fixture
def found(delivered: Delivered) -> Nonconformity:
    """A record about the delivered engine, not yet in any home."""
    proof = delivered.engine.with_name("inference-engine.proof.json")
    return open_record(
        subject_of(delivered.engine.name, digest_file(delivered.engine)),
        subject_of(proof.name, digest_file(proof)),
        model_version="tiny-1.0",
        target="x86_64-linux-musl",
        check="recertification",
        finding="stage engine, inference-engine.bin: bytes differ",
    )


def withdrawals(home: Home) -> list[Any]:
    """Withdrawals in the log; other tests of this session may have released from the home before."""
    entries = [json.loads(line) for line in Log(home.root).entries()]
    return [entry for entry in entries if entry["kind"] == "withdrawal"]


def poison(home: Home) -> str:
    """Let every action of the cache, and the engine's record, lead to another engine; its digest."""
    store = ContentStore(home.store)
    (record,) = home.builds.glob("*/engine.json")
    document = json.loads(record.read_bytes())
    engine = document["result"]["artifacts"][0]
    other = store.put((store.find(engine["sha3_512"]) or b"")[:-1] + b"X")
    old = engine["sha3_512"]
    engine["sha3_512"] = other
    record.write_text(json.dumps(document))
    changed = 0
    for path in (home.store / "ac").iterdir():
        body = json.loads(path.read_bytes())["result"].replace(old, other)
        changed += other in body
        path.chmod(0o644)
        path.write_text(json.dumps({"result": body, "sha3_512": hashlib.sha3_512(body.encode()).hexdigest()}))
    assert changed
    return other


def test_a_poisoned_cache_changes_nothing(home: Home, delivered: Delivered, capsys: pytest.CaptureFixture[str]) -> None:
    other = poison(home)
    assert main([*QUICK]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["passed"], report["failed"], report["due"]) == (1, 0, 0)
    (result,) = report["results"]
    assert result["engine_sha3_512"] == delivered.recorded.engine_sha3_512 != other
    assert "equivalence" in result["stages"] or "equivalence" in result["left_out"]
    assert result["stages"]["engine"]["cpu_seconds"] > 0
    assert set(report["toolchain"]) >= {"zig", "ziglang", "numpy", "onnx", "python"}
    assert main(["status"]) == 0
    assert "1 of 1 rebuilt and bit-equal at " in capsys.readouterr().out


def test_one_changed_byte_opens_a_record_and_withdraws_the_engine(
    home: Home, delivered: Delivered, wrapper: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, PARTITION]) == 1
    report = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert (result["verdict"], report["failed"]) == ("failed", 1)
    assert f"at offset 0x{wrapper:x}" in result["sentence"]
    (listed,) = records.listed(home)
    assert listed.open and listed.id == result["nonconformity"]
    assert listed.record is not None
    assert listed.record.engine.sha3_512 == delivered.recorded.engine_sha3_512
    (entry,) = withdrawals(home)
    assert (entry["engine"]["sha3_512"], entry["statement"]["name"]) == (result["engine_sha3_512"], f"{listed.id}.json")
    assert main(["release", str(delivered.engine), "--output", str(tmp_path / "release")]) == 3
    assert f"this engine is withdrawn by {listed.id}" in capsys.readouterr().err
    words = ["nonconformity", "close", listed.id, "--person", "Quentin", "--reason", "the compiler was replaced"]
    assert main(words) == 0
    assert main(["nonconformity", "list"]) == 0
    assert "closed by Quentin: the compiler was replaced" in capsys.readouterr().out
    assert main(["release", str(delivered.engine), "--output", str(tmp_path / "release")]) == 3
    assert "withdrawn" not in capsys.readouterr().err  # the policy's demand stops it now


@pytest.mark.slow
def test_found_again_after_its_closure_it_is_open_again(home: Home, wrapper: int) -> None:
    assert main([*QUICK]) == 1
    (first,) = records.listed(home)
    assert main(["nonconformity", "close", first.id, "--person", "Quentin", "--reason", "looked at"]) == 0
    assert main([*QUICK]) == 1
    (again,) = records.listed(home)
    assert (again.id, again.open) == (first.id, True)
    assert len(withdrawals(home)) == 1


def test_a_proof_that_does_not_hold_fails(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(home.root / "keys")
    assert main(["keys", "init"]) == 0
    capsys.readouterr()
    assert main([*QUICK]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["sentence"].startswith("the signed proof does not hold: signer-trusted")
    assert result["nonconformity"] == ""


def test_inputs_that_are_gone_are_due(home: Home, delivered: Delivered, capsys: pytest.CaptureFixture[str]) -> None:
    (home.store / "cas" / delivered.recorded.statement.sources["model.onnx"]).unlink()
    assert main([*QUICK]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["verdict"], result["nonconformity"]) == ("due", "")


def test_an_unknown_partition_is_named(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recertify", "other-1|x86_64-linux-musl"]) == 2
    assert f"those there are: {PARTITION}" in capsys.readouterr().err


def test_a_record_nobody_can_read_withdraws_every_engine(home: Home, found: Nonconformity) -> None:
    identifier = records.open_nonconformity(home, found)
    assert records.withdrawn(home, "0" * 128) == []
    path = records.folder_of(home) / f"{identifier}.json"
    document = json.loads(path.read_text())
    document["signatures"][0]["sig"], document["signatures"][1]["sig"] = ("AAAA", document["signatures"][1]["sig"])
    path.write_text(json.dumps(document, indent=2) + "\n")
    with pytest.raises(RefusedError, match=f"withdrawn by {identifier}"):
        records.refuse_withdrawn(home, "0" * 128)


def test_opening_twice_is_one_record(home: Home, found: Nonconformity) -> None:
    assert records.open_nonconformity(home, found) == records.open_nonconformity(
        home, replace(found, created="2030-01-01T00:00:00Z")
    )
    assert len(records.listed(home)) == 1


def test_a_closure_of_another_record_does_not_close(home: Home, found: Nonconformity) -> None:
    keys = load_signing_keys(home.root)
    one = records.open_nonconformity(home, found)
    two = records.open_nonconformity(home, replace(found, finding="another finding"))
    data = (records.folder_of(home) / f"{two}.json").read_bytes()
    closure = close_record(f"{two}.json", data, "Quentin", "resolved", keys)
    (records.folder_of(home) / f"{one}.closed.json").write_bytes(closure)
    state = {item.id: item for item in records.listed(home)}
    assert state[one].open and "another record" in state[one].fault
    with pytest.raises(UsageError, match="--reason is empty"):
        records.close_nonconformity(home, two, "Quentin", " ", keys)
    with pytest.raises(UsageError, match="no readable nonconformity record"):
        records.close_nonconformity(home, "NC-0", "Quentin", "resolved", keys)


@pytest.mark.slow
def test_the_schedule_tick_recertifies(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_schedule_context(instance=instance)
        tick = RECERTIFY_SCHEDULE.evaluate_tick(context)
        (request,) = tick.run_requests or []
        assert request.tags["cuvil/reason"] == "recertification"
        done = recertify_job.execute_in_process(instance=instance, tags=dict(request.tags))
        assert done.success
    assert json.loads((home.root / "recertification" / "latest.json").read_bytes())["passed"] == 1


def test_measured_errors_are_compared_with_numpy_s_own_vector_instructions(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums in binary64 depend on them in the last digits: other ones made a good engine a nonconformity."""
    worlds: list[Variation] = []

    def one(_: Home, partition: str, root: object, world: Variation) -> recertify.Recertified:
        worlds.append(world)
        return recertify.Recertified(partition, "due", "")

    monkeypatch.setattr(recertify, "_one", one)
    recertify.recertify(home, ["a", "b", "c", "d"], fresh_cache=False)
    assert [world.vectors for world in worlds] == [True] * 4
    assert not all(world.vectors for world in make_plan(4))
