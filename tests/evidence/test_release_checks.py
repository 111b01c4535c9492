"""Each way a release can be wrong has its own named failure."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from release_case import (
    FULL,
    PEOPLE,
    RELEASE,
    STEM,
    Built,
    Case,
    add_sbom,
    approve_as,
    build_at,
    checked,
    copy_of,
    failed,
    policy_text,
)
from release_people import EARLIER, LATER, NOW, Organisation, Person

from compiler_kernels.errors import RefusedError
from evidence.approve import approve
from evidence.deploy import deploy, device_keys
from evidence.release import Released, release
from evidence.signing_keys import SigningKeys, sign
from evidence.verifier.canonical import canonical_bytes
from evidence.verifier.deployment import Fingerprint
from evidence.verifier.dsse import Envelope, Signature, pae, read_envelope
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.release import verify_release
from evidence.verifier.signing import P384, key_id

PLAIN = "equivalence, intoto"


class Bench:
    """One organisation, and releases made by it with one thing wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.org = Organisation(folder)
        self.count = 0

    def build(self, builder: SigningKeys, demand: str = PLAIN, more: str = "", sbom: bool = False) -> Built:
        self.count += 1
        content = b"\x7fELF" + bytes([self.count])
        built = build_at(self.folder / f"build-{self.count}", builder, policy_text(demand, more), content)
        if sbom:
            add_sbom(built)
        return built

    def release(self, built: Built, keys: SigningKeys, *, stamped: bool = False) -> Released:
        return release(
            built.engine,
            self.folder / f"release-{self.count}",
            built.policy_json,
            keys,
            trust_root=self.org.trust_root(),
            home=self.folder,
            stamp=self.org.tsa.stamp if stamped else None,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def refused_check(made: Callable[[], object]) -> str:
    with pytest.raises(VerificationFailed) as caught:
        made()
    return caught.value.check


@pytest.mark.parametrize(
    ("person", "check"),
    [
        ({"end": EARLIER + timedelta(days=1)}, "certificate-expired"),
        ({"start": NOW + timedelta(days=1)}, "clock-before-issue"),
        ({"purpose": "1.3.6.1.5.5.7.3.36"}, "certificate-purpose"),
        ({"in_keyring": False}, "unknown-key"),
        ({"entry": {"revoked_at": EARLIER, "reason": "superseded"}}, "certificate-revoked"),
        ({"entry": {"not_after": EARLIER + timedelta(days=1)}}, "certificate-expired"),
    ],
)
def test_a_release_key_that_may_not_sign(bench: Bench, person: dict[str, object], check: str) -> None:
    entry = person.get("entry")
    if isinstance(entry, dict) and "not_after" in entry:
        keys = bench.org.person("Berta", "builder")
        old = bench.org.people[-1]
        entries = tuple(replace(item, **entry) for item in old.entries)
        bench.org.people[-1] = Person(old.title, old.signers, old.certificates, entries)
    else:
        keys = bench.org.person("Berta", "builder", **person)  # type: ignore[arg-type]
    built = bench.build(keys)
    assert refused_check(lambda: bench.release(built, keys)) == check
    assert not list(bench.folder.glob("release-*")) and not list(bench.folder.glob(".release*"))


def test_a_revoked_certificate(bench: Bench) -> None:
    keys = bench.org.person("Berta", "builder")
    bench.org.revoke(keys, NOW - timedelta(days=1))
    keys = bench.org.keys_of(bench.org.people[-1])
    built = bench.build(keys)
    assert refused_check(lambda: bench.release(built, keys)) == "certificate-revoked"


def test_a_tester_may_not_release(bench: Bench) -> None:
    keys = bench.org.person("Tess", "tester", purpose="1.3.6.1.5.5.7.3.3")
    built = bench.build(keys)
    assert refused_check(lambda: bench.release(built, keys)) == "certificate-purpose"


def test_a_key_that_vouches_for_itself(bench: Bench, tmp_path: Path) -> None:
    """A whole organisation of one's own, its roots travelling with the signatures."""
    other = Organisation(tmp_path / "other" if (tmp_path / "other").mkdir() is None else tmp_path)
    keys = other.person("Berta", "builder")
    roots = tuple(item.certificate for item in other.roots)
    built = bench.build(keys)
    done = release(
        built.engine, bench.folder / "r", built.policy_json, keys, trust_root=other.trust_root(), home=bench.folder
    )
    path = done.folder / RELEASE
    envelope = json.loads(path.read_text())
    trusted = bench.org.trust_root()
    assert failed(checked(done.folder, trusted)) & {"unknown-key", "certificate-path"}
    import base64

    ders = sorted({base64.b64decode(item) for item in envelope["verificationMaterial"]["certificates"]} | set(roots))
    envelope["verificationMaterial"]["certificates"] = [base64.b64encode(item).decode() for item in ders]
    path.write_text(json.dumps(envelope, indent=2) + "\n")
    found = failed(checked(done.folder, trusted))
    assert found and found <= {"self-embedded-key", "certificate-path"}


def test_a_stranger_signs_the_same_statement(full_release: Case, tmp_path: Path) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    stranger = Organisation(tmp_path).person("Eve", "builder")
    payload = read_envelope((folder / RELEASE).read_bytes()).payload
    (folder / RELEASE).write_bytes(sign(payload, SigningKeys(stranger.signers)).encode())
    assert failed(checked(folder, full_release.trust_root)) == {"unknown-key"}


def resign(case: Case, folder: Path, change: Callable[[dict[str, object]], None], kind: str = "") -> set[str]:
    """The release statement changed and signed again by the rightful builder, with a fresh timestamp."""
    path = folder / RELEASE
    value = json.loads(read_envelope(path.read_bytes()).payload)
    change(value)
    payload, keys = canonical_bytes(value), case.keys["Berta"]
    made = sign(payload, keys, case.org.tsa.stamp)
    if kind:
        message = pae(kind, payload)
        signatures = tuple(Signature(key_id(item.spki), item.sign(message)) for item in keys.signers)
        made = Envelope(kind, payload, signatures, made.verification_material)
    path.write_bytes(made.encode())
    return failed(checked(folder, case.trust_root))


def test_signing_again_gives_a_good_release(full_release: Case, tmp_path: Path) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    assert resign(full_release, folder, lambda value: None) == set()


def _predicate(key: str, value: object) -> Callable[[dict[str, object]], None]:
    def change(statement: dict[str, object]) -> None:
        statement["predicate"][key] = value  # type: ignore[index]

    return change


def _drop_approval(statement: dict[str, object]) -> None:
    statement["predicate"]["approvals"].pop()  # type: ignore[index]


def _drop_part(name: str) -> Callable[[dict[str, object]], None]:
    def change(statement: dict[str, object]) -> None:
        del statement["predicate"]["parts"][name]  # type: ignore[index]

    return change


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (lambda v: v.update(predicateType="https://cuvil.dev/release/v2"), {"statement"}),
        (_predicate("sm2_id", "ALICE123@YAHOO.COM"), {"statement"}),
        (_predicate("demanded", []), {"policy"}),
        (_predicate("model", "other"), {"policy"}),
        (_predicate("model_version", "cxr-2"), {"build-proof"}),
        (_predicate("approvals", []), {"demanded-part", "approvals"}),
        (_drop_approval, {"approvals"}),
        (_drop_part("sbom"), {"demanded-part", "intoto"}),
        (_drop_part("intoto"), {"demanded-part"}),
        (_predicate("timestamp", {"expected": False}), {"timestamp"}),
        (_predicate("material", {"sha3_512": "00" * 64}), {"certificate-path"}),
        (_predicate("created", "2090-01-01T00:00:00Z"), {"clock-before-issue"}),
        (_predicate("created", "yesterday"), {"timestamp"}),
        (lambda v: v["subject"].pop(0), {"files-complete"}),
    ],
)
def test_a_statement_that_says_something_else(
    full_release: Case, tmp_path: Path, change: Callable[[dict[str, object]], None], checks: set[str]
) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    found = resign(full_release, folder, change)
    assert found and found <= checks | {"policy", "approvals"} and found & checks


def test_another_payload_type(full_release: Case, tmp_path: Path) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    assert resign(full_release, folder, lambda value: None, "application/json") == {"payload-type"}


def test_a_timestamp_over_other_signatures(full_release: Case, tmp_path: Path) -> None:
    folder = copy_of(full_release.folder, tmp_path / "r")
    path = folder / RELEASE
    old = json.loads(path.read_text())["verificationMaterial"]["timestamps"]
    resign(full_release, folder, lambda value: None)
    envelope = json.loads(path.read_text())
    envelope["verificationMaterial"]["timestamps"] = old
    path.write_text(json.dumps(envelope, indent=2) + "\n")
    assert failed(checked(folder, full_release.trust_root)) == {"timestamp"}


def test_the_verifiers_clock_before_the_release(full_release: Case) -> None:
    early = verify_release(full_release.folder, full_release.trust_root, at=NOW - timedelta(days=1))
    assert failed(early) == {"clock-before-issue"}
    assert verify_release(full_release.folder, full_release.trust_root, at=LATER).ok


def test_a_release_put_beside_another_builds_files(full_release: Case, bench: Bench, tmp_path: Path) -> None:
    keys = bench.org.person("Berta", "builder")
    other = bench.release(bench.build(keys), keys)
    folder = copy_of(full_release.folder, tmp_path / "mixed")
    for name in (f"{STEM}.bin", f"{STEM}.proof.json"):
        shutil.copyfile(other.folder / name, folder / name)
    found = failed(checked(folder, full_release.trust_root))
    assert {"replayed-bundle", "files-complete"} <= found


def test_missing_demanded_parts_and_approvals_are_refused(bench: Bench) -> None:
    keys = bench.org.person("Berta", "builder")
    people = {person: bench.org.person(person, role) for person, role in PEOPLE.items()}
    for demand in ("sbom", "coverage", "reproducibility", "timestamp", "approvals"):
        built = bench.build(keys, demand)
        with pytest.raises(RefusedError, match=demand) as caught:
            bench.release(built, keys)
        assert caught.value.exit_code == 3
    built = bench.build(keys, PLAIN, "approvals: {roles: [developer, tester]}\n")
    for person, missing in (("Dora", "developer, tester"), ("Tess", "tester")):
        with pytest.raises(RefusedError, match=f"the approval of {missing} is missing"):
            bench.release(built, keys)
        approve_as(built, person, people[person])
    assert bench.release(built, keys).report.ok


def test_a_report_is_quoted_as_it_speaks(bench: Bench) -> None:
    keys = bench.org.person("Berta", "builder")
    built = bench.build(keys, f"{PLAIN}, coverage")
    report = built.engine.with_name(f"{STEM}.coverage.json")
    report.write_text('{"verdict": "failed"}')
    with pytest.raises(RefusedError, match="the verdict of coverage is failed"):
        bench.release(built, keys)
    report.write_text('{"verdict": "passed"}')
    done = bench.release(built, keys)
    assert done.report.evidence["parts"]["coverage"] == "passed"  # type: ignore[index,call-overload]
    case = Case(done.folder, bench.org.trust_root(), built, bench.org, {"Berta": keys})

    def better(statement: dict[str, object]) -> None:
        statement["predicate"]["parts"]["coverage"]["verdict"] = "splendid"  # type: ignore[index]
        statement["predicate"]["timestamp"] = {"expected": True}  # type: ignore[index]

    assert "demanded-part" in resign(case, done.folder, better)


def test_a_report_made_after_the_approval_is_not_approved(bench: Bench) -> None:
    keys, dora = bench.org.person("Berta", "builder"), bench.org.person("Dora", "developer")
    built = bench.build(keys, PLAIN, "approvals: {roles: [developer], threshold: 1}\n")
    approve_as(built, "Dora", dora)
    add_sbom(built)
    with pytest.raises(VerificationFailed, match="does not approve") as caught:
        bench.release(built, keys)
    assert caught.value.check == "approvals"


def test_developer_and_tester_are_different_people_with_different_keys(bench: Bench) -> None:
    keys = bench.org.person("Berta", "builder")
    both = bench.org.person("Dora", "developer", "tester")
    second = bench.org.person("Dora", "tester")
    built = bench.build(keys)
    approve_as(built, "Dora", both, "developer")
    approve_as(built, "Dora", second, "tester")
    with pytest.raises(RefusedError, match="Dora approves as developer and as tester"):
        bench.release(built, keys)
    built = bench.build(keys)
    approve_as(built, "Dora", both, "developer")
    made = approve(built.engine, "tester", "Somebody Else", both)
    built.engine.with_name(made.name).write_bytes(made.data)
    with pytest.raises(RefusedError, match="one key"):
        bench.release(built, keys)


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("wrong-person", {"approvals"}),
        ("wrong-role", {"approvals", "certificate-purpose"}),
        ("not-in-keyring", {"approvals", "unknown-key"}),
        ("expired", {"approvals", "certificate-expired"}),
        ("code-signing", {"approvals", "certificate-purpose"}),
        ("changed", {"approvals"}),
        ("another-engine", {"approvals"}),
    ],
)
def test_an_approval_that_does_not_hold(bench: Bench, fault: str, checks: set[str]) -> None:
    keys = bench.org.person("Berta", "builder")
    dora = bench.org.person(
        "Dora",
        "tester" if fault == "wrong-role" else "developer",
        end=EARLIER + timedelta(days=1) if fault == "expired" else LATER,
        purpose="1.3.6.1.5.5.7.3.3" if fault == "code-signing" else "1.3.6.1.5.5.7.3.36",
        in_keyring=fault != "not-in-keyring",
    )
    elsewhere = bench.build(keys) if fault == "another-engine" else None
    built = bench.build(keys)
    made = approve(
        elsewhere.engine if elsewhere else built.engine,
        "developer",
        "Eve" if fault == "wrong-person" else "Dora",
        dora,
    )
    data = made.data
    if fault == "changed":
        envelope = json.loads(data)
        envelope["signatures"][0]["sig"] = json.loads(approve(built.engine, "developer", "D", dora).data)["signatures"][
            0
        ]["sig"]
        data = (json.dumps(envelope, indent=2) + "\n").encode()
    built.engine.with_name(made.name).write_bytes(data)
    assert refused_check(lambda: bench.release(built, keys)) in checks


def test_deployment_binds_to_one_device(full_release: Case, tmp_path: Path) -> None:
    folder, root = copy_of(full_release.folder, tmp_path / "r"), full_release.trust_root
    device = full_release.keys["Device"]
    assert failed(verify_release(folder, root, this_device=True)) == {"device"}
    name, data = deploy(folder, device, root)
    (folder / name).write_bytes(data)
    report = verify_release(folder, root, this_device=True)
    assert report.ok, report.to_json()
    assert report.evidence["device"]["grade"] == "asserted"  # type: ignore[index,call-overload]
    elsewhere = Fingerprint("another serial", "test", ("02:00:00:00:00:01",))
    (folder / name).write_bytes(deploy(folder, device, root, fingerprint=elsewhere)[1])
    assert verify_release(folder, root).ok
    assert failed(verify_release(folder, root, this_device=True)) == {"device"}
    for wrong in (data.replace(b'"sig": "', b'"sig": "A', 1), b"{}", data + b"\n"):
        (folder / name).write_bytes(wrong)
        assert failed(verify_release(folder, root)) == {"device"}
    (folder / name).write_bytes(deploy(folder, full_release.keys["Berta"], root)[1])
    assert {"device", "certificate-purpose"} == failed(verify_release(folder, root))


def test_an_aarch64_device_signs_with_p384_alone(full_release: Case, tmp_path: Path) -> None:
    device = device_keys(full_release.keys["Device"], "aarch64")
    assert [item.algorithm for item in device.signers] == [P384]
    folder = copy_of(full_release.folder, tmp_path / "r")
    name, data = deploy(folder, device, full_release.trust_root)
    (folder / name).write_bytes(data)
    assert checked(folder, full_release.trust_root).ok


def test_release_never_overwrites_and_never_rewrites_the_build_proof(full_release: Case) -> None:
    built = full_release.built
    proof = built.engine.with_name(f"{STEM}.proof.json").read_bytes()
    assert (full_release.folder / f"{STEM}.proof.json").read_bytes() == proof
    with pytest.raises(UsageError, match="exists"):
        release(built.engine, full_release.folder, built.policy_json, full_release.keys["Berta"])


def test_full_policy_is_what_the_full_release_was_made_with(full_release: Case) -> None:
    report = checked(full_release.folder, full_release.trust_root)
    assert report.ok
    assert report.evidence["demanded"] == sorted(FULL.split(", "))
    assert report.evidence["time_grade"] == "timestamp"
    assert {item["person"] for item in report.evidence["approvals"]} == set(PEOPLE)  # type: ignore[union-attr,index,call-overload]
