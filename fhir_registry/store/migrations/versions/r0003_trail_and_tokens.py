"""The audit trail and the tokens that were used, where several servers share a PostgreSQL database.

Beside a SQLite file both have files of their own, so that a read's audit event does not wait for somebody's write.
"""

from __future__ import annotations

from fhir_registry.store.migrations import apply, dialect

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if dialect() == "postgresql":
        apply(
            "CREATE TABLE event (seq BIGINT PRIMARY KEY, digest {blob} NOT NULL, body {blob} NOT NULL)",
            "CREATE TABLE used (digest {blob} PRIMARY KEY, ends BIGINT NOT NULL)",
            "CREATE INDEX used_ends ON used (ends)",
        )
