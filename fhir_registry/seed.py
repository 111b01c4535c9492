"""Puts the registry's own definitions into its store, where they are read and found like everything else."""

from __future__ import annotations

from typing import Any

from fhir_registry.definitions.conformance import conformance_resources
from fhir_registry.json_text import read_json
from fhir_registry.search.extract import index_rows
from fhir_registry.store.base import Store, Stored, Write
from fhir_registry.subscriptions.topics import topics


def seed(store: Store) -> int:
    """Store each definition that is not there as it is shipped; how many were written.

    A definition that changed with the software becomes a new version, so that history tells which one held when.
    """
    writes = [
        Write("PUT", item["resourceType"], item["id"], item, tuple(index_rows(item)))
        for item in (*conformance_resources(), *topics())
        if not _holds(store.read(item["resourceType"], item["id"]), item)
    ]
    if writes:
        store.commit(writes)
    return len(writes)


def _holds(current: Stored | None, wanted: dict[str, Any]) -> bool:
    if current is None or current.deleted:
        return False
    found = read_json(current.body)
    return isinstance(found, dict) and {name: value for name, value in found.items() if name != "meta"} == wanted
