"""The compiler: importer, IR, passes, canonical arithmetic, generators, runtime, toolchain. Imports no other room.

``from compiler_kernels import compile_model, load_engine`` compiles an ONNX model and runs the engine on NumPy arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler_kernels.compile import compile_model
    from compiler_kernels.engine import Engine, load_engine

__all__ = ["Engine", "compile_model", "load_engine"]


def __getattr__(name: str) -> Any:
    """Loads the compiler or the engine loader when first asked for: importing this package stays cheap."""
    if name == "compile_model":
        from compiler_kernels.compile import compile_model

        return compile_model
    if name in ("Engine", "load_engine"):
        from compiler_kernels import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
