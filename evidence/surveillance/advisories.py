"""Security advisories in the OSV format against the components of a bill of materials.

Read are ``id``, ``withdrawn``, ``affected[].package.name``, ``affected[].versions`` and ``affected[].ranges`` of the
types ECOSYSTEM and SEMVER with the events ``introduced``, ``fixed`` and ``last_affected`` (Open Source Vulnerability
format 1.6). Names are compared without regard to case and to the ecosystem: a bill of what was linked knows no
ecosystem. Versions are compared as PEP 440 has it; one that is no such version is affected unless it is the fixed one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from evidence.surveillance.findings import Finding
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small

LARGEST = 64 << 20


@dataclass(frozen=True)
class Range:
    """Affected from ``introduced`` up to before ``fixed``, or up to and with ``last``; empty texts are open ends."""

    introduced: str
    fixed: str
    last: str


@dataclass(frozen=True)
class Advisory:
    """One advisory about one package."""

    id: str
    package: str
    versions: tuple[str, ...]
    ranges: tuple[Range, ...]
    summary: str

    def affects(self, version: str) -> bool:
        """Whether ``version`` of the package is affected."""
        if not self.versions and not self.ranges:
            return True
        return version in self.versions or any(_within(version, item) for item in self.ranges)


def read_advisories(path: Path) -> tuple[Advisory, ...]:
    """Advisories of a JSON file with one advisory or a list of them, or of all ``*.json`` in a folder.

    ``UsageError`` names the file and what is wrong in it.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    found: list[Advisory] = []
    for file in files:
        data = read_small(file, "advisories file", "give OSV advisories as JSON", LARGEST)
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            raise UsageError(f"{file}: is not JSON; give advisories in the OSV format") from None
        for number, item in enumerate(document if isinstance(document, list) else [document]):
            try:
                found += _read(item)
            except (KeyError, TypeError, AttributeError, ValueError):
                raise UsageError(
                    f"{file}: entry {number} is no OSV advisory: it needs id and affected[].package.name"
                ) from None
    return tuple(found)


def check_advisories(partition: str, bill: bytes, advisories: Sequence[Advisory]) -> Iterator[Finding]:
    """Components of the CycloneDX ``bill`` of ``partition`` that an advisory is about."""
    by_name: dict[str, list[Advisory]] = {}
    for item in advisories:
        by_name.setdefault(item.package.lower(), []).append(item)
    for name, version in sorted(_components(json.loads(bill))):
        for advisory in by_name.get(name.lower(), ()):
            if advisory.affects(version):
                said = f" ({advisory.summary})" if advisory.summary else ""
                yield Finding(
                    "failure",
                    "advisory",
                    partition,
                    f"{advisory.id} is about its component {name} {version}{said}; assess it and build with a version "
                    "that is not affected",
                )


def _components(bill: dict[str, Any]) -> set[tuple[str, str]]:
    items = [*bill.get("components", ())]
    for formula in bill.get("formulation", ()):
        items += formula.get("components", ())
    return {(str(item["name"]), str(item.get("version", ""))) for item in items}


def _read(item: dict[str, Any]) -> Iterator[Advisory]:
    identifier, summary = item["id"], item.get("summary", "")
    if not isinstance(identifier, str) or not identifier or not isinstance(summary, str):
        raise ValueError("id")
    if item.get("withdrawn"):
        return
    for affected in item["affected"]:
        name = affected["package"]["name"]
        if not isinstance(name, str):
            raise ValueError("name")
        ranges = [r for given in affected.get("ranges", ()) if given["type"] != "GIT" for r in _ranges(given["events"])]
        versions = tuple(str(v) for v in affected.get("versions", ()))
        yield Advisory(identifier, name, versions, tuple(ranges), " ".join(summary.split())[:200])


def _ranges(events: list[dict[str, str]]) -> Iterator[Range]:
    """Pairs of an introduction and the event that ends it, in the order of the file, as OSV writes them."""
    introduced: str | None = None
    for event in events:
        if "introduced" in event:
            if introduced is not None:
                yield Range(introduced, "", "")
            introduced = str(event["introduced"])
        elif introduced is not None and ("fixed" in event or "last_affected" in event):
            yield Range(introduced, str(event.get("fixed", "")), str(event.get("last_affected", "")))
            introduced = None
    if introduced is not None:
        yield Range(introduced, "", "")


def _within(version: str, item: Range) -> bool:
    try:
        found = Version(version)
        low = None if item.introduced in ("", "0") else Version(item.introduced)
        fixed = Version(item.fixed) if item.fixed else None
        last = Version(item.last) if item.last else None
    except InvalidVersion:
        return version != item.fixed
    return (low is None or found >= low) and (fixed is None or found < fixed) and (last is None or found <= last)
