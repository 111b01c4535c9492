"""How inputs and outputs cross to the GPU: the copying kernel, emulated, and which transfers it makes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from needs import needs_nvcc, no_gpu
from onnx import TensorProto, helper

from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.targets.cuda.gpu import SM_80
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import nvcc
from compiler_kernels.toolchain.emulator import Emulator, emulated_driver
from compiler_kernels.toolchain.sealed import run_sealed
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources

BLOCK = 16 * 1024


def _kernel(blocks):
    return CudaKernel("cuvil_copy", '#include "cuvil_copy.h"', (blocks, 1, 1), 256, independent=True)


@pytest.mark.parametrize("sizes", [range(1, 68), (BLOCK - 17, BLOCK - 16, BLOCK - 1), (3 * BLOCK - 5, 2 * BLOCK + 1)])
def test_every_byte_is_copied_and_none_beside_it(sizes):
    blocks = -(-max(sizes) // BLOCK)
    emulator = Emulator([_kernel(blocks)])
    rng = np.random.default_rng(5)
    for size in sizes:
        source, target = (rng.integers(0, 256, size + 160, np.uint8) for _ in range(2))
        start, to = (64 - a.ctypes.data % 16 for a in (source, target))
        wanted = target.copy()
        wanted[to : to + size] = source[start : start + size]
        emulator.launch("cuvil_copy", [source.ctypes.data + start, target.ctypes.data + to, size])
        assert target.tobytes() == wanted.tobytes(), size


def test_host_library_and_kernel_agree_on_what_a_block_copies():
    header, host = (cuda_sources()[name].decode() for name in ("cuvil_copy.h", "cuvil_gpu.c"))
    threads, words = map(int, re.search(r"CUVIL_COPY_THREADS = (\d+), CUVIL_COPY_WORDS = (\d+)", header).groups())
    assert threads * words * 16 == BLOCK and f"COPY_THREADS = {threads}, COPY_BLOCK = 16 * 1024" in host


def _moved(count):
    """x [1, count] bytes, where they are not zero."""
    values = [helper.make_tensor_value_info(n, TensorProto.UINT8, [1, count]) for n in "xy"]
    node = helper.make_node("Max", ["x", "one"], ["y"], "max")
    one = helper.make_tensor("one", TensorProto.UINT8, [1], [1])
    graph = helper.make_graph([node], "moved", values[:1], values[1:], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@needs_nvcc
@no_gpu
@pytest.mark.parametrize(
    ("target", "count"),
    [("cuda-sm_90", 13), ("cuda-sm_90", 1024 * 1024 - 3), ("cuda-sm_80", 16401), ("cuda-sm_90", 1024 * 1024 + 1)],
)
def test_small_and_large_transfers_of_any_length(tmp_path, target, count):
    """The last count is the copy engine's."""
    model, chip = _moved(count), target.removeprefix("cuda-")
    compile_model(model, target=target, kind="bin", output=tmp_path / "engine.bin")
    words = emulated_driver(generate_frozen(freeze_model(model), resolve_target(target))["kernels.cu"], chip, tmp_path)
    x = np.random.default_rng(count).integers(0, 256, (1, count), np.uint8)
    np.save(tmp_path / "x.npy", x)
    done = [*words, str(tmp_path / "engine.bin"), "--input", str(tmp_path / "x.npy"), "--output-dir"]
    run_sealed([*done, str(tmp_path / "out")], tmp_path, {}, 60.0)
    assert np.load(tmp_path / "out" / "y.npy").tobytes() == np.maximum(x, 1).tobytes()


@needs_nvcc
def test_the_copying_kernel_reads_before_it_writes_and_passes_the_gate():
    """Four loads of 16 bytes under way at once: the host's memory is waited for once."""
    unit = {**runtime_sources(), **cuda_sources(), "kernels.cu": b'#include "cuvil_copy.h"\n'}
    images, _ = nvcc.compile_cuda(unit, SM_80)
    text = images["kernels.ptx"].decode()
    accesses = re.findall(r"\t(ld\.global\.cs\.v4|st\.global\.v4)", text)
    assert accesses == ["ld.global.cs.v4"] * 4 + ["st.global.v4"] * 4
