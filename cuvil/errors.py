"""What a session raises: Cuvil's errors, also reachable under the names that onnxruntime's users catch."""

from __future__ import annotations

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError


class InvalidArgument(UsageError, ValueError):
    """A feed or an argument does not fit the model; onnxruntime raises a ``ValueError`` for some of these."""


class NoSuchFile(UsageError):
    """The model file does not exist."""


class InvalidModel(UsageError):
    """The bytes are no model, or not a valid one."""


__all__ = ["CuvilError", "InvalidArgument", "InvalidModel", "NoSuchFile", "UnsupportedError"]
