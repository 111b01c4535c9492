"""The vectors of CA-1 through the GPU generator, emulated: every operator has the expected bits."""

from __future__ import annotations

from pathlib import Path

import emulation
import pytest

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.plan import emit_cuda, outputs_of, plan
from compiler_kernels.toolchain.emulator import Emulator
from evidence.reference.vectors import load_vectors
from evidence.vector_engines import compare, compile_all

VECTORS = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "ca1.json"
AT_ONCE = 60


def _check(vectors, emit):
    """Number of vectors that ran and of those the generator refuses; all that ran must have the expected bits."""
    compiled, _ = compile_all(vectors)
    ran = refused = 0
    for start in range(0, len(compiled), AT_ONCE):
        part, launches = [], []
        for number, item in enumerate(compiled[start : start + AT_ONCE]):
            try:
                launches.append(plan(item.module, SM_90, f"v{number}", emit))
                part.append(item)
            except UnsupportedError as error:
                assert "run-time" in str(error), f"{item.name}: {error}"
                refused += 1
        emulator = Emulator([launch.kernel for found in launches for launch in found])
        produced = b""
        for item, found in zip(part, launches, strict=True):
            memory = emulation.memory_of(item.module, item.store, item.inputs)
            for launch in found:
                emulator.launch(launch.kernel.name, memory.pointers(launch), seed=start)
            produced += b"".join(memory.of("output", n).tobytes() for n in range(len(outputs_of(item.module.main))))
        wrong = compare(part, produced)
        assert not wrong, f"{len(wrong)} of {len(part)} vectors differ, first {next(iter(wrong.items()))}"
        ran += len(part)
    return ran, refused


@pytest.mark.parametrize("emit", [emit_fallback, emit_cuda])
def test_a_sample_of_the_vectors(emit):
    ran, _ = _check(load_vectors(VECTORS)[::24], emit)
    assert ran > 20


@pytest.mark.slow
@pytest.mark.parametrize("emit", [emit_fallback, emit_cuda])
def test_every_vector(emit):
    vectors = load_vectors(VECTORS)
    ran, refused = _check(vectors, emit)
    assert ran > 0.9 * len(vectors) and refused < 0.1 * len(vectors)
