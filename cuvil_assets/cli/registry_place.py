"""Where the registry of a command lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuvil_assets.home import current_home

if TYPE_CHECKING:
    from fhir_registry.store.sql_store import SqlStore

FOLDER = "registry"


@dataclass(frozen=True)
class Place:
    """``data``: the folder that --data gives; ``address``: of a PostgreSQL database, with its password."""

    data: Path | None = None
    address: str = field(default="", repr=False)

    @property
    def folder(self) -> Path:
        return self.data or current_home().root / FOLDER

    def open(self) -> SqlStore:
        """The store. ``UsageError`` where it cannot be opened."""
        from fhir_registry.store.open import open_store

        return open_store(self.folder, self.address)
