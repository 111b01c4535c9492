"""Node tests whose expected values contradict the operator's own text, and what Cuvil computes instead.

They stay in every denominator and count as not passed; only the exit code of ``cuvil conformance`` does not hear them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEVIATIONS: Final[Mapping[str, str]] = {
    "test_resize_downsample_scales_linear_align_corners": (
        "align_corners divides by the length of the resized axis less one, which is 2 - 1; the expected value was "
        "computed with 0.6 x 4 - 1 (onnxruntime gives what Cuvil gives)"
    ),
}
"""Name to reason."""
