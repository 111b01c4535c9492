"""Which store: a SQLite file in a folder, or the PostgreSQL database at an address."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evidence.verifier.errors import UsageError
from fhir_registry.store.sql_store import SqlStore

if TYPE_CHECKING:
    from fhir_registry.store.postgresql import PostgresqlDatabase

DATABASE: Final = "registry.sqlite"
_SCHEMES: Final = ("postgresql://", "postgres://")


def open_store(folder: Path, address: str = "") -> SqlStore:
    """The store at ``address``, or in ``folder`` where that is empty; its schema is made where there is none.

    ``UsageError`` where it cannot be opened, in words that hold no password.
    """
    if address:
        check_address(address)
        from fhir_registry.store.postgresql import PostgresqlStore

        return PostgresqlStore(address)
    from fhir_registry.store.sqlite import SqliteStore

    try:
        return SqliteStore(folder / DATABASE)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"{folder}: the registry cannot be opened ({error}); choose another --data") from None


def migrate(folder: Path, address: str = "") -> tuple[str, str]:
    """Bring the schema to the newest revision; the revision before (empty: none) and after."""
    if address:
        check_address(address)
        from fhir_registry.store import postgresql

        database: PostgresqlDatabase = postgresql.open_address(address)
        try:
            return postgresql.bring_up(database)
        finally:
            database.close()
    from fhir_registry.store.sqlite_schema import bring_up

    try:
        return bring_up(folder / DATABASE)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"{folder}: the registry cannot be opened ({error}); choose another --data") from None


def check_address(address: str) -> None:
    """``UsageError`` for another kind of database, or where the driver is not installed; the address is not shown."""
    if not address.startswith(_SCHEMES):
        raise UsageError(
            "the registry's database is a PostgreSQL one, postgresql://USER:PASSWORD@HOST:PORT/DATABASE; "
            "for a SQLite file leave --database and CUVIL_REGISTRY_DATABASE out and give --data FOLDER"
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise UsageError("PostgreSQL needs a driver: pip install 'cuvil[postgresql]'") from None
