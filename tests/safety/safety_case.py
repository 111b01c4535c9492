"""Engines with lockstep, built once each, and where their parts lie in memory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler_kernels.compile import freeze_model
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.c.program import Guard, Identity, Program, generate
from compiler_kernels.targets.isa import VARIANTS
from compiler_kernels.targets.registry import Target, resolve_target
from compiler_kernels.toolchain.driver import BuildKind
from compiler_kernels.toolchain.sources import library_sources, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

X86 = resolve_target("x86_64-linux-musl")
ARM = resolve_target("aarch64-linux-musl")
Patch = Callable[[dict[str, bytes]], None]


@dataclass(frozen=True)
class Built:
    """An engine as a file, the program it was generated as, and the words that run it here."""

    path: Path
    program: Program
    prefix: tuple[str, ...] = ()

    @property
    def weights(self) -> bytes:
        return self.program.files["engine_weights.bin"]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(self.path), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def infer(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """One run on ``x.npy`` of ``folder`` with its outputs below ``out``."""
        return self.run("--input", folder / "x.npy", "--output-dir", folder / "out", *words)

    def version(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("--version", "--json").stdout)
        return found


def generated(
    model: bytes,
    lockstep: bool = True,
    target: Target = X86,
    guards: Mapping[tuple[str, str], Guard] | None = None,
    policy: Any = None,
) -> Program:
    """The C program of ``model``."""
    frozen = freeze_model(model, policy=policy)
    identity = Identity("model", "1", frozen.digest, "0" * 128, target.triple)
    lowered = lower_to_l2(frozen.module, frozen.store)
    isas = VARIANTS[target.machine]
    return generate(lowered, frozen.store, identity, guards, isas=isas, lockstep=lockstep)


def build(
    model: bytes,
    path: Path,
    *,
    lockstep: bool = True,
    target: Target = X86,
    kind: BuildKind = "bin",
    prefix: tuple[str, ...] = (),
    patch: Patch | None = None,
    guards: Mapping[tuple[str, str], Guard] | None = None,
    policy: Any = None,
) -> Built:
    """Compile ``model`` to ``path``; ``patch`` changes the sources first, where a control needs a worse engine."""
    program = generated(model, lockstep, target, guards, policy)
    sources = {**runtime_sources(), **program.files}
    if patch is not None:
        patch(sources)
    path.write_bytes(ZigDriver().build(sources, target, kind).data)
    path.chmod(0o755)
    return Built(path, program, prefix)


def flipped(engine: Built, path: Path, places: Sequence[int], bit: int) -> Built:
    """A copy of the engine's file with one bit of a byte flipped at every one of ``places``."""
    data = bytearray(engine.path.read_bytes())
    for place in places:
        data[place] ^= 1 << bit
    path.write_bytes(data)
    path.chmod(0o755)
    return Built(path, engine.program, engine.prefix)


def copies(engine: Built) -> list[int]:
    """Where the weights begin in the engine's file, once for each copy."""
    data, found, at = engine.path.read_bytes(), [], -1
    while (at := data.find(engine.weights, at + 1)) >= 0:
        found.append(at)
    return found


def save(folder: Path, shape: Sequence[int], seed: int = 1) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random float32 values of ``shape``, stored as ``x.npy`` in ``folder``."""
    x = np.random.default_rng(seed).standard_normal(shape).astype("<f4")
    np.save(folder / "x.npy", x)
    return x


def link(program: Program, files: Mapping[str, bytes], path: Path, patch: Patch | None = None) -> Path:
    """An executable of an engine's library form and ``files``, one of which defines ``main``."""
    sources = {**library_sources(), **program.files, **files}
    if patch is not None:
        patch(sources)
    path.write_bytes(ZigDriver().build(sources, X86, "bin").data)
    path.chmod(0o755)
    return path


def fault_host(model: bytes, path: Path, patch: Patch | None = None) -> FaultHost:
    """The lockstep engine of ``model`` linked with ``fault_host.c`` in place of the runtime."""
    source = (Path(__file__).parent / "fault_host.c").read_bytes()
    return FaultHost(link(generated(model), {"fault_host.c": source}, path, patch))


@dataclass(frozen=True)
class FaultHost:
    """A program that flips bits in an engine; the modes are at the head of fault_host.c."""

    path: Path

    def inject(
        self, mode: str, side: str, isa: str, *, count: int, seed: int = 1, first: int = 0, timeout: float = 600
    ) -> dict[str, int]:
        """How many faults ended how."""
        words = [str(self.path), mode, side, isa, str(seed), str(first), str(count)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, int] = json.loads(done.stdout)
        bits = found.pop("weights_bits")
        assert sum(found.values()) == count
        return {**{kind: number for kind, number in found.items() if number}, "weights_bits": bits}
