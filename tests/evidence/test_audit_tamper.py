"""Changes to an audit log are found, and the first bad event is named."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from audit_case import ALICE, BORIS, files_below

from evidence.audit import AuditLog
from evidence.keys import KeySet, init_keys
from evidence.verifier.audit import NO_LEAF, leaf_data, read_event


@pytest.fixture
def log(tmp_path: Path, keys: KeySet) -> AuditLog:
    """Six events, an erased subject, one that is not, two signed heads, the last over everything."""
    log = AuditLog(tmp_path / "home")
    log.append("build", {"engine": "a.bin"}, ALICE)
    log.append("verify", {"ok": True}, {**ALICE, **BORIS})
    log.append("approval", {"role": "tester"})
    log.checkpoint(keys.signers, keys.trust_root)
    log.append("key-use", {"purpose": "release"}, BORIS)
    log.erase("boris")
    log.append("release", {"n": 7})
    log.checkpoint(keys.signers, keys.trust_root)
    assert log.check(keys.trust_root).ok
    return log


def test_a_change_of_any_byte_is_found(log: AuditLog, keys: KeySet) -> None:
    """Sampled over all files of the log, each with its first and last bytes."""
    rng = random.Random(11)
    files = [path for path in files_below(log.folder) if path.name != ".lock"]
    assert len(files) == 4  # events, checkpoints, one key, one file of ciphertexts
    for path in files:
        good = path.read_bytes()
        places = {0, len(good) - 1, *rng.sample(range(len(good)), 60)}
        for place in places:
            path.write_bytes(good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :])
            report = log.check(keys.trust_root)
            assert not report.ok, (path, place)
            assert report.sentence
            if path.name == "events.jsonl":
                index = good[:place].count(b"\n")
                assert report.event is not None
                assert index - 1 <= report.event <= index, (place, report.sentence)
        path.write_bytes(good)
    assert log.check(keys.trust_root).ok


@pytest.mark.parametrize("cut", [1, 3, 4, 6])
def test_whole_events_missing_at_the_end(log: AuditLog, keys: KeySet, cut: int) -> None:
    path = log.events_file.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-cut]))
    report = log.check(keys.trust_root)
    assert (report.check, report.event) == ("audit-truncated", len(lines) - cut)


@pytest.mark.parametrize("index", range(6))
def test_a_removed_or_swapped_event(log: AuditLog, keys: KeySet, index: int) -> None:
    path = log.events_file.path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:index] + lines[index + 1 :]))
    assert log.check(keys.trust_root).event == index
    if index < 5:
        path.write_bytes(b"".join([*lines[:index], lines[index + 1], lines[index], *lines[index + 2 :]]))
        assert log.check(keys.trust_root).event == index


@pytest.mark.parametrize(("first", "named"), [(0, 0), (1, 0), (2, 2), (3, 3), (4, 3), (5, 5)])
def test_a_rewritten_log_with_sound_links_breaks_the_signed_heads(
    log: AuditLog, keys: KeySet, first: int, named: int
) -> None:
    """The forger recomputes every link after the change; the heads say between which events it happened."""
    lines = log.lines()
    previous = leaf_data(lines[first - 1]).hex() if first else NO_LEAF
    for index in range(first, len(lines)):
        event = read_event(lines[index])
        changed = {**event.fields, "forged": True} if index == first else event.fields
        lines[index] = type(event)(index, event.time, event.kind, changed, event.personal, previous).encode()
        previous = leaf_data(lines[index]).hex()
    log.events_file.path.write_bytes(b"".join(line + b"\n" for line in lines))
    report = log.check(keys.trust_root)
    assert (report.check, report.event) == ("audit-rewritten", named)
    # without heads the same log is sound, so it is the heads that tell
    log.checkpoints_file.path.unlink()
    assert log.check(keys.trust_root).ok


def test_dropping_heads_and_events_is_found_by_a_head_kept_elsewhere(log: AuditLog, keys: KeySet) -> None:
    kept = log.checkpoints_file.path.read_bytes().splitlines(keepends=True)[-1]
    for file, count in ((log.events_file, 3), (log.checkpoints_file, 1)):
        file.path.write_bytes(b"".join(file.path.read_bytes().splitlines(keepends=True)[:count]))
    shutil.rmtree(log.vault.keys)
    assert log.check(keys.trust_root, personal=False).ok
    assert log.check(keys.trust_root, personal=False, against=kept).check == "audit-truncated"
    assert log.check(keys.trust_root, personal=False, against=b"{}").check == "audit-checkpoint"


def test_heads_of_strangers_are_not_accepted(log: AuditLog, tmp_path: Path, keys: KeySet) -> None:
    stranger = init_keys(tmp_path / "stranger")
    assert log.check(stranger.trust_root).check == "audit-checkpoint"
    first = log.checkpoints_file.path.read_bytes().splitlines(keepends=True)[0]
    log.checkpoints_file.path.unlink()
    log.checkpoint(stranger.signers, stranger.trust_root)
    assert log.check(keys.trust_root).check == "audit-checkpoint"
    log.checkpoints_file.path.write_bytes(first)
    assert log.check(keys.trust_root).ok


def test_personal_data_that_vanishes_without_a_recorded_erasure(log: AuditLog, keys: KeySet) -> None:
    (key,) = log.vault.keys.glob("*.json")
    saved = key.read_bytes()
    key.unlink()
    report = log.check(keys.trust_root)
    assert (report.check, report.event) == ("audit-personal", 0)
    assert "without a recorded erasure" in report.sentence
    key.write_bytes(saved)
    assert "chmod 600" in log.check(keys.trust_root).sentence
    key.chmod(0o600)
    (personal,) = log.vault.personal.glob("*.jsonl")
    personal.unlink()
    assert log.check(keys.trust_root).event == 0
