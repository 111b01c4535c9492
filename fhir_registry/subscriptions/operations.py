"""``$status`` and ``$events`` of a Subscription (R5, subscription-operations.html)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fhir_registry.json_text import read_json, write_json
from fhir_registry.server.http import HttpError, Request, Response
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.notification import notification, status
from fhir_registry.subscriptions.queue import Queue, State, Subscribed

MOST: Final = 1000


def status_operation(store: SqlStore, request: Request, identifier: str) -> Response:
    """A searchset with one SubscriptionStatus of type query-status."""
    item, state = _subscribed(store, identifier)
    found = status(item.resource, "query-status", state.events, request.base, (), state.error)
    entry = {"fullUrl": f"urn:uuid:{found['id']}", "resource": found, "search": {"mode": "match"}}
    link = {"relation": "self", "url": f"{request.base}/{request.path}"}
    bundle = {"resourceType": "Bundle", "type": "searchset", "total": 1, "link": [link], "entry": [entry]}
    return Response(200, write_json(bundle))


def events_operation(store: SqlStore, request: Request, identifier: str) -> Response:
    """What a subscriber missed: a notification of type query-event with the events asked for, ``MOST`` at most."""
    item, state = _subscribed(store, identifier)
    asked = dict(request.pairs)
    for name in asked:
        if name not in ("eventsSinceNumber", "eventsUntilNumber", "content", "_format", "_pretty"):
            text = f"$events has no parameter {name[:40]!r}; it takes eventsSinceNumber, eventsUntilNumber and content"
            raise HttpError(400, "not-supported", text)
    first = _number(asked, "eventsSinceNumber", 1)
    last = _number(asked, "eventsUntilNumber", state.events)
    content = asked.get("content", item.resource.get("content", "id-only"))
    if content not in ("empty", "id-only", "full-resource"):
        raise HttpError(400, "value", f"content is empty, id-only or full-resource, not {content[:40]!r}")
    listed = Queue(store).events(identifier, first, last, MOST)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    resource = {**item.resource, "content": content}
    bundle = notification(resource, "query-event", state.events, request.base, now, listed, state.error)
    return Response(200, write_json(bundle))


def _subscribed(store: SqlStore, identifier: str) -> tuple[Subscribed, State]:
    stored = store.read("Subscription", identifier)
    if stored is None or stored.deleted:
        status_code = 404 if stored is None else 410
        raise HttpError(status_code, "not-found", f"there is no Subscription/{identifier[:64]}")
    resource = read_json(stored.body)
    assert isinstance(resource, dict)
    state = Queue(store).state(identifier) or State(0, 0, 0, 0, 0.0, 0.0, 0.0, "")
    return Subscribed(identifier, stored.version, 0, resource), state


def _number(asked: dict[str, str], name: str, default: int) -> int:
    text = asked.get(name, "")
    if name not in asked:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HttpError(400, "invalid", f"{name} is a whole number, not {text[:40]!r}")
    return int(text)
