"""A client of the standard library alone, which shows status, headers and JSON as they came."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from fhir_registry.audit.outbox import Outbox
from fhir_registry.store.sql_store import SqlStore


class Client:
    """``call(method, path, body)`` to ``(status, headers, parsed body or None)``."""

    def __init__(self, base: str, store: SqlStore | None = None, outbox: Outbox | None = None) -> None:
        self.base = base
        self._store, self._outbox = store, outbox

    @property
    def store(self) -> SqlStore:
        assert self._store is not None
        return self._store

    @property
    def outbox(self) -> Outbox:
        assert self._outbox is not None
        return self._outbox

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        given = {"Content-Type": "application/fhir+json"} if body is not None else {}
        address = path if path.startswith("http") else f"{self.base}/{path}".rstrip("/")
        request = urllib.request.Request(address, body, {**given, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        status, answered, text = self.raw(method, path, data, headers)
        found = json.loads(text) if text else None
        if status >= 400:
            assert found["resourceType"] == "OperationOutcome", text
            assert found["issue"][0]["details"]["text"], text
        return status, answered, found

    def created(self, resource: dict[str, Any]) -> dict[str, Any]:
        status, _, found = self.call("POST", resource["resourceType"], resource)
        assert status == 201, found
        return dict(found)

    def ids(self, path: str) -> list[str]:
        """Ids of the matches of a search, over all pages."""
        ids: list[str] = []
        following: str | None = path
        while following:
            status, _, found = self.call("GET", following)
            assert status == 200, found
            ids += [e["resource"]["id"] for e in found.get("entry", ()) if e["search"]["mode"] == "match"]
            following = next((link["url"] for link in found["link"] if link["relation"] == "next"), None)
        return ids
