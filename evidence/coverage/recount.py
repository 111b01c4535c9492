"""MC/DC of the same ``clinical.c`` as clang counts it: a second implementation, from source to figures.

clang instruments the file itself (``-fcoverage-mcdc``); the vectors run through a small host written here, which has no
network and takes broken tensor guards from the engine's answers. ``llvm-cov export`` then says for every decision of
two conditions or more which of them have an independence pair. Decisions of one condition have no record there (LLVM
issue 109930): their outcomes are what branch coverage counts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy.logic_tree import Tensor
from compiler_kernels.toolchain.sources import RUNTIME_DIRECTORY

TOOLS: Final = ("clang-19", "llvm-profdata-19", "llvm-cov-19")
TIMEOUT_SECONDS: Final = 600


@dataclass(frozen=True)
class Counted:
    """One ``clinical.c``, the tensors of its engine, and its encoded vectors with broken tensor guards as flags."""

    clinical: str
    tensors: Sequence[Tensor]
    vectors: bytes

    @property
    def prefix(self) -> str:
        found = re.search(r"extern const cuvil_engine (\w+)_engine_instance;", self.clinical)
        if found is None:
            raise VerificationFailed("coverage-recount", "clinical.c names no engine; build the engine again")
        return found[1]


def missing_tools() -> list[str]:
    """The programs of LLVM 19 that are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def version() -> str:
    """First line of ``clang-19 --version``."""
    return _run(["clang-19", "--version"], Path("/")).splitlines()[0]


def recount(jobs: Sequence[Counted]) -> list[dict[str, list[bool]]]:
    """For each job, by C function: whether each condition of its decision has an independence pair, as clang counts.

    Functions whose decision has one condition are absent. All jobs are compiled and run together, so each needs a
    prefix of its own. ``VerificationFailed`` when a tool fails.
    """
    with tempfile.TemporaryDirectory(prefix="cuvil-recount-") as name:
        folder = Path(name)
        sources = ["main.c"]
        (folder / "main.c").write_text(_main(jobs))
        for number, job in enumerate(jobs):
            (folder / f"vectors{number}").write_bytes(job.vectors)
            (folder / f"host{number}.c").write_text(_host(job))
            (folder / f"clinical{number}.c").write_text(job.clinical)
            sources += [f"host{number}.c", f"clinical{number}.c"]
        flags = ["-std=gnu11", "-O0", "-w", "-ffp-contract=off", "-fno-math-errno", "-I", str(RUNTIME_DIRECTORY)]
        counted = ["-fprofile-instr-generate", "-fcoverage-mapping", "-fcoverage-mcdc"]
        _run(["clang-19", *flags, *counted, *sources, "-lm", "-o", "host"], folder)
        _run(["./host"], folder, {"LLVM_PROFILE_FILE": str(folder / "raw")})
        _run(["llvm-profdata-19", "merge", "raw", "-o", "merged"], folder)
        exported = json.loads(_run(["llvm-cov-19", "export", "host", "-instr-profile=merged"], folder))
        return [_figures(exported, number, job.clinical) for number, job in enumerate(jobs)]


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VerificationFailed("coverage-recount", f"{command[0]} could not be run: {error}") from None
    if done.returncode != 0:
        words = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-300:])
        raise VerificationFailed("coverage-recount", f"{command[0]} failed: {words}")
    return done.stdout


def _figures(exported: dict[str, Any], number: int, clinical: str) -> dict[str, list[bool]]:
    lines = clinical.splitlines()
    file = f"clinical{number}.c"
    found = {}
    for function in exported["data"][0]["functions"]:
        if not any(name.endswith(f"/{file}") or name == file for name in function["filenames"]):
            continue
        for record in function.get("mcdc_records", []):
            # the decision itself; an operand of an at_least may hold another one
            if lines[record[0] - 1].lstrip().startswith("const int result ="):
                found[function["name"].rpartition(":")[2]] = [bool(flag) for flag in record[-1]]
    return found


def _main(jobs: Sequence[Counted]) -> str:
    names = [job.prefix for job in jobs]
    return "\n".join(
        [
            '#include "cuvil_engine.h"',
            "#include <string.h>",
            "void cuvil_wipe(void *area, size_t size) { memset(area, 0, size); }",
            *(f"int {name}_host(const char *path);" for name in names),
            "int main(void) {",
            *(f'    if ({name}_host("vectors{n}")) return {1 + n % 100};' for n, name in enumerate(names)),
            "    return 0;",
            "}",
            "",
        ]
    )


def _host(job: Counted) -> str:
    """A program's part that decides on the vectors of one job."""
    lines = ['#include "cuvil_engine.h"', "#include <stdio.h>", "#include <string.h>"]
    for space in ("inputs", "outputs"):
        mine = [t for t in job.tensors if t.space == space]
        rows = []
        for tensor in mine:
            count = 1
            for size in tensor.shape:
                count *= size
            lines.append(f"static unsigned long long {space}{tensor.index}[{count}];")
            shape = ", ".join(map(str, tensor.shape)) or "0"
            rows.append(
                f'{{.name = "t", .dtype = CUVIL_{tensor.dtype.upper()}, .rank = {len(tensor.shape)}, '
                f".shape = {{{shape}}}, .count = {count}}}"
            )
        buffers = ", ".join(f"{space}{t.index}" for t in mine)
        lines.append(f"static void *{space}_buffers[] = {{{buffers}}};")
        lines.append(f"static const cuvil_tensor {space}[] = {{{', '.join(rows)}}};")
    name = job.prefix
    return "\n".join(
        [
            *lines,
            f"extern const cuvil_clinical {name}_clinical_logic;",
            f"const cuvil_engine {name}_engine_instance = {{",
            "    .inputs = inputs, .input_buffers = inputs_buffers,",
            "    .outputs = outputs, .output_buffers = outputs_buffers,",
            "    .input_count = sizeof inputs / sizeof *inputs, .output_count = sizeof outputs / sizeof *outputs,",
            f"    .clinical = &{name}_clinical_logic,",
            "};",
            "static int load(FILE *file, const cuvil_tensor *tensors, int count, void *const *buffers) {",
            "    for (int i = 0; i < count; i++) {",
            "        const size_t size = (size_t)tensors[i].count * cuvil_element_bytes(tensors[i].dtype);",
            "        if (fread(buffers[i], 1, size, file) != size) return 1;",
            "    }",
            "    return 0;",
            "}",
            f"int {name}_host(const char *path) {{",
            f"    const cuvil_engine *engine = &{name}_engine_instance;",
            "    const cuvil_clinical *logic = engine->clinical;",
            "    struct { char magic[8]; uint64_t count; } head;",
            '    FILE *file = fopen(path, "rb");',
            "    if (!file || fread(&head, 1, sizeof head, file) != sizeof head) return 1;",
            "    for (uint64_t vector = 0; vector < head.count; vector++) {",
            "        uint32_t flags;",
            "        if (load(file, inputs, engine->input_count, engine->input_buffers)) return 1;",
            "        if (load(file, outputs, engine->output_count, engine->output_buffers)) return 1;",
            "        if (fread(&flags, 1, sizeof flags, file) != sizeof flags) return 1;",
            "        logic->begin();",
            '        if (flags & 4) logic->fail(CUVIL_INPUT_GUARD, "");',
            "        else if (!logic->before()) continue;",
            '        else if (flags & 2) logic->fail(CUVIL_LOCKSTEP, "");',
            '        else if (flags & 1) logic->fail(CUVIL_REFUSAL, "");',
            '        else if (flags & 8) logic->fail(CUVIL_OUTPUT_GUARD, "");',
            "        else logic->after();",
            "    }",
            "    fclose(file);",
            "    return 0;",
            "}",
            "",
        ]
    )
