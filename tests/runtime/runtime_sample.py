"""A hand-written engine, y = fma(a, b, c) element by element, standing where a generated one will stand."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_kernels.toolchain.sources import runtime_sources

WEIGHTS = bytes(range(256)) * 3

WEIGHTS_S = b"""\
.section .rodata
.balign 64
.globl sample_weights
.type sample_weights, %object
sample_weights:
.incbin "engine_weights.bin"
.size sample_weights, . - sample_weights
.section .note.GNU-stack,"",%progbits
"""

_TWO_INPUTS = """
static float a[6] __attribute__((aligned(64))), b[6] __attribute__((aligned(64))), y[6] __attribute__((aligned(64)));
static void *const input_buffers[] = {a, b};
static void *const output_buffers[] = {y};
static const cuvil_tensor inputs[] = {
    {"a", CUVIL_FLOAT32, 2, {2, 3}, 6, @FINITE@, 1, 1, -100.0f, 100.0f, 0, 0},
    {"b/in", CUVIL_FLOAT32, 2, {2, 3}, 6, 0, 0, 0, 0, 0, 0, 0}};
static const cuvil_tensor outputs[] = {{"../y", CUVIL_FLOAT32, 2, {2, 3}, 6, @OUT_FINITE@, 0, 0, 0, 0, 0, 0}};
static float half; /* 0.5 only if the prepare step ran exactly once */
static void prepare(int begin, int end, float *scratch) { (void)begin; (void)end; (void)scratch; half += 0.5f; }
static void multiply(int begin, int end, float *scratch) {
    (void)scratch;
    for (int i = begin; i < end; i++) y[i] = __builtin_fmaf(a[i], b[i], half);
}
static const cuvil_step prepare_steps[] = {{prepare, 1, "prepare", ""}};
static const cuvil_step steps[] = {{multiply, 6, "sample_multiply", "/\\"x\\"/Mul"}};
enum { STEPS = 1, PREPARE = 1 };
"""

_ONE_INPUT = """
static float x[4] __attribute__((aligned(64))), y[4] __attribute__((aligned(64))), z[1] __attribute__((aligned(64)));
static void *const input_buffers[] = {x};
static void *const output_buffers[] = {y, z, y};
static const cuvil_tensor inputs[] = {{"image", CUVIL_FLOAT32, 1, {4}, 4, 0, 0, 0, 0, 0, 0, 0}};
static const cuvil_tensor outputs[] = {
    {"p.q", CUVIL_FLOAT32, 1, {4}, 4, 0, 0, 0, 0, 0, 0, 0}, {"sum", CUVIL_FLOAT32, 0, {0}, 1, 0, 0, 0, 0, 0, 0, 0},
    {"p.q", CUVIL_FLOAT32, 1, {4}, 4, 0, 0, 0, 0, 0, 0, 0}};
static void halve(int begin, int end, float *scratch) {
    (void)scratch;
    for (int i = begin; i < end; i++) y[i] = x[i] * 0.5f;
}
static void sum(int begin, int end, float *scratch) {
    (void)begin; (void)end; (void)scratch;
    float total = 0.0f;
    for (int i = 0; i < 4; i++) total += x[i];
    z[0] = total;
}
static const cuvil_step steps[] = {{halve, 4, "sample_halve", "Mul"}, {sum, 1, "sample_sum", "ReduceSum"}};
static const cuvil_step *const prepare_steps = 0;
enum { STEPS = 2, PREPARE = 0 };
"""

_CHAIN = """
/* 56 steps, most of 64 items that read their neighbours of the step before; two are indivisible. */
static float x[64] __attribute__((aligned(64))), y[64] __attribute__((aligned(64)));
static float u[64] __attribute__((aligned(64))), v[64] __attribute__((aligned(64)));
static void *const input_buffers[] = {x};
static void *const output_buffers[] = {y};
static const cuvil_tensor inputs[] = {{"image", CUVIL_FLOAT32, 1, {64}, 64, 0, 0, 0, 0, 0, 0, 0}};
static const cuvil_tensor outputs[] = {{"y", CUVIL_FLOAT32, 1, {64}, 64, 0, 0, 0, 0, 0, 0, 0}};
static void mix(const float *from, float *to, int begin, int end, float *scratch) {
    for (int i = begin; i < end; i++) {
        scratch[0] = from[(i + 1) % 64];
        scratch[1] = from[(i + 7) % 64] * 0.3f; /* at the smallest subnormals this shows flush-to-zero */
        for (volatile int k = 0; k < i % 5 * 20; k++) continue;
        to[i] = __builtin_fmaf(scratch[0], 0.7f, scratch[1]);
    }
}
static void start(int b, int e, float *s) { mix(x, u, b, e, s); }
static void odd(int b, int e, float *s) { mix(u, v, b, e, s); }
static void even(int b, int e, float *s) { mix(v, u, b, e, s); }
static void one(int b, int e, float *s) {
    (void)b; (void)e; (void)s;
    for (int i = 0; i < 64; i++) v[i] = u[63 - i];
}
static void two(int b, int e, float *s) {
    (void)b; (void)e; (void)s;
    for (volatile long k = 0; k < @DELAY@; k++) continue;
    for (int i = 1; i < 64; i++) v[i] += v[i - 1] * 0.25f;
}
static void last(int b, int e, float *s) { mix(v, y, b, e, s); }
#define PAIR {odd, 64, "odd", ""}, {even, 64, "even", ""}
#define TEN PAIR, PAIR, PAIR, PAIR, PAIR
static const cuvil_step steps[] = {{start, 64, "start", ""}, TEN, TEN, {one, 1, "one", ""}, {two, 1, "two", ""},
    {even, 64, "even", ""}, TEN, TEN, TEN, {odd, 64, "odd", ""}, {last, 64, "last", ""}};
static const cuvil_step *const prepare_steps = 0;
enum { STEPS = sizeof steps / sizeof steps[0], PREPARE = 0 };
"""

_REST = """
static float scratch[CUVIL_MAX_THREADS * 16] __attribute__((aligned(64)));
static int no(void) { return 0; }
static int yes(void) { return 1; }
static const cuvil_variant variants[] = {{"never", no, steps, prepare_steps}, {"plain", yes, steps, prepare_steps},
    {"other", yes, steps, prepare_steps}};
static void infer(void) {
    static int prepared;
    cuvil_fpenv saved = cuvil_fpenv_enter();
    for (int s = 0; !prepared && s < PREPARE; s++) prepare_steps[s].run(0, prepare_steps[s].items, scratch);
    prepared = 1;
    for (int s = 0; s < STEPS; s++) steps[s].run(0, steps[s].items, scratch);
    cuvil_fpenv_leave(saved);
}
const cuvil_engine cuvil_engine_instance = {
    "sample \\"one\\"", "1.0", "CA-1", "0123", "4567", "sha3-512:@DIGEST@", "@TARGET@",
    sizeof inputs / sizeof inputs[0], sizeof outputs / sizeof outputs[0], inputs, outputs,
    sample_weights, @SIZE@, 0, input_buffers, output_buffers,
    3, variants, STEPS, PREPARE, scratch, 16, CUVIL_MAX_THREADS, infer, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
"""


def generated(
    target: str, body: str = _TWO_INPUTS, finite: int = 1, out_finite: int = 0, weights: bytes = WEIGHTS
) -> dict[str, bytes]:
    """The files a generator would make for the sample engine."""
    head = '#include "cuvil_engine.h"\n#include "cuvil_fpenv.h"\nextern const unsigned char sample_weights[];\n'
    text = (head + body + _REST).replace("@FINITE@", str(finite)).replace("@OUT_FINITE@", str(out_finite))
    text = text.replace("@DIGEST@", hashlib.sha3_512(weights).hexdigest()).replace("@SIZE@", str(len(weights)))
    return {
        "engine.c": text.replace("@TARGET@", target).encode(),
        "weights.S": WEIGHTS_S,
        "engine_weights.bin": weights,
    }


def two_inputs(target: str, finite: int = 1, out_finite: int = 0) -> dict[str, bytes]:
    """Inputs a, b/in (2, 3); output ../y (2, 3); ``a`` lies in [-100, 100]."""
    return with_runtime(generated(target, _TWO_INPUTS, finite, out_finite))


def one_input(target: str) -> dict[str, bytes]:
    """Input image (4,); outputs p.q (4,), sum (), and p.q once more; no weights guard, no value guard."""
    return with_runtime(generated(target, _ONE_INPUT, weights=b""))


def chain(target: str, delay: int = 0) -> dict[str, bytes]:
    """Input image (64,), output y (64,): 55 steps that read across the division of the step before; ``delay`` turns of
    a loop in one indivisible step."""
    return with_runtime(generated(target, _CHAIN.replace("@DELAY@", str(delay)), weights=b""))


def with_runtime(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Generated files together with the runtime, as the toolchain wants them."""
    return {**runtime_sources(), **files}


@dataclass(frozen=True)
class Engine:
    """A compiled engine and the words (an emulator) that run it here."""

    path: Path
    prefix: tuple[str, ...] = ()

    def run(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run it with the arguments; both streams as text."""
        words = [*self.prefix, str(self.path), *map(str, arguments)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **options)

    def refused(self, code: int, *arguments: str | Path, **options: Any) -> str:
        """Run it, expecting one sentence on standard error, this exit code and no other output; the sentence."""
        done = self.run(*arguments, **options)
        assert done.returncode == code, (done.returncode, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("error: ") and done.stderr.endswith("\n") and done.stderr.count("\n") == 1, (
            done.stderr
        )
        return done.stderr[len("error: ") : -1]


def write_engine(directory: Path, name: str, data: bytes, prefix: tuple[str, ...] = ()) -> Engine:
    """Store a compiled engine as an executable file."""
    path = directory / name
    path.write_bytes(data)
    path.chmod(0o755)
    return Engine(path, prefix)
