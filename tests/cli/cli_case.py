"""Types of the fixtures (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Cli = Callable[..., tuple[int, str, str]]
CliJson = Callable[..., tuple[int, dict[str, object]]]


@dataclass(frozen=True)
class Delivered:
    home: Path
    engine: Path
    proof: Path
