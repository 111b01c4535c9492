"""Which Subscriptions are accepted, and what of them is kept from readers: the values of their header parameters."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from fhir_registry.search.query import SearchError
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.endpoint import EndpointError, Endpoints
from fhir_registry.subscriptions.topics import read_filters, topics
from fhir_registry.validation.issues import ERROR, Issue

CHANNELS: Final = "http://terminology.hl7.org/CodeSystem/subscription-channel-type"
HELD: Final = "held:"
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,2000}[\x21-\x7e])?")
_OURS: Final = frozenset(
    "host content-type content-length content-encoding transfer-encoding connection expect upgrade te trailer".split()
)


class Admission:
    """``accept`` is asked for each Subscription before it is written."""

    def __init__(self, store: SqlStore, endpoints: Endpoints) -> None:
        self.store, self.endpoints = store, endpoints

    def accept(self, resource: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        """The Subscription as it is stored, or what is wrong with it.

        Whatever status a client writes but ``off`` is ``requested``: only an answered handshake makes it active.
        """
        issues: list[Issue] = []

        def say(place: str, code: str, text: str) -> None:
            issues.append(Issue(ERROR, code, f"Subscription.{place}", text))

        known = {item["url"] for item in topics()}
        topic, _, version = str(resource.get("topic", "")).partition("|")
        if topic not in known or version not in ("", "1.0.0"):
            say("topic", "not-found", f"the topics here are {', '.join(sorted(known))}")
        channel = resource.get("channelType", {})
        if channel.get("code") != "rest-hook" or channel.get("system", CHANNELS) != CHANNELS:
            say("channelType", "not-supported", "notifications are sent by rest-hook")
        if resource.get("contentType", "application/fhir+json") not in ("application/fhir+json", "application/json"):
            say("contentType", "not-supported", "notifications are JSON: application/fhir+json")
        if not 1 <= resource.get("timeout", 10) <= 30:
            say("timeout", "value", "timeout is 1 to 30 seconds")
        if 0 < resource.get("heartbeatPeriod", 0) < 5:
            say("heartbeatPeriod", "value", "a heartbeat comes every 5 seconds at most")
        endpoint = str(resource.get("endpoint", ""))
        try:
            self.endpoints.check(endpoint)
        except EndpointError as error:
            say("endpoint", "security" if endpoint else "required", str(error))
        try:
            read_filters(resource.get("filterBy", []))
        except SearchError as error:
            say("filterBy", "invalid", str(error))
        stored = {**resource, "status": "off" if resource.get("status") == "off" else "requested"}
        origin = "/".join(endpoint.split("/")[:3])
        values = [
            self._parameter(item, f"parameter[{n}]", origin, say)
            for n, item in enumerate(resource.get("parameter", ()))
        ]
        if issues:
            return resource, issues
        if values:
            stored["parameter"] = [{**item, "value": self._hold(value, origin)} for item, value in values]
        return stored, []

    def _parameter(self, item: dict[str, Any], place: str, origin: str, say: Any) -> tuple[dict[str, Any], str]:
        name, value = str(item["name"]), str(item["value"])
        if _NAME.fullmatch(name) is None or name.lower() in _OURS:
            say(f"{place}.name", "value", f"{name[:40]!r} is no header field that a subscriber may set")
        if value.startswith(HELD):
            if self.secret(value, origin) is None:
                say(f"{place}.value", "security", "a held value goes to the endpoint it was given for, and to no other")
        elif _VALUE.fullmatch(value) is None:
            say(f"{place}.value", "value", "the value of a header field is printable ASCII")
        return item, value

    def _hold(self, value: str, origin: str) -> str:
        if value.startswith(HELD):
            return value
        ref = HELD + secrets.token_hex(16)
        with self.store.database.transaction() as session:
            session.run("INSERT INTO notify_secret (ref, origin, value) VALUES (?, ?, ?)", (ref, origin, value))
        return ref

    def secret(self, ref: str, origin: str) -> str | None:
        """The value held under ``ref`` for ``origin``."""
        with self.store.database.session() as session:
            row = session.row("SELECT value FROM notify_secret WHERE ref = ? AND origin = ?", (ref, origin))
        return str(row[0]) if row else None

    def headers(self, resource: dict[str, Any]) -> dict[str, str]:
        """The header fields a subscriber asked for, with their true values."""
        origin = "/".join(str(resource.get("endpoint", "")).split("/")[:3])
        pairs = [(str(i["name"]), self.secret(str(i["value"]), origin)) for i in resource.get("parameter", ())]
        return {name: value for name, value in pairs if value is not None}
