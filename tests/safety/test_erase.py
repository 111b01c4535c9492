"""Erasure: what an engine held of its input and results is gone, and the engine still works."""

import ctypes

import numpy as np
import pytest
import safety_case as case
import small_models

from compiler_kernels import load_engine


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_library_forgets_and_works_on(tmp_path, lockstep):
    built = case.build(small_models.residual(), tmp_path / "e.so", kind="so", lockstep=lockstep)
    engine = load_engine(built.path)
    x = case.save(tmp_path, (1, 3, 12, 12))
    first = engine.run(x)["p"]
    owned = [engine._raw]
    if lockstep:
        owned.append(type(engine._raw).from_address(engine._raw.checker))
    held = [ctypes.string_at(e.arena, e.arena_bytes) for e in owned]
    held += [ctypes.string_at(e.input_buffers[0], x.nbytes) for e in owned]
    held += [ctypes.string_at(e.output_buffers[0], first.nbytes) for e in owned]
    assert all(any(part) for part in held)
    engine.erase()
    for e in owned:
        assert not any(ctypes.string_at(e.arena, e.arena_bytes))
        assert not any(ctypes.string_at(e.scratch, e.max_threads * e.scratch_floats * 4))
        assert not any(ctypes.string_at(e.input_buffers[0], x.nbytes))
        assert not any(ctypes.string_at(e.output_buffers[0], first.nbytes))
    assert ctypes.string_at(engine._raw.weights, engine.weights_bytes) == built.weights
    assert np.array_equal(engine.run(x)["p"], first)


def test_registered_areas(tmp_path):
    built = case.build(small_models.residual(), tmp_path / "e.so", kind="so")
    engine = load_engine(built.path)
    register = engine._library.cuvil_erase_register
    register.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    areas = [ctypes.create_string_buffer(b"secret of a patient", 32) for _ in range(64)]
    assert [register(ctypes.addressof(a), 32) for a in areas] == [0] * 64
    other = ctypes.create_string_buffer(b"one too many", 32)
    assert register(ctypes.addressof(other), 32) == -1
    assert register(ctypes.addressof(areas[3]), 6) == 0  # again: replaced
    engine.erase()
    assert not any(a.raw.strip(b"\0") for i, a in enumerate(areas) if i != 3)
    assert areas[3].raw.startswith(b"\0" * 6 + b" of a patient") and other.value == b"one too many"
