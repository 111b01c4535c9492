"""Tells whoever runs the assets in this process what is going on; silent when nobody listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from cuvil_assets.records import Recorded


class Listener(Protocol):
    """Called in the thread that runs the assets."""

    def started(self, stage: str) -> None: ...

    def finished(self, stage: str, recorded: Recorded) -> None: ...

    def check_failed(self, stage: str, check: str, sentence: str) -> None: ...


class Silent:
    """Listens to nothing."""

    def started(self, stage: str) -> None:
        return

    def finished(self, stage: str, recorded: Recorded) -> None:
        return

    def check_failed(self, stage: str, check: str, sentence: str) -> None:
        return


_current: ContextVar[Listener] = ContextVar("cuvil_listener", default=Silent())  # noqa: B039 - Silent has no state


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """``listener`` hears about every asset run in this context."""
    token = _current.set(listener)
    try:
        yield
    finally:
        _current.reset(token)


def listener() -> Listener:
    return _current.get()
