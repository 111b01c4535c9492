"""What Alembic runs: the revisions, in the transaction that ``fhir_registry.store.migrate`` has begun."""

from __future__ import annotations

from alembic import context

from fhir_registry.store.migrate import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
with context.begin_transaction():
    context.run_migrations()
