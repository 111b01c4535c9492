"""Comparison of splits: items that two of them share, duplicates within one, and pairs that look alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Final

from compiler_kernels.stage import Json
from evidence.dataset.manifest import Manifest
from evidence.verifier.canonical import canonical_bytes
from evidence.verifier.dataset import FORMAT
from evidence.verifier.waiver import FAILED, PASSED

NAMES: Final = ("train", "tune", "test")
NEAR_LISTED: Final = 200
"""So many pairs that look alike are listed; all are counted."""
NEAR_LIMIT: Final = 1_000_000
"""Looking for them ends here: so many pairs are no finding about single images."""
Place = tuple[str, str]
"""Split and item."""


@dataclass(frozen=True)
class Group:
    """Items that are the same by ``kind``: ``content`` (all bytes of the file) or ``pixels``."""

    kind: str
    places: tuple[Place, ...]

    @property
    def splits(self) -> set[str]:
        return {split for split, _ in self.places}

    def to_json(self) -> dict[str, Json]:
        return {"kind": self.kind, "items": [[split, item] for split, item in self.places]}


@dataclass(frozen=True)
class Pair:
    """Two splits: so many items of ``a`` are also in ``b``, so many of ``b`` in ``a``."""

    a: str
    b: str
    of_a: int
    of_b: int


@dataclass(frozen=True)
class Check:
    """What the comparison of splits found; ``near``: pairs within ``distance`` bits of the perceptual hash."""

    manifests: Mapping[str, Manifest]
    overlaps: tuple[Group, ...]
    duplicates: tuple[Group, ...]
    near: tuple[tuple[Place, Place], ...]
    near_count: int
    distance: int
    refuse_duplicates: bool

    @property
    def verdict(self) -> str:
        failed = self.overlaps or (self.refuse_duplicates and self.duplicates)
        return FAILED if failed else PASSED

    @property
    def pairs(self) -> list[Pair]:
        """Every two splits, with how many items they share."""
        found = []
        for a, b in combinations(self.manifests, 2):
            places = {p for group in self.overlaps if {a, b} <= group.splits for p in group.places}
            found.append(Pair(a, b, *(sum(place[0] == name for place in places) for name in (a, b))))
        return found

    def repeated(self, split: str) -> int:
        """How many items of ``split`` could go without losing one: all but the first of each group."""
        kept: dict[str, str] = {}
        for group in self.duplicates:
            names = [item for where, item in group.places if where == split]
            for name in names[1:]:
                kept[name] = names[0]
        return len(kept)

    def to_json(self) -> dict[str, Json]:
        """The report: no path, no time; equal data gives equal bytes."""
        splits: dict[str, Json] = {
            name: {
                "manifest_sha256": manifest.sha256,
                "items": len(manifest.items),
                "compared_by_pixels": sum(bool(item.pixels) for item in manifest.items),
                "repeated": self.repeated(name),
            }
            for name, manifest in self.manifests.items()
        }
        pairs: list[Json] = [
            {"a": p.a, "b": p.b, "shared_items": [p.of_a, p.of_b], "disjoint": p.of_a == 0} for p in self.pairs
        ]
        near: list[Json] = [[list(one), list(other)] for one, other in self.near]
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "splits": splits,
            "pairs": pairs,
            "overlaps": [group.to_json() for group in self.overlaps],
            "duplicates": [group.to_json() for group in self.duplicates],
            "duplicates_are": "refused" if self.refuse_duplicates else "listed",
            "near": {"distance": self.distance, "pairs": self.near_count, "listed": near},
        }

    def encode(self) -> bytes:
        """RFC 8785 bytes of the report."""
        return canonical_bytes(self.to_json())


def compare(manifests: Mapping[str, Manifest], *, distance: int = 0, refuse_duplicates: bool = False) -> Check:
    """Compare two or more splits. ``distance``: 0 to 16 bits in which perceptual hashes of near pairs may differ."""
    manifests = {name: manifests[name] for name in sorted(manifests, key=_place_of)}
    groups = _groups(manifests)
    overlaps = tuple(group for group in groups if len(group.splits) > 1)
    duplicates = tuple(
        group for group in groups if any([p[0] for p in group.places].count(s) > 1 for s in group.splits)
    )
    same = {frozenset(pair) for group in groups for pair in combinations(group.places, 2)}
    near = sorted(pair for pair in _near(manifests, distance) if frozenset(pair) not in same)
    return Check(manifests, overlaps, duplicates, tuple(near[:NEAR_LISTED]), len(near), distance, refuse_duplicates)


def _place_of(name: str) -> tuple[int, str]:
    """One order whatever order the splits are given in: train, tune, test, then others by name."""
    return (NAMES.index(name) if name in NAMES else len(NAMES), name)


def _groups(manifests: Mapping[str, Manifest]) -> list[Group]:
    """Groups of equal items; one that is equal by content is not listed again by pixels."""
    found: dict[tuple[Place, ...], str] = {}
    for kind in ("content", "pixels"):
        places: dict[str, list[Place]] = defaultdict(list)
        for split, manifest in manifests.items():
            for item in manifest.items:
                digest = item.content if kind == "content" else item.pixels
                if digest:
                    places[digest].append((split, item.id))
        for group in places.values():
            if len(group) > 1:
                found.setdefault(tuple(sorted(group)), kind)
    return [Group(kind, places) for places, kind in sorted(found.items())]


def _near(manifests: Mapping[str, Manifest], distance: int) -> Iterator[tuple[Place, Place]]:
    """Pairs of different splits, at most ``NEAR_LIMIT``. Pictures without structure, whose hash is 0, are left out.

    Hashes within ``distance`` bits agree in one of ``distance`` + 1 stretches of their bits.
    """
    cuts = [64 * i // (distance + 1) for i in range(distance + 2)]
    seen: set[tuple[Place, Place]] = set()
    for low, high in pairwise(cuts):
        buckets: dict[int, dict[str, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
        for split, manifest in manifests.items():
            for item in manifest.items:
                value = int(item.perceptual or "0", 16)
                if value:
                    buckets[value >> low & (1 << high - low) - 1][split].append((item.id, value))
        for bucket in buckets.values():
            for a, b in combinations(bucket, 2):
                for (one, first), (other, second) in product(bucket[a], bucket[b]):
                    pair = ((a, one), (b, other))
                    if (first ^ second).bit_count() <= distance and pair not in seen:
                        seen.add(pair)
                        yield pair
                        if len(seen) == NEAR_LIMIT:
                            return
