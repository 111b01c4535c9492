"""The proof as other people's tools see it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.verifier import dsse
from evidence.verifier.report import CHECKS

DOCUMENT = Path(__file__).parents[2] / "docs" / "evidence.md"


def documented_commands() -> str:
    match = re.search(r"<!-- test: verify with openssl -->\n```sh\n(.*?)```", DOCUMENT.read_text(), re.S)
    assert match is not None
    return match.group(1)


def audit(delivery) -> subprocess.CompletedProcess[str]:
    """Run the commands of docs/evidence.md as an auditor would."""
    folder = delivery.engine.parent
    for name in ("sm2.pub.pem", "p384.pub.pem"):
        shutil.copy2(delivery.keys.folder / name, folder / name)
    return subprocess.run(["sh", "-c", documented_commands()], cwd=folder, capture_output=True, text=True)


def test_openssl_alone_verifies(delivery):
    done = audit(delivery)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Verified OK\nVerified OK\nengine and proof belong together\n"


def test_openssl_alone_refuses(delivery):
    proof = delivery.proof.read_bytes()
    delivery.engine.write_bytes(delivery.engine.read_bytes() + b"\0")
    assert audit(delivery).returncode != 0
    envelope = dsse.read_envelope(proof)
    changed = envelope.payload.replace(b'"target":"x86_64', b'"target":"X86_64')
    delivery.proof.write_bytes(replace(envelope, payload=changed).encode())
    done = audit(delivery)
    assert done.returncode != 0 and "Verified OK" not in done.stdout


def test_openssl_without_identity_refuses(delivery):
    """The trap the document warns of: OpenSSL 3.0 without distid is not standard SM2."""
    commands = documented_commands().replace("-sigopt distid:1234567812345678 ", "")
    assert audit(delivery).returncode == 0
    done = subprocess.run(["sh", "-c", commands], cwd=delivery.engine.parent, capture_output=True, text=True)
    assert done.returncode != 0 and "Verified OK" not in done.stdout


def test_in_toto_validates_the_statement(delivery):
    statement_pb2 = pytest.importorskip("in_toto_attestation.v1.statement_pb2")
    from google.protobuf import json_format
    from in_toto_attestation.v1.statement import Statement

    payload = dsse.read_envelope(delivery.proof.read_bytes()).payload
    message = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(message).validate()
    assert set(message.subject[0].digest) == {"sha256", "sha3_512", "sm3"}


def test_securesystemslib_agrees(delivery):
    pytest.importorskip("securesystemslib")
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    ours = dsse.read_envelope(delivery.proof.read_bytes())
    trusted = delivery.keys.trust_root.keys[1]
    key = SSlibKey.from_crypto(load_der_public_key(trusted.spki), keyid=trusted.key_id)
    # from_dict changes the dictionary it is given, so each call gets a fresh one.
    theirs = Envelope.from_dict(json.loads(delivery.proof.read_bytes()))
    assert theirs.pae() == ours.signed_bytes
    assert list(theirs.verify([key], 1)) == [trusted.key_id]
    theirs = Envelope.from_dict(json.loads(delivery.proof.read_bytes()))
    theirs.payload = theirs.payload.replace(b"CA-1", b"CA-2")
    with pytest.raises(VerificationError):
        theirs.verify([key], 1)


def test_pae_example():
    # The example of the DSSE protocol document.
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_every_check_is_documented():
    text = DOCUMENT.read_text()
    start = text.index("\n## Checks\n") + 1
    section = text[start : text.index("\n## ", start)]
    rows = "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    assert tuple(re.findall(r"`([^`]+)`", rows)) == CHECKS
