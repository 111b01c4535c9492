from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.keys import KeySet, default_home, default_trust_root, init_keys, load_keys
from evidence.p384 import P384Signer
from evidence.sm2 import Sm2Signer
from evidence.verifier.errors import UsageError
from evidence.verifier.trust import load_trust_root

FILES = ["p384.key.pem", "p384.pub.pem", "sm2.key.pem", "sm2.pub.pem", "trust-root.json"]


@pytest.fixture
def home(keys: KeySet, tmp_path: Path) -> Path:
    """A private copy of the session's key set."""
    shutil.copytree(keys.folder, tmp_path / "keys")
    (tmp_path / "keys").chmod(0o700)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_init_makes_a_complete_set_once(tmp_path, umask):
    home = tmp_path / "deep" / "home"
    previous = os.umask(umask)
    try:
        made = init_keys(home)
    finally:
        os.umask(previous)
    assert made.created and not made.encrypted and made.trust_root.grade == "development"
    assert sorted(contents(made.folder)) == FILES and [p.name for p in home.iterdir()] == ["keys"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in made.folder.iterdir()}
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700
    assert modes == {name: 0o600 if name.endswith(".key.pem") else 0o644 for name in FILES}
    before = contents(made.folder)
    again = init_keys(home)
    assert not again.created and contents(made.folder) == before
    assert [signer.spki for signer in again.signers] == [signer.spki for signer in made.signers]
    assert [type(signer) for signer in again.signers] == [Sm2Signer, P384Signer]


def test_trust_root_form(keys):
    value = json.loads((keys.folder / "trust-root.json").read_text())
    assert value["grade"] == "development" and [key["algorithm"] for key in value["keys"]] == [
        "sm2-sm3",
        "ecdsa-p384-sha384",
    ]
    for key, stem in zip(value["keys"], ("sm2", "p384"), strict=True):
        path = keys.folder / f"{stem}.pub.pem"
        assert key["public_key"] == path.read_text()
        der = subprocess.run(
            ["openssl", "pkey", "-pubin", "-in", path, "-outform", "DER"], check=True, capture_output=True
        ).stdout
        digest = subprocess.run(["openssl", "dgst", "-sha256", "-r"], input=der, check=True, capture_output=True).stdout
        assert digest.split()[0].decode() == key["key_id"]


def test_home_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path))
    assert default_home() == tmp_path and default_trust_root() == tmp_path / "keys" / "trust-root.json"
    monkeypatch.delenv("CUVIL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert default_home() == tmp_path / "user" / ".cuvil"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_open_private_key_is_refused(home, mode):
    path = home / "keys" / "sm2.key.pem"
    path.chmod(mode)
    with pytest.raises(UsageError, match=rf"sm2\.key\.pem: .*mode {mode:04o}.*chmod 600 {path}"):
        load_keys(home)
    path.chmod(0o400)
    assert load_keys(home).signers


def test_folder_writable_by_others_is_refused(home):
    (home / "keys").chmod(0o770)
    with pytest.raises(UsageError, match="chmod 700"):
        load_keys(home)


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".pub.pem")])
def test_incomplete_set_is_refused_and_left_alone(home, name):
    (home / "keys" / name).unlink()
    before = contents(home / "keys")
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        init_keys(home)
    assert contents(home / "keys") == before


def test_missing_set_names_the_command(tmp_path):
    with pytest.raises(UsageError, match="run `cuvil keys init`"):
        load_keys(tmp_path)


def test_unusable_home_leaves_nothing(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(UsageError, match="CUVIL_HOME"):
        init_keys(blocked)
    with pytest.raises(UsageError, match="CUVIL_HOME"):
        init_keys(blocked / "below")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_foreign_private_key_is_refused(home, tmp_path_factory):
    other = init_keys(tmp_path_factory.mktemp("other"))
    shutil.copy2(other.folder / "sm2.key.pem", home / "keys" / "sm2.key.pem")
    with pytest.raises(UsageError, match=r"sm2\.key\.pem: its public key is not in trust-root\.json"):
        load_keys(home)


def test_swapped_and_broken_private_keys(home):
    folder = home / "keys"
    shutil.copy2(folder / "p384.key.pem", folder / "sm2.key.pem")
    with pytest.raises(UsageError, match=r"sm2\.key\.pem: the key is not an SM2 private key"):
        load_keys(home)
    (folder / "sm2.key.pem").write_text("not a key")
    with pytest.raises(UsageError, match=r"sm2\.key\.pem: the private key is not one PEM block"):
        load_keys(home)
    shutil.copy2(folder / "p384.pub.pem", folder / "sm2.key.pem")
    (folder / "sm2.key.pem").chmod(0o600)
    with pytest.raises(UsageError, match="PUBLIC KEY block"):
        load_keys(home)


def test_plain_keys_only_for_development(home):
    path = home / "keys" / "trust-root.json"
    path.write_text(path.read_text().replace('"development"', '"production"'))
    with pytest.raises(UsageError, match="plain private key may only be used with grade development"):
        load_keys(home)


def test_passphrase(tmp_path, monkeypatch):
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "correct horse 电池")
    made = init_keys(tmp_path)
    assert made.created and made.encrypted
    for stem in ("sm2", "p384"):
        path = made.folder / f"{stem}.key.pem"
        assert path.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        # OpenSSL reads the file with the same passphrase and finds the same public key.
        command = ["openssl", "pkey", "-in", path, "-passin", "env:CUVIL_KEY_PASSPHRASE", "-pubout"]
        public = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert public == (made.folder / f"{stem}.pub.pem").read_text()
    assert [signer.spki for signer in load_keys(tmp_path).signers] == [signer.spki for signer in made.signers]
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "wrong")
    with pytest.raises(UsageError, match="cannot be decrypted; set CUVIL_KEY_PASSPHRASE"):
        load_keys(tmp_path)
    monkeypatch.setenv("CUVIL_KEY_PASSPHRASE", "")
    with pytest.raises(UsageError, match="set but empty"):
        load_keys(tmp_path)
    monkeypatch.delenv("CUVIL_KEY_PASSPHRASE")
    with pytest.raises(UsageError, match="is encrypted; set CUVIL_KEY_PASSPHRASE"):
        load_keys(tmp_path)


def test_two_first_builds_at_once_agree(tmp_path):
    script = (
        "import pathlib, sys\nfrom evidence.keys import init_keys\n"
        "print(init_keys(pathlib.Path(sys.argv[1])).created)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "home")]
    running = [
        subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [process.communicate()[0].strip() for process in running]
    assert all(process.returncode == 0 for process in running) and sorted(answers) == ["False", "False", "True"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["keys"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda root: root.update(format="x"), "format is not"),
        (lambda root: root.update(extra=1), "unknown key extra"),
        (lambda root: root.update(keys=[]), "keys is empty"),
        (lambda root: root.update(grade=""), "grade is not a non-empty string"),
        (lambda root: root["keys"].append(root["keys"][0]), "one key twice"),
        (lambda root: root["keys"][0].update(algorithm="rsa"), r"keys\[0\]\.algorithm 'rsa'"),
        (lambda root: root["keys"][0].update(algorithm="ecdsa-p384-sha384"), "not an uncompressed P-384 public key"),
        (lambda root: root["keys"][1].update(key_id="00" * 32), r"keys\[1\]\.key_id is not the SHA-256"),
        (lambda root: root["keys"][1].update(public_key="x"), "not one PEM block"),
    ],
)
def test_trust_root_is_read_strictly(home, change, fault):
    path = home / "keys" / "trust-root.json"
    root = json.loads(path.read_text())
    change(root)
    path.write_text(json.dumps(root))
    with pytest.raises(UsageError, match=rf"trust-root\.json: the trust root .*{fault}.*restore it"):
        load_trust_root(path)
