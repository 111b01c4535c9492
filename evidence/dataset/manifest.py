"""The manifest of a split: what its items are, by digests, so that a comparison needs no data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from evidence.dataset.items import Item
from evidence.verifier.canonical import canonical_bytes
from evidence.verifier.files import read_small

FORMAT: Final = "cuvil-dataset/1"
_LIMIT: Final = 1 << 30
_DIGITS: Final = {"content": 64, "pixels": 64, "perceptual": 16}


@dataclass(frozen=True)
class Manifest:
    """Items in the order of their names."""

    items: list[Item]

    def encode(self) -> bytes:
        """RFC 8785 form: the same items give the same bytes."""
        listed: list[Json] = [item.to_json() for item in self.items]
        return canonical_bytes({"format": FORMAT, "items": listed})

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()


def manifest_of(items: Sequence[Item]) -> Manifest:
    """The manifest of ``items``; ``UsageError`` for two of one name."""
    ordered = sorted(items, key=lambda item: item.id.encode())
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise UsageError(f"the item {one.id!r} is there twice; name each item once")
    return Manifest(ordered)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest strictly; ``UsageError`` names file and fault."""
    data = read_small(path, "manifest", "make it with `cuvil dataset manifest`", _LIMIT)
    remedy = "make it again with `cuvil dataset manifest`"
    try:
        document = json.loads(data)
        if set(document) != {"format", "items"} or document["format"] != FORMAT:
            raise ValueError(f"it is no {FORMAT}")
        manifest = manifest_of([_item(entry) for entry in document["items"]])
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path}: is no manifest ({error}); {remedy}") from None
    if manifest.encode() != data:
        raise UsageError(f"{path}: is not in its one form; {remedy}")
    return manifest


def _item(entry: Any) -> Item:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not entry["id"]:
        raise ValueError("an item has no id")
    found = {key: value for key, value in entry.items() if key != "id"}
    for key, value in found.items():
        digits = _DIGITS.get(key, 0)
        if not isinstance(value, str) or len(value) != digits or not set(value) <= set("0123456789abcdef"):
            raise ValueError(f"the item {entry['id']!r} has the field {key}, which is not {digits} hex digits")
    if "content" not in found and "pixels" not in found:
        raise ValueError(f"the item {entry['id']!r} has neither content nor pixels")
    return Item(entry["id"], **found)
