"""The number of instructions of an inference does not depend on the values it computes with (callgrind).

valgrind does not know AVX-512, so the AVX2 section is counted. The engine is the generated code as a static library in
a small host program: what is counted is one call of ``infer``, without reading and writing files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import small_models

from compiler_kernels.compile import Frozen, build_frozen, freeze_model
from compiler_kernels.engine import load_engine
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.c.program import Identity, generate
from compiler_kernels.targets.isa import AVX2
from compiler_kernels.targets.registry import X86_64_LINUX_MUSL, runs_natively
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver, zig_cache, zig_executable

pytestmark = [
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed (package valgrind)"),
    pytest.mark.skipif(not runs_natively(X86_64_LINUX_MUSL), reason="this machine runs no x86-64 engine itself"),
]


def input_classes(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Eight kinds of values. No policy guards the model, so NaN and infinities reach the kernels too."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal(shape).astype(np.float32)
    mixed = normal.copy().reshape(-1)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -3e38, 1.0], np.float32)
    mixed[::7] = special[np.arange(mixed[::7].size) % special.size]
    return {
        "zeros": np.zeros(shape, np.float32),
        "ones": np.ones(shape, np.float32),
        "random": normal,
        "negative": -np.abs(normal),
        "subnormal": (normal * np.float32(1e-40)).astype(np.float32),
        "huge": (normal * np.float32(1e37)).astype(np.float32),
        "nan": np.full(shape, np.nan, np.float32),
        "mixed": mixed.reshape(shape),
    }


def program(frozen: Frozen, folder: Path, spoil: tuple[bytes, bytes] | None = None) -> Path:
    """The host program with the engine's AVX2 section linked in; ``spoil`` replaces a text in kernels.c."""
    made = generate(lower_to_l2(frozen.module, frozen.store), frozen.store, IDENTITY, isas=(AVX2,))
    files = dict(made.files)
    if spoil is not None:
        assert spoil[0] in files["kernels.c"]
        files["kernels.c"] = files["kernels.c"].replace(spoil[0], spoil[1], 1)
    headers = {name: data for name, data in runtime_sources().items() if name.endswith(".h")}
    (folder / "cuvil_engine.h").write_bytes(headers["cuvil_engine.h"])
    (folder / "engine.a").write_bytes(ZigDriver().build({**headers, **files}, X86_64_LINUX_MUSL, "lib", (AVX2,)).data)
    words = [str(zig_executable()), "cc", "-target", X86_64_LINUX_MUSL.zig_triple, "-mcpu=x86_64", "-O2", "-static"]
    words += ["-I", str(folder), str(Path(__file__).with_name("callgrind_host.c")), str(folder / "engine.a")]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(zig_cache()), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}
    subprocess.run([*words, "-o", str(folder / "host")], env=environment, capture_output=True, check=True)
    return folder / "host"


IDENTITY = Identity("classifier", "1", "0" * 128, "0" * 128, X86_64_LINUX_MUSL.triple)


def instructions(host: Path, folder: Path, name: str, x: np.ndarray) -> tuple[int, np.ndarray]:
    """Instructions of one inference, and its result."""
    (folder / f"{name}.raw").write_bytes(x.tobytes())
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=counted", str(host)]
    words += [str(folder / f"{name}.raw"), str(folder / f"{name}.out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"Collected : (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1]), np.frombuffer((folder / f"{name}.out").read_bytes(), "<f4")


@pytest.mark.parametrize("name", ["classifier", "residual", "blocks", "moves", "lines", "recurrent"])
def test_instructions_are_the_same_for_all_classes_of_input(name: str, tmp_path: Path) -> None:
    frozen = freeze_model(getattr(small_models, name)())
    host = program(frozen, tmp_path)
    path = tmp_path / "engine.so"
    path.write_bytes(build_frozen(frozen, X86_64_LINUX_MUSL, "so", (AVX2,)))
    engine = load_engine(path)
    counts = {}
    for kind, x in input_classes(engine.inputs[0].shape).items():
        counts[kind], result = instructions(host, tmp_path, kind, x)
        # what was counted is the real computation: valgrind's processor gives the engine's own bits
        expected = engine.run(x)[engine.outputs[0].name].reshape(-1)
        assert np.array_equal(np.isnan(result), np.isnan(expected)), kind
        assert result[~np.isnan(result)].tobytes() == expected[~np.isnan(expected)].tobytes(), kind
    assert len(counts) == 8 and min(counts.values()) > 10_000
    assert len(set(counts.values())) == 1, counts


def test_the_count_notices_one_branch_on_a_value(tmp_path: Path) -> None:
    """A step that does nothing where an input is zero is found out."""
    good = b"static void step1(int begin, int end, float *scratch) { "
    host = program(
        freeze_model(small_models.classifier()), tmp_path, (good, good + b"if (cuvil_in0[700] == 0.0f) return; ")
    )
    classes = input_classes((1, 3, 20, 20))
    zeros, random = (instructions(host, tmp_path, name, classes[name])[0] for name in ("zeros", "random"))
    assert zeros != random
