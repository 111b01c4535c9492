"""Run an engine on vectors: its answers, and what its probes recorded for each."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy.logic_tree import Tensor
from evidence.coverage.finder import Vector
from evidence.coverage.mcdc import Record
from evidence.coverage.ring import empty_ring, read_ring

TIMEOUT_SECONDS: Final = 600
ENTRY: Final = 0
"""Number of the probe that begins an inference."""


@dataclass(frozen=True)
class Executed:
    """By vector: the answer (``cuvil-answer/1``) and the records ``(probe number, record)``; records lost in all."""

    answers: list[dict[str, Any]]
    records: list[list[tuple[int, Record]]]
    dropped: int


def encode_vectors(tensors: Sequence[Tensor], vectors: Sequence[Vector]) -> bytes:
    """The file of ``--decide --vectors`` (docs/clinical.md)."""
    parts = [b"CVEC1\0\0\0", np.uint64(len(vectors)).tobytes()]
    for vector in vectors:
        parts += [np.ascontiguousarray(vector.world[t.space, t.index]).tobytes() for t in tensors]
        parts.append(np.uint32(vector.flags).tobytes())
    return b"".join(parts)


def execute(engine: bytes, prefix: Sequence[str], vectors: bytes, most_records: int) -> Executed:
    """Run ``engine`` (a program for this machine, or for the emulator ``prefix``) on encoded ``vectors``.

    ``VerificationFailed`` when the engine ends otherwise than it should, or its ring does not fit the answers.
    """
    with tempfile.TemporaryDirectory(prefix="cuvil-coverage-") as folder:
        program, given, ring = (Path(folder) / name for name in ("engine", "vectors", "ring"))
        program.write_bytes(engine)
        program.chmod(0o755)
        given.write_bytes(vectors)
        ring.write_bytes(empty_ring(most_records))
        command = [*prefix, str(program), "--decide", "--vectors", str(given), "--coverage", str(ring), "--json"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise VerificationFailed(
                "coverage-run", f"the engine took over {TIMEOUT_SECONDS} s for its vectors"
            ) from None
        if done.returncode != 0:
            words = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
            raise VerificationFailed("coverage-run", f"the engine did not run its vectors: {words}")
        found = read_ring(ring.read_bytes())
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    records: list[list[tuple[int, Record]]] = []
    for number, record in found.records:
        if number == ENTRY:
            records.append([])
        if records:
            records[-1].append((number, record))
    if found.dropped == 0 and len(records) != len(answers):
        raise VerificationFailed("coverage-run", f"{len(answers)} answers of the engine have {len(records)} records")
    return Executed(answers, records, found.dropped)
