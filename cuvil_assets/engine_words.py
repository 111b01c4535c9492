"""How commands run the engine file they were given: natively, under an emulator, or with emulated GPU kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.targets.registry import Target, host_runs, resolve_target, runner, why_not_here
from compiler_kernels.targets.triton.emit import triton_kernels
from compiler_kernels.toolchain.engines import CUDA_FILE
from compiler_kernels.toolchain.triton import TRITON_FILE
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from cuvil_assets.trace import Lineage
from evidence.equivalence import grade_of, ways_to_run
from evidence.verifier.errors import VerifierError


@contextmanager
def engine_words(engine: Path, triple: str) -> Iterator[tuple[str, ...]]:
    """The words that run ``engine`` of the target ``triple`` here.

    Without the GPU of a GPU engine its kernels are emulated, from the text that the store of this home holds. That
    shows bits, never a device: for comparisons and proofs, not for results that somebody uses. ``UnsupportedError``
    where there is no way.
    """
    target = resolve_target(triple)
    if runner(target) is not None or not target.gpu or not host_runs(target):
        prefix = runner(target)
        if prefix is None:
            raise UnsupportedError(f"{engine}: this machine cannot run {triple} engines; {why_not_here(target)}")
        yield prefix
        return
    with ways_to_run(target, _kernels(engine, target)) as words:
        assert words is not None
        yield words


def grade_here(lineage: Lineage, words: tuple[str, ...]) -> str:
    """How results of the engine of ``lineage`` came about that :func:`engine_words` ran."""
    record = lineage.chain.record("generated_source")
    second = record is not None and record.artifact(TRITON_FILE) is not None
    triton = triton_kernels(lineage.text("generated_source", TRITON_FILE)) if second else ()
    return grade_of(resolve_target(lineage.target), words, triton)


def _kernels(engine: Path, target: Target) -> bytes:
    try:
        return Lineage(engine, ContentStore(current_home().store)).data("generated_source", CUDA_FILE)
    except (UsageError, VerifierError) as error:
        raise UnsupportedError(
            f"{engine}: {why_not_here(target)}. Its kernels can not be emulated either: {error}"
        ) from None
