"""Which clauses a folder answers, and the gate of the policy's ``clauses.required``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_kernels.errors import RefusedError
from compiler_kernels.policy import Policy
from evidence.clauses.folder import policy_document, read_folder
from evidence.clauses.pointer import answered, select
from evidence.clauses.table import Answer, Clause, Table, clause_table

ANSWERED, OPEN, NOT_APPLICABLE = "answered", "open", "not applicable"


@dataclass(frozen=True)
class Row:
    """One clause and what was found; ``missing`` are the places that do not answer."""

    clause: Clause
    state: str
    missing: tuple[Answer, ...]


@dataclass(frozen=True)
class ClauseReport:
    """All clauses in the order of the table; ids by state."""

    rows: tuple[Row, ...]
    table: Table

    def ids(self, state: str) -> tuple[str, ...]:
        return tuple(row.clause.id for row in self.rows if row.state == state)

    @property
    def answered(self) -> tuple[str, ...]:
        return self.ids(ANSWERED)

    @property
    def open(self) -> tuple[str, ...]:
        return self.ids(OPEN)

    def to_json(self) -> dict[str, Any]:
        """For a release's predicate ``clauses``: digest of the table and the ids."""
        return {
            "table": {"sha3_512": self.table.sha3_512},
            "answered": list(self.answered),
            "open": list(self.open),
            "not_applicable": list(self.ids(NOT_APPLICABLE)),
        }

    def require(self, policy: Policy) -> None:
        """Raise ``RefusedError`` for the first required clause that is open, ``UsageError`` for an unknown id."""
        required = policy.clauses.required if policy.clauses is not None else ()
        rows = {row.clause.id: row for row in self.rows}
        for name in required:
            for behind in self.table.resolve(name):
                row = rows[behind]
                if row.state == OPEN:
                    asked = name if name == behind else f"{name} (that is {behind})"
                    places = ", ".join(str(answer) for answer in row.missing)
                    raise RefusedError(
                        f"clauses.required: {asked} has no answer, {places} is missing or empty; supply it, or take "
                        "the clause out of the policy"
                    )


def check_clauses(place: Path, policy: Policy | None = None, extra: Mapping[str, Any] | None = None) -> ClauseReport:
    """Look for the answers in the folder of the engine ``place`` (the file or its folder).

    ``extra`` holds artefacts that are not files yet, by name: a release being made passes its own statement as
    ``{"release": {"subject": [...], "predicate": {...}}}``. Raises ``UsageError`` for unreadable files.
    """
    found = {**read_folder(place, policy), **(extra or {})}
    if policy is not None:
        found["policy"] = policy_document(policy)
    return judge(found)


def judge(found: Mapping[str, Any], table: Table | None = None) -> ClauseReport:
    """The report over artefacts in memory."""
    table = table or clause_table()
    return ClauseReport(tuple(_row(clause, found) for clause in table.clauses.values()), table)


def _row(clause: Clause, found: Mapping[str, Any]) -> Row:
    if clause.applies is not None and not select(found.get(clause.applies.artefact), clause.applies.pointer):
        return Row(clause, NOT_APPLICABLE, ())
    missing = tuple(a for a in clause.answers if a.artefact not in found or not answered(found[a.artefact], a.pointer))
    return Row(clause, OPEN if missing else ANSWERED, missing)
