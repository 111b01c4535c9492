"""The Python distributions that took part: everything Cuvil requires here, with licences and the true dependencies.

The graph is that of ``Requires-Dist``: markers evaluated on this machine, extras followed where a requirement asks for
them. Distributions that are installed without being required do not appear.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from packaging.requirements import Requirement

import compiler_kernels
from compiler_kernels.stages.base import source_digest
from evidence.sbom.licences import licence_of
from evidence.sbom.parts import TOOL, Licence, Part, listing_digests
from evidence.sbom.toolchain import NAME as ZIGLANG
from evidence.sbom.toolchain import installed_zig, recorded_files
from evidence.verifier.digests import Digests

ROOT = "cuvil"
_ROOMS = ("compiler_kernels", "evidence", "cuvil_assets")


@dataclass(frozen=True)
class Found:
    """A distribution and the names of those it requires here."""

    name: str
    version: str
    needs: tuple[str, ...]


def normal(name: str) -> str:
    """The normalised name of a distribution (PyPA, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(name: str, extras: frozenset[str] = frozenset()) -> Iterator[tuple[str, frozenset[str]]]:
    """Normalised names with extras that ``name``, with ``extras``, requires on this machine, as far as installed."""
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in (sorted(extras) or [""])]
        if requirement.marker is None or any(requirement.marker.evaluate(values) for values in wanted):
            yield normal(requirement.name), frozenset(requirement.extras)


def closure(root: str = ROOT) -> dict[str, Found]:
    """Everything reachable from ``root`` by normalised name; a requirement that is not installed is left out."""
    edges: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(normal(root), frozenset[str]())]
    while waiting:
        item = waiting.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            needs = list(required(*item))
        except importlib.metadata.PackageNotFoundError:
            continue
        edges.setdefault(item[0], set()).update(name for name, _ in needs)
        waiting += needs
    return {
        name: Found(name, importlib.metadata.version(name), tuple(sorted(n for n in needs if n in edges)))
        for name, needs in sorted(edges.items())
    }


@lru_cache(maxsize=1)
def cuvil_licence() -> Licence:
    """Cuvil's own licence with the text that is installed with it."""
    text = Path(compiler_kernels.__file__).resolve().parents[1] / "LICENSE"
    texts = [text.read_bytes()] if text.is_file() else []
    if not texts:
        for path in importlib.metadata.files(ROOT) or []:
            if path.name == "LICENSE":
                texts.append(path.read_binary())
    return Licence("Apache-2.0", tuple(texts[:1]), "https://www.apache.org/licenses/LICENSE-2.0.txt")


def cuvil_version() -> str:
    """The installed version, or ``0`` where Cuvil runs without being installed."""
    try:
        return importlib.metadata.version(ROOT)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def environment_parts() -> list[Part]:
    """Cuvil, Python, the compiler and every distribution Cuvil requires, as parts of the formulation."""
    found = closure()
    parts = [_python()]
    for name, item in found.items():
        needs = tuple(f"pypi:{other}" for other in item.needs)
        if name == ROOT:
            needs = (*needs, "tool:python")
        parts.append(_part(item, needs))
    if ROOT not in found:  # run from a source tree that is not installed
        parts.append(_part(Found(ROOT, cuvil_version(), ()), ("tool:python",)))
    return parts


def _part(item: Found, needs: tuple[str, ...]) -> Part:
    properties: dict[str, str] = {}
    licence = cuvil_licence() if item.name == ROOT else licence_of(item.name, properties)
    digests = _digests(item.name, properties)
    return Part(
        ref=f"pypi:{item.name}",
        kind="application" if item.name in (ROOT, ZIGLANG) else "library",
        name=item.name,
        group=TOOL,
        version=item.version,
        purl=f"pkg:pypi/{item.name}@{item.version}",
        licence=licence,
        supplier="Cuvil contributors" if item.name == ROOT else "",
        digests=digests,
        properties=properties,
        needs=needs,
        own=item.name == ROOT,
    )


def _digests(name: str, properties: dict[str, str]) -> Digests | None:
    if name == ROOT:
        properties["cuvil:digest-of"] = "the lines ROOM SHA3-512 of its source code"
        return listing_digests({room: source_digest(room) for room in _ROOMS})
    if name == ZIGLANG:
        wheel = installed_zig().wheel
        if wheel is not None:
            properties["cuvil:wheel"] = wheel.file
            properties["cuvil:wheel-sha256"] = wheel.sha256
        else:
            properties["cuvil:wheel"] = "none of the wheels Cuvil knows"
    recorded = recorded_files(name)
    if not recorded:
        return None
    properties["cuvil:digest-of"] = "the lines PATH DIGEST of the files its RECORD lists"
    return listing_digests(recorded)


def _python() -> Part:
    return Part(
        ref="tool:python",
        kind="platform",
        name=platform.python_implementation(),
        group=TOOL,
        version=platform.python_version(),
        supplier="Python Software Foundation",
        licence=Licence("PSF-2.0", (), "https://docs.python.org/3/license.html"),
        own=False,
    )
