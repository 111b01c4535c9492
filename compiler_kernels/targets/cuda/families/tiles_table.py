"""Tiles measured on a chip: ``tiles_<chip>.json`` beside this module, by family and shape (benchmarks/gpu_tiles.py).

A row chooses speed only, never a bit. The table is part of what an engine is compiled from: :func:`table_bytes`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from compiler_kernels.targets.cuda.gpu import Gpu


def table_file(gpu: Gpu) -> Path:
    return Path(__file__).with_name(f"tiles_{gpu.name}.json")


def table_bytes(gpu: Gpu) -> bytes:
    """The file, empty where nothing was measured on the chip."""
    path = table_file(gpu)
    return path.read_bytes() if path.is_file() else b""


@lru_cache
def _rows(gpu: Gpu) -> dict[str, tuple[int, ...]]:
    data = table_bytes(gpu)
    return {key: tuple(row) for key, row in json.loads(data).items()} if data else {}


def key_of(family: str, shape: Sequence[int]) -> str:
    """Key of a row: the family's name and the shape's numbers."""
    return " ".join([family, *map(str, shape)])


def tabled(family: str, gpu: Gpu, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The fields of the tile for ``shape``, or ``None``."""
    return _rows(gpu).get(key_of(family, shape))
