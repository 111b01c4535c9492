"""The vectors of CA-1 on an NVIDIA GPU, by CUDA C++ from the same kernel description.

    python benchmarks/vectors_on_gpu.py write DIR        # writes DIR/vectors.cu, input.bin and compiles where nvcc is
    python benchmarks/vectors_on_gpu.py check DIR        # compares DIR/output.bin with the expected bits

Between the two, on a machine with a GPU: DIR/vectors < DIR/input.bin > DIR/output.bin
The result of the run recorded in docs/gpu.md was made this way.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from compiler_kernels.targets.c.cuda import NVCC_FLAGS, generate_cuda
from compiler_kernels.toolchain.sources import RUNTIME_DIRECTORY
from evidence.reference.vectors import load_vectors
from evidence.vector_engines import Compiled, compare, compile_all, input_bytes

VECTORS = Path(__file__).resolve().parents[1] / "docs" / "vectors" / "ca1.json"
_HEAD = """#include <cstdio>
#include <cstdlib>
#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \\
    fprintf(stderr, "%s: %s\\n", #call, cudaGetErrorString(e_)); exit(3); } } while (0)
#include "ca1_math.h"
#include "ca1_sum.h"
#include "ca1_winograd.h"
"""
_MAIN = """
int main() {{
    static float in[{inputs}], out[{outputs}];
{calls}
    return fflush(stdout) ? 3 : 0;
}}
"""


def write(directory: Path) -> None:
    compiled = _compiled()
    text = [_HEAD]
    calls = []
    most_in = most_out = 1
    for number, item in enumerate(compiled):
        text.append(generate_cuda(item.module, item.store, f"v{number}"))
        count_in = sum(a.size for a in item.inputs)
        count_out = 1
        for dim in item.expected.shape:
            count_out *= dim
        most_in, most_out = max(most_in, count_in), max(most_out, count_out)
        calls.append(
            f"    if (fread(in, 4, {count_in}, stdin) != {count_in}) return 2; v{number}_run(in, out); "
            f"fwrite(out, 4, {count_out}, stdout);"
        )
    text.append(_MAIN.format(inputs=most_in, outputs=most_out, calls="\n".join(calls)))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vectors.cu").write_text("\n".join(text), "utf-8")
    (directory / "input.bin").write_bytes(input_bytes(compiled))
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("nvcc is not on PATH: compile DIR/vectors.cu with nvcc " + " ".join(NVCC_FLAGS))
        return
    command = [nvcc, "-O2", "-std=c++17", "-arch=sm_90", *NVCC_FLAGS, "-I", str(RUNTIME_DIRECTORY)]
    subprocess.run([*command, "-o", str(directory / "vectors"), str(directory / "vectors.cu")], check=True)
    subprocess.run([*command, "-ptx", "-o", str(directory / "vectors.ptx"), str(directory / "vectors.cu")], check=True)
    ptx = (directory / "vectors.ptx").read_bytes()
    for word in (b"fma.rn.f32", b".ftz", b".approx", b"div.full", b"mma."):
        print(f"PTX instructions with {word.decode()}: {ptx.count(word)}")


def check(directory: Path) -> int:
    compiled = _compiled()
    wrong = compare(compiled, (directory / "output.bin").read_bytes())
    for name, difference in wrong.items():
        print(f"{name}: {difference}")
    print(f"{len(compiled) - len(wrong)} of {len(compiled)} vectors have the expected bits")
    return 1 if wrong else 0


def _compiled() -> list[Compiled]:
    # Recurrent operators keep state in scratch memory, which the CUDA generator does not provide.
    vectors = [v for v in load_vectors(VECTORS) if v.op_type not in ("LSTM", "GRU", "RNN")]
    compiled, refused = compile_all(vectors, plain=True)
    if refused:
        raise SystemExit(f"{len(refused)} vectors do not compile, first {next(iter(refused.items()))}")
    return compiled


if __name__ == "__main__":
    action, where = sys.argv[1], Path(sys.argv[2])
    sys.exit(check(where) if action == "check" else write(where))
