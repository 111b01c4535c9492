"""What a validation found, in the words of OperationOutcome (FHIR R5, codes of issue-severity and issue-type)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

ERROR: Final = "error"
WARNING: Final = "warning"
INFORMATION: Final = "information"
FATAL: Final = "fatal"


@dataclass(frozen=True)
class Issue:
    """``code``: structure, required, value, code-invalid, invariant, ...; ``expression``: FHIRPath of the element."""

    severity: str
    code: str
    expression: str
    text: str


def operation_outcome(issues: Iterable[Issue]) -> dict[str, Any]:
    """The resource a client is answered with."""
    found = []
    for item in issues:
        entry: dict[str, Any] = {"severity": item.severity, "code": item.code, "details": {"text": _shown(item.text)}}
        if item.expression:
            entry["expression"] = [_shown(item.expression)]
        found.append(entry)
    return {"resourceType": "OperationOutcome", "issue": found}


def _shown(text: str) -> str:
    """Text that can be sent: names and values of a refused text may hold half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def one_outcome(code: str, text: str, severity: str = ERROR) -> dict[str, Any]:
    """An OperationOutcome of one issue without a place."""
    return operation_outcome([Issue(severity, code, "", text)])
