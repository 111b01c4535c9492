"""What an auditor uses without Cuvil: the shell script, the zipapp, other people's libraries; and the bundle."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1.statement import Statement
from release_case import RELEASE, STEM, Case, changed, checked, copy_of, failed
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from cuvil_assets.cli import main
from evidence.bundle import VERIFIER_NAME, bundle, verifier_zipapp
from evidence.verifier.der import encode_pem
from evidence.verifier.errors import UsageError
from evidence.verifier.intoto import CYCLONEDX_TYPE, PROVENANCE_TYPE, TEST_RESULT_TYPE

SH = shutil.which("dash") or shutil.which("sh") or "/bin/sh"


@pytest.fixture(scope="module")
def public_keys(full_release: Case, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("public keys")
    paths = []
    for signer in full_release.keys["Berta"].signers:
        path = folder / f"{signer.algorithm}.pem"
        path.write_text(encode_pem("PUBLIC KEY", signer.spki))
        paths.append(str(path))
    return paths


def verify_sh(folder: Path, keys: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["env", "-i", SH, str(folder / "verify.sh"), *keys]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_verify_sh_in_an_empty_environment(full_release: Case, public_keys: list[str]) -> None:
    done = verify_sh(full_release.folder, public_keys)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("verified: both signatures and ")
    assert verify_sh(full_release.folder, public_keys[::-1]).returncode == 1
    assert verify_sh(full_release.folder, public_keys[:1]).returncode == 2


def _flip(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])

    return change


def _edit(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / RELEASE).read_text()
        assert old in text
        (folder / RELEASE).write_text(text.replace(old, new, 1))

    return change


def _signature(number: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        envelope = json.loads((folder / RELEASE).read_text())
        raw = bytearray(base64.b64decode(envelope["signatures"][number]["sig"]))
        raw[-1] ^= 1
        envelope["signatures"][number]["sig"] = base64.b64encode(raw).decode()
        (folder / RELEASE).write_text(json.dumps(envelope, indent=2) + "\n")

    return change


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (_flip(f"{STEM}.bin"), "files-complete"),
        (_flip(f"{STEM}.cdx.json"), "files-complete"),
        (_flip(VERIFIER_NAME), "files-complete"),
        (lambda folder: (folder / f"{STEM}.policy.yaml").unlink(), "files-complete"),
        (lambda folder: (folder / "extra").write_text("x"), "files-complete"),
        (lambda folder: (folder / ".hidden").write_text("x"), "files-complete"),
        (lambda folder: (folder / "extra").symlink_to("/etc/passwd"), "files-complete"),
        (lambda folder: (folder / "extra").mkdir() or (folder / "extra" / "x").write_text("x"), "files-complete"),
        (_signature(0), "signature-sm2"),
        (_signature(1), "signature-p384"),
        (_edit('"payload": "e', '"payload": "f'), "signature-sm2"),
        (_edit("vnd.in-toto", "vnd.in-t0to"), "payload-type"),
        (lambda folder: (folder / RELEASE).unlink(), "release-readable"),
    ],
)
def test_verify_sh_on_a_changed_folder(
    full_release: Case, public_keys: list[str], tmp_path: Path, change: Callable[[Path], None], check: str
) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    change(folder)
    done = verify_sh(folder, public_keys)
    assert done.returncode == 1
    assert f"FAILED {check}:" in done.stderr
    assert "verified" not in done.stdout


def zipapp(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(folder / VERIFIER_NAME), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


def test_the_zipapp_by_itself(full_release: Case, tmp_path: Path) -> None:
    """Isolated (-I) and without site-packages (-S): only what is in the file and the standard library."""
    good = zipapp(full_release.folder, str(full_release.folder), "--trust-root", str(full_release.trust_root), "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["ok"] is True
    folder = copy_of(full_release.folder, tmp_path / "r")
    (folder / f"{STEM}.bin").write_bytes(b"other")
    bad = zipapp(full_release.folder, str(folder), "--trust-root", str(full_release.trust_root))
    assert bad.returncode == 1 and "NOT verified" in bad.stdout
    lost = zipapp(full_release.folder, str(folder / "nothing"), "--trust-root", str(full_release.trust_root))
    assert lost.returncode == 2 and lost.stderr.count("\n") == 1


def test_the_zipapp_carries_asn1crypto_with_its_licence_and_is_deterministic() -> None:
    data = verifier_zipapp()
    verifier_zipapp.cache_clear()
    assert verifier_zipapp() == data
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        names = package.namelist()
        assert b"Permission is hereby granted" in package.read("licences/asn1crypto.txt")
    assert "asn1crypto/core.py" in names and "evidence/verifier/release.py" in names
    assert not [name for name in names if name.startswith(("compiler_kernels", "cuvil"))]


def test_bundle_is_deterministic_and_verifies_without_unpacking(full_release: Case, tmp_path: Path) -> None:
    data = bundle(full_release.folder)
    assert bundle(copy_of(full_release.folder, tmp_path / "copy" / full_release.folder.name)) == data
    path = tmp_path / "bundle.zip"
    path.write_bytes(data)
    assert checked(path, full_release.trust_root).ok
    with zipfile.ZipFile(path) as package:
        package.extractall(tmp_path / "unpacked")
    assert checked(tmp_path / "unpacked" / full_release.folder.name, full_release.trust_root).ok
    with zipfile.ZipFile(path, "a") as package:
        package.writestr(f"{full_release.folder.name}/extra", b"x")
    assert failed(checked(path, full_release.trust_root)) == {"files-complete"}
    path.write_bytes(data)
    with zipfile.ZipFile(path, "a") as package, pytest.warns(UserWarning, match="Duplicate name"):
        package.writestr(f"{full_release.folder.name}/{STEM}.bin", b"x")
    assert "files-complete" in failed(checked(path, full_release.trust_root))
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="not an intact zip"):
        checked(path, full_release.trust_root)


def test_a_bundle_whose_paths_leave_it(full_release: Case, tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    name = full_release.folder.name
    for escape in (f"{name}/../../outside", f"{name}//etc/passwd", f"{name}/a\\b", f"{name}/./x"):
        path.write_bytes(bundle(full_release.folder))
        with zipfile.ZipFile(path, "a") as package:
            package.writestr(escape, b"x")
        assert failed(checked(path, full_release.trust_root)) == {"files-complete"}, escape


def lines(case: Case) -> list[dict[str, object]]:
    return [json.loads(line) for line in (case.folder / f"{STEM}.intoto.jsonl").read_text().splitlines()]


def test_intoto_attestation_accepts_every_statement(full_release: Case) -> None:
    kinds = []
    for envelope in lines(full_release):
        value = json.loads(base64.b64decode(str(envelope["payload"])))
        subject = [{"name": item["name"], "digest": item["digest"]} for item in value["subject"]]
        statement = Statement([], value["predicateType"], value["predicate"])
        statement.copy_from_pb(ParseDict({**value, "subject": subject}, statement.pb))
        statement.validate()
        kinds.append(value["predicateType"])
        if kinds[-1] == TEST_RESULT_TYPE:
            ParseDict(value["predicate"], test_result_pb2.TestResult())
        if kinds[-1] == PROVENANCE_TYPE:
            assert set(value["predicate"]) == {"buildDefinition", "runDetails"}
            assert set(value["predicate"]["buildDefinition"]) == {
                "buildType",
                "externalParameters",
                "internalParameters",
                "resolvedDependencies",
            }
    assert kinds == [PROVENANCE_TYPE, TEST_RESULT_TYPE, CYCLONEDX_TYPE]


def test_securesystemslib_verifies_the_p384_signatures(full_release: Case) -> None:
    signer = full_release.keys["Berta"].signers[1]
    pem = encode_pem("PUBLIC KEY", signer.spki)
    keyid = full_release.keys["Berta"].key_ids[1]
    key = SSlibKey(keyid, "ecdsa", "ecdsa-sha2-nistp384", {"public": pem})
    release = json.loads((full_release.folder / RELEASE).read_text())
    for envelope in [release, *lines(full_release)]:
        fields = {name: envelope[name] for name in ("payload", "payloadType", "signatures")}
        accepted = Envelope.from_dict(json.loads(json.dumps(fields))).verify([key], 1)
        assert list(accepted) == [keyid]
        fields["payload"] = base64.b64encode(base64.b64decode(str(fields["payload"])) + b" ").decode()
        with pytest.raises(Exception, match="threshold"):
            Envelope.from_dict(json.loads(json.dumps(fields))).verify([key], 1)


def test_command_line_verifies_folder_and_bundle(
    full_release: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--trust-root", str(full_release.trust_root)]
    zipped = tmp_path / "b.zip"
    assert main(["bundle", str(full_release.folder), "--output", str(zipped)]) == 0
    for path in (full_release.folder, zipped):
        assert main(["verify", str(path), *root]) == 0
        assert main(["verify", str(path), *root, "--this-device"]) == 1
        capsys.readouterr()
        assert main(["verify", str(path), *root, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["ok"] is True
    folder = copy_of(full_release.folder, tmp_path / "r")
    with changed(folder / f"{STEM}.bin", b"x"):
        assert main(["verify", str(folder), *root, "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["check"] == "files-complete"
    inside = full_release.folder / "b.zip"
    assert main(["bundle", str(full_release.folder), "--output", str(inside)]) == 2
    assert not inside.exists()
