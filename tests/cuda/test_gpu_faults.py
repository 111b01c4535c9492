"""What a GPU engine says when machine, driver or GPU fail: each fault injected into the emulated driver."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from emulation import tiny_engine
from needs import needs_nvcc, no_gpu
from tiny_models import tiny_model_bytes

from compiler_kernels import engine
from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.zig import zig_executable

pytestmark = [
    needs_nvcc,
    no_gpu,
]

FAULTS = [  # function=result[@from which call on], exit code, what the sentence holds
    ("cuInit=999", 4, "cuInit reported an error of the emulation (999); look at nvidia-smi"),
    ("cuInit=100", 4, "the CUDA driver finds none on this machine: run it where nvidia-smi lists a GPU"),
    ("devices=0", 4, "the CUDA driver finds none on this machine"),
    ("version=12040", 4, "is of CUDA 12.4, too old for this engine: install one of CUDA 13.0 or later"),
    ("cuDevicePrimaryCtxRetain=2", 4, "cuDevicePrimaryCtxRetain reported"),
    ("cuModuleLoadDataEx=209", 4, "does not read this engine's code"),
    ("cuModuleLoadDataEx=200", 4, "does not read this engine's code"),
    ("cuModuleLoadDataEx=222", 4, "install one of CUDA 13.0 or later"),
    ("cuModuleLoadDataEx=2", 4, "cuModuleLoadDataEx reported"),
    ("cuModuleGetFunction=500", 4, "cuModuleGetFunction reported"),
    ("cuMemAlloc_v2=2", 4, "bytes of the GPU's memory, and so much is not free (no GPU: kernels emulated"),
    ("cuMemAlloc_v2=1", 4, "cuMemAlloc reported"),
    ("cuMemsetD8_v2=1", 4, "cuMemsetD8 reported"),
    ("cuStreamSynchronize=700@1", 4, "cuStreamSynchronize reported"),
    ("cuStreamBeginCapture_v2=1", 4, "cuStreamBeginCapture reported"),
    ("cuLaunchKernelEx=1@2", 4, "cuLaunchKernelEx reported"),
    ("cuStreamEndCapture=901", 4, "cuStreamEndCapture reported"),
    ("cuGraphInstantiateWithFlags=2", 4, "cuGraphInstantiateWithFlags reported"),
    ("cuGraphLaunch=719", 3, "free the GPU's memory, or run a CPU engine"),
    ("cuStreamSynchronize=700@2", 3, "cuStreamSynchronize reported"),
    ("cuStreamWriteValue32_v2=719@2", 3, "cuStreamWriteValue32 reported"),
    ("cuCtxPushCurrent_v2=201@2", 3, "cuCtxPushCurrent reported"),
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder with the tiny model's engine for sm_90, its input, and the words that emulate a GPU that can fail."""
    folder = tmp_path_factory.mktemp("faults")
    return folder, tiny_engine(folder, faults=True)


def _run(emulated, fault, *words):
    command = [emulated[0], f"CUVIL_EMULATED_FAULT={fault}", *emulated[1:], *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("fault", "code", "sentence"), FAULTS)
def test_a_fault_of_driver_or_gpu_is_one_sentence_and_no_output(tiny, tmp_path, fault, code, sentence):
    folder, emulated = tiny
    words = (folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out")
    done = _run(emulated, fault, *words)
    assert done.returncode == code, (done.stderr, done.stdout)
    assert done.stderr.count("\n") == 1 and sentence in done.stderr and not done.stdout
    said = json.loads(_run(emulated, fault, *words, "--json").stdout)
    assert said["exit"] == code and sentence in said["message"]
    assert not (tmp_path / "out").exists()


def test_without_a_fault_the_same_driver_works(tiny, tmp_path):
    folder, emulated = tiny
    done = _run(
        emulated, "cuInit=999@2", folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out"
    )
    assert done.returncode == 0 and np.load(tmp_path / "out" / "prob.npy").sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "fault",
    [
        "cuGraphLaunch=719@3",
        "cuGraphLaunch=719@6",
        "cuStreamSynchronize=700@3",
        "cuEventRecord=1@3",
        "cuEventElapsedTime=1@2",
        "cuCtxPushCurrent_v2=201@7",
    ],
)
def test_a_gpu_that_fails_while_it_is_timed_gives_no_times(tiny, fault):
    """Four inferences and three measurements: the first fails in the third inference, the others in a measurement.
    Only measurements wait for the stream (an inference sees the word), after the one wait of the start."""
    folder, emulated = tiny
    for extra in ((), ("--json",)):
        done = _run(emulated, fault, folder / "engine.bin", "--bench", 3, *extra)
        assert done.returncode == 3 and done.stderr.count("\n") == 1 and "reported" in done.stderr
        assert "_us" not in done.stdout
        assert not extra or json.loads(done.stdout)["check"] == "gpu"


@pytest.mark.parametrize(
    "fault",
    [
        "cuMemHostRegister_v2=2",  # no page is locked: ordinary copies
        "cuMemHostRegister_v2=2@2",  # the input's pages, but not the output's
        "cuMemHostRegister_v2=2@3",  # both, but not the word's
        "cuMemHostGetDevicePointer_v2=1",  # locked, but not mapped
        "cuStreamWriteValue32_v2=801",  # the stream writes no word: the driver waits
        "word=1",  # a word that is never seen: the driver is asked
    ],
)
def test_what_only_makes_an_inference_faster_may_be_missing(tiny, tmp_path, fault):
    folder, emulated = tiny
    found = []
    for name in ("none", fault):
        words = (folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / name)
        done = _run(emulated, name, *words)
        assert done.returncode == 0, done.stderr
        found.append((tmp_path / name / "prob.npy").read_bytes())
    assert found[0] == found[1]
    said = json.loads(_run(emulated, fault, folder / "engine.bin", "--bench", 3, "--json").stdout)
    assert said["wall_us"]["median"] > (2000 if fault == "word=1" else 0)  # that one spins 2 ms in every inference


def test_a_copy_that_fails_while_the_gpu_is_timed_gives_no_times(tiny):
    folder, emulated = tiny
    text = generate_frozen(freeze_model(tiny_model_bytes(batch=1)), resolve_target("cuda-sm_90"))["engine.c"].decode()
    launches = int(re.search(r"cuvil_launches, (\d+), cuvil_offsets", text)[1])
    first = 2 * launches + 3  # two graphs, one of which copies an input and an output, come before
    for call, code in ((first - 1, 4), (first, 3), (first + 2, 3), (first + 3, 0)):
        done = _run(emulated, f"cuLaunchKernelEx=719@{call}", folder / "engine.bin", "--bench", 3)
        assert done.returncode == code, (call, done.stderr)
        assert ("cuLaunchKernelEx reported" in done.stderr) == bool(code)


def test_a_driver_without_a_function_is_too_old(tiny, tmp_path):
    folder, _ = tiny
    (tmp_path / "old.c").write_text("int cuInit(unsigned f) { return (int)f; }\n")
    words = [
        str(zig_executable()),
        "cc",
        "-shared",
        "-target",
        "x86_64-linux-gnu.2.28",
        "-o",
        tmp_path / "libcuda.so.1",
    ]
    subprocess.run([*map(str, words), str(tmp_path / "old.c")], check=True, capture_output=True)
    done = _run(
        ("/usr/bin/env", f"LD_LIBRARY_PATH={tmp_path}"),
        "",
        *(folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out"),
    )
    assert done.returncode == 4 and done.stderr.count("\n") == 1
    assert "too old for this engine (it lacks cuDriverGetVersion): install one of CUDA 13.0 or later" in done.stderr


FORKED = """
import os, sys, threading
import numpy as np
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import RefusedError
engine, x = load_engine(sys.argv[1]), {"image": np.load(sys.argv[2])}
first = engine.run(x)["prob"].tobytes()
child = os.fork()
if not child:
    try:
        engine.run(x)
    except RefusedError as error:
        engine.erase()  # touches no GPU
        assert "forked after the engine opened the GPU" in str(error), error
        os._exit(7)
    os._exit(8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert engine.run(x)["prob"].tobytes() == first
lock, found = threading.Lock(), []
def work():
    for _ in range(5):
        with lock:
            found.append(engine.run(x)["prob"].tobytes())
            engine.device_times(1)
            engine.erase()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert found == [first] * 15
other, y = load_engine(sys.argv[3]), {"image": 1 - x["image"]}
assert other.device == engine.device and other._library._handle != engine._library._handle
alone = other.run(y)["prob"].tobytes()
for _ in range(3):
    assert engine.run(x)["prob"].tobytes() == first and other.run(y)["prob"].tobytes() == alone != first
"""


def test_fork_threads_and_two_engines_in_a_process(tiny, tmp_path):
    """A child process is refused, threads that take turns agree, and two loaded files do not know each other."""
    folder, emulated = tiny
    library = compile_model(tiny_model_bytes(batch=1), target="cuda-sm_90", output=tmp_path / "engine.so")
    (tmp_path / "other.so").write_bytes(library.read_bytes())
    done = _run(
        emulated, "", sys.executable, "-W", "ignore", "-c", FORKED, library, folder / "x.npy", tmp_path / "other.so"
    )
    assert done.returncode == 0, done.stderr


FAILING = """
import sys
import numpy as np
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import RefusedError, UnsupportedError
engine, x = load_engine(sys.argv[1]), {"image": np.load(sys.argv[2])}
engine.run(x)
for attempt in range(2):
    try:
        engine.run(x)
    except RefusedError as error:
        assert "cuGraphLaunch reported" in str(error), error
    else:
        raise AssertionError("outputs of a GPU that failed")
try:
    engine.device_times(2)
except UnsupportedError as error:
    assert "cuGraphLaunch reported" in str(error), error
else:
    raise AssertionError("times of a GPU that failed")
"""


def test_a_gpu_that_fails_later_refuses_from_then_on(tiny, tmp_path):
    folder, emulated = tiny
    library = compile_model(tiny_model_bytes(batch=1), target="cuda-sm_90", output=tmp_path / "engine.so")
    done = _run(emulated, "cuGraphLaunch=719@2", sys.executable, "-c", FAILING, library, folder / "x.npy")
    assert done.returncode == 0, done.stderr


def test_a_host_that_never_opens_gets_the_sentence_from_every_call(tiny, tmp_path):
    """As C calls it, on this machine without a driver: nothing crashes, and *refusal is there to be read."""
    path = compile_model(tiny_model_bytes(batch=1), target="cuda-sm_90", output=tmp_path / "engine.so")
    library = ctypes.CDLL(str(path))
    raw = engine._Instance.in_dll(library, "cuvil_engine_instance")
    device = raw.device[0]
    assert device.name() == b"" and not raw.refusal[0]
    raw.infer()
    sentence = raw.refusal[0]
    assert b"no CUDA driver (libcuda.so.1)" in sentence
    library.cuvil_erase()
    assert not raw.refusal[0]
    assert device.time() < 0 and raw.refusal[0] == sentence == device.open() == device.open()
    assert device.name() == b"" and device.memory_bytes > raw.weights_size
