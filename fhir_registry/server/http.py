"""Requests and responses between ASGI and the registry: size limits, content negotiation, OperationOutcomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from fhir_registry.json_text import JsonContentError, JsonError, count_values, read_json, write_json
from fhir_registry.validation.issues import ERROR, Issue, operation_outcome

FHIR_JSON: Final = "application/fhir+json"
LARGEST_BODY: Final = 8 << 20
MOST_VALUES: Final = 50_000
BODY_SECONDS: Final = 60.0
DRAIN_SECONDS: Final = 20.0
MOST_DRAINED: Final = 128 << 20
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
_READS: Final = ("application/fhir+json", "application/json", "text/json", "*/*", "application/*", "json")
_BODIES: Final = ("application/fhir+json", "application/json", "text/json", "application/json-patch+json")


@dataclass(frozen=True)
class Request:
    """One request: ``path`` below the FHIR base, without slashes at its ends; header names in lower case.

    ``certificate``: the client's in PEM, where the TLS layer has one and trusts it.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    base: str
    client: str = ""
    who: str = ""
    certificate: str = ""

    # Kept in the instance by hand: cached_property takes a lock in Python 3.11, for each request.
    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Parameters of the address in order; empty values are kept, so that they can be refused."""
        if not self.query:
            return []
        found: list[tuple[str, str]] | None = self.__dict__.get("_pairs")
        if found is None:
            found = parse_qsl(self.query, keep_blank_values=True, strict_parsing=False, max_num_fields=200)
            self.__dict__["_pairs"] = found
        return found

    @property
    def parts(self) -> list[str]:
        found: list[str] | None = self.__dict__.get("_parts")
        if found is None:
            plain = self.path.split("/") if self.path else []
            found = self.__dict__["_parts"] = [unquote(part) for part in plain] if "%" in self.path else plain
        return found


@dataclass(frozen=True)
class Response:
    """``about``: for the audit trail, the resources and searches that the entries of a Bundle were about."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = FHIR_JSON
    about: tuple[str, ...] = ()


class HttpError(Exception):
    """A request that ends here: ``issue`` is an issue type of OperationOutcome, ``expression`` where in the body."""

    def __init__(
        self, status: int, issue: str, text: str, headers: Mapping[str, str] | None = None, expression: str = ""
    ) -> None:
        super().__init__(text)
        self.status, self.issue, self.text, self.expression = status, issue, text, expression
        self.headers = headers or {}

    def response(self) -> Response:
        found = operation_outcome([Issue(ERROR, self.issue, self.expression, self.text)])
        return Response(self.status, write_json(found), self.headers)


def parsed_body(body: bytes) -> Any:
    """The JSON of a body; 400 for what is none, 413 for more than ``MOST_VALUES`` values, 422 for what FHIR forbids."""
    try:
        found = read_json(body)
    except JsonContentError as error:
        raise HttpError(422, "structure", str(error), expression=error.expression) from None
    except JsonError as error:
        raise HttpError(400, "structure", f"the body cannot be read: {error}") from None
    if count_values(found) > MOST_VALUES:
        raise HttpError(413, "too-costly", f"a body may hold {MOST_VALUES} values; send it in parts")
    return found


def outcome_response(status: int, issues: Any) -> Response:
    return Response(status, write_json(operation_outcome(issues)))


def check_accept(request: Request) -> None:
    """406 in one sentence for XML and other forms (http.html, content negotiation)."""
    wanted = next((value for name, value in request.pairs if name == "_format"), "") or request.headers.get(
        "accept", ""
    )
    if not wanted:
        return
    offered = [part.split(";")[0].strip().lower() for part in wanted.replace(" ", "+").split(",")]
    version = "fhirversion=" in wanted.lower() and "fhirversion=5.0" not in wanted.lower()
    if version or not any(part in _READS or part == "text/html" for part in offered):
        raise HttpError(
            406, "not-supported", f"this server answers FHIR 5.0 as JSON (Accept: {FHIR_JSON}), not {wanted[:80]!r}"
        )


def check_content_type(request: Request, *more: str) -> None:
    """415 for a body of another form."""
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given not in _BODIES + more:
        raise HttpError(
            415, "not-supported", f"a body is sent as {FHIR_JSON}, not as {given[:80] or 'nothing stated'!r}"
        )


async def read_body(receive: Receive, headers: Mapping[str, str], limit: int = LARGEST_BODY) -> bytes:
    """The whole body; 413 as soon as it is known to pass ``limit``, 408 when it takes too long, 415 when compressed."""
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise HttpError(415, "not-supported", f"a body is sent as it is, without Content-Encoding {coding[:40]!r}")
    too_long = HttpError(413, "too-long", f"a body may have {limit} bytes")
    stated = headers.get("content-length", "")
    if stated.isdigit() and (len(stated) > 18 or int(stated) > limit):
        raise too_long
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError(400, "incomplete", "the request ended before its body")
                part = message.get("body", b"")
                size += len(part)
                if size > limit:
                    raise too_long
                if part:
                    parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        text = f"the body did not end within {BODY_SECONDS:.0f} s"
        raise HttpError(408, "timeout", text, {"Connection": "close"}) from None


class Incoming:
    """``receive`` of one request, which knows whether the whole body came."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self.ended = receive, False

    async def receive(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self.ended = self.ended or message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drain(self) -> None:
        """Take the rest of a body off the wire and forget it: many clients send all before they read the answer."""
        size = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.ended and size <= MOST_DRAINED:
                    size += len((await self.receive()).get("body", b""))


async def send_response(send: Send, response: Response, incoming: Incoming, head: bool = False) -> None:
    """Answer; where the body was not read, the answer goes first and the connection ends after the body."""
    headers = [
        (b"content-type", f"{response.content_type}; charset=utf-8".encode()),
        (b"content-length", str(len(response.body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *((name.lower().encode(), value.encode("latin-1", "replace")) for name, value in response.headers.items()),
    ]
    if response.status in (204, 304):
        headers = headers[2:]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    empty = head or response.status in (204, 304)
    body = b"" if empty else response.body
    if not incoming.ended:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await incoming.drain()
        body = b""
    await send({"type": "http.response.body", "body": body})
