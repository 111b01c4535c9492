"""One mutation of one seed: a pure function of its number."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx
from fuzz_nesting import NESTING
from fuzz_structure import STRUCTURE
from fuzz_tweaks import TWEAKS


@dataclass(frozen=True)
class Seed:
    """A valid model, the shapes it is imported with, and bounds of symbols that stay variable."""

    name: str
    data: bytes
    pins: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Mutant:
    number: int
    seed: Seed
    how: str
    data: bytes


def mutant(number: int, seeds: Sequence[Seed], campaign: int = 0) -> Mutant:
    """Mutation ``number``: two in five change one detail, two in five the message, the others its bytes."""
    rng = random.Random(f"{campaign}/{number}")
    seed = rng.choice(seeds)
    kind = rng.random()
    if kind < 0.2:
        data, how = damage_bytes(seed.data, rng, rng.choice(seeds).data)
        return Mutant(number, seed, how, data)
    model = onnx.ModelProto.FromString(seed.data)
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(TWEAKS if kind > 0.6 else NESTING if rng.random() < 0.15 else STRUCTURE)
        change(model, rng)
        done.append(change.__name__)
    return Mutant(number, seed, "+".join(done), model.SerializeToString())


def damage_bytes(data: bytes, rng: random.Random, other: bytes) -> tuple[bytes, str]:
    """Flip, overwrite, cut, insert, repeat or splice."""
    damaged = bytearray(data)
    kind = rng.choice(("flip", "flip", "flip", "set", "cut", "remove", "insert", "repeat", "splice"))
    place = rng.randrange(len(damaged))
    span = rng.choice((1, 1, 2, 4, 16, 200))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 4))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    elif kind == "set":
        damaged[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif kind == "cut":
        del damaged[place:]
    elif kind == "remove":
        del damaged[place : place + span]
    elif kind == "insert":
        damaged[place:place] = rng.randbytes(span)
    elif kind == "repeat":
        damaged[place:place] = damaged[place : place + span]
    else:
        damaged[place:] = other[rng.randrange(len(other)) :]
    return bytes(damaged), kind
