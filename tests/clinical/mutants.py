"""Mutants of ``clinical.c`` made by universalmutator (PyPI), run on vectors by a host of their own.

The mutator works on text by its rules for C and shares nothing with the compiler. A mutant is *killed* when an answer
or a record of its probes differs from the original's on some vector, when it does not end or crashes; *invalid* when it
does not compile; the *same program* when its object file is that of the original. What is left survives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from compiler_kernels.policy.logic_tree import Tensor
from compiler_kernels.toolchain.sources import RUNTIME_DIRECTORY

COMPILER = next((name for name in ("clang-19", "gcc") if shutil.which(name)), None)
MUTATE = shutil.which(os.environ.get("CUVIL_MUTATE", "mutate"))
"""The program of universalmutator 1.14.1; it wants an environment of its own, since it brings an old ``typing``."""
MISSING = (
    "no program `mutate` (universalmutator) on PATH or in CUVIL_MUTATE"
    if MUTATE is None
    else "there is no clang-19 or gcc"
    if COMPILER is None
    else ""
)
DECIDING = ("fallback_", "compute_", "guard_", "decide_", "check_")
"""Functions made from the policy; the others are the same in every engine and are held by the tests of engines."""


@dataclass
class Outcome:
    """Mutants by what became of them; a survivor is ``(function, original line, mutant line)``."""

    killed: int = 0
    invalid: int = 0
    same_program: int = 0
    survivors: list[tuple[str, str, str]] = field(default_factory=list)


def judged(source: str, prefix: str, tensors: Sequence[Tensor], vectors: bytes, folder: Path, part: int = 1) -> Outcome:
    """Every mutant of ``source`` (a clinical.c) in the lines that decide, judged on encoded ``vectors``; with ``part``
    only every so manieth."""
    (folder / "vectors").write_bytes(vectors)
    (folder / "host.c").write_text(_HOST.replace("PREFIX", prefix).replace("TENSORS", _tables(tensors)))
    (folder / "clinical.c").write_text(source)
    _compile(folder, "host")
    assert _compile(folder, "clinical"), "the original compiles"
    original = (folder / "clinical.o").read_bytes()
    expected = _run(folder, "clinical")
    assert expected is not None and expected.count(b"\n") == int.from_bytes(vectors[8:16], "little")
    made = folder / "mutants"
    made.mkdir()
    words = [str(MUTATE), "clinical.c", "c", "--noCheck", "--mutantDir", "mutants"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=300)
    inside = _inside(source)
    lines = source.splitlines()
    outcome = Outcome()

    def judge(path: Path) -> tuple[str, tuple[str, str, str]]:
        changed = _changed(lines, path.read_text().splitlines())
        if changed is None or changed[0] not in inside:
            return "outside", ("", "", "")
        name = f"mutants/{path.stem}"
        if not _compile(folder, name):
            return "invalid", ("", "", "")
        if (folder / f"{name}.o").read_bytes() == original:
            return "same_program", ("", "", "")
        change = inside[changed[0]], lines[changed[0]], changed[1]
        return ("survived" if _run(folder, name) == expected else "killed"), change

    with ThreadPoolExecutor(2) as pool:
        for found, change in pool.map(judge, sorted(made.glob("*.c"))[::part]):
            if found == "survived":
                outcome.survivors.append(change)
            elif found != "outside":
                setattr(outcome, found, getattr(outcome, found) + 1)
    return outcome


def _inside(source: str) -> dict[int, str]:
    """The lines (from 0) that decide, with their functions: thresholds, and functions made from the policy."""
    found: dict[int, str] = {}
    function = ""
    for number, line in enumerate(source.splitlines()):
        if line.startswith("static ") and line.endswith(") {"):
            function = line.split("(")[0].split()[-1]
        if line.startswith("#define t_") or function.startswith(DECIDING):
            found[number] = function
        function = "" if line == "}" else function
    return found


def _changed(before: list[str], after: list[str]) -> tuple[int, str] | None:
    """The first line that differs: its number and its new text."""
    for number, line in enumerate(before):
        if number >= len(after) or after[number] != line:
            return number, after[number] if number < len(after) else ""
    return None


def _compile(folder: Path, name: str) -> bool:
    # an object file holds the name of its source, so every mutant is compiled as the same one from standard input
    words = [
        str(COMPILER),
        "-std=gnu11",
        "-O1",
        "-Werror=return-type",
        "-ffp-contract=off",
        "-I",
        str(RUNTIME_DIRECTORY),
        "-x",
        "c",
    ]
    done = subprocess.run(
        [*words, "-c", "-", "-o", f"{name}.o"],
        cwd=folder,
        input=(folder / f"{name}.c").read_bytes(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode == 0


def _run(folder: Path, name: str) -> bytes | None:
    """What the host prints with this clinical.c; ``None`` if it cannot be linked, crashes or does not end."""
    program = folder / f"{name}.exe"
    linked = subprocess.run(
        [str(COMPILER), "host.o", f"{name}.o", "-lm", "-o", str(program)], cwd=folder, capture_output=True, check=False
    )
    if linked.returncode != 0:
        return None
    try:
        done = subprocess.run([str(program)], cwd=folder, capture_output=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return None
    finally:
        program.unlink()
    return done.stdout if done.returncode == 0 else None


def _tables(tensors: Sequence[Tensor]) -> str:
    lines = []
    for space in ("inputs", "outputs"):
        mine = [t for t in tensors if t.space == space]
        for tensor in mine:
            assert tensor.dtype in ("float32", "int64")
            element = "float" if tensor.dtype == "float32" else "int64_t"
            lines.append(f"static {element} {space}_{tensor.index}[{prod(tensor.shape)}];")
        rows = [
            f'{{.name = "{t.name}", .dtype = CUVIL_{t.dtype.upper()}, .rank = {len(t.shape)}, '
            f".shape = {{{', '.join(map(str, t.shape))}}}, .count = {prod(t.shape)}}}"
            for t in mine
        ]
        lines.append(f"static const cuvil_tensor {space}[] = {{{', '.join(rows)}}};")
        lines.append(f"static void *const {space}_at[] = {{{', '.join(f'{space}_{t.index}' for t in mine)}}};")
    return "\n".join(lines)


_HOST = """
#include "cuvil_engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
TENSORS
enum { INPUTS = sizeof inputs / sizeof *inputs, OUTPUTS = sizeof outputs / sizeof *outputs };
extern const cuvil_clinical PREFIX_clinical_logic;
const cuvil_engine PREFIX_engine_instance = {
    .inputs = inputs, .input_count = INPUTS, .input_buffers = (void **)inputs_at,
    .outputs = outputs, .output_count = OUTPUTS, .output_buffers = (void **)outputs_at};
void cuvil_wipe(void *area, size_t size) { memset(area, 0, size); }

static int load(FILE *file, const cuvil_tensor *tensors, int count, void *const *at) {
    for (int i = 0; i < count; i++) {
        const size_t elements = (size_t)tensors[i].count;
        if (fread(at[i], cuvil_element_bytes(tensors[i].dtype), elements, file) != elements) return 1;
    }
    return 0;
}

static void show(const cuvil_clinical *logic) {
    const cuvil_answer *a = logic->answer;
    uint64_t bits;
    printf("%d %d %d [%s] [%s]", a->status, a->failure, a->guard, a->sentence ? a->sentence : "", a->message);
    for (int i = 0; i < logic->quantity_count; i++) {
        memcpy(&bits, &a->quantities[i], 8);
        printf(" %d:%llx", a->quantities_known[i], a->quantities_known[i] ? (unsigned long long)bits : 0);
    }
    for (int i = 0; i < logic->decision_count; i++) printf(" d%d", a->decisions[i]);
    for (int i = 0; i < logic->guard_count; i++) printf(" g%d", a->guards[i]);
    cuvil_ring *ring = *logic->ring;
    for (; ring->tail < ring->head; ring->tail++) {
        const cuvil_probe_record *r = &cuvil_ring_records(ring)[ring->tail % ring->capacity];
        printf(" p%x:%llx", r->probe, (unsigned long long)r->trace);
    }
    printf("\\n");
}

int main(void) {
    const cuvil_clinical *logic = &PREFIX_clinical_logic;
    FILE *file = fopen("vectors", "rb");
    struct { char magic[8]; uint64_t count; } head;
    uint32_t flags;
    if (!file || fread(&head, sizeof head, 1, file) != 1) return 1;
    for (uint64_t v = 0; v < head.count; v++) {
        if (load(file, inputs, INPUTS, inputs_at) || load(file, outputs, OUTPUTS, outputs_at)) return 1;
        if (fread(&flags, 4, 1, file) != 1) return 1;
        logic->begin();
        if (flags & 4) logic->fail(CUVIL_INPUT_GUARD, "input");
        else if (!logic->before()) printf("stopped ");
        else if (flags & 2) logic->fail(CUVIL_LOCKSTEP, "lockstep");
        else if (flags & 1) logic->fail(CUVIL_REFUSAL, "refusal");
        else if (flags & 8) logic->fail(CUVIL_OUTPUT_GUARD, "output");
        else if (!logic->after()) printf("stopped ");
        show(logic);
    }
    return 0;
}
"""
