"""What the tests of session archives share (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.sessions.archive import Archive
from evidence.sessions.record import leaf_of

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass(frozen=True)
class Engine:
    """A compiled engine and the words (an emulator) that run it here."""

    path: Path
    prefix: tuple[str, ...] = ()

    def run(self, *words: str | Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TRACE", "CUVIL_SESSION"))}
        command = [*self.prefix, str(self.path), *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env={**clean, **(env or {})}
        )

    def infer(self, folder: Path, image: Path, *more: str, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """One recorded inference; the engine's answer."""
        words = ["--input", image, "--output-dir", folder.parent / "out", "--session", folder, "--json", *more]
        done = self.run(*words, env=env)
        assert done.returncode in (0, 3), done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


Maker = Callable[..., Engine]
"""Of the fixture ``maker``."""


def image(folder: Path, seed: int) -> Path:
    """A file with a valid input of the small engine."""
    path = folder / f"image-{seed}.npy"
    np.save(path, picture(seed))
    return path


def picture(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random((1, 1, 8, 8), np.float32)


def lines_of(folder: Path) -> list[bytes]:
    return Archive(folder).lines()[0]


def write_lines(folder: Path, lines: Sequence[bytes]) -> None:
    (folder / "session.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def rechained(lines: Sequence[bytes]) -> list[bytes]:
    """``lines`` with every index and previous made right again, as someone who rewrites an archive would."""
    found: list[bytes] = []
    for index, line in enumerate(lines):
        item = json.loads(line)
        item |= {"index": index, "previous": leaf_of(found[-1]) if found else "00" * 64}
        found.append(json.dumps(item, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
    return found
