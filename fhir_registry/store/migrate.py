"""Which revision of the schema a database has, and bringing it to the newest one with Alembic.

Alembic and SQLAlchemy are imported only when something is to be done: opening a database at the newest revision is a
query. All revisions of an upgrade are one transaction on both databases.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from evidence.verifier.errors import UsageError
from fhir_registry.store.migrations import versions

if TYPE_CHECKING:
    from sqlalchemy import Engine

TABLE: Final = "registry_revision"
_FIRST_TABLES: Final = frozenset({"resource", "version", "idx"})


def revisions() -> tuple[str, ...]:
    """Ids of all revisions, oldest first."""
    return tuple(sorted(item.name[1:5] for item in pkgutil.iter_modules(versions.__path__)))


def revision_of(tables: Iterable[str], read: Callable[[], str]) -> str:
    """The revision of a database with these tables; empty for a database without any of the registry's.

    ``read`` takes it from the table ``registry_revision``. A registry from before there were revisions has the first.
    ``UsageError`` for tables of something else.
    """
    found = set(tables)
    if TABLE in found:
        return read()
    if not found & _FIRST_TABLES:
        return ""
    if found >= _FIRST_TABLES:
        return revisions()[0]
    raise UsageError(
        f"the database has a table {min(found & _FIRST_TABLES)!r} that is not of a registry; give an empty database"
    )


def check_known(revision: str) -> None:
    """``UsageError`` for a revision of a newer Cuvil."""
    known = revisions()
    if revision and revision not in known:
        raise UsageError(
            f"the registry's database has the schema {revision!r} of a newer Cuvil, and this one knows up to "
            f"{known[-1]!r}; use the newer one"
        )


def engine_of(dialect: str, connect: Callable[[], Any], begin: str) -> Engine:
    """An engine over ``connect``; each transaction begins with the statement ``begin``, which keeps others out."""
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    engine = create_engine(dialect, creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


def upgrade(engine: Engine, before: Callable[[str], None] = lambda revision: None) -> tuple[str, str]:
    """Bring the database to the newest revision; the revision it had (empty: none) and the one it has now.

    ``before`` is called with the old revision of a database that is not empty before anything is changed.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return _upgraded(engine, before)
    except SQLAlchemyError as error:
        raise UsageError(
            f"the schema cannot be brought to revision {revisions()[-1]} and nothing was changed: "
            f"{getattr(error, 'orig', None) or error}"
        ) from None
    finally:
        engine.dispose()


def _upgraded(engine: Engine, before: Callable[[str], None]) -> tuple[str, str]:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import inspect

    config = Config()
    config.set_main_option("script_location", "fhir_registry.store:migrations")
    newest = revisions()[-1]
    with engine.begin() as connection:
        tables = inspect(connection).get_table_names()

        def read() -> str:
            row = connection.exec_driver_sql(f"SELECT version_num FROM {TABLE}").first()
            return str(row[0]) if row else ""

        found = revision_of(tables, read)
        check_known(found)
        if found and found != newest:
            before(found)
        config.attributes["connection"] = connection
        if found and TABLE not in tables:
            command.stamp(config, found)
        if found != newest:
            command.upgrade(config, "head")
    return found, newest
