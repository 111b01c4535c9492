"""Resources, their versions, and the search index.

``version`` holds every version ever served and is only appended to; ``resource`` says which is current; ``idx`` is
derived from current versions and can be made again.
"""

from __future__ import annotations

from fhir_registry.store.migrations import apply, dialect

revision = "0001"
down_revision = None


def upgrade() -> None:
    apply(
        """CREATE TABLE resource (
            rid {serial}, type {text} NOT NULL, id {text} NOT NULL, version INTEGER NOT NULL, updated {text} NOT NULL,
            deleted INTEGER NOT NULL, UNIQUE (type, id))""",
        """CREATE TABLE version (
            seq {serial}, rid BIGINT NOT NULL, version INTEGER NOT NULL, updated {text} NOT NULL,
            method {text} NOT NULL, body {blob} NOT NULL, UNIQUE (rid, version))""",
        """CREATE TABLE idx (
            rid BIGINT NOT NULL, type {text} NOT NULL, param {text} NOT NULL, v1 {text} NOT NULL, v2 {text} NOT NULL,
            n1 DOUBLE PRECISION)""",
        "CREATE INDEX resource_updated ON resource (type, updated, rid)",
        "CREATE INDEX resource_order ON resource (type, deleted, rid)",
    )
    if dialect() == "sqlite":
        apply(
            "CREATE INDEX idx_value ON idx (type, param, v1, v2, rid)",
            "CREATE INDEX idx_second ON idx (type, param, v2, rid)",
            "CREATE INDEX idx_resource ON idx (rid, param, v1)",
        )
    else:
        # PostgreSQL refuses an index row of more than 2,704 bytes, and a description may be longer: the first 200
        # characters of each value are indexed (fhir_registry.search.sql, ``Dialect``).
        apply(
            "CREATE INDEX idx_value ON idx (type, param, left(v1, 200), left(v2, 200), rid)",
            "CREATE INDEX idx_second ON idx (type, param, left(v2, 200), rid)",
            "CREATE INDEX idx_resource ON idx (rid, param)",
        )
