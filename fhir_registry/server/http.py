"""Requests and responses between ASGI and the registry: size limits, content negotiation, OperationOutcomes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from fhir_registry.json_text import write_json
from fhir_registry.validation.issues import one_outcome, operation_outcome

FHIR_JSON: Final = "application/fhir+json"
LARGEST_BODY: Final = 8 << 20
MOST_DRAINED: Final = 128 << 20
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_READS: Final = ("application/fhir+json", "application/json", "text/json", "*/*", "application/*", "json")
_BODIES: Final = ("application/fhir+json", "application/json", "text/json", "application/json-patch+json")


@dataclass(frozen=True)
class Request:
    """One request: ``path`` below the FHIR base, without slashes at its ends; header names in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    base: str
    client: str = ""
    who: str = ""

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
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = FHIR_JSON


class HttpError(Exception):
    """A request that ends here: ``issue`` is an issue type of OperationOutcome."""

    def __init__(self, status: int, issue: str, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.issue, self.text = status, issue, text
        self.headers = headers or {}

    def response(self) -> Response:
        return Response(self.status, write_json(one_outcome(self.issue, self.text)), self.headers)


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
    """The whole body; 413 when it passes ``limit``.

    A body that is too long is still taken off the wire, up to ``MOST_DRAINED``, and forgotten: many clients send all of
    it before they read the answer, and would see a broken connection instead.
    """
    parts: list[bytes] = []
    size = 0
    stated = headers.get("content-length", "")
    while not (stated.isdigit() and int(stated) > MOST_DRAINED) and size <= MOST_DRAINED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "incomplete", "the request ended before its body")
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            parts.clear()
        elif part:
            parts.append(part)
        if not message.get("more_body", False):
            break
    else:
        size = limit + 1
    if size > limit:
        raise HttpError(413, "too-long", f"a body may have {limit} bytes")
    return b"".join(parts)


async def send_response(send: Send, response: Response, head: bool = False) -> None:
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
    await send({"type": "http.response.body", "body": b"" if empty else response.body})
