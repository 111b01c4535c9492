"""Bundles of type subscription-notification around a SubscriptionStatus (R5, subscriptions.html)."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fhir_registry.json_text import read_json
from fhir_registry.store.base import Stored


@dataclass(frozen=True)
class Event:
    """Event ``number`` of a subscription: the version of a model that made it."""

    number: int
    stored: Stored


def status(
    resource: dict[str, Any], kind: str, events: int, base: str, listed: Sequence[Event] = (), error: str = ""
) -> dict[str, Any]:
    """A SubscriptionStatus. ``kind``: handshake, heartbeat, event-notification, query-status or query-event."""
    found: dict[str, Any] = {
        "resourceType": "SubscriptionStatus",
        "id": str(uuid.uuid4()),
        "status": resource["status"],
        "type": kind,
        "eventsSinceSubscriptionStart": str(events),
    }
    if listed:
        content = resource.get("content", "id-only")
        found["notificationEvent"] = [
            {
                "eventNumber": str(event.number),
                "timestamp": event.stored.updated,
                **({} if content == "empty" else {"focus": {"reference": _address(base, event.stored)}}),
            }
            for event in listed
        ]
    found["subscription"] = {"reference": f"{base}/Subscription/{resource['id']}"}
    found["topic"] = resource["topic"]
    if error:
        found["error"] = [{"text": error}]
    return found


def notification(
    resource: dict[str, Any], kind: str, events: int, base: str, now: str, listed: Sequence[Event] = (), error: str = ""
) -> dict[str, Any]:
    """The Bundle for one request; how much of each event it holds is ``Subscription.content`` (id-only if absent)."""
    head = status(resource, kind, events, base, listed, error)
    entries: list[dict[str, Any]] = [
        {
            "fullUrl": f"urn:uuid:{head['id']}",
            "resource": head,
            "request": {"method": "GET", "url": f"Subscription/{resource['id']}/$status"},
            "response": {"status": "200"},
        }
    ]
    content = resource.get("content", "id-only")
    latest = {event.stored.id: event.stored for event in listed}
    for stored in latest.values() if content != "empty" else ():
        entry: dict[str, Any] = {"fullUrl": _address(base, stored)}
        if content == "full-resource":
            entry["resource"] = read_json(stored.body)
        method, code = ("POST", "201") if stored.version == 1 else ("PUT", "200")
        url = stored.type if method == "POST" else f"{stored.type}/{stored.id}"
        entry |= {"request": {"method": method, "url": url}, "response": {"status": code}}
        entries.append(entry)
    return {"resourceType": "Bundle", "type": "subscription-notification", "timestamp": now, "entry": entries}


def _address(base: str, stored: Stored) -> str:
    return f"{base}/{stored.type}/{stored.id}"
