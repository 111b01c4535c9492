"""The one exception class of the reference."""

from __future__ import annotations


class ReferenceError(ValueError):
    """A graph, weight file or input that the reference cannot evaluate; the message names the operator or field."""
