"""kernels.cu: the kernels of an engine as one translation unit, for nvcc and for the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler_kernels.targets.cuda.kernel import CudaKernel

HEADERS: Final = (
    "ca1_math.h",
    "ca1_sum.h",
    "ca1_typed.h",
    "ca1_whole.h",
    "ca1_sum_typed.h",
    "ca1_index.h",
    "ca1_tile.h",
    "ca1_winograd.h",
)
_SOME: Final = (
    ("cuvil_conv.h", ("cuvil_conv<",)),
    ("cuvil_winograd.h", ("cuvil_winograd<",)),
    ("cuvil_stem.h", ("cuvil_stem<",)),
    ("cuvil_depthwise.h", ("cuvil_depthwise<",)),
    ("ca1_integer.h", ("ca1_madd_v",)),
    ("ca1_resize.h", ("ca1_axis",)),
    ("ca1_sample.h", ("ca1_pixel", "ca1_roi_", "ca1_nearest_")),
    ("ca1_part.h", ("ca1_load_bits_v", "ca1_first(")),
    ("ca1_rows.h", ("ca1_row_", "ca1_column_sum")),
)


def unit_text(kernels: Sequence[CudaKernel], head: Sequence[str] = (), copies: bool = False) -> str:
    """The text of the kernels, each once, after ``head`` (comment lines) and the headers they need.

    ``copies``: with the kernel by which an engine's host library copies inputs and outputs.
    """
    unique = {k.name: k for k in kernels}.values()
    needed = [name for name, words in _SOME if any(w in k.text for k in unique for w in words)]
    return "\n".join(
        [
            *head,
            '#include "cuvil_device.h"',
            "#define CA1_VL 1",
            *(f'#include "{name}"' for name in (*HEADERS, *needed, *["cuvil_copy.h"] * copies)),
            "",
            *(k.text for k in unique if k.triton is None),
            "#ifdef CUVIL_EMULATE",
            *(
                f"/* {k.name} is a Triton kernel; this stands for it where there is no GPU. */\n{k.text}"
                for k in unique
                if k.triton is not None
            ),
            'extern "C" const cuvil_emulated_kernel cuvil_emulated_kernels[] = {',
            *(f"    CUVIL_EMULATED({k.name}, {int(k.independent)})" for k in unique),
            *["    CUVIL_EMULATED(cuvil_copy, 1)"] * copies,
            "    {nullptr, nullptr, 0, 0}};",
            "#endif",
            "",
        ]
    )
