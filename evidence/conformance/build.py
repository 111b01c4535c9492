"""Many prepared tests as one program; a program that does not compile is halved until the culprits stand alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.registry import Target, runs_natively
from compiler_kernels.toolchain.driver import COMMON_FLAGS
from compiler_kernels.toolchain.sources import RUNTIME_DIRECTORY
from compiler_kernels.toolchain.zig import ZigDriver
from evidence.conformance.prepare import Prepared
from evidence.engine_program import EngineText, main_text, unit_text
from evidence.gpu_program import GpuText, compile_program

OPTIMISATION: Final = "-O1"
"""Of this suite's programs; engines are built with -O2. The source fixes every bit, so the level changes none."""
_TIMEOUT: Final = 600.0

# The program takes the number of the first engine to run, so that it can go on behind one that crashed. On standard
# input: for each engine and input, the number of bytes and the bytes. On standard output, for each engine, a frame:
# "CVF1", engine, number of outputs (-1: an input has another size; -2: the engine refused, and the length of its
# sentence and the sentence follow); for each output, the length of its name and the name, element type, rank, shape,
# number of bytes, bytes. All numbers are 64-bit little-endian.
MAIN: Final = """static void put(long long value) { fwrite(&value, 8, 1, stdout); }
static int take(const cuvil_engine *engine) {
    int good = 1;
    for (int n = 0; n < engine->input_count; n++) {
        long long size = 0;
        if (fread(&size, 8, 1, stdin) != 1) exit(2);
        const size_t own = (size_t)engine->inputs[n].count * element_bytes(engine->inputs[n].dtype);
        if ((size_t)size == own) {
            if (own && fread(engine->input_buffers[n], 1, own, stdin) != own) exit(2);
        } else {
            good = 0;
            for (; size > 0; size--) if (getchar() == EOF) exit(2);
        }
    }
    return good;
}
static void give(const cuvil_engine *engine, int n) {
    const cuvil_tensor *tensor = &engine->outputs[n];
    put((long long)strlen(tensor->name));
    fputs(tensor->name, stdout);
    put(tensor->dtype);
    put(tensor->rank);
    size_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++) {
        const long size = OUTPUT_SIZE(engine, n, axis);
        put(size);
        count *= (size_t)size;
    }
    const size_t bytes = count * element_bytes(tensor->dtype);
    put((long long)bytes);
    fwrite(engine->output_buffers[n], 1, bytes, stdout);
}
int main(int argc, char **argv) {
    for (int e = argc > 1 ? atoi(argv[1]) : 0; e < engine_count; e++) {
        const cuvil_engine *engine = engines[e];
        const int good = take(engine);
        if (good) engine->infer();
        const char *refusal = good && engine->refusal ? *engine->refusal : NULL;
        fwrite("CVF1", 1, 4, stdout);
        put(e);
        put(refusal ? -2 : good ? engine->output_count : -1);
        if (refusal) {
            put((long long)strlen(refusal));
            fputs(refusal, stdout);
        }
        for (int n = 0; good && !refusal && n < engine->output_count; n++) give(engine, n);
        if (fflush(stdout)) return 3;
    }
    return 0;
}
"""
# An output whose size depends on the data says it after every inference.
_OUTPUT_SIZE: Final = (
    "#define OUTPUT_SIZE(engine, n, axis) ((engine)->outputs[n].extents ? "
    "(long)(engine)->outputs[n].extents[axis] : (engine)->outputs[n].shape[axis])\n"
)


@dataclass(frozen=True)
class Built:
    """A program with its tests in order, or (``program`` None) one test whose C the compiler refused."""

    program: Path | None
    tests: tuple[Prepared, ...]
    message: str = ""


def build(tests: Sequence[Prepared], target: Target, isa: Isa | Gpu, directory: Path) -> Iterator[Built]:
    """Compile ``tests`` into as few programs as they allow, in ``directory``.

    ``CuvilError`` when the C compiler cannot be started at all.
    """
    directory.mkdir(parents=True, exist_ok=True)
    message = _compile(tests, target, isa, directory)
    if not message:
        yield Built(directory / "program", tuple(tests))
    elif len(tests) == 1:
        yield Built(None, tuple(tests), message)
    else:
        middle = len(tests) // 2
        yield from build(tests[:middle], target, isa, directory / "a")
        yield from build(tests[middle:], target, isa, directory / "b")


def _compile(tests: Sequence[Prepared], target: Target, isa: Isa | Gpu, directory: Path) -> str:
    """Compile and link; the compiler's first error, or the empty string."""
    if isinstance(isa, Gpu):
        try:
            compile_program(
                [e for t in tests if isinstance(e := t.engine, GpuText)], isa, directory, not runs_natively(target)
            )
        except CuvilError as error:
            return str(error)
        return ""
    engines = [e for t in tests if isinstance(e := t.engine, EngineText)]
    (directory / "engines.c").write_bytes(unit_text(engines, isa))
    (directory / "main.c").write_bytes(main_text((e.prefix for e in engines), _OUTPUT_SIZE + MAIN))
    driver = ZigDriver()
    environment = driver.environment(directory)
    flags = [OPTIMISATION if f == "-O2" else f for f in COMMON_FLAGS if not f.startswith("-W")]
    own = [*driver.target_flags(target, generated=True, isa=isa), *flags, "-w", "-I", str(RUNTIME_DIRECTORY)]
    link = [*driver.target_flags(target, generated=False), *flags, *driver.link_flags("bin", target)]
    # The C library is compiled for the oldest processor of the target, as for engines, so that its cache serves both.
    for words in (
        [*own, "-c", "engines.c", "-o", "engines.o"],
        [*link, "-w", "-I", str(RUNTIME_DIRECTORY), "main.c", "engines.o", "-o", "program"],
    ):
        try:
            done = subprocess.run(
                [*driver.command(target), *words], cwd=directory, env={**os.environ, **environment},
                capture_output=True, timeout=_TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"the C compiler took longer than {_TIMEOUT:.0f} s"
        except OSError as error:
            raise CuvilError(f"the C compiler cannot be started ({error}): reinstall ziglang==0.17.1") from error
        if done.returncode:
            return first_error(done.stderr.decode("utf-8", "replace")) or f"exit code {done.returncode}"
    return ""


def first_error(text: str) -> str:
    """The first line of the compiler's messages that says "error", with the source line below it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if "error" in line:
            return " | ".join(part.strip() for part in lines[number : number + 2])
    return " ".join(text.split())[:300]
