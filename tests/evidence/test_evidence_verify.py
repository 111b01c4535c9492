from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from evidence_samples import ENGINE, SOURCES, stage_results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evidence.build_proof import build_proof, build_statement, created_from
from evidence.keys import init_keys
from evidence.records import record_of
from evidence.verifier import dsse
from evidence.verifier.canonical import MalformedError, canonical_bytes
from evidence.verifier.chain import build_chain
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.report import CHECKS
from evidence.verifier.statement import compile_config_digest
from evidence.verifier.verify import verify_engine

SHARED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def failed(delivery, **changes):
    report = verify_engine(delivery.engine, trust_root=changes.pop("trust_root", delivery.trust_root))
    assert not report.ok
    return {check.name: check.sentence for check in report.failures}


def resign(delivery, change, canonical=canonical_bytes):
    """Change the statement and sign it again with the trusted keys: only content checks can notice."""
    statement = json.loads(dsse.read_envelope(delivery.proof.read_bytes()).payload)
    change(statement)
    delivery.proof.write_bytes(dsse.sign(canonical(statement), delivery.keys.signers).encode())


def test_good_delivery(delivery):
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    assert report.ok and report.trust == "given" and report.trust_grade == "development"
    assert [check.name for check in report.checks] == list(CHECKS)
    assert {check.status for check in report.checks} == {"ok"}
    report.raise_if_failed()
    value = json.loads(json.dumps(report.to_json()))
    assert value["ok"] is True and value["failed"] == [] and value["evidence"]["target"] == "x86_64-linux-musl"
    assert value["evidence"]["equivalence"] == {"verdict": "passed", "grade": "executed natively"}


def test_default_trust_root_is_development(delivery, key_home, monkeypatch):
    monkeypatch.setenv("CUVIL_HOME", str(key_home))
    assert verify_engine(delivery.engine).ok and verify_engine(delivery.engine).trust == "development"


def test_payload_is_reproducible_and_p384_too(proof_of):
    one, two = (dsse.read_envelope(proof_of()) for _ in range(2))
    assert one.payload == two.payload and one.signatures[1] == two.signatures[1]
    assert one.signatures[0] != two.signatures[0]
    dated = dsse.read_envelope(proof_of(environment={"SOURCE_DATE_EPOCH": "1700000000"})).payload
    assert b'"created":"2023-11-14T22:13:20Z","created_source":"SOURCE_DATE_EPOCH"' in dated
    assert b'"created":"1970-01-01T00:00:00Z","created_source":"default, SOURCE_DATE_EPOCH not set"' in one.payload


@pytest.mark.parametrize("text", ["", " 1", "1.5", "-1", "1e3", "253402300800", "٣", "9" * 13])
def test_bad_epoch(text):
    with pytest.raises(UsageError, match=r"SOURCE_DATE_EPOCH=.*whole number"):
        created_from({"SOURCE_DATE_EPOCH": text})


def test_last_epoch():
    assert created_from({"SOURCE_DATE_EPOCH": "253402300799"})[0] == "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("position", [0, 5000, -1])
def test_flipped_engine_byte(delivery, position):
    data = bytearray(ENGINE.data)
    data[position] ^= 1
    delivery.engine.write_bytes(data)
    found = failed(delivery)
    assert list(found) == ["subject-digest"] and "inference-engine.bin" in found["subject-digest"]
    assert "was changed" in found["subject-digest"]
    with pytest.raises(VerificationFailed) as caught:
        verify_engine(delivery.engine, trust_root=delivery.trust_root).raise_if_failed()
    assert caught.value.check == "subject-digest" and caught.value.exit_code == 1


def test_truncated_and_extended_engine(delivery):
    for data in (ENGINE.data[:-1], ENGINE.data + b"\0", b""):
        delivery.engine.write_bytes(data)
        assert list(failed(delivery)) == ["subject-digest"]


def test_renamed_engine_is_the_same_engine(delivery, tmp_path):
    renamed = delivery.engine.rename(tmp_path / "other.bin")
    report = verify_engine(renamed, delivery.proof, delivery.trust_root)
    assert report.ok and any("delivered as inference-engine.bin" in check.sentence for check in report.checks)


def test_flipped_payload_byte(delivery):
    envelope = dsse.read_envelope(delivery.proof.read_bytes())
    for position in (0, len(envelope.payload) // 2, len(envelope.payload) - 1):
        payload = bytearray(envelope.payload)
        payload[position] ^= 1
        delivery.proof.write_bytes(replace(envelope, payload=bytes(payload)).encode())
        found = failed(delivery)
        assert list(found) == ["signature-sm2", "signature-p384"]
        assert all("the payload was changed after signing" in sentence for sentence in found.values())


@pytest.mark.parametrize(("index", "name"), [(0, "signature-sm2"), (1, "signature-p384")])
def test_flipped_signature_byte(delivery, index, name):
    envelope = dsse.read_envelope(delivery.proof.read_bytes())
    for position in (0, 1, 20, -1):
        value = bytearray(envelope.signatures[index].value)
        value[position] ^= 1
        signatures = list(envelope.signatures)
        signatures[index] = replace(signatures[index], value=bytes(value))
        delivery.proof.write_bytes(replace(envelope, signatures=tuple(signatures)).encode())
        found = failed(delivery)
        assert list(found) == [name] and "the signature was changed" in found[name]


@given(place=st.integers(0, 10**6), change=st.integers(1, 255))
@SHARED
def test_any_changed_byte_of_the_proof_is_noticed(delivery, good_proof, place, change):
    """Either a check fails or the envelope reads the same (white space between its fields)."""
    position, changed = place % len(good_proof), bytearray(good_proof)
    changed[position] ^= change
    delivery.proof.write_bytes(changed)
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    if report.ok:
        assert dsse.read_envelope(bytes(changed)) == dsse.read_envelope(good_proof)
        assert chr(good_proof[position]).isspace() and chr(changed[position]).isspace()
    else:
        assert report.failures


@given(place=st.integers(0, 10**6), change=st.integers(1, 255))
@SHARED
def test_any_changed_byte_of_the_statement_is_noticed(delivery, good_proof, place, change):
    envelope = dsse.read_envelope(good_proof)
    payload = bytearray(envelope.payload)
    payload[place % len(payload)] ^= change
    delivery.proof.write_bytes(replace(envelope, payload=bytes(payload)).encode())
    assert list(failed(delivery)) == ["signature-sm2", "signature-p384"]


def test_truncated_proof(delivery):
    data = delivery.proof.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 3):
        delivery.proof.write_bytes(data[:size])
        assert list(failed(delivery)) == ["proof-readable"]


@pytest.mark.parametrize(
    ("change", "check", "fault"),
    [
        (lambda e: e.update(payloadType="application/json"), "payload-type", "application/json"),
        (lambda e: e.update(payloadType="application/vnd.in-toto+json "), "payload-type", "not"),
        (lambda e: e.update(comment="x"), "proof-readable", "unknown key comment"),
        (lambda e: e.update(payload=e["payload"] + "\n"), "proof-readable", "payload is not base64"),
        (lambda e: e.update(signatures=[]), "proof-readable", "1 to 16"),
        (lambda e: e["signatures"].append(e["signatures"][0]), "proof-readable", "one keyid"),
        (lambda e: e["signatures"].pop(0), "signer-trusted", "no SM2 signature"),
        (lambda e: e["signatures"].pop(1), "signer-trusted", "no P-384 signature"),
        (lambda e: e["signatures"][0].update(keyid="00" * 32), "signer-trusted", "no SM2 signature"),
        (lambda e: e["signatures"][1].update(cert="x"), "proof-readable", "unknown key cert"),
    ],
)
def test_altered_envelope(delivery, change, check, fault):
    envelope = json.loads(delivery.proof.read_bytes())
    change(envelope)
    delivery.proof.write_text(json.dumps(envelope))
    found = failed(delivery)
    assert list(found) == [check] and fault in found[check]


def test_duplicate_key_in_the_envelope(delivery):
    text = delivery.proof.read_text()
    delivery.proof.write_text(text.replace("{", '{"payload": "e30=",', 1))
    assert "twice" in failed(delivery)["proof-readable"]


def test_extra_material_and_foreign_signatures_are_tolerated_not_trusted(delivery, tmp_path_factory):
    other = init_keys(tmp_path_factory.mktemp("other"))
    envelope = json.loads(delivery.proof.read_bytes())
    signed = dsse.read_envelope(delivery.proof.read_bytes()).signed_bytes
    signature = base64.b64encode(other.signers[0].sign(signed)).decode()
    foreign = {"keyid": other.trust_root.keys[0].key_id, "sig": signature}
    envelope["verificationMaterial"] = {"keys": [key.pem for key in other.trust_root.keys]}
    envelope["signatures"].append(foreign)
    delivery.proof.write_text(json.dumps(envelope))
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    assert report.ok and any("1 by other keys ignored" in check.sentence for check in report.checks)
    # The same envelope against the other root: its SM2 key is trusted there, its P-384 key did not sign.
    found = failed(delivery, trust_root=other.folder / "trust-root.json")
    assert list(found) == ["signer-trusted"] and "no P-384 signature" in found["signer-trusted"]


def test_stranger_signing_everything_is_not_trusted(delivery, proof_of, tmp_path_factory):
    other = init_keys(tmp_path_factory.mktemp("stranger"))
    delivery.proof.write_bytes(proof_of(signers=other.signers))
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    assert [check.name for check in report.failures] == ["signer-trusted"] and not report.evidence


@pytest.mark.parametrize(
    ("change", "check", "fault"),
    [
        (lambda s: s["subject"][0]["digest"].update(sha256="00" * 32), "subject-digest", "sha256 differ"),
        (lambda s: s["subject"][0]["digest"].update(sm3="00" * 32), "subject-digest", "sm3 differ"),
        (lambda s: s["subject"][0]["digest"].update(sha3_512="00" * 64), "engine-digest-in-record", "record of stage"),
        (lambda s: s["predicate"]["chain"].pop(2), "chain", "was changed"),
        (lambda s: s["predicate"].update(head="00" * 64), "chain", "head"),
        (lambda s: s["predicate"]["chain"][0]["record"]["config"].clear(), "chain", "record 0 (source_model)"),
        (lambda s: s["predicate"]["sources"].update({"model.onnx": "00" * 64}), "records", "reads model.onnx"),
        (lambda s: s["predicate"]["policy"].update(sha3_512="00" * 64), "policy", "policy.json"),
        (lambda s: s["predicate"]["frozen_graph"].update(sha3_512="00" * 64), "frozen-graph", "frozen_graph"),
        (lambda s: s["predicate"]["triple"]["compile_config"].update(sha3_512="0" * 128), "compile-config", "records"),
        (lambda s: s["predicate"]["triple"]["compile_config"].update(source="records"), "compile-config", "records"),
        (lambda s: s["predicate"]["equivalence"].update(verdict="not executed"), "equivalence", "not those"),
        (lambda s: s["predicate"]["equivalence"]["report"].update(sha3_512="0" * 128), "equivalence", "equivalence"),
        (lambda s: s["predicate"]["equivalence"].update(verdict="fine"), "statement", "verdict 'fine'"),
        (lambda s: s["predicate"].update(sm2_id=""), "statement", "sm2_id"),
        (lambda s: s["predicate"].update(level="release"), "statement", "level"),
        (lambda s: s["predicate"].pop("policy"), "statement", "lacks policy"),
        (lambda s: s.update(predicateType="https://slsa.dev/provenance/v1"), "statement", "predicateType"),
        (lambda s: s["subject"].append(s["subject"][0]), "statement", "one engine"),
    ],
)
def test_signed_statements_that_contradict_themselves(delivery, change, check, fault):
    resign(delivery, change)
    found = failed(delivery)
    assert check in found and fault in found[check]
    assert set(found) <= {check, "subject-digest", "engine-digest-in-record"}


def test_statement_must_be_canonical(delivery):
    resign(delivery, lambda statement: None, lambda value: json.dumps(value, indent=1).encode())
    assert "RFC 8785" in failed(delivery)["statement"]


def test_unlinked_record_with_a_recomputed_chain(delivery):
    """A chain that is consistent in itself but has lost a stage, signed by trusted keys."""
    results = [result for result in stage_results() if result.stage != "generated_source"]
    chain = build_chain([record_of(result) for result in results])

    def change(statement):
        statement["predicate"].update(chain=chain.to_json(), head=chain.head)
        statement["predicate"]["triple"]["compile_config"] = {
            "sha3_512": compile_config_digest(chain),
            "source": "records",
        }

    resign(delivery, change)
    found = failed(delivery)
    assert list(found) == ["records"] and "stage engine reads source" in found["records"]


def test_config_digest_is_the_one_the_engine_prints(delivery, proof_of):
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    assert report.evidence["compile_config"] == "ab" * 64
    results = stage_results()
    results[2] = replace(results[2], facts={})
    delivery.proof.write_bytes(proof_of(results))
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    expected = compile_config_digest(build_chain([record_of(result) for result in results]))
    assert report.ok and report.evidence["compile_config"] == expected


def test_not_executed_is_said(delivery, proof_of):
    results = stage_results(outcome={"verdict": "not executed", "grade": "not executed"})
    delivery.proof.write_bytes(proof_of(results))
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    sentence = next(check.sentence for check in report.checks if check.name == "equivalence")
    assert report.ok and sentence == "equivalence with the reference: not executed (not executed)"


def test_failed_equivalence_is_not_signed_and_does_not_verify(delivery, proof_of):
    results = stage_results(outcome={"verdict": "failed", "grade": "executed natively"})
    with pytest.raises(VerificationFailed, match="not signed") as caught:
        proof_of(results)
    assert caught.value.check == "equivalence"
    # Someone signs it all the same.
    payload = build_statement(
        [record_of(result) for result in results],
        engine_name="inference-engine.bin", model_version="1", target="x86_64-linux-musl", environment={},
    )  # fmt: skip
    delivery.proof.write_bytes(dsse.sign(payload, delivery.keys.signers).encode())
    found = failed(delivery)
    assert list(found) == ["equivalence"] and "differs from the reference" in found["equivalence"]


def test_incomplete_or_contradicting_builds_are_not_signed(proof_of, keys):
    results = stage_results()
    with pytest.raises(MalformedError, match="stage engine reads source"):
        proof_of(results[:2] + results[3:])
    with pytest.raises(MalformedError, match="no record of stage equivalence"):
        proof_of(results[:-1])
    with pytest.raises(MalformedError, match="policy"):
        proof_of([replace(results[0], artifacts=results[0].artifacts[:1]), *results[1:]])
    with pytest.raises(MalformedError, match="built for x86_64-linux-musl, not for aarch64-linux-musl"):
        proof_of(target="aarch64-linux-musl")
    for outcome in ({"verdict": "fine", "grade": "x"}, {"verdict": "passed"}, {}):
        with pytest.raises(MalformedError, match="verdict"):
            proof_of(stage_results(outcome=outcome))
    for signers in (keys.signers[:1], tuple(reversed(keys.signers)), ()):
        with pytest.raises(UsageError, match="needs the signers"):
            proof_of(signers=signers)


def test_stage_result(keys):
    result = build_proof(
        stage_results(), keys.signers, engine_name="out/inference-engine.bin", model_version="1",
        target="x86_64-linux-musl", environment={},
    )  # fmt: skip
    assert result.stage == "build_proof" and result.principal.name == "inference-engine.proof.json"
    assert result.inputs["engine/inference-engine.bin"] == ENGINE.sha3_512 and len(result.inputs) == 5
    statement = json.loads(dsse.read_envelope(result.principal.data).payload)
    assert result.facts["head"] == statement["predicate"]["head"]
    assert statement["predicate"]["sources"] == SOURCES
    assert [key.key_id for key in keys.trust_root.keys] == list(result.facts["signers"].values())


def test_missing_files_are_usage_errors(delivery, tmp_path):
    with pytest.raises(UsageError, match=r"absent\.bin: cannot be read"):
        verify_engine(tmp_path / "absent.bin", delivery.proof, delivery.trust_root)
    with pytest.raises(UsageError, match="no such trust root; run `cuvil keys init` or give --trust-root"):
        verify_engine(delivery.engine, trust_root=tmp_path / "absent.json")
    with pytest.raises(UsageError, match="cannot be read"):
        verify_engine(tmp_path, delivery.proof, delivery.trust_root)
    delivery.proof.unlink()
    with pytest.raises(UsageError, match=r"inference-engine\.proof\.json: no such proof"):
        verify_engine(delivery.engine, trust_root=delivery.trust_root)


def test_a_report_is_good_only_when_every_check_was_made(delivery):
    report = verify_engine(delivery.engine, trust_root=delivery.trust_root)
    skipped = replace(report.checks[-1], status="not checked", sentence="not checked: x")
    for checks in ((), report.checks[:-1], (*report.checks[:-1], skipped), report.checks + report.checks[-1:]):
        assert not replace(report, checks=checks).ok
    with pytest.raises(VerificationFailed) as caught:
        replace(report, checks=(*report.checks[:-1], skipped)).raise_if_failed()
    assert caught.value.check == "equivalence"


def test_nothing_of_this_machine_is_signed(tmp_path, keys, proof_of):
    payload = dsse.read_envelope(proof_of(engine_name=str(tmp_path / "inference-engine.bin"))).payload
    assert str(tmp_path).encode() not in payload
    assert json.loads(payload)["subject"][0]["name"] == "inference-engine.bin"


def test_epoch_is_read_from_the_process(proof_of, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    payload = dsse.read_envelope(proof_of(environment=None)).payload
    assert json.loads(payload)["predicate"]["created"] == "1970-01-02T00:00:00Z"
