"""``cuvil run``: becomes the engine, or the emulator that runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.targets.registry import TARGETS, Target, runner, why_not_here


def target_of(engine: Path) -> Target:
    """The target of an engine file, from the machine field of its ELF header (gabi 4+, e_machine at byte 18)."""
    if engine.is_dir():
        raise UsageError(f"{engine}: is a directory, not an engine; give the engine file")
    try:
        with engine.open("rb") as stream:
            head = stream.read(20)
    except FileNotFoundError:
        raise UsageError(f"{engine}: no such engine; give the file `cuvil build` wrote") from None
    except OSError as error:
        raise UsageError(f"{engine}: the engine cannot be read ({error.strerror}); check its permissions") from None
    if len(head) < 20 or head[:6] != b"\x7fELF\x02\x01":
        raise UsageError(f"{engine}: is no engine (not a 64-bit ELF file); give the file `cuvil build` wrote")
    machine = int.from_bytes(head[18:20], "little")
    for target in TARGETS.values():
        if target.elf_machine == machine:
            return target
    raise UnsupportedError(f"{engine}: is for a machine Cuvil has no target for (ELF machine {machine})")


def run(
    engine: Path,
    inputs: list[str],
    output_dir: Path,
    as_json: bool,
    threads: int | None = None,
    subject: str = "",
    coverage: Path | None = None,
) -> NoReturn:
    """Replace this process by the engine, so that its messages and exit code are the command's."""
    if subject:
        raise UsageError("--subject needs --session: say in which archive the inference is recorded")
    target = target_of(engine)
    prefix = runner(target)
    if prefix is None:
        raise UnsupportedError(f"{engine}: this machine cannot run {target.triple} engines; {why_not_here(target)}")
    # An absolute path: a bare name would be looked up on PATH.
    words = [*prefix, str(engine.absolute())]
    for text in inputs:
        words += ["--input", text]
    words += ["--output-dir", str(output_dir)] + (["--json"] if as_json else [])
    words += [] if threads is None else ["--threads", str(threads)]
    words += [] if coverage is None else ["--coverage", str(coverage)]
    sys.stdout.flush()
    try:
        os.execv(words[0], words)
    except OSError as error:
        raise UsageError(f"{words[0]}: cannot be started ({error.strerror}); make it executable: chmod +x") from None
