"""What the numbers were measured on: processor, load, and the measured peak of fused multiply-adds of one core."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from compiler_kernels.compile import native_target
from compiler_kernels.targets.isa import VARIANTS, Isa
from compiler_kernels.toolchain.zig import ZigDriver

CHAINS: Final = 12
_SOURCE: Final = """
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define WIDTH
#if defined(CUVIL_ISA_AVX512)
#define LANES 16
#define NAME avx512
#undef WIDTH
#define WIDTH __attribute__((min_vector_width(512))) /* or clang splits 512-bit vectors for this processor level */
#elif defined(CUVIL_ISA_AVX2)
#define LANES 8
#define NAME avx2
#else
#define LANES 4
#define NAME neon
#endif
typedef float vec __attribute__((vector_size(LANES * 4)));
/* CHAINS independent chains of fused multiply-adds: more than latency times throughput of any current core. */
float JOIN(fma_peak_, NAME)(float x, float y, long turns);
WIDTH float JOIN(fma_peak_, NAME)(float x, float y, long turns) {
    vec a[CHAINS], vx, vy;
    for (int lane = 0; lane < LANES; lane++) { vx[lane] = x; vy[lane] = y; }
    for (int c = 0; c < CHAINS; c++) a[c] = vx * (float)(c + 1);
    for (long turn = 0; turn < turns; turn++) {
#pragma clang loop unroll(full)
        for (int c = 0; c < CHAINS; c++) a[c] = __builtin_elementwise_fma(a[c], vx, vy);
    }
    for (int c = 1; c < CHAINS; c++) a[0] += a[c];
    return a[0][0];
}
"""


def processor() -> str:
    """The processor's name as Linux reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def fma_peak(repeats: int = 15) -> dict[str, float]:
    """Measured binary32 peak of one core in GFLOP/s (a fused multiply-add counts two), by instruction set.

    The best of ``repeats`` slices of a few milliseconds, in processor time of the calling thread.
    """
    target = native_target()
    isas = tuple(isa for isa in VARIANTS[target.machine] if _usable(isa))
    source = f"#define CHAINS {CHAINS}\n{_SOURCE}".encode()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="cuvil-peak-") as folder:
        path = Path(folder) / "peak.so"
        path.write_bytes(ZigDriver().build({"kernels.c": source}, target, "so", isas).data)
        library = ctypes.CDLL(str(path))
        for isa in isas:
            function = library[f"fma_peak_{isa.name}"]
            function.argtypes = (ctypes.c_float, ctypes.c_float, ctypes.c_long)
            function.restype = ctypes.c_float
            turns, best = 400_000, 0.0
            for _ in range(repeats):
                start = time.thread_time_ns()
                function(0.999, 1e-3, turns)
                best = max(best, turns * CHAINS * isa.lanes * 2 / (time.thread_time_ns() - start))
            found[isa.name] = round(best, 1)
    return found


def _usable(isa: Isa) -> bool:
    if isa.name != "avx512":
        return True
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return False
    return {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"} <= set(flags.split())


def describe() -> dict[str, Any]:
    """Processor, cores this process may use, load average, kernel and measured peak."""
    return {
        "processor": processor(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average_at_start": [round(v, 2) for v in os.getloadavg()],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "fma_peak_gflops_per_core": fma_peak(),
    }
