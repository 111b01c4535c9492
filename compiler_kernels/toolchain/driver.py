"""What both compiler drivers share: a sealed working directory, fixed environment, commands, and the build report.

The bytes that come out depend on the sources, the target, the kind and the compiler only: files have fixed relative
names in a fresh directory, and umask, time zone, locale, clock macros and search path are fixed
(reproducible-builds.org, "SOURCE_DATE_EPOCH" specification 1.1).
"""

from __future__ import annotations

import os
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from compiler_kernels.errors import CuvilError, UsageError
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.targets.isa import Isa, sections
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain import elf
from compiler_kernels.toolchain.linkmap import linked_objects
from compiler_kernels.toolchain.sealed import run_sealed
from compiler_kernels.toolchain.sources import BASELINE_UNITS, GPU_UNITS, LIBRARY_UNITS, RUNTIME_UNITS

BuildKind = Literal["bin", "so", "lib"]
PRODUCT: dict[str, str] = {"bin": "engine", "so": "engine.so", "lib": "engine.a"}

# -ffp-contract=off and -fno-math-errno define the arithmetic (docs/arithmetic.md); -g0 keeps paths out of the file.
COMMON_FLAGS = (
    "-std=c11",
    "-O2",
    "-g0",
    "-ffp-contract=off",
    "-fno-strict-aliasing",  # buffers of the arena are reused for values of other types
    "-fno-math-errno",
    "-fno-lto",
    "-fno-stack-protector",
    "-ffunction-sections",
    "-fdata-sections",
    "-Wall",
    "-Wextra",
    "-Wdate-time",
)
ALLOCATORS = frozenset(
    {"malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "memalign", "__libc_malloc"}
    | {"__libc_malloc_impl", "__simple_malloc", "__libc_free", "__libc_realloc", "__libc_calloc", "sbrk"}
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class BuildOutput:
    """A compiled file and how it was made; ``report`` holds no time, path or other trace of the machine.

    ``linked``: the file before it was stripped, with its symbols.
    """

    data: bytes
    report: dict[str, Json]
    linked: bytes = field(default=b"", repr=False)
    images: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What nvcc made of a GPU engine's kernels, by file name; it is embedded in ``data``."""


@dataclass
class Workspace:
    """One build in its own directory; ``commands`` collects what ran, with the compiler's path as a placeholder."""

    directory: Path
    environment: dict[str, str]
    commands: list[list[str]]
    warnings: list[str]
    output: str = ""
    """What the last command printed."""


class Driver(ABC):
    """A C compiler that turns generated sources and the runtime into one file."""

    name: str
    links_malloc: bool = False  # glibc's start code contains an allocator, musl's does not

    def __init__(self, timeout: float = 900.0) -> None:
        self.timeout = timeout

    @abstractmethod
    def compiler(self, target: Target) -> Path:
        """The compiler's executable; ``UnsupportedError`` when it is not installed for the target."""

    @abstractmethod
    def identity(self, target: Target) -> dict[str, Json]:
        """Name, exact version and SHA-256 of the compiler."""

    @abstractmethod
    def target_flags(self, target: Target, generated: bool, isa: Isa | None = None) -> list[str]:
        """Flags that choose triple and processor: of ``isa`` for its kernels, of generated code, or of the runtime."""

    @abstractmethod
    def link_flags(self, kind: BuildKind, target: Target) -> list[str]:
        """Flags of the last command, which makes an executable or a shared library."""

    def map_flags(self, kind: BuildKind) -> list[str]:
        """Flags that make the last command print the map of what it linked; empty where the linker has none."""
        return []

    def command(self, target: Target) -> list[str]:
        """The words that start the C compiler."""
        return [str(self.compiler(target))]

    def archiver(self, target: Target) -> list[str]:
        """The words that start ``ar``."""
        return ["ar"]

    def environment(self, directory: Path) -> dict[str, str]:
        """The complete environment of every command."""
        return {
            "PATH": os.defpath,
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "LC_ALL": "C",
            "TZ": "UTC",
            "SOURCE_DATE_EPOCH": "0",
        }

    def build(
        self,
        sources: Mapping[str, bytes],
        target: Target,
        kind: BuildKind = "bin",
        isas: Sequence[Isa] | None = None,
    ) -> BuildOutput:
        """Compile ``sources`` (file name -> bytes: generated files and, for ``bin``, the runtime) for ``target``.

        ``bin`` is a static executable, ``so`` a shared library without dependencies, ``lib`` a static library; the
        last two hold the generated units and the runtime's ``LIBRARY_UNITS`` (lockstep, erasure) only. ``isas`` are the
        instruction sets ``kernels.c`` has sections for, read from its text if not given. Raises ``CuvilError`` with the
        compiler's first error line when it refuses (a defect of Cuvil), ``UsageError`` when the temporary directory
        cannot be used.
        """
        if kind not in get_args(BuildKind):
            raise UsageError(f"there is no kind of build {kind!r}: choose one of {', '.join(get_args(BuildKind))}")
        for name in sources:
            if not _NAME.fullmatch(name):
                raise CuvilError(f"{name!r} is no plain file name for a source: this is a defect of Cuvil")
        try:
            with tempfile.TemporaryDirectory(prefix="cuvil-build-") as root:
                chosen = sections(sources.get("kernels.c", b"").decode()) if isas is None else tuple(isas)
                return self._build_in(Path(root), dict(sorted(sources.items())), target, kind, chosen)
        except OSError as error:
            raise UsageError(
                f"cannot build in the temporary directory {tempfile.gettempdir()}: {error.strerror or error}; "
                "free some space there or set TMPDIR to another directory"
            ) from error

    def _build_in(
        self, root: Path, sources: dict[str, bytes], target: Target, kind: BuildKind, kernel_isas: tuple[Isa, ...]
    ) -> BuildOutput:
        directory = root / "src"
        directory.mkdir()
        for name, data in sources.items():
            (directory / name).write_bytes(data)
        space = Workspace(directory, self.environment(root), [], [])
        files: dict[str, Json] = {}
        objects: list[str] = []
        baseline = [n for n in sources if n in (*BASELINE_UNITS, *GPU_UNITS)] if kind == "bin" else []
        libraries = (*LIBRARY_UNITS, *GPU_UNITS)
        for name, data in sources.items():
            entry: dict[str, Json] = {"sha3_512": sha3_512_hex(data)}
            files[name] = entry
            if name in baseline:
                entry.update(cpu=target.baseline, flags=[*COMMON_FLAGS, "-Werror"])
            elif name.endswith((".c", ".S")) and (kind == "bin" or name not in RUNTIME_UNITS or name in libraries):
                flags = list(COMMON_FLAGS) if name.endswith(".c") else ["-g0"]
                flags += ["-Werror"] if name in (*RUNTIME_UNITS, *GPU_UNITS) else []
                flags += [] if kind == "bin" else ["-fPIC"]
                # kernels.c holds one section per instruction set and is compiled once for each.
                isas: tuple[Isa | None, ...] = kernel_isas if name == "kernels.c" else (None,)
                generated = name not in libraries
                cpu = target.cpu if generated else target.baseline
                entry["cpu"] = [isa.name for isa in kernel_isas] if name == "kernels.c" else cpu
                entry["flags"] = [*flags]
                for isa in isas:
                    objects.append(f"kernels_{isa.name}.o" if isa else f"{name}.o")
                    words = [*self.target_flags(target, generated, isa), *flags]
                    words += [f"-D{isa.macro}"] if isa else []
                    self._run(space, target, self.command(target), [*words, "-c", name, "-o", objects[-1]])
        product = PRODUCT[kind]
        if kind == "lib":
            self._run(space, target, self.archiver(target), ["rcsD", product, *objects])
        else:
            flags = [*self.target_flags(target, generated=False), *COMMON_FLAGS, "-Werror"]
            flags += self.link_flags(kind, target)
            flags += self.map_flags(kind)
            self._run(space, target, self.command(target), [*flags, *baseline, *objects, "-o", product])
        data = (directory / product).read_bytes()
        image = data
        linked = linked_objects(space.output, data) if self.map_flags(kind) else None
        if kind == "bin" and not self.links_malloc:
            _refuse_allocators(data)
        if kind != "lib":
            data = elf.strip(data)
        report: dict[str, Json] = {
            "compiler": self.identity(target),
            "target": {"triple": target.triple, "cpu": target.cpu, "baseline": target.baseline},
            "kind": kind,
            "commands": [[*words] for words in space.commands],
            "environment": {"LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": "0", "umask": "022"},
            "files": files,
            "warnings": [*space.warnings],
            "sections": {} if kind == "lib" else {**elf.section_sizes(data)},
            "linked": linked,
            "allocator_linked": None if kind != "bin" else self.links_malloc,
            "size": len(data),
            "sha3_512": sha3_512_hex(data),
        }
        return BuildOutput(data, report, image)

    def _run(self, space: Workspace, target: Target, program: Sequence[str], words: Sequence[str]) -> None:
        output = run_sealed([*program, *words], space.directory, space.environment, self.timeout)
        own = program[0] == str(self.compiler(target))
        space.commands.append([f"{{{self.name}}}" if own else program[0], *program[1:], *words])
        space.warnings += [line for line in output.splitlines() if "warning:" in line]
        space.output = output


def _refuse_allocators(data: bytes) -> None:
    """No engine may contain an allocator; checked on the symbols of every executable before they are stripped."""
    symbols = elf.read_symbols(data)
    if not symbols:
        raise CuvilError("the linked engine has no symbols to check for allocators: this is a defect of Cuvil")
    found = sorted(symbols & ALLOCATORS)
    if found:
        raise CuvilError(f"the linked engine contains the allocator {found[0]}: this is a defect of Cuvil")
