"""A home with a key of pseudonyms, no trace in the environment, nothing bound."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from pathlib import Path

import pytest

import cuvil.trace
from evidence.sessions.pseudonym_keys import PseudonymKeys


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that $CUVIL_HOME names."""
    folder = tmp_path / "home"
    monkeypatch.setenv("CUVIL_HOME", str(folder))
    return folder


@pytest.fixture
def keyed(home: Path) -> Path:
    """The same with a key of pseudonyms."""
    PseudonymKeys(home).create()
    return home


ROOT = Path(cuvil.trace.__file__).parents[1]


@pytest.fixture(autouse=True)
def outside_any_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # programs that tests start import this very checkout
    for name in (cuvil.trace.TRACEPARENT, cuvil.trace.TRACESTATE, cuvil.trace.STRICT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cuvil.trace, "_said", set())
    monkeypatch.setattr(cuvil.trace, "_current", contextvars.ContextVar("test", default=None))
    yield
