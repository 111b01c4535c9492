"""``cuvil audit`` and what the other commands record."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from cli_case import Cli, CliJson, Delivered
from tiny_models import ModelMaker

from evidence.audit import AuditLog
from evidence.keys import init_keys

X86 = "x86_64-linux-musl"


@pytest.fixture
def at_home(delivered: Delivered, monkeypatch: pytest.MonkeyPatch) -> Delivered:
    monkeypatch.setenv("CUVIL_HOME", str(delivered.home))
    return delivered


def kinds(home: Path) -> list[str]:
    return [event.kind for event in AuditLog(home).events()]


def words(model: Path, policy: Path, output: Path) -> list[str]:
    given = ["build", "--model", str(model), "--policy", str(policy), "--target", X86, "--output", str(output)]
    return [*given, "--equivalence-inputs", "4"]


def test_a_build_is_recorded_with_its_key_use_and_signed(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    code, document = cli_json("audit", "show", "--event", "BUILD", "--personal")
    assert code == 0
    events: Any = document["events"]
    made = events[0]
    assert (made["event"], made["fields"]["outcome"], made["fields"]["target"]) == ("build", "made", X86)
    assert made["fields"]["engine"] == "inference-engine.bin"
    assert made["about"][getpass.getuser()]["login"] == getpass.getuser()
    assert kinds(at_home.home)[:3] == ["keys-init", "key-use", "build"]
    events_file = at_home.home / "audit" / "events.jsonl"
    # Who ran it, and where on this machine, is not in the log itself.
    assert getpass.getuser() not in made["fields"].values()
    assert str(at_home.engine.parent).encode() not in events_file.read_bytes()
    code, out, err = cli("audit", "check")
    assert (code, err) == (0, "")
    assert out.startswith("the audit log holds: ")
    assert AuditLog(at_home.home).check(init_keys(at_home.home).trust_root).covered >= 3


def test_a_verification_is_recorded_whether_it_holds_or_not(cli: Cli, at_home: Delivered, tmp_path: Path) -> None:
    log, count = AuditLog(at_home.home), len(kinds(at_home.home))
    assert cli("verify", at_home.engine)[0] == 0
    bad = tmp_path / "bad.bin"
    bad.write_bytes(at_home.engine.read_bytes() + b"x")
    assert cli("verify", bad, "--proof", at_home.proof)[0] == 1
    good, failed = (event.fields for event in log.events()[count:])
    assert (good["outcome"], good["check"], good["engine"]) == ("verified", "", "inference-engine.bin")
    assert (failed["outcome"], failed["check"], failed["engine"]) == ("failed", "subject-digest", "bad.bin")
    assert good["engine_sha3_512"] != failed["engine_sha3_512"]
    # A command that could not look at anything verified nothing.
    assert cli("verify", tmp_path / "missing.bin", "--proof", at_home.proof)[0] in (1, 2)


def test_prove_and_check_a_proof_and_an_older_checkpoint(cli: Cli, cli_json: CliJson, home: Path) -> None:
    assert cli("keys", "init")[0] == 0
    assert kinds(home) == ["keys-init"]
    code, _, err = cli("audit", "prove", "0")
    assert code == 2
    assert "run `cuvil audit checkpoint`" in err
    assert cli("audit", "checkpoint")[0] == 0
    proof, kept = home / "p.json", home / "kept.json"
    assert cli("audit", "prove", "0", "--output", proof)[0] == 0
    assert cli("audit", "prove", "0")[1].encode() == proof.read_bytes()
    kept.write_bytes((home / "audit" / "checkpoints.jsonl").read_bytes())
    code, document = cli_json("audit", "check", "--proof", proof)
    event: Any = document["event"]
    assert (code, event["event"], event["index"]) == (0, "keys-init", 0)
    proof.write_bytes(proof.read_bytes().replace(b"keys-init", b"keys-inis"))
    code, _, err = cli("audit", "check", "--proof", proof)
    assert code == 1
    assert err.endswith("[audit-proof]\n")
    assert cli("audit", "check", "--against", kept)[0] == 0
    for name in ("events", "checkpoints"):
        (home / "audit" / f"{name}.jsonl").write_bytes(b"")
    assert cli("audit", "check", "--events-only")[0] == 0
    code, document = cli_json("audit", "check", "--against", kept)
    assert (code, document["check"], document["event"]) == (1, "audit-truncated", 0)


def test_erase_and_its_errors(cli: Cli, cli_json: CliJson, home: Path) -> None:
    code, _, err = cli("audit", "erase", "nobody")
    assert code == 2
    assert "nobody" not in err
    log = AuditLog(home)
    keys = init_keys(home)
    log.append("build", {}, {"mallory": {"login": "mallory"}})
    code, document = cli_json("audit", "erase", "mallory")
    assert (code, document["event"]) == (0, 1)
    code, out, _ = cli("audit", "show", "--personal")
    assert code == 0
    assert "erased" in out
    assert "mallory" not in out
    assert log.check(keys.trust_root).ok
    assert cli("audit", "erase")[0] == 2


def test_check_names_the_first_bad_event_in_one_sentence(cli: Cli, home: Path) -> None:
    assert cli("audit", "check")[0] == 2
    init_keys(home)
    code, _, err = cli("audit", "check")
    assert code == 2
    assert "no audit log there" in err
    log = AuditLog(home)
    for number in range(3):
        log.append("build", {"number": number})
    path = log.events_file.path
    path.write_bytes(path.read_bytes().replace(b'"number":1', b'"number":7'))
    code, _, err = cli("audit", "check")
    assert code == 1
    assert err == "cuvil: event 2 does not follow event 1: one of the two was changed [audit-chain]\n"
    path.write_bytes(b"nonsense\n")
    code, _, err = cli("audit", "show")
    assert code == 1
    assert err.endswith("[audit-event]\n")


def test_a_log_that_cannot_be_written_is_a_warning_or_by_policy_a_refusal(
    cli: Cli, cli_json: CliJson, at_home: Delivered, tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path
) -> None:
    events = at_home.home / "audit" / "events.jsonl"
    good = events.read_bytes()
    try:
        events.write_bytes(good + b"damaged\n")
        code, _, err = cli(*words(tiny_model(), tiny_policy, tmp_path / "e.bin"))
        assert code == 0
        assert "note: the audit log did not record this build" in err
        assert (tmp_path / "e.bin").exists()
        code, document = cli_json("verify", tmp_path / "e.bin")
        assert code == 0
        assert "did not record this verify" in str(document["audit"])
        strict = tmp_path / "strict.yaml"
        strict.write_text(tiny_policy.read_text() + "\naudit: {required: true}\n")
        code, _, err = cli(*words(tiny_model(), strict, tmp_path / "strict" / "e.bin"))
        assert code == 3
        assert "audit.required" in err.splitlines()[-1]
        assert not (tmp_path / "strict").exists()
    finally:
        events.write_bytes(good)
    code, _, err = cli(*words(tiny_model(), strict, tmp_path / "strict" / "e.bin"))
    assert code == 0, err
    assert AuditLog(at_home.home).events()[-1].fields["outcome"] == "made"


def test_a_failed_build_is_recorded_by_class_and_check_only(
    cli: Cli, home: Path, tmp_path: Path, tiny_policy: Path
) -> None:
    model = tmp_path / "secret-patient-name.onnx"
    model.write_bytes(b"this is no model")
    assert cli(*words(model, tiny_policy, tmp_path / "e.bin"))[0] == 2
    (event,) = (item for item in AuditLog(home).events() if item.kind == "build")
    assert (event.fields["outcome"], event.fields["error"]) == ("failed", "UsageError")
    assert b"secret-patient-name" not in (home / "audit" / "events.jsonl").read_bytes()
    assert json.loads(event.encode())["fields"]["target"] == X86


def test_every_use_of_the_authority_is_recorded_without_names(cli: Cli, home: Path) -> None:
    person = ("--person", "Wren Plover", "--role", "tester")
    assert cli("keys", "ca", "init")[0] == 0
    for command in ("issue", "rotate"):
        code, _, err = cli("keys", command, *person)
        assert (code, err) == (0, "")
    assert cli("keys", "crl")[0] == 0
    log = AuditLog(home)
    assert kinds(home) == ["keys-ca-init", "keys-issue", "keys-rotate", "keys-crl"]
    issued, rotated = log.events()[1:3]
    assert issued.fields["role"] == "tester"
    assert issued.fields["keys"] != rotated.fields["keys"]
    assert log.personal(issued)["Wren Plover"] == {"person": "Wren Plover"}
    assert b"Wren" not in log.events_file.path.read_bytes()
