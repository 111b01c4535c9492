"""What the tests of the registry share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from registry_client import Client
from registry_release import released, running  # noqa: F401  (fixtures)
from registry_serving import serving


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Client]:
    with serving(tmp_path) as client:
        yield client
