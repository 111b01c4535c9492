"""Keys and store of pseudonyms: modes, rotation, lookup, erasure, damage."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from evidence.sessions.binding import bind, forget, recompute
from evidence.sessions.identifier_store import IdentifierStore
from evidence.sessions.pseudonym import Identifiers, identifiers, pseudonym
from evidence.sessions.pseudonym_keys import PseudonymKeys
from evidence.sessions.trace_context import new_context
from evidence.verifier.errors import UsageError


def image(number: int, patient: str = "PAT1") -> Identifiers:
    return identifiers("1.2.3", "1.2.3.4", f"1.2.3.4.{number}", patient)


def bound(home: Path, subject: Identifiers) -> str:
    value = bind(home, new_context(), subject).pseudonym
    assert value is not None
    return value


def test_keys_and_store_are_the_owners_alone(home: Path) -> None:
    previous = os.umask(0)
    try:
        PseudonymKeys(home).create()
        bound(home, image(1))
    finally:
        os.umask(previous)
    for path in (home / "trace", *(home / "trace").rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_one_key_is_made_once_and_rotation_keeps_the_old_one(home: Path) -> None:
    keys = PseudonymKeys(home)
    assert keys.current() is None
    first, made = keys.create()
    assert made and keys.create() == (first, False)
    old = bound(home, image(1))
    second = keys.rotate()
    assert [epoch.number for epoch in keys.epochs()] == [1, 2] and first.key != second.key
    new = bound(home, image(1))
    assert old != new
    assert [(item.epoch, item.pseudonym) for item in recompute(home, image(1))] == [(1, old), (2, new)]
    assert {entry.pseudonym for entry in IdentifierStore(home).search(patient="PAT1")} == {old, new}


def test_a_destroyed_key_is_gone_from_its_file_and_its_number_stays_taken(keyed: Path) -> None:
    keys = PseudonymKeys(keyed)
    path = keys.folder / "0001.json"
    with path.open("rb") as stream:  # the very file, also when its name changes
        secret = stream.read()
        keys.destroy(1)
        assert os.pread(stream.fileno(), len(secret), 0) == b""
    assert [(epoch.number, epoch.key) for epoch in keys.epochs()] == [(1, None)]
    assert keys.current() is None and recompute(keyed, image(1)) == []
    with pytest.raises(UsageError, match="already destroyed"):
        keys.destroy(1)
    with pytest.raises(UsageError, match="no epoch 7"):
        keys.destroy(7)
    assert keys.create()[0].number == 2


def test_without_a_key_nothing_is_bound(home: Path) -> None:
    with pytest.raises(UsageError, match="cuvil trace keys init"):
        bind(home, new_context(), image(1))
    with pytest.raises(UsageError, match="no key to follow"):
        PseudonymKeys(home).rotate()
    assert not IdentifierStore(home).path.exists()


def test_strict_mode_makes_no_pseudonym_and_keeps_nothing(keyed: Path) -> None:
    context = new_context().with_pseudonym("before")
    assert bind(keyed, context, image(1), strict=True).members == ()
    assert bind(keyed, context, identifiers()).members == ()
    assert IdentifierStore(keyed).count() == 0


def test_lookup_goes_both_ways(keyed: Path) -> None:
    first, second, other = (bound(keyed, image(*given)) for given in ((1,), (2,), (3, "PAT2")))
    store = IdentifierStore(keyed)
    entry = store.find(first)
    assert entry is not None and entry.subject == image(1) and entry.epoch == 1
    assert {item.pseudonym for item in store.search(patient=" PAT1 ")} == {first, second}
    assert {item.pseudonym for item in store.search(study="1.2.3\0")} == {first, second, other}
    assert [item.pseudonym for item in store.search(study="1.2.3", patient="PAT2")] == [other]
    assert [item.pseudonym for item in store.search(instance="1.2.3.4.2")] == [second]
    assert store.find("A" * 43) is None and store.search(patient="nobody") == []
    with pytest.raises(UsageError, match="no identifier"):
        store.search()


def test_a_forgotten_patient_leaves_no_byte_in_the_folder(keyed: Path) -> None:
    names = ["Grünwald^§17", "0815-KARTE"]
    values = [bound(keyed, image(number, names[0])) for number in range(40)]
    kept = bound(keyed, image(99, names[1]))
    assert sorted(forget(keyed, f" {names[0]} ")) == sorted(values)
    assert forget(keyed, names[0]) == [] and forget(keyed, "") == []
    left = b"".join(path.read_bytes() for path in (keyed / "trace").rglob("*") if path.is_file())
    assert names[0].encode() not in left and b"1.2.3.4.17" not in left and values[0].encode() not in left
    assert names[1].encode() in left
    assert IdentifierStore(keyed).find(kept) is not None
    # by one of the pseudonyms, and for an image whose patient is not known
    assert forget(keyed, kept) == [kept]
    nameless = bound(keyed, identifiers("1.9"))
    assert forget(keyed, nameless) == [nameless]
    assert IdentifierStore(keyed).count() == 0


def test_text_that_no_character_set_explains_is_kept(keyed: Path) -> None:
    subject = identifiers("1.2", patient="M\udcfcller")
    value = bound(keyed, subject)
    entry = IdentifierStore(keyed).find(value)
    assert entry is not None and entry.subject == subject
    assert forget(keyed, "M\udcfcller") == [value]


def test_files_open_to_others_are_refused(keyed: Path) -> None:
    bound(keyed, image(1))
    store = IdentifierStore(keyed)
    store.path.chmod(0o640)
    with pytest.raises(UsageError, match=r"open to others; run `chmod 600"):
        store.find("A" * 43)
    key = PseudonymKeys(keyed).folder / "0001.json"
    key.chmod(0o604)
    with pytest.raises(UsageError, match=r"open to others; run `chmod 600"):
        PseudonymKeys(keyed).current()


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\xff" * 64, b'{"format":"cuvil-trace-key/1","epoch":2}'])
def test_a_damaged_key_is_named_and_can_be_destroyed(keyed: Path, content: bytes) -> None:
    path = PseudonymKeys(keyed).folder / "0001.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"0001\.json: .*restore it"):
        bind(keyed, new_context(), image(1))
    PseudonymKeys(keyed).destroy(1)
    assert PseudonymKeys(keyed).create()[0].number == 2


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to be one" * 100, b"SQLite format 3\0" + b"\1" * 900]
)
def test_a_damaged_store_is_named(keyed: Path, content: bytes) -> None:
    store = IdentifierStore(keyed)
    store.path.write_bytes(content)
    store.path.chmod(0o600)
    for act in (lambda: store.find("A" * 43), lambda: bind(keyed, new_context(), image(1)), lambda: forget(keyed, "P")):
        with pytest.raises(UsageError, match=r"identifiers\.sqlite: .*store of identifiers"):
            act()


def test_a_crash_before_the_first_entry_leaves_a_usable_store(keyed: Path) -> None:
    store = IdentifierStore(keyed)
    store.path.touch(mode=0o600)
    assert store.count() == 0 and store.find("A" * 43) is None
    assert store.find(bound(keyed, image(1))) is not None


def _many(home: Path, start: int) -> None:
    for number in range(start, start + 20):
        bind(home, new_context(), image(number))


def test_processes_write_beside_each_other(keyed: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_many, args=(keyed, start)) for start in (0, 10, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert IdentifierStore(keyed).count() == 40
    key = PseudonymKeys(keyed).epochs()[0].key
    assert key is not None and IdentifierStore(keyed).find(pseudonym(key, image(35))) is not None
