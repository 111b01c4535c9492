"""The audit log: what is appended stays provable, whatever is appended, by whomever at once, crash or not."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from audit_case import ALICE, proofs_hold
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.audit import AuditLog
from evidence.keys import KeySet
from evidence.verifier.audit import NO_LEAF, leaf_data, read_checkpoint, verify_proof
from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.merkle import check_consistency

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(width=32) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abü\n\u2028", max_size=4), inner, max_size=3),
    max_leaves=5,
)
EVENTS = st.tuples(
    st.sampled_from(["build", "verify", "approval", "key-use"]),
    st.dictionaries(st.text("xyz", min_size=1), VALUES, max_size=3),
    st.lists(st.sampled_from(["anna", "bo", "席"]), unique=True, max_size=2),
)


@settings(max_examples=15, deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=14), signed=st.sets(st.integers(1, 14)), gone=st.booleans())
def test_every_event_is_provable_and_the_log_checks(
    keys: KeySet, events: list[tuple[str, dict[str, Any], list[str]]], signed: set[int], gone: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = AuditLog(Path(folder))
        heads = []
        for number, (kind, fields, people) in enumerate(events, 1):
            event = log.append(kind, fields, {name: {"number": number} for name in people})
            assert event.index == number - 1
            assert log.personal(event) == {name: {"number": number} for name in people}
            if number in signed:
                heads.append(log.checkpoint(keys.signers, keys.trust_root))
        if gone and any(people for *_, people in events):
            log.erase(next(people[0] for *_, people in events if people))
        report = log.check(keys.trust_root)
        assert report.ok, report.sentence
        assert (report.checkpoints, report.covered) == (len(heads), max((head.size for head in heads), default=0))
        assert report.events == len(log.events())
        proofs_hold(log)
        for head in heads:
            check_consistency(head.size, report.events, head.root, log.root(), log.consistency(head.size))
        if heads:
            for index in range(heads[-1].size):
                event, head = verify_proof(log.prove(index), keys.trust_root)
                assert (event, head) == (log.events()[index], heads[-1])


def test_the_file_is_one_canonical_line_an_event_linked_to_the_one_before(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    first, second = log.append("build", {"x": 0.1, "n": 2**60}), log.append("verify", {"ok": True})
    lines = (tmp_path / "audit" / "events.jsonl").read_bytes().splitlines()
    assert lines == [first.encode(), second.encode()]
    assert json.loads(lines[0])["fields"] == {"x": "0.1", "n": str(2**60)}
    assert (first.previous, second.previous) == (NO_LEAF, leaf_data(lines[0]).hex())
    assert (tmp_path / "audit" / "events.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o700


def test_events_of_any_length_up_to_the_limit(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    for length in (1, 8000, 8192, 20000, 65000, 3):
        log.append("build", {"text": "x" * length})
    with pytest.raises(UsageError, match="longer than"):
        log.append("build", {"text": "x" * 65536}, ALICE)
    assert len(log.events()) == 6
    assert not (tmp_path / "audit" / "keys").exists()
    assert log.check(keys.trust_root).ok


@pytest.mark.parametrize("kind", ["erasure", "repair", "Build", "", "a b", "x" * 33])
def test_kinds_that_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError):
        AuditLog(tmp_path).append(kind, {})
    assert not (tmp_path / "audit").exists()


def test_a_crash_at_any_byte_loses_only_the_end_and_is_recorded(tmp_path: Path, keys: KeySet) -> None:
    origin = AuditLog(tmp_path / "origin")
    for number in range(6):
        origin.append("build", {"number": number}, ALICE if number % 2 else None)
    whole = (tmp_path / "origin" / "audit" / "events.jsonl").read_bytes()
    ends = [0, *(i + 1 for i, byte in enumerate(whole) if byte == 10)]
    cuts = {*random.Random(7).sample(range(len(whole)), 40), *(e for e in ends), *(max(e - 1, 0) for e in ends), 1}
    for cut in sorted(cuts):
        folder = tmp_path / f"cut-{cut}"
        folder.joinpath("audit").mkdir(parents=True)
        for name in ("keys", "personal"):
            (folder / "audit" / name).symlink_to(tmp_path / "origin" / "audit" / name)
        (folder / "audit" / "events.jsonl").write_bytes(whole[:cut])
        log, kept = AuditLog(folder), max(i for i, end in enumerate(ends) if end <= cut)
        torn = cut not in ends
        before = log.check(keys.trust_root)
        assert (before.ok, before.check, before.event) == ((False, "audit-torn", kept) if torn else (True, "", None))
        added = log.append("verify", {"after": cut})
        events, report = log.events(), log.check(keys.trust_root)
        assert report.ok, (cut, report.sentence)
        assert added.index == kept + torn == len(events) - 1
        assert report.repairs == ((kept,) if torn else ())
        assert [e.encode() for e in events[:kept]] == whole.split(b"\n")[:kept]
        if torn:
            assert events[kept].fields["dropped_bytes"] == cut - ends[kept]
        proofs_hold(log, [1])


@pytest.mark.parametrize("done", [0, 1, 150, 10**6])
def test_a_crash_within_the_repair_is_repaired_again(tmp_path: Path, keys: KeySet, done: int) -> None:
    """The repair's line is written over the cut-off end before that end is cut: any part of it may have arrived."""
    log = AuditLog(tmp_path)
    log.append("build", {})
    path = tmp_path / "audit" / "events.jsonl"
    whole = path.read_bytes()
    rest = b'{"event":"build","fields":{"text":"' + b"y" * 2000
    path.write_bytes(whole + rest)
    log.append("build", {"number": 1})
    line = log.lines()[1] + b"\n"
    path.write_bytes(whole + line[:done] + rest[len(line[:done]) :])
    log.append("build", {"number": 2})
    report = log.check(keys.trust_root)
    assert report.ok, report.sentence
    assert report.repairs == ((1,) if done < len(line) else (1, 2))


def test_two_processes_and_two_threads_append_at_once(tmp_path: Path, keys: KeySet) -> None:
    program = (
        "import sys, threading\nfrom pathlib import Path\nfrom evidence.audit import AuditLog\n"
        "def work(who):\n    log = AuditLog(Path(sys.argv[1]))\n"
        "    for n in range(50):\n        "
        "log.append('build', {'who': who, 'n': n}, {who: {'n': n}} if n % 9 == 0 else {})\n"
        "threads = [threading.Thread(target=work, args=(f'{sys.argv[2]}{t}',)) for t in range(2)]\n"
        "[t.start() for t in threads]\n[t.join() for t in threads]\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen([*words, who], cwd=Path(__file__).parents[2]) for who in ("a", "b")]
    assert [process.wait(120) for process in running] == [0, 0]
    log = AuditLog(tmp_path)
    events = log.events()
    assert len(events) == 200
    for who in ("a0", "a1", "b0", "b1"):
        assert [e.fields["n"] for e in events if e.fields["who"] == who] == list(range(50))
    report = log.check(keys.trust_root)
    assert report.ok, report.sentence
    assert not report.repairs
    assert len(log.vault.subjects()) == 4


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, keys: KeySet) -> None:
    program = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom evidence.audit import AuditLog\n"
        "from evidence.verifier.errors import UsageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nlog = AuditLog(Path(sys.argv[1]))\nlog.append('build', {})\n"
        "size = log.events_file.path.stat().st_size\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 99, size + 99))\n"
        "try:\n    log.append('build', {'n': 1})\nexcept UsageError as error:\n    print(error)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert "cannot be written (File too large)" in done.stdout
    assert AuditLog(tmp_path).check(keys.trust_root).events == 1
    assert AuditLog(tmp_path).check(keys.trust_root).ok


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("in the way")
    with pytest.raises(UsageError, match=r"audit: cannot be made .*set CUVIL_HOME"):
        AuditLog(tmp_path).append("build", {})
    log = AuditLog(tmp_path / "other")
    log.append("build", {})
    (tmp_path / "other" / "audit" / "events.jsonl").unlink()
    (tmp_path / "other" / "audit" / "events.jsonl").symlink_to("/dev/null")
    with pytest.raises(UsageError, match="cannot be written"):
        log.append("build", {})


def test_checkpoints_need_events_and_refuse_a_log_that_does_not_continue(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    with pytest.raises(UsageError, match="no event yet"):
        log.checkpoint(keys.signers, keys.trust_root)
    for number in range(4):
        log.append("build", {"number": number})
    with pytest.raises(UsageError, match="no signed head covers event 0"):
        log.prove(0)
    log.checkpoint(keys.signers, keys.trust_root)
    path = tmp_path / "audit" / "events.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    for number in range(4):
        with pytest.raises(VerificationFailed) as caught:
            log.checkpoint(keys.signers, keys.trust_root)
        assert caught.value.check == "audit-rewritten"
        log.append("build", {"other": number})
    assert log.check(keys.trust_root).check == "audit-rewritten"


def test_a_cut_off_checkpoint_is_found_and_signed_anew(tmp_path: Path, keys: KeySet) -> None:
    log = AuditLog(tmp_path)
    log.append("build", {})
    log.checkpoint(keys.signers, keys.trust_root)
    path = tmp_path / "audit" / "checkpoints.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert log.check(keys.trust_root).check == "audit-checkpoint"
    assert log.checkpoint(keys.signers, keys.trust_root).size == 2
    assert log.events()[1].fields["file"] == "checkpoints.jsonl"
    assert log.check(keys.trust_root).ok


def test_a_proof_is_bound_to_event_place_and_signer(tmp_path: Path, keys: KeySet, key_home: Path) -> None:
    from evidence.keys import init_keys

    log = AuditLog(tmp_path)
    for number in range(5):
        log.append("build", {"number": number})
    log.checkpoint(keys.signers, keys.trust_root)
    good = log.prove(3)
    assert verify_proof(good, keys.trust_root)[0].fields == {"number": 3}
    with pytest.raises(MalformedError, match="not signed"):
        verify_proof(good, init_keys(tmp_path / "stranger").trust_root)
    rng = random.Random(5)
    for place in rng.sample(range(len(good)), 120):
        changed = good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :]
        with pytest.raises(MalformedError):
            verify_proof(changed, keys.trust_root)
    line = (tmp_path / "audit" / "checkpoints.jsonl").read_bytes()[:-1]
    assert read_checkpoint(line)[0].root == log.root()
