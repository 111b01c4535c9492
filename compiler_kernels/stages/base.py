"""A stage as data: its name, what it reads, and the pure function behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from compiler_kernels.stage import Artifact, Json, StageResult

Inputs = Mapping[str, Artifact]
Config = Mapping[str, Json]
Outcome = tuple[tuple[Artifact, ...], dict[str, Json]]


@dataclass(frozen=True)
class Stage:
    """One stage of the chain.

    ``reads`` are artefact names as ``<stage>/<artefact>``; a first stage reads none of them and takes what the user
    brought (``sources``: role names; ``optional_sources``: those that not every user brings). ``optional_reads`` are
    artefacts that not every target has. ``config`` names the
    configuration values that take part in the result, so that nothing else can change it. ``rooms`` are the packages
    whose source code the stage's result depends on.
    """

    name: str
    run: Callable[[Inputs, Config], Outcome]
    reads: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    optional_sources: tuple[str, ...] = ()
    optional_reads: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    rooms: tuple[str, ...] = ("compiler_kernels",)
    description: str = ""

    @property
    def code_version(self) -> str:
        """``1+<digest of the source code of the rooms>``: a changed compiler can never meet an old cache entry."""
        digest = hashlib.sha3_512()
        for room in self.rooms:
            digest.update(source_digest(room).encode())
        return f"1+{digest.hexdigest()[:16]}"

    def selected_config(self, config: Config) -> dict[str, Json]:
        return {key: config.get(key) for key in self.config}

    def execute(self, inputs: Inputs, config: Config) -> StageResult:
        """Run the stage. ``inputs`` must hold every name of ``reads`` and ``sources``."""
        optional = (*self.optional_reads, *self.optional_sources)
        wanted = (*self.reads, *self.sources, *(name for name in optional if name in inputs))
        given = {name: inputs[name] for name in wanted}
        chosen = self.selected_config(config)
        artifacts, facts = self.run(given, chosen)
        return StageResult(
            self.name, self.code_version, {n: a.sha3_512 for n, a in given.items()}, chosen, artifacts, facts
        )


@lru_cache(maxsize=8)
def source_digest(package: str) -> str:
    """SHA3-512 over the names and bytes of a package's source files and tables, in sorted order."""
    root = Path(__file__).resolve().parents[2] / package
    digest = hashlib.sha3_512()
    for path in sorted(p for p in root.rglob("*") if p.suffix in {".py", ".c", ".cpp", ".h", ".S", ".json"}):
        digest.update(f"{path.relative_to(root).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
