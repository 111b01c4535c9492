"""The FHIR interface as an ASGI application: routes, errors, limits; what is not below /fhir is a page for people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from fhir_registry.json_text import write_json
from fhir_registry.pages.site import Pages
from fhir_registry.search.parameters import SERVED
from fhir_registry.search.query import may_be_long
from fhir_registry.server.capability import capability_statement
from fhir_registry.server.http import (
    HttpError,
    Incoming,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    check_accept,
    outcome_response,
    read_body,
    send_response,
)
from fhir_registry.server.operations import model_resource, verify
from fhir_registry.server.service import READ_ONLY, InvalidResourceError, Service
from fhir_registry.server.transaction import process
from fhir_registry.server.validate import validate_operation
from fhir_registry.store.base import StoreUnavailableError
from fhir_registry.subscriptions.operations import events_operation, status_operation

LOG: Final = logging.getLogger("cuvil.registry")
Recorder = Callable[[Request, Response], Awaitable[None]]
"""Told of every request and its answer before the answer is sent: the audit trail."""
Admission = Callable[[Request], Awaitable[Request]]
"""Says who asks, or raises ``HttpError`` 401, 403 or 429: the seam for identities."""
RETRY: Final = {"Retry-After": "1"}
_WITH_BODY: Final = ("POST", "PUT", "PATCH")
RELEASED: Final = "2026-12-01"


class FhirApp:
    """``base``: the address clients reach ``/fhir`` at, without a slash at its end; from the request if empty.

    ``trust_root``: whom $verify trusts; this machine's own keys if absent.
    """

    def __init__(
        self,
        service: Service,
        *,
        version: str,
        base: str = "",
        trust_root: Path | None = None,
        admit: Admission | None = None,
        record: Recorder | None = None,
    ) -> None:
        self.service = service
        self.version = version
        self.base = base
        self.trust_root = trust_root
        self.admit = admit
        self.record = record
        self._validating = asyncio.Semaphore(1)
        self.pages = Pages(service.store, trust_root)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        incoming = Incoming(receive)
        request, response = await self._respond(scope, incoming.receive)
        if request.method not in _WITH_BODY:
            incoming.ended = True
        if self.record is not None:
            try:
                await self.record(request, response)
            except Exception as error:
                # An access that cannot be recorded does not happen.
                known = isinstance(error, StoreUnavailableError)
                LOG.error("the audit trail cannot be written: %s", error, exc_info=not known)
                response = HttpError(
                    503, "transient", "the audit trail cannot be written; try again later", RETRY
                ).response()
        await send_response(send, response, incoming, head=scope["method"] == "HEAD")

    async def _respond(self, scope: Scope, receive: Receive) -> tuple[Request, Response]:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # The path as it was sent: decoded once, after it was split, so that %2F is no slash and %25 no second escape.
        raw = bytes(scope.get("raw_path") or str(scope["path"]).encode()).decode("latin-1")
        address = raw.removeprefix(scope.get("root_path", ""))
        for_people = address != "/fhir" and not address.startswith("/fhir/")
        path = address.removeprefix("" if for_people else "/fhir").strip("/")
        base = self.base or f"{scope.get('scheme', 'http')}://{headers.get('host', 'localhost')}/fhir"
        client = str((scope.get("client") or ("",))[0])
        query = bytes(scope.get("query_string", b"")).decode("latin-1")
        chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ("",))
        request = Request(scope["method"], path, query, headers, b"", base, client, certificate=chain[0])
        try:
            if self.admit is not None:
                request = await self.admit(request)
            if for_people:
                static = self.pages.static(request)
                if static is not None:
                    return request, static
                return await self.service.ask(self.pages.answer, request, long=True)
            check_accept(request)
            if request.method in _WITH_BODY:
                request = replace(request, body=await read_body(receive, headers))
            return request, await self._route(request)
        except HttpError as error:
            return request, self._fault(request, error, for_people)
        except InvalidResourceError as error:
            return request, outcome_response(422, error.issues)
        except ValueError as error:
            # parse_qsl counts fields; everything else that is wrong with an address was named before.
            wrong = HttpError(400, "invalid", f"the request cannot be read: {error}")
            return request, self._fault(request, wrong, for_people)
        except StoreUnavailableError as error:
            LOG.warning("%s /%s: %s", request.method, request.path, error)
            return request, self._fault(
                request, HttpError(503, "transient", f"{error}; try again later", RETRY), for_people
            )
        except Exception:
            LOG.exception("%s /%s", request.method, request.path)
            text = "the server failed on this request; its log has the reason"
            return request, self._fault(request, HttpError(500, "exception", text), for_people)

    def _fault(self, request: Request, error: HttpError, for_people: bool) -> Response:
        return self.pages.fault(request, error) if for_people else error.response()

    async def _route(self, request: Request) -> Response:
        parts, method = request.parts, "GET" if request.method == "HEAD" else request.method
        match (method, parts):
            case ("GET", ["metadata"]):
                return Response(200, write_json(self.capability(request.base)))
            case ("POST", []):
                return await process(self.service, request)
            case ("GET", ["_history"]):
                return await self.service.ask(self.service.history, request, "", "", long=True)
            case ("POST", ["$validate"]):
                return await self._validate(request, "", "")
        if not parts:
            raise HttpError(404, "not-found", "a resource type belongs in the address; see metadata")
        kind = parts[0]
        if kind not in SERVED:
            raise HttpError(404, "not-supported", f"{kind[:60]!r} is no resource type of this server; see metadata")
        return await self._route_type(request, method, kind, parts[1:])

    async def _route_type(self, request: Request, method: str, kind: str, rest: list[str]) -> Response:
        service = self.service
        match (method, rest):
            case ("GET", []):
                return await service.ask(service.search, request, kind, request.pairs, long=may_be_long(request.pairs))
            case ("POST", ["_search"]):
                pairs = [*request.pairs, *_form(request)]
                return await service.ask(service.search, request, kind, pairs, long=may_be_long(pairs))
            case ("POST", []):
                return await service.create(request, kind)
            case ("PUT", []):
                return await service.conditional_update(request, kind)
            case ("POST", ["$validate"]):
                return await self._validate(request, kind, "")
            case ("GET" | "POST", [identifier, "$validate"]):
                return await self._validate(request, kind, identifier)
            case ("GET", ["_history"]):
                return await service.ask(service.history, request, kind, "", long=True)
            case ("GET" | "POST", [identifier, "$model-resource"]) if kind == "DeviceDefinition":
                return await service.ask(model_resource, service.store, request, identifier)
            case ("GET" | "POST", [identifier, "$verify"]) if kind == "DeviceDefinition":
                return await service.ask(verify, service.store, identifier, self.trust_root, long=True)
            case ("GET" | "POST", [identifier, "$status" | "$events" as name]) if kind == "Subscription":
                if service.subscribing is None:
                    raise HttpError(405, "not-supported", "this server notifies nobody")
                operation = status_operation if name == "$status" else events_operation
                return await service.ask(operation, service.subscribing.store, request, identifier)
            case ("GET", [identifier]):
                return await service.ask(service.read, request, kind, identifier)
            case ("PUT", [identifier]):
                return await service.update(request, kind, identifier)
            case ("PATCH", [identifier]):
                return await service.patch(request, kind, identifier)
            case ("DELETE", [identifier]):
                return await service.delete(request, kind, identifier)
            case ("GET", [identifier, "_history"]):
                return await service.ask(service.history, request, kind, identifier)
            case ("GET", [identifier, "_history", version]):
                return await service.ask(service.vread, request, kind, identifier, version)
        raise HttpError(
            405 if len(rest) < 2 else 404, "not-supported", f"{request.method} is not served at this address"
        )

    async def _validate(self, request: Request, kind: str, identifier: str) -> Response:
        # Anybody may ask, for any type, and it may be large: one at a time, in a thread beside the requests of others.
        async with self._validating:
            return await asyncio.to_thread(validate_operation, self.service.store, READ_ONLY, request, kind, identifier)

    def capability(self, base: str) -> dict[str, Any]:
        return capability_statement(base, self.version, RELEASED)


def _form(request: Request) -> list[tuple[str, str]]:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != "application/x-www-form-urlencoded":
        raise HttpError(415, "not-supported", "_search takes a form: application/x-www-form-urlencoded")
    try:
        text = request.body.decode("utf-8")
    except UnicodeDecodeError:
        raise HttpError(400, "invalid", "the form is not UTF-8") from None
    return parse_qsl(text, keep_blank_values=True, max_num_fields=200)
