"""One set of promises, kept by both stores: random use beside a plain model, and what threads may not break."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from store_model import Machine, organization, put

from fhir_registry.search.extract import fold, index_rows
from fhir_registry.search.query import read_query
from fhir_registry.store.base import ConflictError, StoreUnavailableError, Write
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.store.sqlite import SqliteStore

Opener = Callable[..., SqlStore]


def test_a_store_answers_as_the_model_does(empty_store: Opener) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Machine(lambda clock: empty_store(clock)),
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),  # shrinking takes minutes on a database
        ),
    )


@pytest.mark.slow
def test_a_store_answers_as_the_model_does_for_long(empty_store: Opener) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Machine(lambda clock: empty_store(clock)),
        settings=settings(
            max_examples=300, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_text_is_in_the_order_of_its_code_points(empty_store: Opener) -> None:
    """Whatever the collation of the database is; the test server's is that of English readers."""
    store = empty_store()
    names = ["z", "_z", "ab", "a b", "a-b", "1", "é", "一", "😀", "?"]
    for number, name in enumerate(names):
        store.commit([put(f"n{number}", organization(name, "1", "urn:a", True, None))])
    for name in ("B", "b", "a", "-", "0"):
        store.commit([put(name, organization("q", "1", "urn:a", True, None))])
    page = store.search(read_query("Organization", [("_sort", "name"), ("identifier", "1")]))
    found = [json.loads(m.body)["name"] for m in page.matches if m.id.startswith("n")]
    assert [fold(name) for name in found] == sorted(fold(name) for name in names)
    page = store.search(read_query("Organization", [("_sort", "-_id"), ("name", "q")]))
    assert [m.id for m in page.matches] == ["b", "a", "B", "0", "-"]
    page = store.search(read_query("Organization", [("name", "a")]))
    assert {json.loads(m.body)["name"] for m in page.matches} == {"ab", "a b", "a-b"}
    store.close()


def at_once(number: int, work: Callable[[int], object]) -> list[object]:
    """What each thread returned or raised; all begin together."""
    results: list[object] = [None] * number
    barrier = threading.Barrier(number)

    def run(n: int) -> None:
        barrier.wait()
        try:
            results[n] = work(n)
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return results


def test_conditional_creates_at_once_make_one(empty_store: Opener) -> None:
    store = empty_store()
    resource = organization("O", "1", "urn:a", True, None)
    unless = read_query("Organization", [("identifier", "urn:a|1")])

    def create(n: int) -> bool:
        (done,) = store.commit([Write("POST", "Organization", "", resource, tuple(index_rows(resource)), unless)])
        return done.created

    assert sorted(map(str, at_once(16, create))) == ["False"] * 15 + ["True"]
    store.close()


def test_one_of_the_updates_of_a_version_gets_through(empty_store: Opener) -> None:
    store = empty_store()
    store.commit([put("o", organization("O", "1", "urn:a", True, None))])

    def update(n: int) -> object:
        return store.commit([put("o", organization(f"O{n}", "1", "urn:a", True, None), expected=1)])[0].stored.version

    results = at_once(8, update)
    assert [r for r in results if not isinstance(r, Exception)] == [2]
    assert all(isinstance(r, ConflictError) and r.status == 412 for r in results if isinstance(r, Exception))
    store.close()


def test_pages_hold_while_others_write(empty_store: Opener) -> None:
    """A page never ends behind a resource that is committed later: what was there at the start is seen once."""
    store = empty_store()
    before = {f"before-{n}" for n in range(30)}
    store.commit([put(identifier, organization("O", "1", "urn:a", True, None)) for identifier in sorted(before)])
    stop = threading.Event()

    def writer(n: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.commit([put(f"w{n}-{number}-{k}", organization("O", "1", "urn:a", True, None)) for k in range(3)])

    threads = [threading.Thread(target=writer, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            seen: list[str] = []
            cursor = ""
            groups: list[str] = []
            for _ in range(60):
                pairs = [("_count", "4"), *([("_cursor", cursor)] if cursor else [])]
                page = store.search(read_query("Organization", pairs))
                seen += [m.id for m in page.matches]
                cursor = page.following
                if not cursor:
                    break
            assert len(seen) == len(set(seen)) and before <= set(seen)
            # What is written in one commit is seen together: a gap would be a resource that came later.
            groups = [identifier[:-2] for identifier in seen if identifier.startswith("w")]
            complete = groups[: len(groups) - len(groups) % 3] if not cursor else groups[:-4]
            assert all(complete.count(name) == 3 for name in set(complete[:-3]))
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
    store.close()


def test_a_snapshot_sees_one_state(empty_store: Opener) -> None:
    store = empty_store()
    store.commit([put("o", organization("O", "1", "urn:a", True, None))])
    with store.database.snapshot() as session:
        first = session.row("SELECT count(*) FROM version")
        other = threading.Thread(target=lambda: store.commit([put("p", organization("P", "1", "urn:a", True, None))]))
        other.start()
        other.join(timeout=30)
        assert session.row("SELECT count(*) FROM version") == first == (1,)
    with store.database.session() as session:
        assert session.row("SELECT count(*) FROM version") == (2,)
    store.close()


def test_what_was_written_is_there_when_opened_again(open_store_at: Callable[[], SqlStore], tmp_path: Path) -> None:
    first = open_store_at()
    first.commit([put("o", organization("O", "1", "urn:a", True, None))])
    first.close()
    second = open_store_at()
    found = second.read("Organization", "o")
    assert found is not None and found.version == 1
    second.close()


def test_a_full_disk_is_no_fault_of_a_client(tmp_path: Path) -> None:
    """In a statement, not at the commit: nothing of the group is written, and all are told to come again."""
    store = SqliteStore(tmp_path / "registry.sqlite")
    try:
        large = {"resourceType": "Organization", "name": "x" * 1_000_000}
        with store.database.session() as session:
            pages = session.row("PRAGMA page_count")
            assert pages is not None
            session.run(f"PRAGMA max_page_count = {pages[0] + 2}")
        writes = [[Write("POST", "Organization", "small", {"resourceType": "Organization", "name": "y"})],
                  [Write("POST", "Organization", "large", large)]]  # fmt: skip
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            store.commit_each(writes)
        assert store.read("Organization", "small") is None and store.read("Organization", "large") is None
        with store.database.session() as session:
            session.run(f"PRAGMA max_page_count = {pages[0] + 2000}")
        assert all(isinstance(done, list) for done in store.commit_each(writes))
    finally:
        store.close()
