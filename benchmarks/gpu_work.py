"""Pieces of work of the evidence on a GPU that run in processes of their own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from benchmarks import gpu_checks, gpu_engines, gpu_torch
from benchmarks.gpu_engines import Built, Runner


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
    free = gpu_checks.free_bytes() if options.torch else 0
    runner = Runner(gpu)
    assert runner.engine is not None
    row: dict[str, Any] = {"memory": {"engine_bytes": runner.engine.device_bytes}}
    if options.torch:
        row["memory"]["device_bytes_taken_by_loading"] = free - gpu_checks.free_bytes()
    row["cuvil"] = {
        "gpu_us": gpu_engines.percentiles(runner.gpu_microseconds(options.runs)),
        "wall_us": gpu_engines.percentiles(runner.wall_microseconds(options.runs)),
    }
    subject = gpu.subject
    if options.torch and not subject.file:
        compiled = options.compile and not subject.prefer
        row["torch"] = gpu_torch.measure(subject.name, subject.batch, min(options.runs, 200), compiled=compiled)
        row |= gpu_checks.against(row)
    return row
