"""The policy's gates over linked components: a release that fails one is refused, with the component and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compiler_kernels.errors import RefusedError
from compiler_kernels.policy.sbom import Sbom
from evidence.sbom.parts import LINKED, Part

_EXACT = re.compile(r"v?\d+(\.\d+)+((a|b|rc)\d+)?(\.(post|dev)\d+)?([+~-][0-9A-Za-z.+~-]+)?|[0-9a-f]{40}")
_WORDS = re.compile(r"[A-Za-z0-9.+-]+")


def check_gates(parts: Sequence[Part], gates: Sbom) -> None:
    """Raise ``RefusedError`` for the first linked part that a gate refuses."""
    for sentence in refused(parts, gates):
        raise RefusedError(sentence)


def refused(parts: Sequence[Part], gates: Sbom) -> Iterator[str]:
    """Every refusal, one sentence each."""
    linked = [part for part in parts if part.group == LINKED and part.ref != "engine"]
    unknown = sorted((set(gates.end_of_support) | set(gates.soup)) - {part.name for part in linked if not part.own})
    if unknown:
        others = ", ".join(sorted(part.name for part in linked if is_soup(part))) or "none"
        yield (
            f"the policy speaks of the component {unknown[0]!r}, which is not linked; the components of others are "
            f"{others}; correct sbom.end_of_support and sbom.soup"
        )
    for part in linked:
        yield from _licence(part, gates)
        if not part.supplier and not gates.allow_unknown_supplier:
            yield f"{part.name}: has no supplier; allow it with sbom.allow_unknown_supplier, or do not link it"
        if gates.exact_versions and not _EXACT.fullmatch(part.version):
            yield f"{part.name}: the version {part.version!r} is not exact; build with a released version of it"
        if is_soup(part):
            yield from _support(part, gates)


def is_soup(part: Part) -> bool:
    """Whether the part is a component of others in the engine (SOUP in the sense of IEC 62304 3.29)."""
    return part.ref.startswith("library:") and not part.own


def _licence(part: Part, gates: Sbom) -> Iterator[str]:
    if part.licence is None:
        if gates.licence_texts and part.properties.get("cuvil:role") != "generated from the model":
            yield f"{part.name}: has no SPDX licence; state it, or set sbom.licence_texts to false"
        return
    denied = sorted(set(gates.denied_licences) & {*_WORDS.findall(part.licence.spdx), part.licence.spdx})
    if denied:
        yield f"{part.name}: its licence {part.licence.spdx} is denied by sbom.denied_licences ; do not link it"
    if gates.licence_texts and not part.licence.texts:
        yield f"{part.name}: the text of its licence {part.licence.spdx} is missing; reinstall what it comes from"


def _support(part: Part, gates: Sbom) -> Iterator[str]:
    if gates.supported_until is None:
        return
    end = gates.end_of_support.get(part.name)
    if end is None:
        yield (
            f"{part.name}: its end of support is unknown, and sbom.supported_until asks for {gates.supported_until}; "
            f"state it in sbom.end_of_support.{part.name}"
        )
    elif end < gates.supported_until:
        yield (
            f"{part.name}: support ends on {end}, before {gates.supported_until} (sbom.supported_until); move to a "
            "version that is supported for longer"
        )
