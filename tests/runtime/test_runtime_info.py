"""--version, --self-test, --bench, the processor check, and the floating-point environment."""

import hashlib
import json
import shutil
from collections.abc import Callable

import pytest
import runtime_sample as sample

from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain.zig import ZigDriver

X86 = TARGETS["x86_64-linux-musl"]
QEMU_X86 = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
needs_qemu_x86 = pytest.mark.skipif(QEMU_X86 is None, reason="needs qemu-x86_64 to imitate older processors")
CHECKS = ["weights-digest", "interface", "fp-rounding", "fp-subnormals", "fp-fma"]


def test_version(engine):
    answer = json.loads(engine.run("--version", "--json").stdout)
    assert answer["model"] == 'sample "one"' and answer["target"] in TARGETS
    assert answer["weights_bytes"] == len(sample.WEIGHTS) and answer["arena_bytes"] == 0
    assert answer["weights_digest"] == "sha3-512:" + hashlib.sha3_512(sample.WEIGHTS).hexdigest()
    assert answer["isas"] == ["never", "plain", "other"] and answer["isa"] == "plain" and answer["max_threads"] == 16
    assert answer["steps"] == [{"kernel": "sample_multiply", "items": 6, "node": '/"x"/Mul'}]
    assert json.loads(engine.run("--version", "--isa=other", "--json").stdout)["isa"] == "other"
    assert {"model_version", "arithmetic", "frozen_graph", "config_digest"} <= set(answer)
    assert answer["inputs"][0] == {
        "name": "a",
        "dtype": "float32",
        "shape": [2, 3],
        "bytes": 24,
        "finite": True,
        "lo": -100,
        "hi": 100,
    }
    assert answer["inputs"][1]["lo"] is None
    assert answer["outputs"][0]["file"] == "_._y.npy"
    text = engine.run("--version").stdout
    assert "input           a float32 (2, 3) finite >= -100 <= 100\n" in text


def test_help_names_every_option_and_exit_code(engine):
    done = engine.run("--help")
    assert done.returncode == 0
    for word in (
        "--input",
        "--output-dir",
        "--bench",
        "--self-test",
        "--version",
        "--threads",
        "--isa",
        "--json",
        "exit codes: 0 done; 1",
    ):
        assert word in done.stdout


def test_self_test(engine):
    done = engine.run("--self-test", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0 and answer["self_test"] == "passed"
    assert [c["check"] for c in answer["checks"] if c["passed"]] == CHECKS
    assert engine.run("--self-test").stdout.split()[::2] == CHECKS


_HASH_MAIN = b"""
#include "cuvil_runtime.h"
int main(void) {
    static unsigned char data[300];
    for (int i = 0; i < 300; i++) data[i] = (unsigned char)(i * 7);
    for (size_t size = 0; size <= 300; size++) {
        cuvil_sha3 hash;
        char hex[129];
        cuvil_sha3_init(&hash);
        cuvil_sha3_update(&hash, data, size / 3); /* in two pieces, as files are hashed */
        cuvil_sha3_update(&hash, data + size / 3, size - size / 3);
        cuvil_sha3_hex(&hash, hex);
        cuvil_putf("%s\\n", hex);
    }
    cuvil_flush();
    return 0;
}
"""


@pytest.mark.parametrize("triple", sorted(TARGETS))
def test_sha3_of_every_length_around_the_block_size(triple, build_engine):
    files = sample.two_inputs(triple)
    files["cuvil_main.c"] = _HASH_MAIN
    data = bytes(i * 7 & 255 for i in range(300))
    expected = [hashlib.sha3_512(data[:size]).hexdigest() for size in range(301)]
    assert build_engine(TARGETS[triple], files).run().stdout.split() == expected


def test_self_test_finds_one_changed_bit_of_the_weights(engine, tmp_path):
    data = bytearray(engine.path.read_bytes())
    at = data.find(sample.WEIGHTS)
    assert at > 0
    data[at + 300] ^= 0x10
    damaged = sample.write_engine(tmp_path, "damaged", bytes(data), engine.prefix)
    assert "weights-digest" in damaged.refused(1, "--self-test")
    answer = json.loads(damaged.run("--self-test", "--json").stdout)
    assert (answer["error"], answer["check"]) == ("VerificationFailed", "weights-digest")


def test_self_test_finds_a_wrong_description(build_engine: Callable[..., sample.Engine]):
    files = sample.two_inputs(X86.triple)
    files["engine.c"] = files["engine.c"].replace(
        b'"b/in", CUVIL_FLOAT32, 2, {2, 3}, 6', b'"b/in", CUVIL_FLOAT32, 2, {2, 3}, 5'
    )
    assert "element count" in build_engine(X86, files).refused(1, "--self-test")


def test_more_tensors_than_the_runtime_holds_are_refused(build_engine: Callable[..., sample.Engine]):
    files = sample.two_inputs(X86.triple)
    files["engine.c"] = files["engine.c"].replace(b"sizeof outputs / sizeof outputs[0], inputs", b"65, inputs")
    assert "2 inputs and 65 outputs" in build_engine(X86, files).refused(4, "--version")


@pytest.mark.parametrize(
    ("good", "bad", "check"),
    [
        (b"__builtin_fmaf(fma_x, fma_y, fma_z)", b"(float)((double)fma_x * fma_y + fma_z)", "fp-fma"),
        (
            b"cuvil_fpenv saved = cuvil_fpenv_enter();",
            b"cuvil_fpenv saved = 0x1F80; cuvil_fpenv_set(0x9FC0);",
            "fp-subnormals",
        ),
        (
            b"cuvil_fpenv saved = cuvil_fpenv_enter();",
            b"cuvil_fpenv saved = 0x1F80; cuvil_fpenv_set(0x5F80);",
            "fp-rounding",
        ),
    ],
)
def test_self_test_finds_a_wrong_floating_point_unit(build_engine, good, bad, check):
    files = sample.two_inputs(X86.triple)
    assert good in files["cuvil_isa.c"]
    files["cuvil_isa.c"] = files["cuvil_isa.c"].replace(good, bad)
    assert check in build_engine(X86, files).refused(1, "--self-test")


def test_bench(engine):
    answer = json.loads(engine.run("--bench", "20", "--json").stdout)
    assert answer["runs"] == 20 and answer["threads"] == 1 and answer["isa"] == "plain"
    for clock in ("cpu_us", "wall_us"):
        assert 0 <= answer[clock]["min"] <= answer[clock]["median"] <= answer[clock]["p99"]
    assert "median" in engine.run("--bench=1").stdout


@needs_qemu_x86
def test_old_processor_is_refused_before_it_meets_an_avx_instruction(build_engine):
    modern = build_engine(X86, sample.two_inputs(X86.triple))
    old = sample.Engine(modern.path, (str(QEMU_X86), "-cpu", "Nehalem"))
    for mode in (["--self-test"], ["--bench", "1"], ["--input", "a=x", "--input", "b/in=y", "--output-dir", "o"]):
        sentence = old.refused(4, *mode)
        assert "FMA" in sentence and "AVX2" in sentence and "x86-64-v3" in sentence
    answer = json.loads(old.run("--version", "--json").stdout)  # runs no generated code
    assert answer["isa"] is None and answer["isas"] == ["never", "plain", "other"]
    assert sample.Engine(modern.path, (str(QEMU_X86), "-cpu", "Haswell")).run("--self-test").returncode == 0

    # control: the imitated processor really stops at such an instruction
    files = sample.two_inputs(X86.triple)
    files["cuvil_cpu.c"] = (
        b'#include "cuvil_runtime.h"\nvoid cuvil_require_cpu(void) {}\n'
        b"void cuvil_missing_features(char list[CUVIL_MISSING_MAX]) { list[0] = 0; }\n"
    )
    unchecked = sample.Engine(build_engine(X86, files).path, old.prefix)
    assert unchecked.run("--self-test").returncode in (-4, 132)  # SIGILL


_TRIAL = b"""
#include "cuvil_engine.h"
#include "cuvil_fpenv.h"
#ifdef __x86_64__
#define HOSTILE 0xFFC0u /* FTZ, DAZ, round to zero */
#else
#define HOSTILE 0x01C00000ul /* FPCR: FZ, round to zero */
#endif
int main(void) {
    const cuvil_engine *engine = &cuvil_engine_instance;
    float *x = engine->input_buffers[0], *y = engine->output_buffers[0];
    x[0] = 0x1p-148f; x[1] = 0x1.8p-126f; x[2] = 1.0f; x[3] = 0x1.8p-24f;
    cuvil_fpenv_set(HOSTILE);
    engine->infer();
    cuvil_fpenv after = cuvil_fpenv_get();
    cuvil_fpenv_set(CUVIL_FPENV_DEFAULT);
    if ((after & HOSTILE) != HOSTILE) return 1; /* the caller's environment came back (status flags may be added) */
    if (y[0] != 0x1p-149f || y[1] != 0x1.8p-127f) return 2;
    return *(float *)engine->output_buffers[1] == 0x1.000002p0f ? 0 : 3;
}
"""


@pytest.mark.parametrize("triple", sorted(TARGETS))
def test_infer_is_immune_to_the_callers_floating_point_environment(triple, build_engine):
    target = TARGETS[triple]
    files = sample.one_input(triple)
    for name in [n for n in files if n.startswith("cuvil_") and n.endswith(".c")]:
        del files[name]
    assert build_engine(target, {**files, "cuvil_main.c": _TRIAL}).run().returncode == 0
    bare = files["engine.c"].replace(b"cuvil_fpenv_enter()", b"cuvil_fpenv_get()")
    assert bare != files["engine.c"]
    assert build_engine(target, {**files, "engine.c": bare, "cuvil_main.c": _TRIAL}).run().returncode == 2


def test_fast_math_is_refused():
    class Fast(ZigDriver):
        def target_flags(self, target, generated, isa=None):
            return [*super().target_flags(target, generated, isa), "-D__FAST_MATH__=1"]

    with pytest.raises(CuvilError, match="defined bit by bit"):
        Fast().build(sample.two_inputs(X86.triple), X86)
