"""Tiles measured on a chip: ``tuning/conv_<chip>.json``, by family and shape (benchmarks/gpu_tiles.py)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from compiler_kernels.targets.cuda import tuning
from compiler_kernels.targets.cuda.gpu import Gpu


def table_file(gpu: Gpu) -> Path:
    return tuning.FOLDER / f"conv_{gpu.name}.json"


@lru_cache
def _rows(gpu: Gpu) -> dict[str, tuple[int, ...]]:
    """The table; empty where nothing was measured on the chip."""
    data = tuning.table(table_file(gpu).stem) if table_file(gpu).is_file() else {}
    return {key: tuple(row) for key, row in data.items()}


def key_of(family: str, shape: Sequence[int]) -> str:
    """Key of a row: the family's name and the shape's numbers."""
    return " ".join([family, *map(str, shape)])


def tabled(family: str, gpu: Gpu, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The fields of the tile for ``shape``, or ``None``."""
    return _rows(gpu).get(key_of(family, shape))
