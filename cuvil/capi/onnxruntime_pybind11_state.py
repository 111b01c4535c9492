"""The names under which onnxruntime's exceptions are caught, for Cuvil's own (``cuvil.errors``)."""

from __future__ import annotations

from compiler_kernels.errors import CuvilError as Fail
from compiler_kernels.errors import UnsupportedError as NotImplemented
from cuvil.errors import InvalidArgument, NoSuchFile
from cuvil.errors import InvalidModel as InvalidGraph
from cuvil.errors import InvalidModel as InvalidProtobuf

RuntimeException = Fail

__all__ = [
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
]
