"""What an engine does when all is well, and what it says when it is not."""

import hashlib
import io
import json
import os
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import runtime_sample as sample

from compiler_kernels.targets.registry import TARGETS

X86 = TARGETS["x86_64-linux-musl"]
Build = Callable[..., sample.Engine]


def _words(arrays: dict[str, Path], out: Path) -> list[str]:
    return ["--input", f"a={arrays['a']}", "--input", f"b/in={arrays['b']}", "--output-dir", str(out)]


def test_result_is_the_fma_and_the_file_is_numpys(engine, arrays, tmp_path):
    done = engine.run(*_words(arrays, tmp_path / "new"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (entry,) = json.loads(done.stdout)["outputs"]
    assert entry["name"] == "../y" and entry["file"] == "_._y.npy" and entry["shape"] == [2, 3]
    data = (tmp_path / "new" / entry["file"]).read_bytes()
    assert entry["sha3_512"] == hashlib.sha3_512(data).hexdigest()
    expected = io.BytesIO()
    np.save(expected, np.arange(6, dtype="<f4").reshape(2, 3) * np.float32(2) + np.float32(0.5))
    assert data == expected.getvalue()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["_._y.npy"]


def test_single_input_needs_no_name_and_output_names_stay_unique(single, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4, dtype="<f4"))
    done = single.run(f"--input={tmp_path / 'x.npy'}", f"--output-dir={tmp_path / 'o'}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(p.name for p in (tmp_path / "o").iterdir()) == ["p.q-2.npy", "p.q.npy", "sum.npy"]
    assert np.load(tmp_path / "o" / "sum.npy") == 6.0
    scalar = io.BytesIO()
    np.save(scalar, np.float32(6.0))
    assert (tmp_path / "o" / "sum.npy").read_bytes() == scalar.getvalue()


def test_nan_outputs_are_canonical(engine, arrays, tmp_path):
    b = np.full((2, 3), 2.0, "<f4")
    b.view("<u4")[0, 1] = 0xFFABCDEF
    b.view("<u4")[1, 1] = 0x7F800001
    np.save(arrays["b"], b)
    assert engine.run(*_words(arrays, tmp_path / "o")).returncode == 0
    bits = np.load(tmp_path / "o" / "_._y.npy").view("<u4")
    assert bits[0, 1] == bits[1, 1] == 0x7FC00000
    assert np.load(tmp_path / "o" / "_._y.npy")[0, 2] == 4.5


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (np.nan, (1, 2), ["'a'", "NaN", "(1, 2)", "not finite", "(1 of 6 break"]),
        (-np.inf, (0, 0), ["-infinity", "(0, 0)"]),
        (100.5, (0, 1), ["100.5", "above the upper bound", ">= -100 <= 100"]),
        (-101.0, (1, 0), ["-101", "below the lower bound"]),
    ],
)
def test_input_guard(engine, arrays, tmp_path, value, place, words):
    a = np.zeros((2, 3), "<f4")
    a[place] = value
    np.save(arrays["a"], a)
    sentence = engine.refused(3, *_words(arrays, tmp_path / "o"))
    assert all(w in sentence for w in words), sentence
    assert not (tmp_path / "o").exists()


def test_guard_admits_its_own_bounds(engine, arrays, tmp_path):
    np.save(arrays["a"], np.array([[100, -100, 0], [-0.0, 1e-45, -1e-45]], "<f4"))
    assert engine.run(*_words(arrays, tmp_path / "o")).returncode == 0


def test_range_without_finite_refuses_nan_and_output_guard_writes_nothing(build_engine: Build, arrays, tmp_path):
    loose = build_engine(X86, sample.two_inputs(X86.triple, finite=0, out_finite=1))
    np.save(arrays["a"], np.array([[0, np.nan, 0], [0, 0, 0]], "<f4"))
    assert "in no range" in loose.refused(3, *_words(arrays, tmp_path / "o"))
    np.save(arrays["a"], np.zeros((2, 3), "<f4"))
    np.save(arrays["b"], np.full((2, 3), np.inf, "<f4"))
    sentence = loose.refused(3, *_words(arrays, tmp_path / "o"))
    assert "output '../y'" in sentence and "NaN (0x7fc00000)" in sentence and "no output was written" in sentence
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["nothing to do", "--help"]),
        (["--input", "a=A", "--output-dir", "o"], ["'b/in' is missing"]),
        (["--input", "a=A", "--input", "a=A", "--output-dir", "o"], ["'a' is given twice"]),
        (["--input", "c=A", "--output-dir", "o"], ["no input 'c'", "'a', 'b/in'"]),
        (["--input", "A", "--output-dir", "o"], ["does not say which input", "'a', 'b/in'"]),
        (["--input", "a=A", "--input", "b/in=A"], ["--output-dir is missing"]),
        (["--input", "a="], ["empty path"]),
        (["--input"], ["--input needs a value"]),
        (["--output-dir", "o", "--output-dir", "p"], ["given twice"]),
        (["--frobnicate"], ["unknown argument '--frobnicate'"]),
        (["--version", "--self-test"], ["--version and --self-test"]),
        (["--version", "--output-dir", "o"], ["--version writes no output"]),
        (["--self-test", "--input", "a=A"], ["--self-test reads no input"]),
        (["--bench", "0"], ["1 to 100000", "'0'"]),
        (["--bench", "12x"], ["'12x'"]),
        (["--bench=100001"], ["'100001'"]),
        (["--bench", "1", "--threads", "0"], ["from 1 to 16", "'0'"]),
        (["--bench", "1", "--threads", "17"], ["from 1 to 16", "'17'"]),
        (["--bench", "1", "--threads", "2x"], ["'2x'"]),
        (["--bench", "1", "--threads", "2", "--threads=2"], ["--threads is given twice"]),
        (["--version", "--threads", "2"], ["--version runs no inference"]),
        (["--self-test", "--isa", "plain"], ["--self-test runs no inference"]),
        (["--bench", "1", "--isa", "sse9"], ["instruction set 'sse9'", "never, plain, other"]),
    ],
)
def test_usage_errors(engine, tmp_path, arrays, arguments, words):
    sentence = engine.refused(2, *[a.replace("A", str(arrays["a"])) for a in arguments], cwd=tmp_path)
    assert all(w in sentence for w in words), sentence
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "b.npy"]


def test_errors_as_json(engine, arrays, tmp_path):
    np.save(arrays["a"], np.full((2, 3), np.nan, "<f4"))
    done = engine.run(*_words(arrays, tmp_path / "o"), "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["error"], answer["exit"], answer["check"]) == (3, "RefusedError", 3, "guard")
    assert done.stderr == f"error: {answer['message']}\n"
    done = engine.run("--input", 'q"\n\x1b=x', "--json")
    assert done.returncode == 2 and json.loads(done.stdout)["error"] == "UsageError"
    assert done.stderr.count("\n") == 1 and "\x1b" not in done.stderr


def test_output_directory_that_cannot_be_written(engine, arrays, tmp_path):
    (tmp_path / "file").write_text("")
    before = sorted(p.name for p in tmp_path.iterdir())
    for target in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "no" / "parent", Path("/proc")):
        sentence = engine.refused(2, *_words(arrays, target))
        assert str(target) in sentence and "--output-dir" in sentence
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_one_output_that_fails_leaves_none_behind(single, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4, dtype="<f4"))
    out = tmp_path / "o"
    (out / "p.q-2.npy").mkdir(parents=True)  # the third output meets a directory
    sentence = single.refused(2, "--input", tmp_path / "x.npy", "--output-dir", out)
    assert "p.q-2.npy" in sentence
    assert [p.name for p in out.iterdir()] == ["p.q-2.npy"]


def test_full_disk_leaves_nothing_behind(single, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4, dtype="<f4"))
    sentence = single.refused(
        2,
        "--input",
        tmp_path / "x.npy",
        "--output-dir",
        tmp_path / "new",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert "too large" in sentence.lower()
    assert not (tmp_path / "new").exists()


def test_existing_output_is_replaced_only_by_a_complete_one(engine, arrays, tmp_path):
    out = tmp_path / "o"
    assert engine.run(*_words(arrays, out)).returncode == 0
    first = (out / "_._y.npy").read_bytes()
    np.save(arrays["a"], np.full((2, 3), np.nan, "<f4"))
    engine.refused(3, *_words(arrays, out))
    assert (out / "_._y.npy").read_bytes() == first
    np.save(arrays["a"], np.ones((2, 3), "<f4"))
    assert engine.run(*_words(arrays, out)).returncode == 0
    assert (out / "_._y.npy").read_bytes() != first


def test_standard_output_that_cannot_be_written(engine):
    with Path("/dev/full").open("w") as full:
        words = [*engine.prefix, str(engine.path), "--version"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: cannot write to standard output")


def test_pipe_as_input(single, tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(4, dtype="<f4"))
    read_end, write_end = os.pipe()
    os.write(write_end, buffer.getvalue())
    os.close(write_end)
    done = single.run("--input", "/dev/stdin", "--output-dir", tmp_path / "o", stdin=read_end)
    os.close(read_end)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "o" / "p.q.npy").tolist() == [0, 0.5, 1.0, 1.5]
