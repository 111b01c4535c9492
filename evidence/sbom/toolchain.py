"""What the installed ``ziglang`` distribution says about itself: versions, licences, sources, and which wheel it is."""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import io
import json
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.toolchain.zig import zig_executable
from evidence.sbom.parts import Licence

NAME = "ziglang"
_MUSL = "lib/libc/musl"
GLIBC_URL = "https://sourceware.org/git/?p=glibc.git;a=blob;f=LICENSES"
MUSL_URL = "https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT"
ZIG_URL = "https://codeberg.org/ziglang/zig/src/branch/master/LICENSE"
LLVM_URL = "https://llvm.org/LICENSE.txt"


@dataclass(frozen=True)
class Wheel:
    """A published wheel: file name and hex SHA-256."""

    file: str
    sha256: str


class Zig:
    """The distribution under ``root`` (the folder with the ``zig`` program)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def text(self, name: str) -> bytes:
        """Bytes of a file of the distribution; ``UsageError`` when it is not there."""
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{self.root / name}: cannot be read ({error.strerror}); reinstall the {NAME} distribution"
            ) from None

    @cached_property
    def version(self) -> str:
        return importlib.metadata.version(NAME)

    @cached_property
    def musl_version(self) -> str:
        """The version in musl's own ``src/internal/version.h``."""
        match = re.search(rb'VERSION "([0-9.]+)"', self.text(f"{_MUSL}/src/internal/version.h"))
        if match is None:
            raise UsageError(f"{self.root / _MUSL}: names no version of musl; reinstall the {NAME} distribution")
        return match[1].decode()

    @cached_property
    def musl_licence(self) -> Licence:
        return Licence("MIT", (self.text(f"{_MUSL}/COPYRIGHT"),), MUSL_URL)

    @cached_property
    def glibc_licence(self) -> Licence:
        """Start files may be linked with other programs without limits; their files say so."""
        return Licence("LGPL-2.1-or-later", (self.text("lib/libc/glibc/LICENSES"),), GLIBC_URL)

    @cached_property
    def zig_licence(self) -> Licence:
        return Licence("MIT", (self.text("LICENSE"),), ZIG_URL)

    @cached_property
    def compiler_rt_licence(self) -> Licence:
        """Zig's own code is MIT; several of its functions say that they are ports of LLVM's compiler-rt."""
        texts = (self.text("LICENSE"), self.text("lib/libunwind/LICENSE.TXT"))
        return Licence("MIT AND (Apache-2.0 WITH LLVM-exception)", texts, LLVM_URL)

    @cached_property
    def _musl_sources(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for folder in ("src", "crt"):
            for path in sorted((self.root / _MUSL / folder).rglob("*")):
                if path.suffix in (".c", ".s", ".S"):
                    found.setdefault(path.stem, []).append(path.relative_to(self.root).as_posix())
        return found

    def musl_source(self, name: str, machine: str) -> str | None:
        """The file of the distribution that the object ``name`` is made of; ``None`` where names do not decide.

        Like musl's makefile, a file in a folder named after the processor replaces the portable one.
        """
        paths = self._musl_sources.get(name.removesuffix(".o"), [])
        own = [path for path in paths if Path(path).parent.name == machine]
        folders = {Path(path).parent.parent.as_posix() for path in own}
        portable = [
            p for p in paths if Path(p).parent.name not in _machines() and Path(p).parent.as_posix() not in folders
        ]
        candidates = own + portable
        return candidates[0] if len(candidates) == 1 else None

    @cached_property
    def wheel(self) -> Wheel | None:
        """The published wheel whose files are exactly those installed, or ``None``."""
        digest = content_digest(NAME, "ziglang/")
        known = json.loads((files("evidence") / "data" / "wheels.json").read_bytes())
        for item in known["wheels"]:
            if item["name"] == NAME and item["content_sha256"] == digest:
                return Wheel(item["file"], item["sha256"])
        return None


@lru_cache(maxsize=1)
def _machines() -> frozenset[str]:
    """Names of the processor folders of musl."""
    return frozenset(p.name for p in (zig_executable().parent / _MUSL / "arch").iterdir() if p.is_dir())


@lru_cache(maxsize=1)
def installed_zig() -> Zig:
    """The distribution engines are built with here; ``UsageError`` when it is not installed."""
    return Zig(zig_executable().parent)


def recorded_files(name: str) -> dict[str, str]:
    """Path to digest of the files a distribution's RECORD lists, without what installing adds or rewrites."""
    text = importlib.metadata.distribution(name).read_text("RECORD") or ""
    added = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")
    return {
        row[0]: row[1]
        for row in csv.reader(io.StringIO(text))
        if row and row[1] and not row[0].startswith("..") and not row[0].endswith(".pyc")
        if not (".dist-info/" in row[0] and Path(row[0]).name in added)
    }


def content_digest(name: str, under: str = "") -> str:
    """Hex SHA-256 of the sorted lines ``PATH,DIGEST`` of a distribution's RECORD under the folder ``under``."""
    rows = sorted(f"{path},{digest}" for path, digest in recorded_files(name).items() if path.startswith(under))
    return hashlib.sha256(("\n".join(rows) + "\n").encode()).hexdigest()
