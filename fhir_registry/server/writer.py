"""Group commit: one thread writes what many clients sent in the meantime, with one sync of the disk for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

MOST: Final = 256
Item = TypeVar("Item")
Result = TypeVar("Result")


class GroupCommit(Generic[Item, Result]):
    """``submit`` returns a future that is done once its item is durable, or holds why it may not be written.

    ``commit`` writes many items at once: one result or exception for each, all durable when it returns. An exception
    that it raises itself means that none was written, and goes to all.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Result | Exception]], name: str) -> None:
        self._commit = commit
        self._waiting: queue.SimpleQueue[tuple[Item, Future[Result] | asyncio.Future[Result]] | None]
        self._waiting = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> Future[Result]:
        future: Future[Result] = Future()
        self._waiting.put((item, future))
        return future

    def submitted(self, item: Item) -> asyncio.Future[Result]:
        """The same for the running event loop, which is woken once for a whole group."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.put((item, future))
        return future

    def close(self) -> None:
        """Write what was submitted, then end."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            first = self._waiting.get()
            if first is None:
                return
            group = [first]
            ended = False
            while len(group) < MOST and not ended:
                try:
                    following = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                else:
                    group.append(following)
            self._write(group)
            if ended:
                return

    def _write(self, group: list[tuple[Item, Future[Result] | asyncio.Future[Result]]]) -> None:
        results: Sequence[Result | Exception]
        try:
            results = self._commit([item for item, _ in group])
        except Exception as error:  # the disk, not one client
            results = [error] * len(group)
        loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Result], Result | Exception]]] = {}
        for (_, future), result in zip(group, results, strict=True):
            if isinstance(future, Future):
                _settle(future, result)
            else:
                loops.setdefault(future.get_loop(), []).append((future, result))
        for loop, done in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(_settle_all, done)


def _settle_all(done: Sequence[tuple[asyncio.Future[Result], Result | Exception]]) -> None:
    for future, result in done:
        if not future.done():  # its client may have gone
            _settle(future, result)


def _settle(future: Future[Result] | asyncio.Future[Result], result: Result | Exception) -> None:
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
