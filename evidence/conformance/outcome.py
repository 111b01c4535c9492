"""What became of one test."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class Kind(Enum):
    """Outcomes, the good one first; ``REFUSED`` is the only other one that is no defect."""

    PASSED = "passed"
    REFUSED = "refused"
    WRONG = "wrong value"
    DIFFERS = "differs from reference"
    NOT_COMPILED = "compile failure"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def defect(self) -> bool:
        return self not in (Kind.PASSED, Kind.REFUSED)


@dataclass(frozen=True)
class Outcome:
    """One test in one mode. ``detail``: the refusal's sentence, or the first difference, or what the compiler said."""

    name: str
    op: str
    mode: str
    kind: Kind
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return {**asdict(self), "kind": self.kind.value}
