"""The CUDA driver API from Python, as far as single kernels are launched and timed (benchmarks/gpu_triton.py).

Types are those of runtime/cuda/cuvil_gpu_driver.h. ``library`` may be the emulated driver of toolchain/emulator.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.targets.cuda.kernel import CudaKernel

Bytes = NDArray[np.uint8]


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", c_int), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3), ("block", c_uint * 3), ("shared_bytes", c_uint), ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("attribute_count", c_uint),
    )  # fmt: skip


class Driver:
    """One device, one stream, one block of memory."""

    def __init__(self, library: str, size: int) -> None:
        self._lib = ctypes.CDLL(library)
        device, context, self._stream = c_int(), c_void_p(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGet", byref(device), c_int(0))
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._call("cuCtxPushCurrent_v2", context)
        self._call("cuStreamCreate", byref(self._stream), c_uint(1))
        self._events = (c_void_p(), c_void_p())
        for event in self._events:
            self._call("cuEventCreate", byref(event), c_uint(0))
        block = c_uint64()
        self._call("cuMemAlloc_v2", byref(block), c_size_t(size))
        self.block = int(block.value)
        self._kept: list[object] = []

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._lib, name)(*arguments)
        if result:
            text = c_char_p()
            self._lib.cuGetErrorName(c_int(result), byref(text))
            raise RuntimeError(f"{name}: {text.value!r} ({result})")

    def write(self, offset: int, data: Bytes) -> None:
        data = np.ascontiguousarray(data)
        self._call(
            "cuMemcpyHtoD_v2", c_uint64(self.block + offset), data.ctypes.data_as(c_void_p), c_size_t(data.nbytes)
        )
        self._call("cuStreamSynchronize", None)

    def read(self, offset: int, size: int) -> Bytes:
        data = np.empty(size, np.uint8)
        self._call(
            "cuMemcpyDtoHAsync_v2",
            data.ctypes.data_as(c_void_p),
            c_uint64(self.block + offset),
            c_size_t(size),
            self._stream,
        )
        self._call("cuStreamSynchronize", self._stream)
        return data

    def functions(self, image: bytes, names: Sequence[str]) -> dict[str, c_void_p]:
        """Kernels of a module by name."""
        module, found = c_void_p(), {}
        data = ctypes.create_string_buffer(image, len(image) + 1)
        self._kept.append(data)
        self._call("cuModuleLoadDataEx", byref(module), data, c_uint(0), None, None)
        for name in names:
            found[name] = c_void_p()
            self._call("cuModuleGetFunction", byref(found[name]), module, c_char_p(name.encode()))
        return found

    def graph(self, function: c_void_p, kernel: CudaKernel, offsets: Sequence[int], times: int = 1) -> c_void_p:
        """A graph of ``times`` launches, one after another; pointers are ``offsets`` into the block."""
        if kernel.shared_bytes > 48 * 1024:
            self._call("cuFuncSetAttribute", function, c_int(8), c_int(kernel.shared_bytes))
        values = [c_uint64(self.block + offset) for offset in offsets]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        attributes = (_Attribute * 1)()
        attributes[0].id = 4  # CU_LAUNCH_CLUSTER_DIMENSION
        attributes[0].value[0], attributes[0].value[1], attributes[0].value[2] = kernel.cluster, 1, 1
        config = _Config(
            (c_uint * 3)(*kernel.grid), (c_uint * 3)(kernel.block, 1, 1), kernel.shared_bytes, self._stream,
            attributes, int(kernel.cluster > 1),
        )  # fmt: skip
        graph, made = c_void_p(), c_void_p()
        self._call("cuStreamBeginCapture_v2", self._stream, c_int(1))
        for _ in range(times):
            self._call("cuLaunchKernelEx", byref(config), function, pointers, None)
        self._call("cuStreamEndCapture", self._stream, byref(graph))
        self._call("cuGraphInstantiateWithFlags", byref(made), graph, c_ulonglong(0))
        return made

    def run(self, graph: c_void_p) -> None:
        self._call("cuGraphLaunch", graph, self._stream)
        self._call("cuStreamSynchronize", self._stream)

    def microseconds(self, graph: c_void_p) -> float:
        """By the device's events."""
        found = c_float()
        self._call("cuEventRecord", self._events[0], self._stream)
        self._call("cuGraphLaunch", graph, self._stream)
        self._call("cuEventRecord", self._events[1], self._stream)
        self._call("cuStreamSynchronize", self._stream)
        self._call("cuEventElapsedTime", byref(found), *self._events)
        return found.value * 1000
