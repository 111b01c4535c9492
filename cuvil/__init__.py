"""Cuvil engines behind onnxruntime's names: ``import cuvil as onnxruntime`` runs a script written for it.

``InferenceSession`` compiles an ONNX model on first use and keeps the engine below $CUVIL_HOME. docs/doors.md lists
what is the same, what differs, and what is refused. Importing this package loads neither onnx nor the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cuvil.errors import InvalidArgument, NoSuchFile
from cuvil.options import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
    get_all_providers,
    get_available_providers,
    get_device,
    set_default_logger_severity,
    set_default_logger_verbosity,
)

if TYPE_CHECKING:
    from cuvil.session import InferenceSession
    from cuvil.values import IOBinding, ModelMetadata, NodeArg, OrtValue

    __version__: str

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "ModelMetadata",
    "NoSuchFile",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]

_LAZY = {
    "InferenceSession": "cuvil.session",
    "IOBinding": "cuvil.values",
    "ModelMetadata": "cuvil.values",
    "NodeArg": "cuvil.values",
    "OrtValue": "cuvil.values",
}


def __getattr__(name: str) -> Any:
    """Loads NumPy and the compiler when a name that needs them is first asked for."""
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("cuvil")
        except PackageNotFoundError:  # run from a checkout that was never installed
            return "0"
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: it offers the part of onnxruntime that docs/doors.md lists"
    )
