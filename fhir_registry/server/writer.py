"""Group commit: one thread writes what many clients sent in the meantime, with one sync of the disk for all of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from fhir_registry.store.base import Write, Written

MOST: Final = 256
Group = tuple[Sequence[Write], "Future[list[Written]]"]


class Committing(Protocol):
    def commit_each(self, groups: Sequence[Sequence[Write]]) -> list[list[Written] | Exception]: ...


class Writer:
    """``submit`` returns a future that is done once the writes are durable, or holds why they may not happen."""

    def __init__(self, store: Committing) -> None:
        self.store = store
        self._waiting: queue.Queue[Group | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="registry-writer", daemon=True)
        self._thread.start()

    def submit(self, writes: Sequence[Write]) -> Future[list[Written]]:
        future: Future[list[Written]] = Future()
        self._waiting.put((writes, future))
        return future

    def close(self) -> None:
        """Write what was submitted, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            item = self._waiting.get()
            if item is None:
                return
            groups = [item]
            ended = False
            while len(groups) < MOST:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                    break
                groups.append(following)
            self._commit(groups)
            if ended:
                return

    def _commit(self, groups: Sequence[Group]) -> None:
        try:
            results = self.store.commit_each([writes for writes, _ in groups])
        except Exception as error:  # the disk, not one client: all are told, and nothing was written
            for _, future in groups:
                future.set_exception(error)
            return
        for (_, future), result in zip(groups, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
