"""What a bill of materials is made of, before it takes the form of CycloneDX."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evidence.verifier.digests import Digests, digest_bytes

LINKED, DATA, CRYPTO, TOOL = "linked", "data", "crypto", "tool"


@dataclass(frozen=True)
class Licence:
    """An SPDX identifier or expression with the original texts behind it, and where they are published."""

    spdx: str
    texts: tuple[bytes, ...] = ()
    url: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the texts in a release: ``licences/<SHA-256>.txt``."""
        return tuple(f"licences/{hashlib.sha256(text).hexdigest()}.txt" for text in self.texts)


@dataclass(frozen=True)
class Part:
    """One component; ``ref`` is its bom-ref, ``kind`` a CycloneDX component type, ``group`` one of the names above.

    ``digests`` are of the component's bytes, or of what the property ``cuvil:digest-of`` says. ``needs`` are the refs
    it depends on, ``provides`` the algorithms it implements. ``own``: made by the manufacturer or by Cuvil, not SOUP.
    """

    ref: str
    kind: str
    name: str
    group: str
    version: str = ""
    description: str = ""
    supplier: str = ""
    purl: str = ""
    licence: Licence | None = None
    digests: Digests | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    own: bool = True

    def with_needs(self, *refs: str) -> Part:
        """The same part depending on ``refs`` too."""
        return replace(self, needs=tuple(dict.fromkeys((*self.needs, *refs))))


def listing_digests(lines: Mapping[str, str]) -> Digests:
    """Digests of the sorted text lines ``NAME DIGEST``, for a component that is a set of files."""
    return digest_bytes("".join(f"{name} {digest}\n" for name, digest in sorted(lines.items())).encode())
