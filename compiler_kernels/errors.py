"""The errors a user can meet, each with the exit code of the command line (documented in docs/cli.md).

Every message is one sentence naming the file or field and the remedy; callers print ``str(error)`` and exit.
"""

from __future__ import annotations

from typing import ClassVar


class CuvilError(Exception):
    """Base of all expected failures; anything else that escapes is a defect of Cuvil."""

    exit_code: ClassVar[int] = 1

    def details(self) -> dict[str, str]:
        """Machine-readable form for ``--json``: ``{"error": class name, "message": sentence}``."""
        return {"error": type(self).__name__, "message": str(self)}


class VerificationFailed(CuvilError):
    """A verification or comparison failed; ``check`` is its stable name (for example ``engine-digest``)."""

    exit_code = 1

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check

    def details(self) -> dict[str, str]:
        return {**super().details(), "check": self.check}


class UsageError(CuvilError):
    """Wrong arguments, unreadable or corrupt file, policy syntax, wrong shape or dtype, unwritable output."""

    exit_code = 2


class RefusedError(CuvilError):
    """Refused by a guard, budget, gate or missing approval."""

    exit_code = 3


class UnsupportedError(CuvilError):
    """Operator, target or shape that cannot be compiled; the message names node and opset."""

    exit_code = 4


class IRError(CuvilError):
    """A graph violates its level's rules. Raised by verifiers; reaching a user means a defect or a hand-edited IR."""

    exit_code = 2
