"""One request as a FHIR R5 AuditEvent, after the IHE Basic Audit patterns for RESTful operations."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any, Final

from fhir_registry.server.http import Request, Response

_CATEGORY: Final = {"system": "http://terminology.hl7.org/CodeSystem/audit-event-type", "code": "rest"}
_INTERACTIONS: Final = "http://hl7.org/fhir/restful-interaction"
_ROLE: Final = {"system": "http://terminology.hl7.org/CodeSystem/object-role", "code": "24", "display": "Query"}
_OUTCOME: Final = "http://terminology.hl7.org/CodeSystem/audit-event-outcome"
# Faster than write_json, with the same bytes for what holds texts and booleans alone: one event for every request.
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ACTIONS: Final = {"POST": "C", "PUT": "U", "PATCH": "U", "DELETE": "D"}
_CODES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def audit_event(request: Request, response: Response, observer: str, now: datetime | None = None) -> bytes:
    """The event's bytes. ``observer``: the name of this registry. Parameters of a search are kept as they were sent."""
    moment = now or datetime.now(UTC)
    parts = request.parts
    search = (request.method in ("GET", "HEAD") and len(parts) <= 1) or parts[1:] == ["_search"]
    code = "search-type" if search and parts and parts[0][:1].isupper() else _CODES.get(request.method, "read")
    fine = response.status < 400
    entity: list[dict[str, Any]] = []
    if len(parts) >= 2 and parts[0][:1].isupper() and parts[1][:1] not in ("_", "$"):
        entity.append({"what": {"reference": f"{parts[0]}/{parts[1]}"[:200]}})
    elif location := response.headers.get("Location", ""):
        entity.append({"what": {"reference": location.removeprefix(f"{request.base}/").partition("/_history")[0]}})
    if request.query:
        sent = base64.b64encode(f"{request.path}?{request.query}"[:8000].encode("utf-8", "replace")).decode()
        entity.append({"role": {"coding": [_ROLE]}, "query": sent})
    agent: dict[str, Any] = {"who": {"display": request.who or "anonymous"}, "requestor": True}
    if request.client:
        agent["networkString"] = request.client
    event: dict[str, Any] = {
        "resourceType": "AuditEvent",
        "category": [{"coding": [_CATEGORY]}],
        "code": {"coding": [{"system": _INTERACTIONS, "code": code}]},
        "action": "E" if search else _ACTIONS.get(request.method, "R"),
        "recorded": moment.isoformat(timespec="milliseconds")[:23] + "Z",
        "outcome": {
            "code": {"system": _OUTCOME, "code": "0" if fine else ("4" if response.status < 500 else "8")},
            "detail": [{"text": f"HTTP {response.status}"}],
        },
        "agent": [agent],
        "source": {"observer": {"display": observer}},
    }
    if entity:
        event["entity"] = entity
    return _JSON(event).encode()
