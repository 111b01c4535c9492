"""Independent rebuilders of a release: k of n, each with keys of their own, about this very engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from release_case import STEM, Built, build_at, checked, failed, policy_text
from release_people import NOW, Organisation

from compiler_kernels.errors import RefusedError
from evidence.release import Released, release
from evidence.signing_keys import SigningKeys, sign
from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import digest_bytes
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.rebuilds import Rebuild, check_count, read_rebuild
from evidence.verifier.subjects import subject_of

CREATED = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"


def text_of(more: str = "") -> bytes:
    return policy_text(more=f"reproducibility: {{rebuilders: {{required: 2{more}}}}}\n")


class Bench:
    """A build whose policy asks for two rebuilders, and the people around it."""

    def __init__(self, folder: Path, policy: bytes | None = None) -> None:
        self.folder = folder
        self.org = Organisation(folder)
        self.builder = self.org.person("Berta", "builder")
        self.built: Built = build_at(folder / "build", self.builder, policy or text_of())
        self.releases = 0

    def attestation(self, signer: str, **changes: object) -> Rebuild:
        engine = subject_of(f"{STEM}.bin", digest_bytes(self.built.engine.read_bytes()))
        name = f"{STEM}.proof.json"
        proof = subject_of(name, digest_bytes(self.built.engine.with_name(name).read_bytes()))
        source = "clock of the signing machine"
        said = Rebuild(engine, proof, signer, "passed", engine.sha3_512, None, (), CREATED, source)
        return replace(said, **changes)  # type: ignore[arg-type]

    def lay(self, signer: str, keys: SigningKeys | None = None, **changes: object) -> Path:
        """An attestation signed by ``signer`` beside the engine."""
        signed = keys or self.org.person(signer, "rebuilder")
        data = sign(self.attestation(signer, **changes).encode(), signed).encode()
        path = self.built.engine.with_name(f"{STEM}.rebuild-{signed.key_ids[0][:8]}.json")
        path.write_bytes(data)
        return path

    def release(self) -> Released:
        self.releases += 1
        return release(
            self.built.engine,
            self.folder / f"release-{self.releases}",
            self.built.policy_json,
            self.builder,
            trust_root=self.org.trust_root(),
            home=self.folder,
        )

    def refused(self) -> str:
        with pytest.raises(RefusedError) as caught:
            self.release()
        assert caught.value.exit_code == 3
        return str(caught.value)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_two_of_two_release_and_fewer_do_not(bench: Bench) -> None:
    assert "0 independent rebuilders attest this engine, the policy asks for 2" in bench.refused()
    bench.lay("Rita")
    assert "1 independent rebuilders" in bench.refused()
    bench.lay("Rolf")
    done = bench.release()
    assert done.report.ok
    assert sum(".rebuild-" in name for name in done.files) == 2
    check = next(item for item in done.report.checks if item.name == "rebuilds")
    assert "rebuilt bit for bit by R" in check.sentence


def test_one_person_with_two_keys_is_one_rebuilder(bench: Bench) -> None:
    bench.lay("Rita")
    bench.lay("Rita")
    assert "1 independent rebuilders" in bench.refused()


def test_the_builder_is_no_independent_rebuilder(bench: Bench) -> None:
    bench.lay("Rita")
    path = bench.lay("Berta", bench.builder)
    assert "Berta built or released this engine" in bench.refused()
    path.unlink()
    bench.lay("Berta")  # with other keys
    assert "Berta built or released this engine" in bench.refused()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "failed", "rebuilt": None, "difference": "stage engine differs"}, "could not rebuild this engine"),
        ({"rebuilt": "0" * 128}, "names another engine"),
        ({"created": "2999-01-01T00:00:00Z"}, "after the release"),
        ({"person": "Somebody Else"}, "not Somebody Else's"),
    ],
)
def test_attestations_that_do_not_count(bench: Bench, changes: dict[str, object], said: str) -> None:
    bench.lay("Rita")
    bench.lay("Rolf", **changes)
    assert said in bench.refused()


def test_of_another_engine_or_proof(bench: Bench, tmp_path: Path) -> None:
    bench.lay("Rita")
    other = subject_of(f"{STEM}.bin", digest_bytes(b"another"))
    bench.lay("Rolf", engine=other, rebuilt=other.sha3_512)
    assert f"about another {STEM}.bin" in bench.refused()
    bench.lay("Ruth", proof=subject_of(f"{STEM}.proof.json", digest_bytes(b"another")))
    assert f"about another {STEM}.proof.json" in bench.refused()


def test_keys_of_another_role_or_of_a_stranger(bench: Bench, tmp_path: Path) -> None:
    bench.lay("Rita")
    bench.lay("Tess", bench.org.person("Tess", "tester"))
    assert "is for tester, not for rebuilder" in bench.refused()
    stranger = Organisation(tmp_path / "elsewhere").person("Rolf", "rebuilder")
    bench.lay("Rolf", stranger)
    assert bench.refused().count(f"{STEM}.rebuild-") == 2


def test_a_revoked_rebuilder_does_not_count(bench: Bench) -> None:
    bench.lay("Rita")
    keys = bench.org.person("Rolf", "rebuilder")
    bench.org.revoke(keys, NOW)
    bench.lay("Rolf", bench.org.keys_of(bench.org.people[-1]))
    assert "revoked" in bench.refused()


def test_only_those_named_count(tmp_path: Path) -> None:
    bench = Bench(tmp_path, text_of(", of: [Rita, Rolf, Ruth]"))
    bench.lay("Rita")
    bench.lay("Xaver")
    assert "the policy asks for 2 of Rita, Rolf, Ruth" in bench.refused()
    bench.lay("Ruth")
    assert bench.release().report.ok


def test_a_damaged_signature(bench: Bench) -> None:
    bench.lay("Rita")
    path, other = bench.lay("Rolf"), bench.lay("Ruth")
    document = json.loads(path.read_text())
    document["signatures"][0]["sig"] = json.loads(other.read_text())["signatures"][0]["sig"]
    path.write_text(json.dumps(document, indent=2) + "\n")
    other.unlink()
    assert "signature does not hold for its payload" in bench.refused()


def test_what_is_not_demanded_stays_outside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, policy_text())
    bench.lay("Rita")
    done = bench.release()
    assert done.report.ok
    assert not any(".rebuild-" in name for name in done.files)


def test_an_auditor_without_the_rebuilders_keys(bench: Bench) -> None:
    bench.lay("Rita")
    bench.lay("Rolf")
    done = bench.release()
    bench.org.people = bench.org.people[:1]
    assert failed(checked(done.folder, bench.org.trust_root())) == {"rebuilds"}


def test_a_report_about_another_engine_is_found(bench: Bench) -> None:
    bench.lay("Rita")
    bench.lay("Rolf")
    bench.built.engine.with_name(f"{STEM}.reproducibility.json").write_text(
        json.dumps({"verdict": "passed", "engine": {"name": f"{STEM}.bin"}})
    )
    with pytest.raises(VerificationFailed, match="is about another engine than") as caught:
        bench.release()
    assert caught.value.check == "rebuilds"


def test_a_policy_that_is_not_met_is_malformed_not_ignored(bench: Bench) -> None:
    with pytest.raises(MalformedError):
        check_count([], {"reproducibility": {"rebuilders": {"of": []}}})
    with pytest.raises(MalformedError, match="verdict"):
        said = bench.attestation("Rita", verdict="splendid")
        read_rebuild(said.encode(), said.engine, said.proof)
