"""What the generator of GPU code knows of a chip: limits, and which instructions exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU architecture.

    ``multiprocessors`` is that of the chip tiles are chosen for; ``shared_bytes`` is what one thread block may ask for;
    ``clusters``: thread-block clusters, bulk copies with barriers and programmatic dependent launch exist. Tile choice
    may depend on every field, results on none (CUDA C++ Programming Guide, appendix "Compute Capabilities").
    """

    name: str
    multiprocessors: int
    shared_bytes: int
    clusters: bool

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability (major, minor), from the name."""
        digits = self.name.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])


SM_90: Final = Gpu("sm_90", 132, 227 * 1024, True)
SM_80: Final = Gpu("sm_80", 108, 163 * 1024, False)
BY_NAME: Final = {gpu.name: gpu for gpu in (SM_90, SM_80)}
