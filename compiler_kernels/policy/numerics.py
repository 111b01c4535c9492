"""Section ``numerics``: which arithmetics the numerics passes may choose before the freeze."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from compiler_kernels.policy.section import Section


class Numerics(Section):
    """Choices depend on the model and on this section, never on the target."""

    prefer: Literal["speed", "size"] = Field(
        default="speed",
        description="speed: the fastest form of each convolution; size: no form that makes the engine's file larger.",
    )
    winograd: Literal["allow", "forbid"] = Field(
        default="allow",
        description="Whether a convolution may be computed in a Winograd form (docs/arithmetic.md, 3.6).",
    )
    max_error_ratio: Annotated[float, Field(gt=0, le=1000)] | None = Field(
        default=1.1,
        description="A build fails where the rms error of a tensor against binary64 passes this multiple of "
        "onnxruntime's; null: measured, but no reason to fail.",
    )
