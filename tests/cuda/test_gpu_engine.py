"""GPU engines on a machine without a GPU: what is built, what it says, and its bits under emulation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import emulation
import numpy as np
import pytest
from needs import needs_nvcc, no_gpu
from onnx import TensorProto, helper, numpy_helper
from tiny_models import POLICY, tiny_model_bytes

from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.policy import load_policy
from compiler_kernels.stages import backend
from compiler_kernels.targets.cuda import kernel, tuning
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import nvcc
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources

pytestmark = needs_nvcc


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Folder with the tiny model's engine for sm_90, an input, and the words that emulate its GPU."""
    folder = tmp_path_factory.mktemp("gpu")
    return folder, emulation.tiny_engine(folder)


def _run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, timeout=120)


def test_version_and_self_test_need_no_gpu(tiny):
    folder, _ = tiny
    version = json.loads(_run(folder / "engine.bin", "--version", "--json").stdout)
    assert version["target"] == "cuda-sm_90" and version["isas"] == ["sm_90"] and version["chip"] == "sm_90"
    assert version["device_bytes"] >= version["weights_bytes"] + version["arena_bytes"]
    assert all(s["items"] > 0 and s["kernel"].startswith("cuvil_") for s in version["steps"])
    assert _run(folder / "engine.bin", "--self-test").returncode == 0


def test_launches_that_share_a_kernel_are_one_step():
    files = generate_frozen(freeze_model(_branches()), resolve_target("cuda-sm_90"))
    text = files["engine.c"].decode()
    table = text.partition("static const cuvil_step cuvil_steps[] = {")[2].partition("};")[0]
    rows = table.count("{0, ")
    assert "joined" in table and rows < files["kernels.cu"].count(b"__global__") + 2
    assert f"1, cuvil_variants, {rows}, 0," in text and f"cuvil_launches, {rows}, cuvil_offsets" in text


@pytest.mark.parametrize(("target", "early"), [("cuda-sm_90", True), ("cuda-sm_80", False)])
def test_only_code_that_can_wait_for_the_launch_before_starts_early(target, early):
    """cuvil_grid_wait() is nothing in code for sm_80, which a later chip runs too."""
    text = generate_frozen(freeze_model(_branches()), resolve_target(target))["engine.c"].decode()
    table = text.partition("cuvil_launches[] = {")[2].partition("};\n")[0]
    marks = re.findall(r"\}, \d+, \d+, \d+, ([01]), \d+, \d+\},", table)
    assert len(marks) == table.count('{"cuvil_') > 0 and ("1" in marks) == early


def _joined(inputs):
    """A concatenation of so many inputs [1, 1]."""
    names = [f"x{n}" for n in range(inputs)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1]) for n in names]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, inputs])
    graph = helper.make_graph([helper.make_node("Concat", names, ["y"], "all", axis=1)], "joined", values, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_more_operands_than_a_kernel_takes_are_refused_at_build_time():
    generate_frozen(freeze_model(_joined(100)), resolve_target("cuda-sm_90"))
    with pytest.raises(UnsupportedError, match=r"node all has 600 operands.*build for a CPU target"):
        generate_frozen(freeze_model(_joined(600)), resolve_target("cuda-sm_90"))
    limits = f"MOST_ARGUMENTS = {kernel.MOST_ARGUMENTS}"
    sources = cuda_sources()
    assert f"MOST_LAUNCHES = {kernel.MOST_LAUNCHES}, {limits}" in sources["cuvil_gpu.c"].decode()
    assert limits in sources["cuvil_emulated_driver.cpp"].decode()


def _branches():
    """x [1, 40] through two products that do not depend on each other."""
    rng = np.random.default_rng(2)
    weights = [numpy_helper.from_array(rng.standard_normal((40, 8)).astype(np.float32), n) for n in "ab"]
    nodes = [helper.make_node("MatMul", ["x", n], [n * 2], n * 2) for n in "ab"]
    nodes += [helper.make_node("Relu", [n * 2], [f"r{n}"], f"r{n}") for n in "ab"]
    shapes = {"x": [1, 40], "ra": [1, 8], "rb": [1, 8]}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(nodes, "branches", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@no_gpu
def test_without_a_driver_an_inference_ends_with_one_sentence_and_exit_4(tiny, tmp_path):
    folder, _ = tiny
    words = (folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out")
    plain, as_json = _run(*words), _run(*words, "--json")
    assert plain.returncode == as_json.returncode == 4
    assert plain.stderr.count("\n") == 1 and "no CUDA driver" in plain.stderr and "nvidia-smi" in plain.stderr
    assert json.loads(as_json.stdout)["check"] == "gpu"
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnsupportedError, match="no CUDA driver"):
        load_engine(compile_model(tiny_model_bytes(batch=1), target="cuda-sm_90", output=tmp_path / "engine.so"))


def test_the_emulated_engine_gives_the_cpu_engine_s_bits_and_says_what_it_is(tiny, tmp_path):
    folder, emulated = tiny
    done = _run(*emulated, folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    wanted = emulation.engine_outputs(tiny_model_bytes(batch=1), {"image": np.load(folder / "x.npy")})["prob"]
    assert np.load(tmp_path / "out" / "prob.npy").tobytes() == wanted.tobytes()
    bench = json.loads(_run(*emulated, folder / "engine.bin", "--bench", "3", "--json").stdout)
    assert bench["gpu"].startswith("no GPU") and bench["isa"] == "sm_90" and "gpu_us" in bench


ERASED_BETWEEN = """
import sys
import numpy as np
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import UsageError
engine, x = load_engine(sys.argv[1]), {"image": np.load(sys.argv[2])}
first = engine.run(x)
engine.erase()
engine.set_inputs(x)
engine.infer()
again = engine.get_outputs()
assert all(first[n].tobytes() == again[n].tobytes() for n in first), (first, again)
try:
    engine.run_step(0)
except UsageError as error:
    assert "run together" in str(error)
else:
    raise AssertionError("a launch alone")
"""


@no_gpu
def test_an_inference_right_after_erasure_is_whole_and_launches_do_not_run_alone(tiny, tmp_path):
    """The emulated driver fills memory late: an erasure that nobody waits for wipes what comes after."""
    folder, emulated = tiny
    library = compile_model(tiny_model_bytes(batch=1), target="cuda-sm_90", output=tmp_path / "engine.so")
    done = _run(*emulated, sys.executable, "-c", ERASED_BETWEEN, library, folder / "x.npy")
    assert done.returncode == 0, done.stderr


@no_gpu
def test_an_engine_for_another_chip_says_so(tiny, tmp_path):
    folder, _ = tiny
    files = generate_frozen(freeze_model(tiny_model_bytes(batch=1)), resolve_target("cuda-sm_80"))
    older = emulated_driver(files["kernels.cu"], "sm_80", tmp_path)
    done = _run(*older, folder / "engine.bin", "--input", folder / "x.npy", "--output-dir", tmp_path / "out")
    assert done.returncode == 4 and "compiled for sm_90" in done.stderr and "8.0" in done.stderr


def _cuda_unit(files):
    return {**runtime_sources(), **cuda_sources(), "kernels.cu": files["kernels.cu"]}


def test_the_code_for_a_chip_is_the_same_bytes_from_any_folder(tmp_path, monkeypatch):
    files = generate_frozen(freeze_model(tiny_model_bytes(batch=1)), resolve_target("cuda-sm_80"))
    made = []
    for name in ("a", "another/deeper"):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        images, report = nvcc.compile_cuda(_cuda_unit(files), SM_80)
        assert set(images) == {"kernels.cubin", "kernels.ptx"} and report["ptx_instructions"]["fma.rn.f32"] > 0
        made.append(images)
    assert made[0] == made[1]


def test_a_build_whose_ptx_breaks_the_gate_fails():
    text = b'extern "C" __global__ void k(float *y) { y[threadIdx.x] = __expf(y[threadIdx.x]); }\n'
    with pytest.raises(CuvilError, match=r"ex2\.approx.*is a"):
        nvcc.compile_cuda({"kernels.cu": text}, SM_90)


def test_without_nvcc_or_its_g_plus_plus_a_build_ends_with_the_remedy(monkeypatch):
    monkeypatch.setattr(nvcc, "SYSTEM_PATH", "/nowhere")
    with pytest.raises(UnsupportedError, match=r"g\+\+ \(on Debian: apt-get install g\+\+\)$"):
        nvcc.compile_cuda({}, SM_90)
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: None)
    with pytest.raises(UnsupportedError, match=r"not installed: run pip install 'cuvil\[cuda\]'"):
        nvcc.compile_cuda({}, SM_90)


def test_compiler_flags_and_tuning_are_part_of_the_configuration(tmp_path, monkeypatch):
    def digest(target):
        return backend.config_digest(b"{}", b"{}", target)

    cpu, first = digest("x86_64-linux-musl"), digest("cuda-sm_90")
    monkeypatch.setattr(tuning, "FOLDER", tmp_path)
    (tmp_path / "conv.json").write_text('{"tile": [7, 7]}')
    second = digest("cuda-sm_90")
    (tmp_path / "conv.json").write_text('{"tile": [4, 7]}')
    third = digest("cuda-sm_90")
    monkeypatch.setattr(nvcc, "FLAGS", (*nvcc.FLAGS, "--maxrregcount=64"))
    assert len({first, second, third, digest("cuda-sm_90")}) == 4
    assert digest("x86_64-linux-musl") == cpu


def test_lockstep_is_refused_for_a_gpu():
    policy = load_policy((POLICY + "safety: {lockstep: true}\n").encode(), "policy.yaml")
    frozen = freeze_model(tiny_model_bytes(batch=1), policy=policy)
    with pytest.raises(UnsupportedError, match="lockstep"):
        generate_frozen(frozen, resolve_target("cuda-sm_90"))


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_the_driver_s_types_are_those_of_cuda_h(tmp_path):
    header = next((p for p in nvcc.find_nvcc().resolve().parents[1].glob("**/include/cuda.h")), None)
    header = header or next(iter(Path("/usr/local/cuda").glob("**/include/cuda.h")), None)
    if header is None:
        pytest.skip("needs cuda.h")
    names = ("attributes", "attribute_count", "stream", "shared_bytes")
    theirs = ("attrs", "numAttrs", "hStream", "sharedMemBytes")
    checks = [
        f"static_assert(offsetof(cu_launch_config, {a}) == offsetof(CUlaunchConfig, {b}));"
        for a, b in zip(names, theirs, strict=True)
    ]
    text = "\n".join(
        [
            "#include <cuda.h>",
            '#include "cuvil_gpu_driver.h"',
            "static_assert(sizeof(cu_launch_config) == sizeof(CUlaunchConfig));",
            "static_assert(sizeof(cu_launch_attribute) == sizeof(CUlaunchAttribute));",
            "static_assert(offsetof(cu_launch_attribute, value) == offsetof(CUlaunchAttribute, value));",
            *checks,
            "static_assert((int)CU_COMPUTE_CAPABILITY_MAJOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);",
            "static_assert((int)CU_COMPUTE_CAPABILITY_MINOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);",
            "static_assert((int)CU_MAX_DYNAMIC_SHARED_BYTES == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);",
            "static_assert((int)CU_NON_PORTABLE_CLUSTER_ALLOWED == "
            "CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);",
            "CUresult (*word)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = cuStreamWriteValue32;",
            "CUresult (*mapped)(CUdeviceptr *, void *, unsigned) = cuMemHostGetDevicePointer;",
            "static_assert((int)CU_CAPTURE_THREAD_LOCAL == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);",
            "static_assert((int)CU_LAUNCH_CLUSTER_DIMENSION == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);",
            "static_assert((int)CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION == "
            "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);",
        ]
    ).replace("CU_STREAM_NON_BLOCKING", "CU_STREAM_NON_BLOCKING")
    driver = cuda_sources()["cuvil_gpu_driver.h"].decode().replace("CU_STREAM_NON_BLOCKING = 1,", "")
    (tmp_path / "cuvil_gpu_driver.h").write_text(driver)
    (tmp_path / "check.cpp").write_text(text)
    words = ["g++", "-std=c++17", "-fsyntax-only", f"-I{header.parent}", "check.cpp"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr


def _picked():
    """x [2, 3] reshaped as the run-time input ``shape`` says."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], "shaped")
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3]), ("y", [3, 2]))]
    values.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [2]))
    graph = helper.make_graph([node], "picked", [values[0], values[2]], [values[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@no_gpu
def test_a_run_time_value_that_is_refused_is_the_cpu_engine_s_sentence(tmp_path):
    """And an inference after it that is not refused is whole."""
    files = generate_frozen(freeze_model(_picked()), resolve_target("cuda-sm_90"))
    emulated = emulated_driver(files["kernels.cu"], "sm_90", tmp_path)
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    said = {}
    for target, words in (("x86_64-linux-musl", ()), ("cuda-sm_90", emulated)):
        engine = compile_model(_picked(), target=target, kind="bin", output=tmp_path / f"{target}.bin")
        for name, shape in (("right", [3, 2]), ("wrong", [2, 3])):
            np.save(tmp_path / "shape.npy", np.array(shape, np.int64))
            inputs = [w for n in ("x", "shape") for w in ("--input", f"{n}={tmp_path / n}.npy")]
            done = _run(*words, engine, *inputs, "--output-dir", tmp_path / "out", "--json")
            said[target, name] = (done.returncode, done.stderr, done.stdout)
    assert said["x86_64-linux-musl", "wrong"] == said["cuda-sm_90", "wrong"]
    assert said["cuda-sm_90", "wrong"][0] == 3 and "shape" in said["cuda-sm_90", "wrong"][1]
    assert said["x86_64-linux-musl", "right"] == said["cuda-sm_90", "right"] and said["cuda-sm_90", "right"][0] == 0


REFUSED_BETWEEN = """
import sys
import numpy as np
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import CuvilError
engine, x = load_engine(sys.argv[1]), np.arange(6, dtype=np.float32).reshape(2, 3)
for shape in ([3, 2], [2, 3], [3, 2]):
    try:
        found = engine.run({"x": x, "shape": np.array(shape, np.int64)})["y"]
    except CuvilError as error:
        assert shape == [2, 3] and "shape" in str(error), (shape, error)
    else:
        assert shape == [3, 2] and found.tobytes() == x.tobytes()
"""


@no_gpu
def test_a_refusal_does_not_stay(tmp_path):
    files = generate_frozen(freeze_model(_picked()), resolve_target("cuda-sm_90"))
    emulated = emulated_driver(files["kernels.cu"], "sm_90", tmp_path)
    library = compile_model(_picked(), target="cuda-sm_90", output=tmp_path / "engine.so")
    done = _run(*emulated, sys.executable, "-c", REFUSED_BETWEEN, library)
    assert done.returncode == 0, done.stderr
