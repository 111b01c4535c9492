"""The exception classes of the reference."""

from __future__ import annotations


class ReferenceError(ValueError):
    """A graph, weight file or input that the reference cannot evaluate; the message names the operator or field."""


class Refusal(ReferenceError):
    """A run-time value is not what the graph was compiled for; the message is the one the engine gives."""
