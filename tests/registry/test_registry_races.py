"""Two processes change one model version at the same time: a withdrawal is never undone by what began before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from registry_release import Released

from evidence.verifier.errors import UsageError
from fhir_registry import certification
from fhir_registry.json_text import read_json
from fhir_registry.mapping.facts import ReleaseFacts, read_facts
from fhir_registry.mapping.reading import status_of
from fhir_registry.mapping.resources import model_id
from fhir_registry.pipeline import register, withdraw
from fhir_registry.search.query import read_query
from fhir_registry.store.base import Write, Written
from fhir_registry.store.sqlite import SqliteStore


class Overtaken(SqliteStore):
    """A store in which ``other`` happens, as by another process, after what is to be written was read."""

    other: Callable[[], object] | None = None

    def commit(self, writes: Sequence[Write]) -> list[Written]:
        if self.other is not None:
            other, self.other = self.other, None
            other()
        return super().commit(writes)


@pytest.fixture
def facts(released: Released, monkeypatch: pytest.MonkeyPatch) -> ReleaseFacts:
    monkeypatch.setenv("CUVIL_HOME", str(released.home))
    return read_facts(released.folder)


@pytest.fixture
def stores(facts: ReleaseFacts, tmp_path: Path) -> Iterator[tuple[Overtaken, SqliteStore]]:
    """Two stores over one file, in which the release is registered."""
    first, second = Overtaken(tmp_path / "registry.sqlite"), SqliteStore(tmp_path / "registry.sqlite")
    register(second, facts)
    yield first, second
    first.close()
    second.close()


def statuses(store: SqliteStore) -> set[str]:
    """Of the model version and its engine."""
    return {status_of(read_json(i.body)) for i in store.search(read_query("DeviceDefinition", [])).matches}


def test_a_registration_does_not_undo_a_withdrawal(stores: tuple[Overtaken, SqliteStore], facts: ReleaseFacts) -> None:
    first, second = stores
    model = model_id(facts)
    first.other = lambda: withdraw(second, model, "recalled")
    with pytest.raises(UsageError, match="was withdrawn"):
        register(first, facts)
    assert statuses(second) == {"retired"}


def test_a_recertification_does_not_undo_a_withdrawal(
    stores: tuple[Overtaken, SqliteStore], facts: ReleaseFacts
) -> None:
    first, second = stores
    model, engine = model_id(facts), facts.build.subject_digests["sha3_512"]
    first.other = lambda: withdraw(second, model, "recalled")
    assert certification.suspend(first, engine, "NC-1", "differs", b"{}") is None
    assert statuses(second) == {"retired"}


def test_the_end_of_a_doubt_does_not_undo_a_withdrawal(
    stores: tuple[Overtaken, SqliteStore], facts: ReleaseFacts
) -> None:
    first, second = stores
    model, engine = model_id(facts), facts.build.subject_digests["sha3_512"]
    assert certification.suspend(second, engine, "NC-1", "differs", b"{}") is not None
    assert statuses(second) == {"unknown"}
    first.other = lambda: withdraw(second, model, "recalled")
    assert certification.restore(first, engine) is None
    assert statuses(second) == {"retired"}


def test_a_withdrawal_keeps_what_was_written_meanwhile(
    stores: tuple[Overtaken, SqliteStore], facts: ReleaseFacts
) -> None:
    first, second = stores
    engine = facts.build.subject_digests["sha3_512"]
    first.other = lambda: certification.suspend(second, engine, "NC-1", "differs", b"{}")
    withdraw(first, model_id(facts), "recalled")
    stored = second.read("DeviceDefinition", model_id(facts))
    assert stored is not None and b"NC-1" in stored.body and b"recalled" in stored.body
    assert statuses(second) == {"retired"}


def test_an_engine_is_not_withdrawn_alone(stores: tuple[Overtaken, SqliteStore], facts: ReleaseFacts) -> None:
    _, second = stores
    listed = [i.id for i in second.search(read_query("DeviceDefinition", [])).matches]
    (engine,) = [identifier for identifier in listed if identifier != model_id(facts)]
    with pytest.raises(UsageError, match="is no model version"):
        withdraw(second, engine, "recalled")
    assert statuses(second) == {"active"}
