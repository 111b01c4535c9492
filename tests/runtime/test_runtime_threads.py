"""--threads and --isa: the same bits for every number of threads, sleeping workers, a chosen instruction set."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import runtime_sample as sample

from compiler_kernels.targets.registry import TARGETS

X86 = TARGETS["x86_64-linux-musl"]


@pytest.fixture(scope="session", params=sorted(TARGETS))
def chain(request, build_engine: Callable[..., sample.Engine]) -> sample.Engine:
    return build_engine(TARGETS[request.param], sample.chain(request.param))


def _result(engine: sample.Engine, tmp_path, *words: str) -> bytes:
    done = engine.run("--input", tmp_path / "x.npy", "--output-dir", tmp_path / "o", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return (tmp_path / "o" / "y.npy").read_bytes()


@pytest.mark.parametrize("scale", [1.0, 1e-37])
def test_bits_do_not_depend_on_the_number_of_threads(chain, tmp_path, scale):
    """1e-37: the chain ends among the subnormals, which a worker without the defined environment would flush."""
    x = (np.random.default_rng(3).standard_normal(64) * scale).astype("<f4")
    np.save(tmp_path / "x.npy", x)
    first = _result(chain, tmp_path)
    values = np.load(tmp_path / "o" / "y.npy")
    assert np.count_nonzero(values) == 64
    if scale < 1:
        assert np.any(np.abs(values) < 1.2e-38)
    for threads in (1, 2, 3, 5, 16):
        for _ in range(3):
            assert _result(chain, tmp_path, "--threads", str(threads)) == first


def test_many_inferences_meet_at_every_barrier(chain):
    for threads in ("2", "4"):
        answer = json.loads(chain.run("--bench", "300", "--threads", threads, "--json").stdout)
        assert answer["threads"] == int(threads) and answer["runs"] == 300


def test_a_dropped_barrier_is_noticed(build_engine, tmp_path):
    """Control: without barriers between the steps the chain really gives other bits."""
    files = sample.chain(X86.triple)
    good = b"        if (team > 1) barrier();\n    }"
    assert good in files["cuvil_threads.c"]
    files["cuvil_threads.c"] = files["cuvil_threads.c"].replace(
        good, b"        if (team > 1 && s + 1 == step_count) barrier();\n    }"
    )
    broken = build_engine(X86, files)
    np.save(tmp_path / "x.npy", np.random.default_rng(3).standard_normal(64).astype("<f4"))
    first = _result(broken, tmp_path)
    assert any(_result(broken, tmp_path, "--threads", "2") != first for _ in range(50))


def test_workers_set_their_own_floating_point_environment(build_engine, tmp_path):
    """Control: a worker that keeps another environment gives other bits, so the comparison above would notice."""
    files = sample.chain(X86.triple)
    good = b"cuvil_fpenv_set(CUVIL_FPENV_DEFAULT);"
    assert files["cuvil_threads.c"].count(good) == 1
    files["cuvil_threads.c"] = files["cuvil_threads.c"].replace(good, b"cuvil_fpenv_set(0x9FC0u);")
    np.save(tmp_path / "x.npy", (np.random.default_rng(3).standard_normal(64) * 1e-37).astype("<f4"))
    broken = build_engine(X86, files)
    assert _result(broken, tmp_path) != _result(broken, tmp_path, "--threads", "2")


def test_idle_workers_sleep(build_engine):
    """An indivisible step of many milliseconds: seven workers wait, and the process pays for little more than one."""
    slow = build_engine(X86, sample.chain(X86.triple, delay=20_000_000))
    # The least of several runs: a busy machine makes the work dearer. A worker that never slept would double it.
    alone = json.loads(slow.run("--bench", "12", "--json").stdout)["cpu_us"]["min"]
    team = json.loads(slow.run("--bench", "12", "--threads", "2", "--json").stdout)["cpu_us"]["min"]
    assert alone > 3000
    assert team < 1.8 * alone


def test_isa(build_engine, arrays, tmp_path):
    engine = build_engine(X86, sample.two_inputs(X86.triple))
    words = ["--input", f"a={arrays['a']}", "--input", f"b/in={arrays['b']}", "--output-dir", tmp_path / "o"]
    assert engine.run(*words, "--isa", "other").returncode == 0
    assert json.loads(engine.run("--bench", "1", "--isa", "other", "--json").stdout)["isa"] == "other"
    assert "does not support it" in engine.refused(4, *words, "--isa", "never")
    assert "does not support it" in engine.refused(4, "--version", "--isa", "never")
    assert "--isa is given twice" in engine.refused(2, *words, "--isa", "other", "--isa=plain")


def test_an_engine_without_a_usable_variant_is_refused(build_engine):
    files = sample.two_inputs(X86.triple)
    files["engine.c"] = files["engine.c"].replace(
        b"static int yes(void) { return 1; }", b"static int yes(void) { return 0; }"
    )
    assert "supports none of the instruction sets" in build_engine(X86, files).refused(4, "--bench", "1")


def test_threads_that_cannot_start_are_one_sentence(build_engine):
    files = sample.two_inputs(X86.triple)
    files["cuvil_threads.c"] = files["cuvil_threads.c"].replace(b"STACK_BYTES - GUARD_BYTES);", b"0);")
    assert "cannot start thread 2 of 3" in build_engine(X86, files).refused(2, "--bench", "1", "--threads", "3")
