"""Surveillance over homes with real builds, keys and certificates, and over advisories in the OSV format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from tiny_models import POLICY, ModelMaker

from cuvil_assets import chain
from cuvil_assets.automation import change_sensor, recertify_sensor, surveil_job
from cuvil_assets.builder import build
from cuvil_assets.cli import main
from cuvil_assets.execution import Build, run_stage
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions
from cuvil_assets.request import load_request
from cuvil_assets.surveil import Surveillance, keep, surveil
from cuvil_assets.watch import Watch
from evidence.ca import Authority, init_authority
from evidence.keys import init_keys
from evidence.surveillance.certificates import check_certificates

X86 = "x86_64-linux-musl"
PARTITION = "tiny-1.0|" + X86
# Keys and certificates are made by the tests, at this moment.
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def built(
    home_maker: Callable[[], Path], tiny_model: ModelMaker, tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Home:
    """A home with one build and its bill of materials. Tests that change it take a copy (``home``)."""
    with pytest.MonkeyPatch.context() as patch:
        root = home_maker()
        patch.setenv("CUVIL_HOME", str(root))
        output = tmp_path_factory.mktemp("surveil") / "inference-engine.bin"
        build(BuildOptions(tiny_model(), tiny_policy, X86, output, equivalence_inputs=1))
        home = Home(root)
        run_stage(Build(home, load_request(home, PARTITION, None)), chain.SBOM)
    return home


@pytest.fixture
def home(built: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    shutil.copytree(built.root, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def found(report: Surveillance) -> set[tuple[str, str, str]]:
    return {(item.level, item.check, item.subject) for item in report.findings}


def test_a_build_as_it_was_made_has_no_findings(built: Home) -> None:
    report = surveil(built, Watch(), NOW)
    assert report.partitions == (PARTITION,)
    assert report.findings == () and report.ok


def damage(path: Path) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("stage", ["source_model", "engine", "build_proof"])
def test_a_flipped_bit_in_the_store_is_found(home: Home, stage: str) -> None:
    digest = Build(home, load_request(home, PARTITION, None)).records.read(stage).result.principal.sha3_512
    damage(home.store / "cas" / digest)
    assert ("failure", "records", PARTITION) in found(surveil(home, Watch(), NOW))


def test_a_proof_signed_with_keys_that_are_gone_is_found(home: Home) -> None:
    shutil.rmtree(home.root / "keys")
    init_keys(home.root)
    report = surveil(home, Watch(), NOW)
    assert found(report) == {("failure", "unknown-key", PARTITION)}


def test_another_policy_in_force_makes_a_build_due(home: Home, tmp_path: Path) -> None:
    same, other = tmp_path / "same.yaml", tmp_path / "other.yaml"
    same.write_text(POLICY + "# a comment changes nothing\n")
    assert found(surveil(home, Watch(policies=(same,)), NOW)) == set()
    other.write_text(POLICY.replace("1.0]}", "0.5]}"))
    report = surveil(home, Watch(policies=(other,)), NOW)
    assert found(report) == {("due", "policy", PARTITION)} and report.ok


def test_changed_conditions_are_due(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(home, surveil(home, Watch(), NOW))
    monkeypatch.setattr("cuvil_assets.chain.code_version", lambda name: "other")
    monkeypatch.setattr("cuvil_assets.surveil.zig_version", lambda: "9.9.9")
    assert found(surveil(home, Watch(), NOW)) == {("due", "code", PARTITION), ("due", "compiler", PARTITION)}


def osv(name: str, *, versions: list[str] | None = None, events: list[dict[str, str]] | None = None) -> dict[str, Any]:
    affected: dict[str, Any] = {"package": {"name": name, "ecosystem": "Alpine"}}
    if versions is not None:
        affected["versions"] = versions
    if events is not None:
        affected["ranges"] = [{"type": "ECOSYSTEM", "events": events}]
    return {"schema_version": "1.6.0", "id": f"TEST-{name}", "summary": "made for a test", "affected": [affected]}


def test_advisories_about_linked_components(home: Home, tmp_path: Path) -> None:
    build_ = Build(home, load_request(home, PARTITION, None))
    bill = json.loads(build_.records.read(chain.SBOM).result.principal.data)
    musl = next(item for item in bill["components"] if item["name"] == "musl")
    cases = [
        (osv("MUSL", versions=[musl["version"]]), True),
        (osv("musl", versions=["0.1"]), False),
        (osv("musl", events=[{"introduced": "0"}]), True),
        (osv("musl", events=[{"introduced": "0"}, {"fixed": "0.9"}]), False),
        (osv("musl", events=[{"introduced": "0"}, {"last_affected": musl["version"]}]), True),
        (osv("musl", events=[{"introduced": "99"}]), False),
        (osv("some-other-library"), False),
        ({**osv("musl", events=[{"introduced": "0"}]), "withdrawn": "2026-01-01T00:00:00Z"}, False),
    ]
    for number, (advisory, affected) in enumerate(cases):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps([advisory]))
        report = surveil(home, Watch(advisories=path), NOW)
        assert found(report) == ({("failure", "advisory", PARTITION)} if affected else set()), advisory
        assert report.ok is not affected


@pytest.mark.parametrize("text", ["{", "[1]", '[{"id": "X"}]', '{"id": 3, "affected": []}', '[{"affected": [{}]}]'])
def test_a_file_that_is_no_advisory_is_one_sentence(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "osv.json"
    path.write_text(text)
    assert main(["surveil", "--advisories", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_certificates_and_revocation_lists_that_end(home_maker: Callable[[], Path]) -> None:
    root_folder = home_maker()
    init_keys(root_folder)
    init_authority(NOW, root_folder)
    Authority(root_folder).issue("Dora", "developer", NOW, days=100)
    root = Authority(root_folder).trust_root()

    def at(days: int) -> set[tuple[str, str]]:
        return {(f.level, f.check) for f in check_certificates(root, NOW + timedelta(days=days), 30)}

    assert at(1) == set()
    assert at(25) == {("warning", "revocation-list")}
    assert at(80) == {("failure", "revocation-list"), ("warning", "certificate-expiry")}
    assert at(101) == {("failure", "revocation-list"), ("failure", "certificate-expiry")}
    Authority(root_folder).rotate("Dora", "developer", NOW + timedelta(days=90))
    later = Authority(root_folder).trust_root()
    assert not [f for f in check_certificates(later, NOW + timedelta(days=95), 30) if f.level == "failure"]


def test_status_counts_what_ends_soon(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    init_authority(NOW, home.root)
    Authority(home.root).issue("Dora", "developer", NOW, days=20)
    assert main(["surveil"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    assert "2 certificates and keys have ended or end soon" in capsys.readouterr().out
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["certificates_ending"] == 2


def test_the_commands(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "run `cuvil surveil`" in capsys.readouterr().out
    assert main(["surveil", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True and document["partitions"] == [PARTITION]
    assert main(["status"]) == 0
    assert "1 partitions; 1 without findings" in capsys.readouterr().out
    shutil.rmtree(home.builds)
    assert main(["surveil"]) == 1
    out = capsys.readouterr().out
    assert "failure" in out and "1 failures" in out
    assert main(["status", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    assert row["surveillance"] == "failure: records"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("certificat_days: 3", ":1:1: certificat_days is not a known key"),
        ("certificate_days: soon", "certificate_days must be a whole number"),
        ("policies: here.yaml", "policies must be a list"),
        ("policies: [here.yaml]", "policies.0 must be an absolute path"),
        ("advisories: 3", "advisories must be an absolute path"),
        ("- 1", "the policy must be a mapping"),
    ],
)
def test_settings_are_read_strictly(home: Home, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    (home.root / "surveillance.yaml").write_text(text)
    assert main(["surveil"]) == 2
    assert said in capsys.readouterr().err


def test_dagster_runs_it_and_the_sensor_asks_for_it_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert surveil_job.execute_in_process(instance=instance).success
        assert json.loads((home.root / "surveillance" / "latest.json").read_bytes())["ok"] is True
        context = dg.build_sensor_context(instance=instance)
        assert isinstance(recertify_sensor(context), dg.SensorResult)
        first = change_sensor(context)
        assert isinstance(first, dg.SensorResult) and len(list(first.run_requests or ())) == 1
        again = change_sensor(dg.build_sensor_context(instance=instance, cursor=first.cursor))
        assert isinstance(again, dg.SkipReason)
        monkeypatch.setattr("cuvil_assets.surveil.zig_version", lambda: "9.9.9")
        changed = change_sensor(dg.build_sensor_context(instance=instance, cursor=first.cursor))
        assert isinstance(changed, dg.SensorResult)
        shutil.rmtree(home.builds)
        failed = surveil_job.execute_in_process(instance=instance, raise_on_error=False)
        assert not failed.success
