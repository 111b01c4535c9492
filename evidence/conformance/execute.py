"""Running a program of many engines, going on behind one that crashes or hangs, and reading what it wrote."""

from __future__ import annotations

import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx

from evidence.conformance.outcome import Kind
from evidence.conformance.prepare import Prepared, Stopped

Array = npt.NDArray[Any]
TIMEOUT: Final = 30.0
"""Seconds a program may run before the engine it is in counts as hanging."""


@dataclass
class _Reader:
    data: bytes
    at: int = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise EOFError
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self) -> int:
        return int(struct.unpack("<q", self.take(8))[0])


def read_frames(data: bytes) -> list[dict[str, Array] | Stopped | None]:
    """Outputs by name of each engine whose frame is complete (``Stopped``: it refused a run-time shape; ``None``: the
    size of an input)."""
    reader = _Reader(data)
    found: list[dict[str, Array] | Stopped | None] = []
    try:
        while reader.take(4) == b"CVF1":
            reader.number()
            count = reader.number()
            if count == -2:
                found.append(Stopped(Kind.REFUSED, reader.take(reader.number()).decode("utf-8", "replace")))
            else:
                found.append(None if count < 0 else dict(_output(reader) for _ in range(count)))
    except EOFError:
        pass
    return found


def _output(reader: _Reader) -> tuple[str, Array]:
    name = reader.take(reader.number()).decode("utf-8", "replace")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(reader.number()))
    shape = [reader.number() for _ in range(reader.number())]
    return name, np.frombuffer(reader.take(reader.number()), dtype=dtype).reshape(shape)


def execute(
    program: Path, tests: Sequence[Prepared], prefix: Sequence[str] = (), timeout: float = TIMEOUT
) -> list[Mapping[str, Array] | Stopped]:
    """The outputs of every test of ``program``, or why there are none. ``prefix``: an emulator's words."""
    results: list[Mapping[str, Array] | Stopped] = []
    while len(results) < len(tests):
        first = len(results)
        data = b"".join(struct.pack("<q", a.nbytes) + a.tobytes() for t in tests[first:] for a in t.inputs)
        code, output = _run([*prefix, str(program), str(first)], data, program.parent, timeout)
        for outputs in read_frames(output)[: len(tests) - first]:
            results.append(outputs if outputs is not None else Stopped(Kind.CRASH, "an input has another size"))
        if len(results) < len(tests):
            if code is None:
                results.append(Stopped(Kind.TIMEOUT, f"the engine ran longer than {timeout:.0f} s"))
            else:
                results.append(Stopped(Kind.CRASH, f"the engine ended with {_ending(code)}"))
    return results


def _run(words: Sequence[str], data: bytes, directory: Path, timeout: float) -> tuple[int | None, bytes]:
    """Exit code (``None``: killed after ``timeout``) and output; through files, so that a crash loses no output."""
    source, product = directory / "input", directory / "output"
    source.write_bytes(data)
    with source.open("rb") as stdin, product.open("wb") as stdout:
        try:
            code = subprocess.run(
                words, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    return code, product.read_bytes()


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
