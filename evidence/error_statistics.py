"""Error of every tensor against binary64, beside onnxruntime's on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.stage import Json

Array = npt.NDArray[Any]
POOL_BELOW = 1000
"""Tensors with fewer elements are pooled per model: a handful of numbers says nothing by itself."""


@dataclass
class TensorError:
    """Running sums over all inputs for one tensor: squared errors and maxima, ours and the peer's, absolute."""

    tensor: str
    op: str
    elements: int = 0
    count: int = 0
    scale: float = 0.0
    ours_squares: float = 0.0
    ours_max: float = 0.0
    peer_squares: float = 0.0
    peer_max: float = 0.0
    peer_seen: bool = False

    def add(self, truth: Array, ours: Array, peer: Array | None) -> None:
        """``truth`` binary64, ``ours`` and ``peer`` binary32, equal shapes. Non-finite truth is left out."""
        good = np.isfinite(truth)
        if not good.any():
            return
        self.elements = truth.size
        self.count += int(good.sum())
        self.scale = max(self.scale, float(np.max(np.abs(truth[good]))))
        error = np.abs(ours.astype(np.float64)[good] - truth[good])
        self.ours_squares += float(np.sum(error**2))
        self.ours_max = max(self.ours_max, float(error.max()))
        if peer is not None:
            other = np.abs(peer.astype(np.float64)[good] - truth[good])
            self.peer_squares += float(np.sum(other**2))
            self.peer_max = max(self.peer_max, float(other.max()))
            self.peer_seen = True


@dataclass
class ErrorTable:
    """All tensors of one model."""

    rows: dict[str, TensorError] = field(default_factory=dict)

    def add(self, tensor: str, op: str, truth: Array, ours: Array, peer: Array | None) -> None:
        row = self.rows.setdefault(tensor, TensorError(tensor, op))
        row.add(truth.reshape(-1), ours.reshape(-1), None if peer is None else peer.reshape(-1))

    def to_json(self) -> list[Json]:
        found: list[Json] = []
        for row in self.rows.values():
            if not row.count:
                continue
            entry: dict[str, Json] = {
                "tensor": row.tensor,
                "op": row.op,
                "elements": row.elements,
                "largest_magnitude": row.scale,
                "rms_error": float(np.sqrt(row.ours_squares / row.count)),
                "max_error": row.ours_max,
            }
            if row.peer_seen:
                entry["onnxruntime_rms_error"] = float(np.sqrt(row.peer_squares / row.count))
                entry["onnxruntime_max_error"] = row.peer_max
            found.append(entry)
        return found

    def ratios(self) -> dict[str, tuple[float, int]]:
        """Ratio of rms errors, ours over onnxruntime's, and how many values it rests on: per tensor, small tensors
        pooled (each by its own scale)."""
        ratios: dict[str, tuple[float, int]] = {}
        pooled_ours = pooled_peer = 0.0
        pooled = 0
        for row in self.rows.values():
            if not row.peer_seen or not row.count or row.scale == 0.0:
                continue
            if row.elements < POOL_BELOW:
                pooled_ours += row.ours_squares / row.scale**2
                pooled_peer += row.peer_squares / row.scale**2
                pooled += row.count
            elif row.peer_squares > 0.0 and row.ours_squares > 0.0:
                ratios[row.tensor] = (float(np.sqrt(row.ours_squares / row.peer_squares)), row.count)
        if pooled_peer > 0.0 and pooled_ours > 0.0:
            ratios[f"(tensors under {POOL_BELOW} elements, pooled)"] = (
                float(np.sqrt(pooled_ours / pooled_peer)),
                pooled,
            )
        return ratios

    def beyond(self, limit: float) -> dict[str, Json]:
        """Tensors whose ratio passes ``limit`` by more than chance explains: a ratio of two rms values of n values
        each scatters by about 1 / sqrt(n), of which four are allowed."""
        return {
            name: ratio for name, (ratio, count) in self.ratios().items() if ratio > limit * (1 + 4 / np.sqrt(count))
        }

    def summary(self) -> dict[str, Json]:
        """How many tensors were compared with onnxruntime's, the geometric mean and the largest of their ratios."""
        ratios = {name: ratio for name, (ratio, _) in self.ratios().items()}
        if not ratios:
            return {"compared_tensors": 0}
        worst = max(ratios, key=lambda name: ratios[name])
        return {
            "compared_tensors": len(ratios),
            "rms_ratio_geometric_mean": float(np.exp(np.mean(np.log(list(ratios.values()))))),
            "rms_ratio_largest": ratios[worst],
            "rms_ratio_largest_tensor": worst,
        }
