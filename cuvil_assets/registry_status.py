"""What a recertification says, carried into the FHIR registry of this home: doubt, and its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cuvil_assets.home import Home
from cuvil_assets.nonconformities import folder_of, withdrawn
from cuvil_assets.recertify import FAILED, PASSED, Recertification, Recertified

if TYPE_CHECKING:
    from fhir_registry.store.base import Store

DATABASE = "CUVIL_REGISTRY_DATABASE"


def reflect(home: Home, report: Recertification) -> list[str]:
    """Change the artifact-status of registered models by ``report``; one sentence for each that changed.

    A failure with a nonconformity record makes it ``unknown``; what passed and has no open record is ``active`` again.
    A home without a registry has nothing to change. ``UsageError`` where its registry cannot be opened or written.
    """
    folder, address = home.root / "registry", os.environ.get(DATABASE, "")
    if not address and not (folder / "registry.sqlite").exists():
        return []
    from fhir_registry.store.open import open_store

    store = open_store(folder, address)
    try:
        return [said for item in report.results if (said := _reflect(home, store, item))]
    finally:
        store.close()


def _reflect(home: Home, store: Store, item: Recertified) -> str:
    from fhir_registry import certification

    if item.verdict == FAILED and item.nonconformity:
        record = (folder_of(home) / f"{item.nonconformity}.json").read_bytes()
        done = certification.suspend(store, item.engine, item.nonconformity, item.sentence, record)
        if done is not None and done.changed:
            return f"{item.partition}: in doubt in the registry ({item.nonconformity}), and subscribers are told"
    elif item.verdict == PASSED and not withdrawn(home, item.engine):
        done = certification.restore(store, item.engine)
        if done is not None and done.changed:
            return f"{item.partition}: active again in the registry, and subscribers are told"
    return ""
