"""Resources by "Type/id", as references write them: what _include and chained parameters look up."""

from __future__ import annotations

from fhir_registry.store.migrations import apply

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    apply("CREATE INDEX resource_address ON resource ((type || '/' || id))")
