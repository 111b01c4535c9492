"""The emulator: the functions of cuvil_device.h give what they promise, and defects of a kernel show."""

from __future__ import annotations

import emulation
import numpy as np
import primitives
import pytest
from tiny_models import tiny_model_bytes

from benchmarks.gpu_driver import Driver
from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.toolchain.emulator import Emulator, Memory, compile_emulated


@pytest.fixture(scope="module")
def kernels():
    found = {name: primitives.kernel(f"broken{n}", *line) for n, (name, line) in enumerate(primitives.LINES.items())}
    return Emulator([primitives.kernel("whole"), *found.values()]), found


def _inputs():
    x = np.random.default_rng(3).standard_normal((primitives.BLOCKS, primitives.THREADS)).astype(np.float32)
    room = np.zeros(x.size + 16, np.float32)
    start = (-room.ctypes.data % 64) // 4
    aligned = room[start : start + x.size].reshape(x.shape)
    aligned[:] = x
    return aligned


def _expected(x):
    rotated = np.roll(x, -1, axis=1)
    lanes = rotated.reshape(-1, 2, 32)
    while lanes.shape[2] > 1:
        half = lanes.shape[2] // 2
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    sums = lanes[:, 0, 0] + lanes[:, 1, 0]
    other = x.reshape(-1, 2, 64)[:, ::-1, 0].reshape(-1)
    return (2.0 * x.astype(np.float64) + (sums + other)[:, None].astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
def test_every_primitive_in_any_order(kernels, seed):
    x = _inputs()
    y = np.full_like(x, np.nan)
    kernels[0].launch("whole", [x.ctypes.data, y.ctypes.data], seed)
    assert np.array_equal(y, _expected(x))


@pytest.mark.parametrize("defect", primitives.LINES)
def test_a_defect_shows_for_some_seed(kernels, defect):
    emulator, broken = kernels
    x = _inputs()
    for seed in range(32):
        y = np.full_like(x, np.nan)
        try:
            emulator.launch(broken[defect].name, [x.ctypes.data, y.ctypes.data], seed)
        except CuvilError:
            return
        if not np.array_equal(y, _expected(x)):
            return
    pytest.fail(f"{defect}: 32 seeds give the right bits")


def test_scalar_code_as_device_code_gives_the_engine_s_bits():
    model = tiny_model_bytes(batch=1)
    module, store = emulation.lowered(model)
    x = emulation.random_input(module.main.inputs[0].type)
    got = emulation.run_module(module, store, [x], emit=emit_fallback)
    assert np.array_equal(got["prob"], emulation.engine_outputs(model, {"image": x})["prob"])


EARLY = {
    "whole": ("", ""),
    "reads early": ("    cuvil_grid_wait();\n", "    own[t] = p0[block * 64 + t];\n    cuvil_grid_wait();\n"),
    "zeroes early": ("    cuvil_grid_wait();\n", "    y[block * 64 + t] = 0.0f;\n    cuvil_grid_wait();\n"),
    "one thread does not wait": ("    cuvil_grid_wait();\n", "    if (t != 5 || block != 2) cuvil_grid_wait();\n"),
}


def test_memory_that_is_touched_before_the_launch_before_has_ended_is_found():
    """No bit shows it here, where one launch runs after another: pages do, which nobody may touch until all wait."""
    names = {case: f"early{n}" for n, case in enumerate(EARLY)}
    kernels = [primitives.kernel(names[case], *EARLY[case]) for case in EARLY]
    x = _inputs()
    memory = Memory([x], [x.nbytes], bytes(64), 64)
    emulator = Emulator(kernels)
    emulator.guard(memory)
    pointers = [memory.of(space).ctypes.data for space in ("input", "output")]
    for case, name in names.items():
        if case == "whole":
            emulator.launch(name, pointers, 1)
            assert memory.of("output").tobytes() == _expected(x).tobytes()
        else:
            with pytest.raises(CuvilError, match="before it waited"):
                emulator.launch(name, pointers, 1)


def test_a_thread_that_has_its_work_alone_waits_too():
    text = """
extern "C" __global__ void NAME(const float *p0, float *y)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    WAIT
    y[i] = p0[i];
}
"""
    kernels = [
        CudaKernel(
            name, text.replace("NAME", name).replace("WAIT", wait), (2, 1, 1), 8, independent=True, dependent=True
        )
        for name, wait in (("waits", "cuvil_grid_wait();"), ("does_not", "/* cuvil_grid_wait(); */"))
    ]
    x = _inputs()
    memory = Memory([x], [x.nbytes], bytes(64), 64)
    emulator = Emulator(kernels)
    emulator.guard(memory)
    pointers = [memory.of(space).ctypes.data for space in ("input", "output")]
    emulator.launch("waits", pointers)
    assert memory.of("output")[:64].tobytes() == x.tobytes()[:64]
    with pytest.raises(CuvilError, match="before it waited"):
        emulator.launch("does_not", pointers)


def test_the_driver_refuses_a_copy_beyond_what_was_allocated(tmp_path):
    """As a device does (found on one): 4 bytes at the end of a block of 256."""
    driver = Driver(str(compile_emulated(unit_text([]), tmp_path, chip=90)), 256)
    whole = np.arange(256, dtype=np.uint8)
    driver.write(0, whole)
    assert np.array_equal(driver.read(0, 256), whole)
    for offset, size in ((256, 4), (252, 8), (-4, 4), (0, 257)):
        with pytest.raises(RuntimeError, match="cuMemcpyHtoD"):
            driver.write(offset, np.zeros(size, np.uint8))
        with pytest.raises(RuntimeError, match="cuMemcpyDtoH"):
            driver.read(offset, size)
