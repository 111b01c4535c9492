"""Ways into the compiler other than an ONNX file: each turns what the user has into ONNX bytes, and says how.

``convert`` takes what the command line takes; ``torch_door`` also takes modules and exported programs in memory.
"""

from __future__ import annotations

from compiler_kernels.doors.converted import Converted
from compiler_kernels.doors.entry import convert, is_door, source_path

__all__ = ["Converted", "convert", "is_door", "source_path"]
