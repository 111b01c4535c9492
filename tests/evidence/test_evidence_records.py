from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from evidence_samples import SOURCES, stage_results
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.stage import Artifact, Json, StageResult
from evidence.records import record_of
from evidence.verifier.canonical import MalformedError, canonical_bytes, signable, strict_base64, strict_json
from evidence.verifier.chain import GENESIS, build_chain, check_links, link, read_chain
from evidence.verifier.digests import _LibcryptoSm3, digest_bytes, digest_file, hashlib_has_sm3, sm3_hex
from evidence.verifier.errors import UsageError
from evidence.verifier.records import StageRecord

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_digests_known_answers(tmp_path):
    # FIPS 180-4 and FIPS 202 examples for "abc"; GB/T 32905 annex A.1.
    got = digest_bytes(b"abc")
    assert got.size == 3
    assert got.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert got.sha3_512.startswith("b751850b1a57168a5693cd924b6b096e08f621827444f70d884f5d0240d2712e")
    assert got.sm3 == "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"
    path = tmp_path / "big"
    path.write_bytes(b"abc" * (1 << 20))
    assert digest_file(path) == digest_bytes(b"abc" * (1 << 20))
    with pytest.raises(UsageError, match="absent: cannot be read"):
        digest_file(tmp_path / "absent")


@pytest.mark.skipif(not hashlib_has_sm3(), reason="this Python's hashlib has no SM3 to compare with")
@given(st.binary(max_size=300))
def test_sm3_fallback_equals_hashlib(data):
    fallback = _LibcryptoSm3()
    fallback.update(data)
    assert fallback.hexdigest() == hashlib.new("sm3", data).hexdigest() == sm3_hex(data)


def test_rfc8785_example():
    # RFC 8785 section 3.2.4: sorting is by UTF-16 code units.
    value = {"\u20ac": "Euro", "\r": "CR", "\ufb33": "dagesh", "1": "One", "\U0001f600": "smile", "\u0080": "c"}
    assert list(json.loads(canonical_bytes(value))) == ["\r", "1", "\u0080", "\u20ac", "\U0001f600", "\ufb33"]


@given(JSON_VALUES)
@settings(max_examples=150, deadline=None)
def test_canonical_form_is_stable_and_float_free(value: Json):
    signed = signable(value)
    try:
        data = canonical_bytes(signed)
    except MalformedError:
        # Only a lone surrogate has no canonical form once numbers are strings.
        with pytest.raises(UnicodeEncodeError):
            json.dumps(signed, ensure_ascii=False).encode()
        return
    again = strict_json(data)
    assert again == signed and canonical_bytes(again) == data

    def floats(item: Json) -> bool:
        if isinstance(item, dict):
            return any(map(floats, item.values()))
        return any(map(floats, item)) if isinstance(item, list) else isinstance(item, float)

    assert not floats(again)


def test_signable_numbers():
    assert signable([0.1, -0.0, float("nan"), float("-inf"), 2**53, 2**53 - 1, -(2**70), True]) == [
        "0.1", "-0.0", "nan", "-inf", str(2**53), 2**53 - 1, str(-(2**70)), True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b'{"a":1,"a":1}', "twice"),
        (b'\xef\xbb\xbf{"a":1}', "not JSON"),
        (b"[NaN]", "NaN"),
        (b'"\xff"', "UTF-8"),
        (b"[" * 100_000, "deeply"),
        (b"[" + b"9" * 5000 + b"]", "number"),
        (b'{"a":1', "not JSON"),
    ],
)
def test_strict_json_refuses(text, fault):
    with pytest.raises(MalformedError, match=fault):
        strict_json(text)


@pytest.mark.parametrize("text", ["YQ", "YQ==\n", "YR==", "Y Q==", "_w==", "é===", "YQ==YQ=="])
def test_base64_has_one_spelling(text):
    with pytest.raises(MalformedError, match="base64"):
        strict_base64(text, "payload")
    assert strict_base64("YQ==", "payload") == b"a"


def test_record_round_trip_and_content():
    for result in stage_results():
        record = record_of(result)
        assert StageRecord.from_json(strict_json(record.canonical)) == record
    frozen = record_of(stage_results()[1])
    assert frozen.facts["rms_error"] == "1.25e-07" and frozen.facts["macs"] == str(2**60)
    assert frozen.principal.sha256 == hashlib.sha256(b"graph").hexdigest()
    assert frozen.principal.sha3_512 == hashlib.sha3_512(b"graph").hexdigest()
    assert frozen.artifact("weights.bin").size == 64 and frozen.artifact("absent") is None


def test_record_does_not_depend_on_insertion_order():
    result = stage_results()[0]
    turned = replace(result, inputs=dict(reversed(list(result.inputs.items()))))
    assert list(turned.inputs) != list(result.inputs)
    assert record_of(turned).canonical == record_of(result).canonical


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"artifacts": ()}, "no artefact"),
        ({"artifacts": (Artifact("a", b""), Artifact("a", b"1"))}, "two artefacts"),
        ({"artifacts": (Artifact("../a", b""),)}, "plain relative path"),
        ({"artifacts": (Artifact("/etc/a", b""),)}, "plain relative path"),
        ({"inputs": {"model": "sha256:00"}}, "128 lower-case hex"),
        ({"facts": {"name": "\ud800"}}, "RFC 8785"),
    ],
)
def test_record_refuses(change, fault):
    result: StageResult = replace(stage_results()[0], **change)
    with pytest.raises(MalformedError, match=fault):
        assert record_of(result).canonical


def test_chain_by_hand():
    records = [record_of(result) for result in stage_results()]
    current = bytes(64)
    for record in records:
        current = hashlib.sha3_512(b"cuvil-stage-v1\0" + current + record.canonical).digest()
    chain = build_chain(records)
    assert chain.head == current.hex()
    assert chain.hashes[0] == link(GENESIS, records[0].canonical).hex()
    assert read_chain(chain.to_json(), chain.head) == chain


def test_chain_notices_every_kind_of_change():
    chain = build_chain([record_of(result) for result in stage_results()])
    entries = chain.to_json()

    def copy() -> list:
        return json.loads(json.dumps(entries))

    changed = copy()
    changed[1]["record"]["facts"]["note"] = "other"
    with pytest.raises(MalformedError, match="record 1 \\(frozen_graph\\)"):
        read_chain(changed, chain.head)
    for broken in (copy()[1:], copy()[:2] + copy()[3:], [copy()[1], copy()[0], *copy()[2:]]):
        with pytest.raises(MalformedError, match="was changed"):
            read_chain(broken, chain.head)
    with pytest.raises(MalformedError, match="head"):
        read_chain(copy()[:-1], chain.head)
    with pytest.raises(MalformedError, match="two records"):
        read_chain(copy() + copy()[-1:], chain.head)
    with pytest.raises(MalformedError, match="at least one"):
        read_chain([], chain.head)
    extra = copy()
    extra[0]["record"]["comment"] = "x"
    with pytest.raises(MalformedError, match="unknown key comment"):
        read_chain(extra, chain.head)


def test_links():
    records = [record_of(result) for result in stage_results()]
    check_links(records, SOURCES)
    with pytest.raises(MalformedError, match=r"stage source_model reads policy\.yaml"):
        check_links(records, {"model.onnx": SOURCES["model.onnx"]})
    with pytest.raises(MalformedError, match="source extra is read by no stage"):
        check_links(records, SOURCES | {"extra": "00" * 64})
    # The same records in another order: a stage may not read what only a later one produces.
    with pytest.raises(MalformedError, match="stage engine reads source"):
        check_links([records[0], records[1], records[3], records[2]], SOURCES)
