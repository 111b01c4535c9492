"""The elementary functions of Canonical Arithmetic 1: docs/arithmetic-elementary.md against the C headers.

The same bits on every target (hashes of one operand sample) and the error bounds (a 1/64 sample here, every operand in
the slow tests). Special cases are in test_elementary_values.py.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from elementary_programs import (
    ARM,
    HERE,
    NAMES,
    ROOT,
    RUNTIME,
    WASM,
    X86_V1,
    X86_V3,
    Apply,
    Build,
    apply,
    bits,
    build,
    floats,
    measure,
    needs_fma,
    needs_v3,
    needs_v4,
    output,
)

__all__ = ["apply", "build"]  # fixtures
TEXT = (ROOT / "docs" / "arithmetic-elementary.md").read_text(encoding="utf-8")
STEP = 16381  # the sample common to all targets: 262 000 patterns and all pairs of edge cases
# Bounds of section 8 of the text, ulp.
BOUNDS = {"exp": 0.9, "log": 0.95, "erf": 1.05, "tanh": 1.4, "sigmoid": 2.45}


# ------------------------------------------------------------ the text and the code
def test_every_coefficient_of_the_text_is_in_the_code() -> None:
    code = (RUNTIME / "ca1_math.h").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([A-Z][A-Z0-9]+) \| (-?0x[0-9a-f.]+p[+-]\d+) \| (0x[0-9a-f]{8}) ", TEXT)
    assert len(rows) == 36
    used = {float.fromhex(c) for c in re.findall(r"-?0x[0-9a-f.]+p[+-]\d+", code)} | {-0.5}
    for name, value, pattern in rows:
        assert struct.pack(">f", float.fromhex(value)).hex() == pattern[2:], name
        assert float.fromhex(value) in used, name


def test_check_values_of_the_text(apply: Apply) -> None:
    columns = ["exp", "log", "erf", "tanh", "sigmoid", "softplus", "gelu", "gelu_tanh"]
    unary = re.findall(r"^\| " + r" \| ".join([r"(0x[0-9a-f]{8})"] * 9) + r" \|$", TEXT, re.M)
    assert len(unary) == 14
    for x, *expected in unary:
        got = [int(bits(apply(name, floats(int(x, 16))))[0]) for name in columns]
        assert got == [int(e, 16) for e in expected], x
    binary = re.findall(r"^\| (0x[0-9a-f]{8}) \| (0x[0-9a-f]{8}) \| (0x[0-9a-f]{8}) \|$", TEXT, re.M)
    assert len(binary) == 12
    for x, y, expected in binary:
        assert bits(apply("pow", floats(int(x, 16)), floats(int(y, 16))))[0] == int(expected, 16), (x, y)


@pytest.mark.slow
def test_the_fit_reproduces_the_coefficients() -> None:
    printed = output(sys.executable, ROOT / "benchmarks" / "fit_elementary.py")
    fitted = set(re.findall(r"0x[0-9a-f]{8}$", printed, re.M))
    stated = set(re.findall(r"\| [EGLST]\d \| -?0x[0-9a-f.]+p[+-]\d+ \| (0x[0-9a-f]{8}) ", TEXT))
    assert len(stated) == 32
    assert fitted == stated


# ------------------------------------------------------------ one set of bits
@pytest.fixture(scope="session")
def reference(build: Build) -> str:
    """Hashes of the scalar x86-64-v3 build."""
    needs_fma()
    return output(build("elementary_probe.c", *X86_V3), 1, STEP)


def test_the_sample_tells_the_functions_apart(reference: str) -> None:
    lines = dict(line.split() for line in reference.splitlines())
    assert list(lines) == NAMES
    assert len(set(lines.values())) == len(NAMES)


@needs_v3
def test_avx2_has_the_bits_of_scalar_code(build: Build) -> None:
    program = build("elementary_probe.c", *X86_V3)
    assert output(program, 8, 1021) == output(program, 1, 1021)


@needs_v3
@needs_v4
def test_avx512_has_the_bits_of_scalar_code(build: Build) -> None:
    program = build("elementary_probe.c", *X86_V3)
    assert output(program, 16, 1021) == output(program, 1, 1021)


def test_x86_64_without_fma_has_the_same_bits(build: Build, reference: str) -> None:
    assert output(build("elementary_probe.c", *X86_V1), 1, STEP) == reference


@needs_v3
@pytest.mark.parametrize("width", [1, 8])
def test_gcc_has_the_same_bits(build: Build, reference: str, width: int) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc, the second compiler, is not installed")
    program = build("elementary_probe.c", "-mavx2", "-mfma", compiler="gcc")
    assert output(program, width, STEP) == reference


@pytest.mark.parametrize("width", [1, 4])
def test_aarch64_has_the_same_bits(build: Build, reference: str, width: int) -> None:
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        pytest.skip("qemu-aarch64 (user mode) is not installed, so aarch64 code cannot run here")
    assert output(qemu, build("elementary_probe.c", *ARM), width, STEP) == reference


def test_webassembly_has_the_same_bits(build: Build, reference: str, tmp_path: Path) -> None:
    wasmtime = pytest.importorskip("wasmtime", reason="the wasmtime package is not installed")
    engine = wasmtime.Engine()
    config = wasmtime.WasiConfig()
    config.argv = ["elementary_probe", "1", str(STEP)]
    config.stdout_file = str(tmp_path / "stdout")
    store = wasmtime.Store(engine)
    store.set_wasi(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    module = wasmtime.Module.from_file(engine, str(build("elementary_probe.c", *WASM)))
    linker.instantiate(store, module).exports(store)["_start"](store)
    store.close()
    assert (tmp_path / "stdout").read_text(encoding="utf-8") == reference


# ------------------------------------------------------------ error bounds
@needs_v3
@pytest.mark.parametrize("function", BOUNDS)
def test_error_bound_on_a_sample(build: Build, function: str) -> None:
    worst, wrong, tested = measure(build("elementary_ulp.c", *X86_V3), function, 0, 1 << 32, 64)
    assert tested == 1 << 26
    assert wrong == 0
    assert 0.5 < worst <= BOUNDS[function]


@needs_v3
def test_short_forms_of_exp_on_a_sample(build: Build) -> None:
    _, wrong, tested = measure(build("elementary_ulp.c", *X86_V3), "forms", 0, 1 << 32, 64)
    assert tested > 1 << 25
    assert wrong == 0


@needs_v3
@pytest.mark.slow
@pytest.mark.parametrize("function", [*BOUNDS, "forms"])
def test_error_bound_for_every_operand(build: Build, function: str) -> None:
    program = build("elementary_ulp.c", *X86_V3)
    half = 1 << 31
    parts = [
        subprocess.Popen(
            [str(program), function, str(start), str(start + half), "1"], stdout=subprocess.PIPE, text=True
        )
        for start in (0, half)
    ]
    results = [part.communicate()[0].split() for part in parts]
    assert [part.returncode for part in parts] == [0, 0]
    assert sum(int(r[2]) for r in results) == 0
    assert function == "forms" or sum(int(r[3]) for r in results) == 1 << 32
    if function != "forms":
        assert 0.5 < max(float(r[0]) for r in results) <= BOUNDS[function]


@pytest.mark.slow
@pytest.mark.parametrize("contraction", ["true", "false"])
def test_cuda_device_code_has_the_same_bits(reference: str, tmp_path: Path, contraction: str) -> None:
    """With nvcc's contraction on (its default) and off: the intrinsics used are never contracted."""
    if shutil.which("nvcc") is None or shutil.which("nvidia-smi") is None:
        pytest.skip("no CUDA compiler or no NVIDIA GPU here")
    program = tmp_path / "probe"
    flags = [
        "-x",
        "cu",
        "-O2",
        "-arch=native",
        f"-fmad={contraction}",
        "-Xcompiler",
        "-ffp-contract=off,-fno-math-errno",
    ]
    output("nvcc", *flags, f"-I{RUNTIME}", HERE / "elementary_probe.c", "-o", program)
    assert output(program, 0, STEP) == reference
