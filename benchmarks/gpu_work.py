"""Pieces of work of the evidence on a GPU that run in processes of their own."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from multiprocessing import get_context
from typing import Any

from benchmarks import gpu_checks, gpu_engines, gpu_torch
from benchmarks.gpu_engines import Built, Runner


class Jobs:
    """Work for a pool, of which at most ``width`` pieces are in it, so that what is added ``first`` is soon begun.

    ``pause(done, left)`` is called every few seconds; when it returns true nothing new begins.
    """

    def __init__(self, pool: Executor, width: int, pause: Callable[[int, int], bool]) -> None:
        self._pool, self._width, self._pause = pool, width, pause
        self._waiting: deque[tuple[Any, Callable[..., Any], tuple[Any, ...]]] = deque()

    def add(self, about: Any, work: Callable[..., Any], *arguments: Any, first: bool = False) -> None:
        """``work(*arguments)``, whose result ``finished`` gives with ``about``."""
        (self._waiting.appendleft if first else self._waiting.append)((about, work, arguments))

    def finished(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What was added, also meanwhile, as it ends, with the result."""
        running: dict[Future[dict[str, Any]], Any] = {}
        done, over = 0, False
        while running or (self._waiting and not over):
            while self._waiting and len(running) < self._width and not over:
                about, work, arguments = self._waiting.popleft()
                try:
                    running[self._pool.submit(work, *arguments)] = about
                except BrokenExecutor as error:
                    yield about, {"error": f"a worker died: {error}", "kind": ""}
            for future in wait(running, timeout=2, return_when=FIRST_COMPLETED).done:
                about = running.pop(future)
                done += 1
                broken = future.exception()
                yield about, future.result() if broken is None else {"error": f"a worker died: {broken}", "kind": ""}
            over = self._pause(done, len(running) + len(self._waiting))


def attempt(work: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The result of one piece of work under ``ok``, or the sentence of its failure under ``error``."""
    try:
        return {"ok": work(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:400], "kind": type(error).__name__}


def apart(work: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """``attempt`` in a child of its own: a fresh context on the GPU, and a crash that ends nothing else."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        sender.send(attempt(work, *arguments))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        found: dict[str, Any] = receiver.recv()
    except EOFError:
        process.join()
        found = {"error": f"the process ended with {process.exitcode}"}
    process.join()
    return found


def bits_of(gpu: Built, cpu: Built, inputs: int) -> dict[str, Any]:
    """``gpu_checks.bits`` of two engines."""
    runner = Runner(gpu)
    return {"device": runner.device, **gpu_checks.bits(runner, Runner(cpu), inputs)}


def rows_of(many: Built, one: Built) -> dict[str, Any]:
    """``gpu_checks.rows`` of two engines."""
    return gpu_checks.rows(Runner(many), Runner(one), many.subject.batch)


def times_of(gpu: Built, options: argparse.Namespace) -> dict[str, Any]:
    """Memory and times of an engine and, of a network of the zoo, of torch."""
    subject = gpu.subject
    torch = options.torch and not subject.file
    free = gpu_checks.free_bytes() if torch else 0
    runner = Runner(gpu)
    assert runner.engine is not None
    row: dict[str, Any] = {"memory": {"engine_bytes": runner.engine.device_bytes}}
    if torch:
        row["memory"]["device_bytes_taken_by_loading"] = free - gpu_checks.free_bytes()
    row["cuvil"] = {
        "gpu_us": gpu_engines.percentiles(runner.gpu_microseconds(options.runs)),
        "wall_us": gpu_engines.percentiles(runner.wall_microseconds(options.runs)),
    }
    if torch:
        compiled = options.compile and not subject.prefer
        row["torch"] = gpu_torch.measure(subject.name, subject.batch, min(options.runs, 200), compiled=compiled)
        row |= gpu_checks.against(row)
    return row
