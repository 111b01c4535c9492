"""The type of the shared fixture (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cuvil_assets import demo_data


@dataclass(frozen=True)
class Case:
    halves: demo_data.Halves
    label: NDArray[np.bool_]
    probability: NDArray[np.float32]
