"""Erasure: what was personal is gone from every file, and every proof still holds."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from audit_case import ALICE, BORIS, files_below, proofs_hold

from evidence.audit import AuditLog
from evidence.audit_erase import Vault
from evidence.keys import KeySet, init_keys
from evidence.verifier.audit import verify_proof
from evidence.verifier.errors import UsageError
from evidence.verifier.merkle import check_consistency

PLANTED = ("alice@clinic.example", "wren-alice", "Zimmer 4711", "放射科")


def found_in(folder: Path, secrets: list[bytes]) -> set[tuple[str, bytes]]:
    return {(path.name, item) for path in files_below(folder) for item in secrets if item in path.read_bytes()}


def test_personal_strings_are_in_no_file_after_the_erasure(tmp_path: Path, keys: KeySet) -> None:
    init_keys(tmp_path)
    log = AuditLog(tmp_path)
    events = [log.append("build", {"n": n}, {**ALICE, **BORIS}) for n in range(3)]
    before = log.checkpoint(keys.signers, keys.trust_root)
    proofs = [log.prove(index) for index in range(3)]
    subject = log.vault.find("alice@clinic.example")
    assert subject is not None
    sealed = list(log.vault.sealed(subject).values())
    secrets = [text.encode() for text in PLANTED] + [base64.b64encode(key) for key in (subject.key, subject.salt)]
    # In the clear the name lies in one file only, that of the key; the fields lie in none.
    assert {name for name, _ in found_in(tmp_path, secrets[:4])} == {f"{subject.token}.json"}
    secrets += [base64.b64encode(item) for item in sealed]
    assert len(found_in(tmp_path, secrets)) == 1 + 2 + 3

    erasure = log.erase("alice@clinic.example")

    assert found_in(tmp_path, secrets) == set()
    assert (erasure.kind, erasure.fields, erasure.personal) == ("erasure", {"subject": subject.token}, ())
    report = log.check(keys.trust_root)
    assert report.ok, report.sentence
    assert report.erased == 1
    proofs_hold(log)
    check_consistency(before.size, 4, before.root, log.root(), log.consistency(before.size))
    for index, proof in enumerate(proofs):
        assert verify_proof(proof, keys.trust_root)[0] == log.events()[index] == events[index]
        assert log.prove(index) == proof
    assert log.personal(events[1]) == {subject.token: None, "boris": BORIS["boris"]}


def test_a_subject_may_come_back_as_another_token_and_be_erased_again(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    first = log.append("build", {}, ALICE)
    log.erase("alice@clinic.example")
    with pytest.raises(UsageError, match="no personal data of that subject") as caught:
        log.erase("alice@clinic.example")
    assert "alice" not in str(caught.value)
    second = log.append("build", {}, ALICE)
    assert first.personal[0].subject != second.personal[0].subject
    log.erase(second.personal[0].subject)
    assert log.check(keys.trust_root).erased == 2
    assert found_in(tmp_path, [text.encode() for text in PLANTED]) == set()


def test_equal_fields_have_unequal_commitments(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    events = [log.append("build", {}, ALICE) for _ in range(3)]
    assert len({event.personal[0].commitment for event in events}) == 3
    assert len({event.personal[0].subject for event in events}) == 1


@pytest.mark.parametrize("step", ["begin_erasure", "destroy", "_append", "forget"])
def test_a_crash_at_any_step_of_an_erasure_is_finished_by_the_next_writer(
    tmp_path: Path, keys: KeySet, step: str
) -> None:
    """The process dies right after ``step``, without running anything else."""
    AuditLog(tmp_path).append("build", {}, {**ALICE, **BORIS})
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom evidence.audit import AuditLog\n"
        "from evidence.audit_erase import Vault\nstep = sys.argv[2]\n"
        "owner = Vault if hasattr(Vault, step) else AuditLog\n"
        "plain = getattr(owner, step)\n"
        "def dying(self, *rest):\n    plain(self, *rest)\n    os._exit(9)\n"
        "setattr(owner, step, dying)\nAuditLog(Path(sys.argv[1])).erase('alice@clinic.example')\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path), step]
    assert subprocess.run(words, cwd=Path(__file__).parents[2], check=False).returncode == 9
    log = AuditLog(tmp_path)
    report = log.check(keys.trust_root)
    assert report.check == ("" if step == "forget" else "audit-personal")
    log.append("verify", {})
    report = log.check(keys.trust_root)
    assert report.ok, report.sentence
    assert [event.kind for event in log.events()] == ["build", "erasure", "verify"]
    assert found_in(tmp_path, [text.encode() for text in PLANTED]) == set()
    assert not Vault(log.folder).unfinished()


def test_a_key_file_that_a_crash_left_half_written_is_removed(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    log.append("build", {}, BORIS)
    draft = log.vault.keys / ("0" * 32 + ".draft")
    draft.write_text('{"subject":"alice@clinic.example"')
    log.append("build", {})
    assert not draft.exists()
    assert log.check(keys.trust_root).ok


def test_a_key_that_comes_back_after_the_erasure_is_found(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    event = log.append("build", {}, ALICE)
    key = log.vault.keys / f"{event.personal[0].subject}.json"
    saved = key.read_bytes()
    log.erase("alice@clinic.example")
    key.write_bytes(saved)
    key.chmod(0o600)
    report = log.check(keys.trust_root)
    assert (report.check, report.event) == ("audit-personal", 0)
    assert "there again" in report.sentence


def test_personal_data_of_one_event_does_not_pass_for_that_of_another(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    first, second = (log.append("build", {}, {"boris": {"n": n}}) for n in (1, 2))
    subject = log.vault.find("boris")
    assert subject is not None
    kept = log.vault.sealed(subject)
    assert subject.open(second.index, kept[second.personal[0].commitment]) == {"n": 2}
    with pytest.raises(UsageError, match="does not decrypt"):
        subject.open(first.index, kept[second.personal[0].commitment])
