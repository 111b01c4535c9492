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
    code, action = _interaction(request, response)
    fine = response.status < 400
    entity: list[dict[str, Any]] = []
    if len(parts) >= 2 and parts[0][:1].isupper() and parts[1][:1] not in ("_", "$"):
        entity.append({"what": {"reference": f"{parts[0]}/{parts[1]}"[:200]}})
    elif location := response.headers.get("Location", ""):
        entity.append({"what": {"reference": location.removeprefix(f"{request.base}/").partition("/_history")[0]}})
    asked = request.query
    if parts[1:] == ["_search"]:  # its parameters are in the body, too
        asked = "&".join(filter(None, (asked, request.body.decode("utf-8", "replace"))))
    if asked:
        entity.append(_query(f"{request.path}?{asked}"))
    for text in response.about:
        plain = "/" in text and "?" not in text
        entity.append({"what": {"reference": text[:200]}} if plain else _query(text))
    agent: dict[str, Any] = {"who": {"display": request.who or "anonymous"}, "requestor": True}
    if request.client:
        agent["networkString"] = request.client
    event: dict[str, Any] = {
        "resourceType": "AuditEvent",
        "category": [{"coding": [_CATEGORY]}],
        "code": {"coding": [{"system": _INTERACTIONS, "code": code}]},
        "action": action,
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


def _query(text: str) -> dict[str, Any]:
    sent = base64.b64encode(text[:8000].encode("utf-8", "replace")).decode()
    return {"role": {"coding": [_ROLE]}, "query": sent}


def _interaction(request: Request, response: Response) -> tuple[str, str]:
    """Code of restful-interaction and action (C, R, U, D, or E for what is executed)."""
    parts, method = request.parts, request.method
    last = parts[-1] if parts else ""
    if last.startswith("$"):
        return "operation", "E"
    if last == "_search":
        return "search-type", "E"
    if method in ("GET", "HEAD"):
        if len(parts) == 1 and last[:1].isupper():
            return "search-type", "E"
        if last == "metadata":
            return "capabilities", "R"
        if last == "_history":
            return ("history-system", "history-type", "history-instance")[min(len(parts), 3) - 1], "R"
        return "vread" if parts[2:3] == ["_history"] else "read", "R"
    if method == "POST" and not parts:
        return ("batch" if b'"batch-response"' in response.body[:200] else "transaction"), "E"
    return _CODES.get(method, "read"), _ACTIONS.get(method, "R")
