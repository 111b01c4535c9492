"""What is to be told to subscribers: how far each was served, the events of each, and header values kept from readers.

``notify`` has a row for each Subscription: ``position`` in ``version.seq`` up to which events were looked for,
``events`` found and ``delivered``, ``failures`` in a row, and the moments (seconds) at which it is ``due`` again, was
``sent`` something, and is free of whoever ``claimed`` it.
"""

from __future__ import annotations

from fhir_registry.store.migrations import apply

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    apply(
        """CREATE TABLE notify (
            id {text} PRIMARY KEY, position BIGINT NOT NULL, events BIGINT NOT NULL, delivered BIGINT NOT NULL,
            failures INTEGER NOT NULL, due DOUBLE PRECISION NOT NULL,
            sent DOUBLE PRECISION NOT NULL, claimed DOUBLE PRECISION NOT NULL, error {text} NOT NULL)""",
        """CREATE TABLE notify_event (
            id {text} NOT NULL, number BIGINT NOT NULL, seq BIGINT NOT NULL, PRIMARY KEY (id, number))""",
        "CREATE TABLE notify_secret (ref {text} PRIMARY KEY, origin {text} NOT NULL, value {text} NOT NULL)",
    )
