"""Measured error of a numerics pass: the constants it wrote, against the same constants in binary64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.stage import Json


def rounded(exact: NDArray[np.float64]) -> tuple[NDArray[np.float32], dict[str, Json]]:
    """Round binary64 ``exact`` once to binary32; error as max and rms, relative to the largest magnitude."""
    values = exact.astype(np.float32)
    scale = float(np.max(np.abs(exact))) if exact.size else 0.0
    diff = np.abs(values.astype(np.float64) - exact)
    if scale == 0.0 or not exact.size:
        return values, {"max_relative_error": 0.0, "rms_relative_error": 0.0}
    return values, {
        "max_relative_error": float(diff.max() / scale),
        "rms_relative_error": float(np.sqrt(np.mean(diff**2)) / scale),
    }
