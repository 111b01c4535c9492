"""The whole way on the command line, with an engine that was really compiled: from keys to a deployed release."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from asn1crypto import pem
from release_people import Authority, TimestampAuthority, new_signer
from tiny_models import ModelMaker

from cuvil_assets.builder import open_instance
from cuvil_assets.cli import main
from cuvil_assets.home import Home
from evidence.verifier.release import verify_release

POLICY = """version: 1
model: {name: tiny, version: "1.0.0"}
release: {demand: [equivalence, sbom, intoto, approvals, timestamp]}
approvals: {roles: [developer, tester, quality], threshold: 3}
"""
PEOPLE = {"Dora": "developer", "Tess": "tester", "Quentin": "quality"}


class Flow:
    """Calls of the command line in one home."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def __call__(self, *words: str | Path, code: int = 0) -> dict[str, object]:
        self.capfd.readouterr()
        got = main([*(str(word) for word in words), "--json"])
        out, err = self.capfd.readouterr()
        assert got == code, f"{words}: {out} {err}"
        found = json.loads(out)
        assert isinstance(found, dict)
        return found


def test_from_keys_to_a_deployed_release(
    home_maker: Callable[[], Path],
    tiny_model: ModelMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    home = home_maker()
    monkeypatch.setenv("CUVIL_HOME", str(home))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    cuvil = Flow(capfd)
    policy, build = tmp_path / "policy.yaml", tmp_path / "build"
    policy.write_text(POLICY)
    engine = build / "inference-engine.bin"
    cuvil("build", "--model", tiny_model(), "--policy", policy, "--target", "x86_64-linux-musl", "--output", engine,
          "--equivalence-inputs", "2", "--input-shape", "image=1,1,8,8")  # fmt: skip
    trust = Path(str(cuvil("keys", "ca", "init")["trust_root"]))
    keys = {}
    for person, role in {**PEOPLE, "Berta": "builder", "Scanner 7": "device"}.items():
        keys[person] = str(cuvil("keys", "issue", "--person", person, "--role", role)["folder"])
    root = Authority("TSA Root", new_signer("ecdsa-p384-sha384")[0])
    root.certificate = root.issue(root.title, root.signer.spki, None)
    tsa = TimestampAuthority(tmp_path / "tsa", root)
    (trust.parent / "tsa-roots").mkdir(exist_ok=True)
    (trust.parent / "tsa-roots" / "test.pem").write_bytes(pem.armor("CERTIFICATE", root.certificate))
    cuvil("keys", "crl")
    script = tsa.folder / "stamp.sh"
    script.write_text(
        f"cd {tsa.folder} && cat > query.tsq && {' '.join(tsa.command)} -out reply.tsr >&2 && cat reply.tsr\n"
    )
    stamp, output = f"sh {script}", tmp_path / "release"
    words = ["release", engine, "--output", output, "--key", keys["Berta"], "--trust-root", trust]
    words += ["--timestamp-command", stamp]
    assert "sbom" in str(cuvil(*words, code=3)["message"])
    cuvil("sbom", engine)
    for person, role in PEOPLE.items():
        assert "approv" in str(cuvil(*words, code=3)["message"])
        assert not output.exists()
        cuvil("approve", engine, "--role", role, "--person", person, "--key", keys[person])
    proof = engine.with_name("inference-engine.proof.json").read_bytes()
    made = cuvil(*words)
    assert made["report"]["ok"] is True  # type: ignore[index,call-overload]
    assert (output / "inference-engine.proof.json").read_bytes() == proof
    with open_instance(Home(home)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("release_proof"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.partition == "tiny-1.0.0|x86_64-linux-musl"
    released = hashlib.sha3_512((output / "inference-engine.release.json").read_bytes()).hexdigest()
    assert event.asset_materialization.metadata["digest"].value == f"sha3-512:{released}"
    assert cuvil("verify", output, "--trust-root", trust)["ok"] is True
    assert cuvil("verify", output, "--trust-root", trust, "--this-device", code=1)["check"] == "device"
    cuvil("deploy", output, "--key", keys["Scanner 7"], "--trust-root", trust)
    assert cuvil("verify", output, "--trust-root", trust, "--this-device")["ok"] is True
    cuvil("bundle", output, "--output", tmp_path / "release.zip")
    assert cuvil("verify", tmp_path / "release.zip", "--trust-root", trust, "--this-device")["ok"] is True
    alone = [sys.executable, "-I", "-S", str(output / "cuvil-verify.pyz"), str(output), "--trust-root", str(trust)]
    assert subprocess.run(alone, cwd="/", capture_output=True, check=False).returncode == 0
    log = cuvil("log", "show")
    assert [item["kind"] for item in log["entries"]] == ["build", "release"]  # type: ignore[union-attr,index,call-overload]
    cuvil("log", "prove", "0", "--output", tmp_path / "entry.json")
    assert cuvil("log", "check", "--trust-root", trust)["heads"] == 2
    # The heads are signed by keys that the authority certified, which the default root does not list.
    assert cuvil("log", "check", code=1)["check"] == "log"
    assert verify_release(output, trust).ok
    (output / "inference-engine.bin").chmod(0o700)
    (output / "inference-engine.bin").write_bytes(b"another engine")
    assert cuvil("verify", output, "--trust-root", trust, code=1)["check"] == "files-complete"
