"""Error of every tensor against binary64, beside onnxruntime's on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.stage import Json

Array = npt.NDArray[Any]
POOL_BELOW = 1000
"""Tensors with fewer elements are pooled per model: a handful of numbers says nothing by itself."""
PARTS: Final = 16
ENOUGH: Final = 8
"""Fewest observations a verdict rests on."""
SURE: Final = 6.0
SURE_OF_FEW: Final = 9.0
"""Standard errors from 16 observations on, and below: one wrong verdict in about 10^5 of Student's distribution."""
NEGLIGIBLE: Final = 2.0**-23
Squares = tuple[float, float]
"""Sums of squared errors, ours and the peer's."""


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
    parts: list[list[Squares]] = field(default_factory=list)
    """Per input, the squared errors of ``PARTS`` stretches of the tensor; only where there is a peer."""

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
            pairs = zip(np.array_split(error**2, PARTS), np.array_split(other**2, PARTS), strict=True)
            self.parts.append([(float(a.sum()), float(b.sum())) for a, b in pairs])


@dataclass
class Group:
    """Errors of one tensor, or of several together, relative to each one's largest magnitude."""

    inputs: list[list[Squares]] = field(default_factory=list)
    count: int = 0

    def add(self, row: TensorError) -> None:
        self.count += row.count
        for number, parts in enumerate(row.parts):
            scaled = [(a / row.scale**2, b / row.scale**2) for a, b in parts]
            if number == len(self.inputs):
                self.inputs.append(scaled)
            else:
                known = self.inputs[number]
                self.inputs[number] = [(a + c, b + d) for (a, b), (c, d) in zip(known, scaled, strict=True)]

    @property
    def ratio(self) -> float | None:
        """Ratio of the rms errors; ``None`` where either system is exact."""
        ours, peer = (sum(part[side] for one in self.inputs for part in one) for side in (0, 1))
        return float(np.sqrt(ours / peer)) if ours > 0.0 and peer > 0.0 else None

    def passes(self, limit: float) -> bool:
        """Whether the rms error is above ``limit`` times the peer's by more than chance, and of any size at all.

        The errors of one inference hang together: one rounding near the input shows in everything behind it. So each
        input is one observation, its excess the squared error minus ``limit``^2 times the peer's, and the mean excess
        must be ``SURE`` standard errors above zero. That self-normalised mean does not pass because of one large
        value. With fewer than ``ENOUGH`` inputs, stretches of a large tensor are the observations; the pooled small
        tensors then say nothing. An rms error of at most ``NEGLIGIBLE`` of the largest magnitude is two roundings of
        the result, whatever the peer's is. Where the peer is exact there is no ratio to pass.
        """
        observations = [(sum(a for a, _ in one), sum(b for _, b in one)) for one in self.inputs]
        if len(observations) < ENOUGH and self.count >= POOL_BELOW * len(observations):
            observations = [part for one in self.inputs for part in one]
        excess = np.array([a - limit**2 * b for a, b in observations])
        ours = sum(a for a, _ in observations)
        if self.ratio is None or len(excess) < ENOUGH or excess.mean() <= 0.0 or ours <= NEGLIGIBLE**2 * self.count:
            return False
        error = excess.std(ddof=1) / np.sqrt(len(excess))
        return bool(excess.mean() > (SURE if len(excess) >= 2 * ENOUGH else SURE_OF_FEW) * error)


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

    def ratios(self) -> dict[str, float]:
        """Ratio of rms errors, ours over onnxruntime's: per tensor, small tensors pooled (each by its own scale)."""
        return {name: group.ratio for name, group in self._groups().items() if group.ratio is not None}

    def beyond(self, limit: float) -> dict[str, Json]:
        """Tensors, small ones pooled, whose error passes ``limit`` times onnxruntime's, with their ratio: see
        :meth:`Group.passes`."""
        return {name: group.ratio for name, group in self._groups().items() if group.passes(limit)}

    def _groups(self) -> dict[str, Group]:
        groups: dict[str, Group] = {}
        pooled = Group()
        for row in self.rows.values():
            if not row.peer_seen or not row.count or row.scale == 0.0:
                continue
            if row.elements < POOL_BELOW:
                pooled.add(row)
            else:
                groups[row.tensor] = Group()
                groups[row.tensor].add(row)
        return {**groups, f"(tensors under {POOL_BELOW} elements, pooled)": pooled}

    def summary(self) -> dict[str, Json]:
        """How many tensors were compared with onnxruntime's, the geometric mean and the largest of their ratios."""
        ratios = self.ratios()
        if not ratios:
            return {"compared_tensors": 0}
        worst = max(ratios, key=lambda name: ratios[name])
        return {
            "compared_tensors": len(ratios),
            "rms_ratio_geometric_mean": float(np.exp(np.mean(np.log(list(ratios.values()))))),
            "rms_ratio_largest": ratios[worst],
            "rms_ratio_largest_tensor": worst,
        }
