"""Resources by "Type/id", as references write them: what _include and chained parameters look up."""

from __future__ import annotations

from fhir_registry.store.migrations import apply

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # SQLite compares a column with an index of an expression only where both are of the type TEXT.
    apply("CREATE INDEX resource_address ON resource (CAST(type || '/' || id AS TEXT))")
