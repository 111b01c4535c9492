"""The schema's revisions: one line, applied to new and old files without loss, refused where the file is newer."""

from __future__ import annotations

import importlib
import pkgutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cuvil_assets.cli import main
from evidence.verifier.errors import UsageError
from fhir_registry.search.query import read_query
from fhir_registry.store.base import Write
from fhir_registry.store.migrate import revisions
from fhir_registry.store.migrations import versions
from fhir_registry.store.sqlite import SqliteStore
from fhir_registry.store.sqlite_schema import bring_up, revision

# As released before there were revisions.
OLD = (
    """CREATE TABLE IF NOT EXISTS resource (
        rid INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
        updated TEXT NOT NULL, deleted INTEGER NOT NULL, UNIQUE (type, id))""",
    """CREATE TABLE IF NOT EXISTS version (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, rid BIGINT NOT NULL, version INTEGER NOT NULL, updated TEXT NOT NULL,
        method TEXT NOT NULL, body BLOB NOT NULL, UNIQUE (rid, version))""",
    """CREATE TABLE IF NOT EXISTS idx (
        rid BIGINT NOT NULL, type TEXT NOT NULL, param TEXT NOT NULL, v1 TEXT NOT NULL, v2 TEXT NOT NULL,
        n1 DOUBLE PRECISION)""",
    "CREATE INDEX IF NOT EXISTS idx_value ON idx (type, param, v1, v2, rid)",
    "CREATE INDEX IF NOT EXISTS idx_second ON idx (type, param, v2, rid)",
    "CREATE INDEX IF NOT EXISTS idx_resource ON idx (rid, param, v1)",
    "CREATE INDEX IF NOT EXISTS resource_updated ON resource (type, updated, rid)",
    "CREATE INDEX IF NOT EXISTS resource_order ON resource (type, deleted, rid)",
    "PRAGMA user_version = 1",
    """INSERT INTO resource (type, id, version, updated, deleted)
        VALUES ('Organization', 'o', 2, '2026-11-30T10:00:00.000Z', 0)""",
    """INSERT INTO version (rid, version, updated, method, body) VALUES
        (1, 1, '2026-11-29T10:00:00.000Z', 'POST', CAST('{"first":1}' AS BLOB)),
        (1, 2, '2026-11-30T10:00:00.000Z', 'PUT', CAST('{"second":2}' AS BLOB))""",
    "INSERT INTO idx VALUES (1, 'Organization', 'name', 'example hospital', 'Example Hospital', NULL)",
)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "registry.sqlite"
    with closing(sqlite3.connect(path)) as database:
        for text in OLD:
            database.execute(text)
        database.commit()
    return path


def schema(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {" ".join(row[0].split()) for row in rows}


def test_revisions_are_one_numbered_line() -> None:
    before = None
    modules = sorted(item.name for item in pkgutil.iter_modules(versions.__path__))
    for number, name in enumerate(modules, 1):
        module = importlib.import_module(f"{versions.__name__}.{name}")
        assert (module.revision, module.down_revision) == (f"{number:04d}", before), name
        assert name.startswith(f"r{number:04d}_"), name
        before = module.revision
    assert revisions()[-1] == before


def test_a_file_from_before_there_were_revisions_is_taken_over_without_loss(old: Path, tmp_path: Path) -> None:
    assert revision(old) == "0001"
    store = SqliteStore(old)
    current = store.read("Organization", "o")
    assert current is not None and (current.version, current.body) == (2, b'{"second":2}')
    assert [s.body for _, s in store.history("Organization", "o", 9, None)[0]] == [b'{"second":2}', b'{"first":1}']
    page = store.search(read_query("Organization", [("name", "example")]))
    assert [m.id for m in page.matches] == ["o"]
    store.commit([Write("PUT", "Organization", "o", {"resourceType": "Organization", "name": "X"})])
    store.close()
    assert revision(old) == revisions()[-1]
    bring_up(tmp_path / "new.sqlite")
    assert schema(old) == schema(tmp_path / "new.sqlite")
    kept = tmp_path / "registry.sqlite.before-0002"
    with closing(sqlite3.connect(kept)) as database:
        assert database.execute("SELECT count(*) FROM version").fetchone() == (2,)
        assert database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'registry_revision'").fetchone() == (
            0,
        )


def test_an_upgrade_that_fails_changes_nothing(old: Path) -> None:
    with closing(sqlite3.connect(old)) as database:
        database.execute("CREATE INDEX resource_address ON resource (id)")
        database.commit()
    before = schema(old)
    with pytest.raises(UsageError, match=r"nothing was changed: .*resource_address"):
        SqliteStore(old)
    assert schema(old) == before and revision(old) == "0001"


def test_a_newer_schema_and_other_tables_are_refused(tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite"
    bring_up(newer)
    with closing(sqlite3.connect(newer)) as database:
        database.execute("UPDATE registry_revision SET version_num = '9999'")
        database.commit()
    with pytest.raises(UsageError, match="'9999' of a newer Cuvil"):
        SqliteStore(newer)
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE resource (anything TEXT)")
    with pytest.raises(UsageError, match="'resource' that is not of a registry"):
        SqliteStore(other)


def test_without_the_driver_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(["registry", "list", "--database", "postgresql://registry@db.example/registry"]) == 2
    assert capsys.readouterr().err == "cuvil: PostgreSQL needs a driver: pip install 'cuvil[postgresql]'\n"


def test_migrate_says_what_it_did(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["registry", "migrate", "--data", str(old.parent)]
    assert main(command) == 0
    assert capsys.readouterr().out == f"schema {revisions()[-1]}, before 0001\n"
    assert main(command) == 0
    assert capsys.readouterr().out == f"schema {revisions()[-1]}, nothing to do\n"
    old.write_bytes(b"no database at all, but text of some length" * 100)
    for side in ("-wal", "-shm"):
        old.with_name(old.name + side).unlink(missing_ok=True)
    assert main(command) == 2
    assert "not a database" in capsys.readouterr().err
