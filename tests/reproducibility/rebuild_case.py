"""Type of the fixture ``delivered`` (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cuvil_assets.store import ContentStore
from evidence.reproducibility.inputs import Recorded


@dataclass(frozen=True)
class Delivered:
    """A built engine, the home that built it, and its record."""

    home: Path
    engine: Path
    recorded: Recorded
    store: ContentStore
