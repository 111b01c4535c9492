"""The whole way of many tests: prepare, compile together, run, judge."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.targets.cuda.gpu import BY_NAME, Gpu
from compiler_kernels.targets.isa import VARIANTS, Isa
from compiler_kernels.targets.registry import TARGETS, Target, host_runs, runner, runs_natively
from evidence.conformance.build import build
from evidence.conformance.cases import Case, onnx_node_cases
from evidence.conformance.compare import OTHER_BITS, judge
from evidence.conformance.execute import TIMEOUT, execute
from evidence.conformance.outcome import Kind, Outcome
from evidence.conformance.prepare import Prepared, Stopped, prepare

BATCH = 40
"""Tests of one program."""
Found = tuple[Kind, str]


def this_target() -> Target:
    """The target whose engines this machine runs without an emulator, else the first it can emulate."""
    for able in (runs_natively, lambda t: runner(t) is not None):
        for target in TARGETS.values():
            if able(target):
                return target
    raise UnsupportedError("this machine can run the engines of no target; install qemu-user")


def run_cases(names: Iterable[str], mode: str, target: Target | None = None) -> list[Outcome]:
    """Outcomes of ONNX node tests by name, in the order given. ``UsageError`` for an unknown name or mode."""
    cases = onnx_node_cases()
    chosen = list(names)
    for name in chosen:
        if name not in cases:
            raise UsageError(f"there is no node test {name!r} in the installed onnx package")
    return run_jobs([(cases[name], mode) for name in chosen], target)


def run_jobs(
    jobs: Sequence[tuple[Case, str]],
    target: Target | None = None,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
    isa: Isa | Gpu | None = None,
    batch: int = BATCH,
) -> list[Outcome]:
    """Outcomes of tests in their modes, in the order given; ``on_done`` hears each as it comes, in another order.

    A test whose model is the same in both modes is compiled once. Engines hold the kernels of one instruction set,
    ``isa`` or the one that every processor of the target has. ``UnsupportedError`` when the target cannot be run here.
    """
    chosen = target or this_target()
    # Kernels of a GPU that is not here are emulated on the processor (evidence/gpu_program.py).
    words = runner(chosen) if not chosen.gpu else () if host_runs(chosen) else None
    if words is None:
        raise UnsupportedError(f"this machine cannot run {chosen.triple} engines; install qemu-user")
    kernels = isa or (BY_NAME[chosen.gpu] if chosen.gpu else VARIANTS[chosen.machine][-1])
    timeout = TIMEOUT if not words else 20 * TIMEOUT
    found: dict[int, Outcome] = {}
    same: dict[tuple[int, bytes, tuple[str, ...]], list[int]] = {}
    for number, (case, mode) in enumerate(jobs):
        model, inputs = case.variant(mode)
        same.setdefault((id(case), model, tuple(inputs)), []).append(number)

    def settle(numbers: Sequence[int], result: Found) -> None:
        for number in numbers:
            case, mode = jobs[number]
            found[number] = Outcome(case.name, case.op, mode, *result)
            on_done(found[number])

    with tempfile.TemporaryDirectory(prefix="cuvil-conformance-") as root, _pool() as pool:
        waiting: list[tuple[list[int], Prepared]] = []
        running: list[tuple[list[list[int]], Future[list[Found]]]] = []

        def start() -> None:
            if waiting:
                tests = [test for _, test in waiting]
                directory = Path(root) / str(len(running))
                future = pool.submit(_compile_and_run, tests, chosen, kernels, directory, words, timeout)
                running.append(([numbers for numbers, _ in waiting], future))
                waiting.clear()

        settled = 0
        for (_, model, names), numbers in same.items():
            case = jobs[numbers[0]][0]
            ready = prepare(case, model, {n: case.inputs[n] for n in names}, kernels)
            if isinstance(ready, Stopped):
                settle(numbers, (ready.kind, ready.detail))
                continue
            waiting.append((numbers, ready))
            if len(waiting) == batch:
                start()
            while settled < len(running) and running[settled][1].done():
                _settle_all(running[settled], settle)
                settled += 1
        start()
        for program in running[settled:]:
            _settle_all(program, settle)
    return [found[number] for number in range(len(jobs))]


def _pool() -> ThreadPoolExecutor:
    """The work is done by the C compiler and the programs; two at a time, as this process prepares further tests."""
    return ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1))


def _settle_all(
    program: tuple[list[list[int]], Future[list[Found]]], settle: Callable[[Sequence[int], Found], None]
) -> None:
    for numbers, result in zip(program[0], program[1].result(), strict=True):
        settle(numbers, result)


def _compile_and_run(
    tests: Sequence[Prepared], target: Target, isa: Isa | Gpu, directory: Path, words: Sequence[str], timeout: float
) -> list[Found]:
    found: list[Found] = []
    for number, built in enumerate(build(tests, target, isa, directory)):
        if built.program is None:
            found.append((Kind.NOT_COMPILED, built.message))
            continue
        for test, result in zip(built.tests, execute(built.program, built.tests, words, timeout), strict=True):
            verdict = (result.kind, result.detail) if isinstance(result, Stopped) else judge(test, result)
            if len(built.tests) > 1 and not isinstance(test.reference, str) and _engine_at_fault(verdict):
                alone = directory / f"{number}-{test.engine.prefix}"
                verdict = _agree(verdict, _compile_and_run([test], target, isa, alone, words, timeout)[0])
            found.append(verdict)
    return found


def _engine_at_fault(verdict: Found) -> bool:
    """Whether the engine did something else than the reference says."""
    return verdict[0] in (Kind.DIFFERS, Kind.CRASH) or (verdict[0] is Kind.WRONG and OTHER_BITS in verdict[1])


def _agree(together: Found, alone: Found) -> Found:
    """A test that fails only in company: another engine of its program has written outside its own memory."""
    if alone[0] is not Kind.PASSED:
        return alone
    return Kind.CRASH, f"passes alone, but not among others, one of which overwrites it: {together[1]}"
