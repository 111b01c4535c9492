"""Worker processes with a time limit and a memory limit, replaced when they die or hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

MEMORY = 4 << 30
"""Address space a worker may use beyond what it has at its start."""


@dataclass
class Ended:
    """No result: the worker was too slow (``"hang"``), died, or the function raised."""

    kind: str
    text: str


def _loop(pipe: Connection, function: Callable[[Any], Any]) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    with contextlib.suppress(EOFError, OSError):
        while True:
            task = pipe.recv()
            try:
                pipe.send(function(task))
            except Exception:
                pipe.send(Ended("raised", traceback.format_exc()))


class _Worker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process: ForkProcess = context.Process(target=_loop, args=(theirs, function), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Any = None
        self.begun = 0.0

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_all(
    function: Callable[[Any], Any], tasks: Iterable[Any], seconds: float, workers: int = 2, cpu: bool = True
) -> Iterator[tuple[Any, Any]]:
    """``(task, result)`` of every task, in the order they end; ``Ended`` where there is no result.

    ``seconds`` are of processor time where ``cpu``, so that a busy machine does not make a hang; five times as many
    seconds by the clock are the limit of what sleeps.
    """
    source, crew = iter(tasks), [_Worker(function) for _ in range(workers)]
    idle, over = list(crew), False
    try:
        while True:
            while idle and not over:
                try:
                    task = next(source)
                except StopIteration:
                    over = True
                    break
                one = idle.pop()
                one.task, one.begun = task, _now(one, cpu)
                one.pipe.send(task)
                one.clock = time.monotonic()  # type: ignore[attr-defined]
            busy = [w for w in crew if w.task is not None]
            if not busy:
                return
            wait([w.pipe for w in busy], timeout=0.5)
            for one in busy:
                result: Any = None
                if one.pipe.poll():
                    try:
                        result = one.pipe.recv()
                    except (EOFError, OSError):
                        one.process.join(5)
                        result = Ended("died", f"exit code {one.process.exitcode}")
                elif (
                    _now(one, cpu) - one.begun > seconds or time.monotonic() - one.clock > 5 * seconds  # type: ignore[attr-defined]
                ):
                    result = Ended("hang", f"longer than {seconds:g} s")
                if result is None:
                    continue
                task, one.task = one.task, None
                if isinstance(result, Ended) and result.kind != "raised":
                    one.stop()
                    crew.remove(one)
                    one = _Worker(function)
                    crew.append(one)
                idle.append(one)
                yield task, result
    finally:
        for one in crew:
            one.stop()


def _now(worker: _Worker, cpu: bool) -> float:
    if not cpu:
        return time.monotonic()
    try:
        fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / 100.0
