"""torch on the same GPU in the same process: eager, eager in a CUDA graph, torch.compile in a CUDA graph.

binary32, TF32 off. Times are medians by CUDA events and by the wall clock, like the engine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks import zoo
from benchmarks.gpu_engines import percentiles


def prepare() -> None:
    """IEEE binary32 everywhere, no gradients."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)


def event_times(call: Callable[[], Any], runs: int, before: int = 20) -> list[float]:
    """Microseconds of each call by CUDA events."""
    import torch

    for _ in range(before):
        call()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        pairs.append(start.elapsed_time(end) * 1000.0)
    return pairs


def wall_times(call: Callable[[], Any], runs: int) -> list[float]:
    """Microseconds of each call and the wait for its end."""
    import torch

    found = []
    for _ in range(runs):
        began = time.perf_counter_ns()
        call()
        torch.cuda.synchronize()
        found.append((time.perf_counter_ns() - began) / 1000)
    return found


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """``call`` as one CUDA graph."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    replay: Callable[[], Any] = graph.replay
    return replay


def network(name: str, batch: int) -> tuple[Any, Any]:
    """The zoo's network on the GPU and a random input."""
    import torch

    net = replace(zoo.ZOO[name], shape=(batch, *zoo.ZOO[name].shape[1:]))
    return zoo.build(net).cuda(), torch.from_numpy(zoo.example_input(net)).cuda()


def warm_compile(name: str, batch: int) -> float:
    """Fill torch.compile's cache on disk; seconds. For a process of its own, side by side with others."""
    import torch

    prepare()
    model, x = network(name, batch)
    began = time.perf_counter()
    torch.compile(model)(x)
    torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(name: str, batch: int, runs: int, compiled: bool = True) -> dict[str, Any]:
    """Times of every variant and torch's peak memory of eager execution (weights included)."""
    import torch

    prepare()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    model, x = network(name, batch)
    for _ in range(3):
        model(x)
    torch.cuda.synchronize()
    found: dict[str, Any] = {"peak_bytes": torch.cuda.max_memory_allocated() - base}

    def add(label: str, call: Callable[[], Any]) -> None:
        found[label] = {
            "gpu_us": percentiles(event_times(call, runs)),
            "wall_us": percentiles(wall_times(call, runs)),
        }

    add("eager", lambda: model(x))
    for label, make in (("eager_graph", lambda: model), ("compile_graph", lambda: torch.compile(model))):
        if label == "compile_graph" and not compiled:
            continue
        try:
            made = make()
            made(x)
            add(label, captured(lambda made=made: made(x)))  # type: ignore[misc]
        except Exception as error:  # a variant that torch cannot capture is reported, not hidden
            found[label] = {
                "error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            }
    return found
