"""Time of every step of an engine, from the steps called one by one in this process on one thread."""

from __future__ import annotations

import time
from statistics import median

from compiler_kernels.engine import Engine


def profile(engine: Engine, runs: int = 5) -> list[float]:
    """Median wall time of each of ``engine.steps`` in microseconds, over ``runs`` inferences after one not counted.

    The call from Python costs about a microsecond per step. The steps read what the engine's input buffers hold.
    """
    samples: list[list[float]] = [[] for _ in engine.steps]
    engine.infer()
    for _ in range(runs):
        for number, times in enumerate(samples):
            start = time.perf_counter_ns()
            engine.run_step(number)
            times.append((time.perf_counter_ns() - start) / 1000)
    return [median(times) for times in samples]
