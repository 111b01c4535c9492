"""``clinical.c`` and the runtime as a program without a network: ``--decide`` in a fraction of a second."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinical_case import Array, vectors

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.policy.logic import resolve
from compiler_kernels.policy.logic_tree import Tensor
from compiler_kernels.policy.schema import Policy
from compiler_kernels.targets.c.clinical import Clinical, generate_clinical
from compiler_kernels.targets.c.writer import c_number, c_string
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.sources import RUNTIME_UNITS, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver, zig_cache

FLAGS = ("-std=c11", "-O1", "-g0", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing", "-Wall", "-Wextra")


def stub_engine(policy: Policy, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
    """An ``engine.c`` with these tensors, the guards of ``policy`` and nothing to compute."""
    lines = ['#include "cuvil_engine.h"', "extern const cuvil_clinical cuvil_clinical_logic;"]
    for kind, tensors, guards in (("in", inputs, policy.inputs), ("out", outputs, policy.outputs)):
        rows = []
        for number, tensor in enumerate(tensors):
            count = int(np.prod(tensor.shape, dtype=np.int64))
            lines.append(f"static _Alignas(64) unsigned char {kind}{number}[{count * DTYPES[tensor.dtype].nbytes}];")
            guard = guards.get(tensor.name)
            low, high = guard.range if guard is not None and guard.range is not None else (0.0, 0.0)
            if tensor.dtype == "float32":
                low, high = float(np.float32(low)), float(np.float32(high))
            bounded = int(guard is not None and guard.range is not None)
            shape = ", ".join(map(str, tensor.shape)) or "0"
            rows.append(
                f"    {{{c_string(tensor.name)}, CUVIL_{tensor.dtype.upper()}, {len(tensor.shape)}, {{{shape}}}, "
                f"{count}, {int(guard is not None and guard.finite)}, {bounded}, {bounded}, "
                f"{c_number(low, 'float64')}, {c_number(high, 'float64')}, 0, 0}},"
            )
        lines += [f"static const cuvil_tensor {kind}_table[] = {{", *rows, "};"]
        lines.append(f"static void *const {kind}s[] = {{{', '.join(f'{kind}{n}' for n in range(len(tensors)))}}};")
    return "\n".join(
        [
            *lines,
            "static float scratch[256];",
            "static void infer(void) {}",
            "static int yes(void) { return 1; }",
            "static const cuvil_step steps[] = {{0, 0, 0, 0}};",
            'static const cuvil_variant variants[] = {{"plain", yes, steps, 0}};',
            "const unsigned char cuvil_weights[64];",
            "const cuvil_engine cuvil_engine_instance = {",
            '    .model = "random", .model_version = "1", .arithmetic = "CA-1", .frozen_graph = "0",',
            '    .config_digest = "0", .weights_digest = "0", .target = "none",',
            f"    .input_count = {len(inputs)}, .output_count = {len(outputs)},",
            "    .inputs = in_table, .outputs = out_table,",
            "    .weights = cuvil_weights, .weights_size = 64, .input_buffers = ins, .output_buffers = outs,",
            "    .variant_count = 1, .variants = variants, .scratch = scratch, .scratch_floats = 16,",
            "    .max_threads = 16, .infer = infer, .clinical = &cuvil_clinical_logic,",
            "};",
            "",
        ]
    )


@dataclass(frozen=True)
class Builder:
    """Compiles programs around one compiled runtime; ``prefix``: the words that run them here."""

    compiler: tuple[str, ...]
    prefix: tuple[str, ...]
    folder: Path

    def prepare(self) -> None:
        for name, data in runtime_sources().items():
            (self.folder / name).write_bytes(data)
        for unit in RUNTIME_UNITS:  # one by one: zig writes no object for the second of several
            self._run([*FLAGS, "-Werror", "-c", unit, "-o", unit.replace(".c", ".o")])

    def _run(self, words: Sequence[str]) -> None:
        done = subprocess.run([*self.compiler, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def program(
        self, policy: Policy, inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str = "program"
    ) -> tuple[str, ...]:
        """The words that run the compiled logic of ``policy``; warnings of the compiler are errors."""
        probes = policy.coverage is not None and policy.coverage.probes
        logic = Clinical(resolve(policy, inputs, outputs), probes)
        files = generate_clinical(logic, "cuvil", "0" * 128, ["/* random policy"])
        (self.folder / f"{name}-clinical.c").write_bytes(files["clinical.c"])
        (self.folder / f"{name}-engine.c").write_text(stub_engine(policy, inputs, outputs), encoding="utf-8")
        objects = [unit.replace(".c", ".o") for unit in RUNTIME_UNITS]
        sources = [f"{name}-clinical.c", f"{name}-engine.c"]
        self._run([*FLAGS, "-Werror", *sources, *objects, "-o", name, "-lm"])
        return (*self.prefix, str(self.folder / name))


def native_builder(folder: Path) -> Builder:
    """gcc of this machine."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("there is no gcc")
    made = Builder((gcc,), (), folder)
    made.prepare()
    return made


def zig_builder(folder: Path, triple: str, prefix: tuple[str, ...]) -> Builder:
    target = resolve_target(triple)
    driver = ZigDriver()
    # compiled C libraries are shared, everything else is local to the folder
    words = (*driver.command(target), *driver.target_flags(target, generated=True), "-static")
    made = Builder(
        ("env", f"ZIG_LOCAL_CACHE_DIR={folder / 'zig'}", f"ZIG_GLOBAL_CACHE_DIR={zig_cache()}", *words), prefix, folder
    )
    made.prepare()
    return made


def answers(
    program: Sequence[str], path: Path, sets: Sequence[Sequence[Array]], flags: Sequence[int]
) -> list[Mapping[str, Any]]:
    """The program's answers on vectors."""
    path.write_bytes(vectors(sets, flags))
    done = subprocess.run([*program, "--decide", "--vectors", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
