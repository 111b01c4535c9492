"""The authority in files, the keyring it signs, rotation, revocation, and the trust root it hands out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from x509_case import DAY, T0

from evidence import ml_dsa
from evidence.ca import Authority, init_authority, load_identity, sign_keyring
from evidence.keys import init_keys
from evidence.verifier.canonical import MalformedError
from evidence.verifier.der import decode_pem
from evidence.verifier.errors import CertificateFailure, UnsupportedError, UsageError, VerifierError
from evidence.verifier.keyring import KeyEntry, Keyring, read_keyring
from evidence.verifier.ml_dsa import NOT_CHECKED, MlDsaVerifier, ml_dsa_available
from evidence.verifier.signing import P384, REQUIRED_ALGORITHMS, key_id
from evidence.verifier.trust import FORMAT, FORMAT_2, load_trust_root
from evidence.verifier.x509 import CODE_SIGNING, DEPLOYMENT, DOCUMENT_SIGNING, verify_chain

ALICE = "王小明"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """With two people, a builder and a device; Alice's first tester keys were replaced, then revoked."""
    made = init_authority(T0, tmp_path_factory.mktemp("home"))
    first = made.issue(ALICE, "tester", T0)
    made.issue("Bob", "developer", T0)
    made.issue("Bob", "builder", T0)
    made.issue("scanner 7", "device", T0, algorithms=(P384,))
    made.rotate(ALICE, "tester", T0 + DAY)
    made.revoke(first.folder.name, "superseded", T0 + 2 * DAY)
    return made


def verify(authority: Authority, der: bytes, purpose: str, days: float = 3, **options: Any) -> str:
    at = T0 + days * DAY
    return verify_chain(
        der, authority.intermediates, authority.roots, authority.crls, at, purpose, **options
    ).common_name


@pytest.mark.parametrize(
    ("person", "role", "purpose"),
    [
        (ALICE, "tester", DOCUMENT_SIGNING),
        ("Bob", "developer", DOCUMENT_SIGNING),
        ("Bob", "builder", CODE_SIGNING),
        ("scanner 7", "device", DEPLOYMENT),
    ],
)
def test_every_role_has_its_purpose(authority: Authority, person: str, role: str, purpose: str) -> None:
    identity = load_identity(person, role, authority.home)
    expected = (P384,) if role == "device" else REQUIRED_ALGORITHMS
    assert tuple(signer.algorithm for signer in identity.signers) == expected
    for der, signer in zip(identity.certificates, identity.signers, strict=True):
        assert verify(authority, der, purpose) == person
        assert authority.trust_root().keyring is not None
        entry = authority.trust_root().keyring.check(key_id(signer.spki), role, T0 + 3 * DAY, stamped=False)  # type: ignore[union-attr]
        assert (entry.person, entry.roles) == (person, (role,))


def test_files_are_private_and_complete(authority: Authority) -> None:
    assert authority.folder.stat().st_mode & 0o777 == 0o700
    keys = list(authority.folder.rglob("*.key.pem"))
    assert len(keys) == 4 + 2 * 4 + 1
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    for folder in (authority.folder / "issued").iterdir():
        for name in ("p384.cert.pem", "p384.chain.pem", "root.p384.crl.pem", "issuing.p384.crl.pem"):
            assert (folder / name).read_bytes().startswith(b"-----BEGIN ")


def test_replaced_and_revoked_keys(authority: Authority) -> None:
    ring = authority.trust_root().keyring
    assert ring is not None
    old = [item for item in ring.entries if item.person == ALICE and item.successor is not None]
    assert [item.algorithm for item in old] == list(REQUIRED_ALGORITHMS)
    for item in old:
        new = ring.entry(str(item.successor))
        assert new is not None and new.person == ALICE and new.endorsement is not None
        ring.check(item.key_id, "tester", T0 + 1.5 * DAY, stamped=True)
        for options in ({"at": T0 + 2 * DAY, "stamped": True}, {"at": T0 + 1.5 * DAY, "stamped": False}):
            with pytest.raises(CertificateFailure) as caught:
                ring.check(item.key_id, "tester", **options)  # type: ignore[arg-type]
            assert (caught.value.check, caught.value.reason) == ("certificate-revoked", "superseded")
    first = next(i for i in authority.register.issued if i.revoked_at)
    pem = (authority.folder / "issued" / first.name / "sm2.cert.pem").read_text()
    der = decode_pem(pem)[1]
    verify(authority, der, DOCUMENT_SIGNING, 1.5, stamped=True)
    with pytest.raises(CertificateFailure, match="superseded"):
        verify(authority, der, DOCUMENT_SIGNING, 2, stamped=True)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"role": "developer"}, ("certificate-purpose", "role")),
        ({"at": T0 - DAY}, ("clock-before-issue", "not-yet-valid")),
        ({"at": T0 + 3000 * DAY}, ("certificate-expired", "expired")),
        ({"identifier": "0" * 64}, ("unknown-key", "not-in-keyring")),
    ],
)
def test_what_the_keyring_refuses(authority: Authority, change: dict[str, Any], expected: tuple[str, str]) -> None:
    ring = authority.trust_root().keyring
    assert ring is not None
    identifier = next(item.key_id for item in ring.entries if item.person == ALICE and item.successor is None)
    arguments = {"identifier": identifier, "role": "tester", "at": T0 + 3 * DAY, "stamped": True}
    ring.check(**arguments)  # type: ignore[arg-type]
    with pytest.raises(CertificateFailure) as caught:
        ring.check(**(arguments | change))
    assert (caught.value.check, caught.value.reason) == expected


def root_signers(authority: Authority) -> list[Any]:
    return [authority._signer("root", algorithm) for algorithm in REQUIRED_ALGORITHMS]


def root_spkis(authority: Authority) -> list[bytes]:
    return [signer.spki for signer in root_signers(authority)]


def test_only_the_roots_sign_the_keyring(authority: Authority) -> None:
    ring = authority.trust_root().keyring
    assert ring is not None
    roots, signers = root_spkis(authority), root_signers(authority)
    assert read_keyring(sign_keyring(ring, signers), roots) == ring
    bob = load_identity("Bob", "builder", authority.home)
    for wrong in (bob.signers, signers[:1], signers[::-1]):
        with pytest.raises(CertificateFailure) as caught:
            read_keyring(sign_keyring(ring, wrong), roots)
        assert (caught.value.check, caught.value.reason) == ("unknown-key", "keyring-signer")


def test_every_change_of_the_keyring_file_is_noticed(authority: Authority) -> None:
    data, roots = (authority.folder / "keyring.json").read_bytes(), root_spkis(authority)
    for index in range(0, len(data), 11):
        bad = bytearray(data)
        bad[index] ^= 1 << (index % 7)
        with pytest.raises(VerifierError):
            read_keyring(bytes(bad), roots)


def test_a_successor_needs_the_old_keys_signature(authority: Authority) -> None:
    ring = authority.trust_root().keyring
    assert ring is not None
    signers, roots = root_signers(authority), root_spkis(authority)

    def changed(**fields: Any) -> Keyring:
        def one(item: KeyEntry) -> KeyEntry:
            return dataclasses.replace(item, **fields) if item.endorsement and item.algorithm == P384 else item

        return Keyring(ring.version, tuple(one(item) for item in ring.entries))  # type: ignore[union-attr]

    for fields in ({"endorsement": None}, {"endorsement": b"x"}, {"roles": ("tester", "quality")}):
        with pytest.raises(CertificateFailure) as caught:
            read_keyring(sign_keyring(changed(**fields), signers), roots)
        assert caught.value.reason == "endorsement"
    with pytest.raises(MalformedError, match="successor"):
        read_keyring(sign_keyring(changed(person="Eve"), signers), roots)


def test_a_trust_root_of_version_2_and_of_version_1(authority: Authority, tmp_path: Path) -> None:
    path = authority.folder / "trust-root.json"
    root = load_trust_root(path)
    assert json.loads(path.read_text())["format"] == FORMAT_2
    assert root.encode() == path.read_bytes()
    assert (root.roots, root.crls) == (authority.roots, authority.crls)
    assert root.keys == init_keys(authority.home).trust_root.keys
    old = load_trust_root(authority.home / "keys" / "trust-root.json")
    assert (old.roots, old.keyring) == ((), None) and json.loads(old.encode())["format"] == FORMAT
    value = json.loads(path.read_text())
    value["keyring"] = "ring.json"
    (tmp_path / "t.json").write_text(json.dumps(value))
    (tmp_path / "ring.json").write_bytes((authority.folder / "keyring.json").read_bytes())
    assert load_trust_root(tmp_path / "t.json").keyring == root.keyring


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda v: v.update(format="cuvil-trust-root/3"), "unknown key|format"),
        (lambda v: v.update(format="cuvil-trust-root/1"), "unknown key"),
        (lambda v: v["roots"].append(v["roots"][0]), "twice"),
        (lambda v: v["roots"][0].update(algorithm="ecdsa-p384-sha384"), "algorithm"),
        (lambda v: v["roots"].pop(), "no root key"),
        (lambda v: v.update(keyring="missing.json"), "missing.json"),
        (lambda v: v["crls"].append("x"), "PEM"),
        (lambda v: v.update(keys=[], roots=[]), "keys is empty"),
    ],
)
def test_bad_trust_roots(authority: Authority, tmp_path: Path, change: Any, word: str) -> None:
    value = json.loads((authority.folder / "trust-root.json").read_text())
    change(value)
    (tmp_path / "t.json").write_text(json.dumps(value))
    with pytest.raises(UsageError, match=word):
        load_trust_root(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda a: a.issue(ALICE, "tester", T0), "already has keys"),
        (lambda a: a.issue(ALICE, "king", T0), "--role"),
        (lambda a: a.issue("a\nb", "tester", T0), "--person"),
        (lambda a: a.issue("x" * 65, "tester", T0), "--person"),
        (lambda a: a.rotate("Nobody", "tester", T0), "no valid keys"),
        (lambda a: a.revoke("none", "superseded", T0), "no issued set"),
        (lambda a: a.revoke("none", "boredom", T0), "--reason"),
        (lambda a: a.revoke(a.register.issued[0].name, "superseded", T0), "already revoked"),
    ],
)
def test_refusals_change_nothing(authority: Authority, call: Any, word: str) -> None:
    before = {path: path.read_bytes() for path in authority.folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=word):
        call(Authority(authority.home))
    assert before == {path: path.read_bytes() for path in authority.folder.rglob("*") if path.is_file()}


def test_file_modes_and_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Eighteen keys are sealed and opened here; the number of rounds is not what is tested.
    monkeypatch.setattr("evidence.verifier.libcrypto._PBKDF2_ROUNDS", 5000)
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "a long passphrase")
    made = init_authority(T0, tmp_path)
    identity = made.issue("Bob", "quality", T0)
    keys = [*made.folder.glob("*.key.pem"), *identity.folder.glob("*.key.pem")]
    assert all(b"ENCRYPTED" in path.read_bytes() for path in keys) and len(keys) == 6
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "another")
    with pytest.raises(UsageError, match="decrypted"):
        load_identity("Bob", "quality", tmp_path)
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "a long passphrase")
    (identity.folder / "p384.key.pem").chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        load_identity("Bob", "quality", tmp_path)
    made.folder.chmod(0o777)
    with pytest.raises(UsageError, match="chmod 700"):
        Authority(tmp_path)


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from cuvil_assets.cli import main

    monkeypatch.setenv("CUVIL_HOME", str(tmp_path))

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        assert main(["keys", *words, "--json"]) == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    assert "cuvil keys ca init" in run("list", code=2)["message"]
    run("ca", "init")
    name = run("issue", "--person", ALICE, "--role", "tester")["name"]
    assert "--purpose" in run("issue", "--person", "B", "--role", "tester", "--purpose", "x", code=2)["message"]
    device = run("issue", "--person", "scanner", "--role", "device", "--ecdsa-only")
    assert list(device["keys"]) == [P384]
    run("rotate", "--person", ALICE, "--role", "tester")
    run("revoke", name, "--reason", "key-compromise", "--invalid-since", "2026-01-31T00:00:00Z")
    assert "is not a time" in run("revoke", name, "--reason", "superseded", "--invalid-since", "now", code=2)["message"]
    assert len(run("crl", "--days", "5")["crls"]) == 4
    assert [row["state"] for row in run("list")["issued"]] == ["revoked (key_compromise)", "current", "current"]
    shown = run("keyring", "show")
    assert len(shown["keys"]) == 5 and shown["version"] == 5
    assert shown["keys"][0]["invalidity_date"] == "2026-01-31T00:00:00Z"
    assert main(["keys", "list"]) == 0 and ALICE in capsys.readouterr().out
    assert main(["keys", "keyring", "show"]) == 0 and "revoked" in capsys.readouterr().out


def test_ml_dsa_is_optional_and_never_silently_accepted() -> None:
    signer = ml_dsa.MlDsaSigner(ml_dsa.generate_private_key())
    signature = signer.sign(b"message")
    assert ml_dsa.verify_here(signer.spki, b"message", signature)
    assert not ml_dsa.verify_here(signer.spki, b"other", signature)
    verifier = MlDsaVerifier(signer.spki)
    if ml_dsa_available():
        assert verifier.verify(b"message", signature)
        assert not verifier.verify(b"other", signature)
    else:
        with pytest.raises(UnsupportedError, match=NOT_CHECKED):
            verifier.verify(b"message", signature)
    with pytest.raises(UsageError):
        MlDsaVerifier(signer.spki[:-1])
    with pytest.raises(UsageError):
        ml_dsa.MlDsaSigner(b"x")
