"""One thing that surveillance found, and how much it matters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from evidence.verifier.canonical import Json

Level = Literal["failure", "due", "warning"]
LEVELS: Final = ("failure", "due", "warning")
"""failure: something that was stated does not hold any more; due: a condition of the certification changed, so that it
has to be made again; warning: somebody should act before it becomes one of the two."""


@dataclass(frozen=True, order=True)
class Finding:
    """``check`` is a stable name, ``subject`` a partition, key or certificate, ``sentence`` what is wrong and what to
    do."""

    level: Level
    check: str
    subject: str
    sentence: str

    def to_json(self) -> dict[str, Json]:
        return {"level": self.level, "check": self.check, "subject": self.subject, "sentence": self.sentence}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first, then by check and subject."""
    return tuple(sorted(set(findings), key=lambda f: (LEVELS.index(f.level), f.check, f.subject, f.sentence)))
