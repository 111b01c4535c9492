"""What the families chose of tiles and splits, as far as it stands in tables: part of every compile configuration.

``tuning/*.json`` beside this module holds the tables. They decide speed, never bits.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from compiler_kernels.stage import sha3_512_hex

FOLDER: Final = Path(__file__).with_name("tuning")


def tables() -> dict[str, bytes]:
    """The tables by file name."""
    return {p.name: p.read_bytes() for p in sorted(FOLDER.glob("*.json"))}


@lru_cache(maxsize=16)
def table(name: str) -> Any:
    """The JSON of ``tuning/<name>.json``."""
    return json.loads((FOLDER / f"{name}.json").read_bytes())


def tuning_digest() -> str:
    """SHA3-512 over the names and bytes of all tables."""
    return sha3_512_hex(b"".join(f"{n}\0{len(d)}\0".encode() + d for n, d in tables().items()))
