"""The tables, in the SQL that SQLite and PostgreSQL share.

``version`` holds every version ever served and is only appended to; ``resource`` says which is current; ``idx`` is
derived from current versions and can be made again.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS resource (
        rid {serial}, type TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL, updated TEXT NOT NULL,
        deleted INTEGER NOT NULL, UNIQUE (type, id))""",
    """CREATE TABLE IF NOT EXISTS version (
        seq {serial}, rid BIGINT NOT NULL, version INTEGER NOT NULL, updated TEXT NOT NULL, method TEXT NOT NULL,
        body {blob} NOT NULL, UNIQUE (rid, version))""",
    """CREATE TABLE IF NOT EXISTS idx (
        rid BIGINT NOT NULL, type TEXT NOT NULL, param TEXT NOT NULL, v1 TEXT NOT NULL, v2 TEXT NOT NULL,
        n1 DOUBLE PRECISION)""",
    "CREATE INDEX IF NOT EXISTS idx_value ON idx (type, param, v1, v2, rid)",
    "CREATE INDEX IF NOT EXISTS idx_second ON idx (type, param, v2, rid)",
    "CREATE INDEX IF NOT EXISTS idx_resource ON idx (rid, param, v1)",
    "CREATE INDEX IF NOT EXISTS resource_updated ON resource (type, updated, rid)",
    "CREATE INDEX IF NOT EXISTS resource_order ON resource (type, deleted, rid)",
)
SCHEMA: Final = 1
