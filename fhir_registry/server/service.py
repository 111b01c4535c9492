"""What the server does with resources: the interactions of FHIR R5 (http.html), each as a function of a request."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from fhir_registry.json_text import JsonError, read_json, write_json
from fhir_registry.search.extract import index_rows
from fhir_registry.search.query import Query, SearchError, read_query
from fhir_registry.server.http import HttpError, Request, Response, check_content_type, parsed_body
from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.base import ConflictError, Store, Stored, TooLongError, Write, Written
from fhir_registry.validation.issues import Issue, one_outcome
from fhir_registry.validation.walk import validate

if TYPE_CHECKING:
    from fhir_registry.subscriptions.admission import Admission

ID: Final = re.compile(r"[A-Za-z0-9.-]{1,64}")
Answer = TypeVar("Answer")
LARGE: Final = 64 << 10
SOON_SECONDS: Final = 0.03
LONG_AT_ONCE: Final = 2
MOST_LONG: Final = 32
_ETAG: Final = re.compile(r'(?:W/)?"([0-9]{1,18})"')
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("", "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# What the registry itself writes: nobody else does.
READ_ONLY: Final = frozenset(
    {
        "CodeSystem",
        "ConceptMap",
        "NamingSystem",
        "OperationDefinition",
        "SearchParameter",
        "SubscriptionTopic",
        "StructureDefinition",
        "ValueSet",
    }
)


class Service:
    """The interactions over a store; writes go through ``writer``, Subscriptions through ``subscribing`` first."""

    def __init__(
        self,
        store: Store,
        writer: GroupCommit[Sequence[Write], list[Written]],
        subscribing: Admission | None = None,
    ) -> None:
        self.store = store
        self.subscribing = subscribing
        self.writer = writer
        self._long_running = asyncio.Semaphore(LONG_AT_ONCE)
        self._long_waiting = 0

    # ---- reading

    async def ask(self, function: Callable[..., Answer], *given: Any, long: bool = False) -> Answer:
        """What ``function``, which reads the store, answers; in a thread where the store waits for another process.

        ``long``: it may look at all resources, which shows at the latest when it does not end soon. Few of these run at
        once, and few wait, so that others are not kept from their turn; ``HttpError`` 503 for more.
        """
        if not long:
            try:
                if self.store.waits:  # in a thread, where nothing else is kept waiting
                    return await asyncio.to_thread(self._soon, 10 * SOON_SECONDS, function, *given)
                return self._soon(SOON_SECONDS, function, *given)
            except TooLongError:
                return await self.ask(function, *given, long=True)
        if self._long_waiting >= MOST_LONG:
            text = f"{MOST_LONG} searches that look at many resources are waiting; ask again in a second"
            raise HttpError(503, "throttled", text, {"Retry-After": "1"})
        self._long_waiting += 1
        try:
            async with self._long_running:
                return await asyncio.to_thread(function, *given)
        finally:
            self._long_waiting -= 1

    def _soon(self, seconds: float, function: Callable[..., Answer], *given: Any) -> Answer:
        with self.store.hurried(seconds):
            return function(*given)

    def read(self, request: Request, kind: str, identifier: str) -> Response:
        found = self.store.read(kind, self._id(identifier))
        if found is None:
            raise HttpError(404, "not-found", f"there is no {kind}/{identifier[:64]}")
        return self._answer(request, found)

    def vread(self, request: Request, kind: str, identifier: str, version: str) -> Response:
        number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
        found = self.store.version(kind, self._id(identifier), number)
        if found is None:
            raise HttpError(404, "not-found", f"there is no version {version[:20]!r} of {kind}/{identifier[:64]}")
        return self._answer(request, found)

    def _answer(self, request: Request, found: Stored) -> Response:
        headers = {"ETag": found.etag, "Last-Modified": http_date(found.updated)}
        if found.deleted:
            text = one_outcome("deleted", f"{found.type}/{found.id} was deleted with version {found.version}")
            return Response(410, write_json(text), headers)
        if request.headers.get("if-none-match", "") in (found.etag, found.etag.removeprefix("W/")):
            return Response(304, headers=headers)
        if found.type == "Binary" and "fhir+json" not in request.headers.get("accept", ""):
            return _raw(found, headers)
        return Response(200, found.body, headers)

    def history(self, request: Request, kind: str, identifier: str) -> Response:
        pairs = dict(request.pairs)
        if unknown := [name for name in pairs if name not in ("_count", "_cursor", "_format", "_pretty")]:
            raise HttpError(400, "not-supported", f"a history has no parameter {unknown[0][:60]!r}; known is _count")
        count = min(_number("_count", pairs["_count"]), 1000) if "_count" in pairs else 50
        before = _number("_cursor", pairs["_cursor"]) if "_cursor" in pairs else None
        if identifier and self.store.read(kind, self._id(identifier)) is None:
            raise HttpError(404, "not-found", f"there is no {kind}/{identifier[:64]}")
        found, total = self.store.history(kind, identifier, count, before)
        entries = [_history_entry(request.base, item) for _, item in found]
        links = [("self", f"{request.base}/{request.path}{'?' + request.query if request.query else ''}")]
        if len(found) == count and found:
            links.append(("next", f"{request.base}/{request.path}?_count={count}&_cursor={found[-1][0]}"))
        return Response(200, bundle("history", entries, links, total))

    def search(self, request: Request, kind: str, pairs: list[tuple[str, str]]) -> Response:
        lenient = "handling=lenient" in request.headers.get("prefer", "")
        query = self._query(kind, pairs, lenient=lenient)
        page = self._searched(query)
        entries = [_search_entry(request.base, item, "match", query) for item in page.matches]
        entries += [_search_entry(request.base, item, "include", query) for item in page.included]
        plain = [(name, value) for name, value in pairs if name != "_cursor"]
        links = [("self", _link(request.base, kind, pairs))]
        if page.following:
            links.append(("next", _link(request.base, kind, [*plain, ("_cursor", page.following)])))
        return Response(200, bundle("searchset", entries, links, page.total))

    def _query(self, kind: str, pairs: list[tuple[str, str]], lenient: bool = False) -> Query:
        try:
            return read_query(kind, pairs, lenient=lenient)
        except SearchError as error:
            raise HttpError(400, error.code, str(error)) from None

    def _searched(self, query: Query) -> Any:
        try:
            return self.store.search(query)
        except SearchError as error:
            raise HttpError(400, error.code, str(error)) from None

    # ---- writing

    async def apart(self, body: bytes, function: Callable[..., Answer], *given: Any) -> Answer:
        """What ``function`` makes of a body, in a thread where it is large: others are answered meanwhile."""
        return await asyncio.to_thread(function, *given) if len(body) > LARGE else function(*given)

    async def create(self, request: Request, kind: str) -> Response:
        check_content_type(request)
        write = await self.apart(request.body, self.create_write, kind, request.body, _condition(request))
        (written,) = await self.commit([write])
        return self._written(request, written)

    def create_write(self, kind: str, body: bytes | dict[str, Any], condition: str = "") -> Write:
        resource = self.resource(kind, body)
        resource.pop("id", None)
        unless = None
        if condition:
            pairs = parse_qsl(condition.removeprefix("?").partition("?")[2] or condition.removeprefix("?"), True)
            unless = self._query(kind, pairs)
            if not unless.filters:
                raise HttpError(400, "invalid", "If-None-Exist has no search parameter")
        return Write("POST", kind, "", resource, tuple(index_rows(resource)), unless)

    async def update(self, request: Request, kind: str, identifier: str) -> Response:
        check_content_type(request)
        match = request.headers.get("if-match", "")
        write = await self.apart(request.body, self.update_write, kind, self._id(identifier), request.body, match)
        (written,) = await self.commit([write])
        return self._written(request, written)

    def update_write(self, kind: str, identifier: str, body: bytes | dict[str, Any], match: str = "") -> Write:
        resource = self.resource(kind, body)
        if resource.get("id") != identifier:
            raise HttpError(
                400, "invalid", f"the resource's id is {resource.get('id')!r}, and the address says {identifier!r}"
            )
        expected = etag_version(match) if match else None
        return Write("PUT", kind, identifier, resource, tuple(index_rows(resource)), expected=expected)

    async def conditional_update(self, request: Request, kind: str) -> Response:
        """PUT [type]?criteria: creates, updates the one that matches, or refuses (http.html, conditional update)."""
        check_content_type(request)
        query = self._query(kind, request.pairs)
        if not query.filters:
            raise HttpError(400, "invalid", "a conditional update needs a search parameter")
        found = (await self.ask(self._searched, replace(query, count=2))).matches
        if len(found) > 1:
            raise HttpError(412, "multiple-matches", "more than one resource meets the condition")
        resource = await self.apart(request.body, self.resource, kind, request.body)
        if found:
            if resource.setdefault("id", found[0].id) != found[0].id:
                raise HttpError(400, "invalid", f"the resource's id is not {found[0].id}, which meets the condition")
            expected = etag_version(request.headers["if-match"]) if "if-match" in request.headers else found[0].version
            write = Write("PUT", kind, found[0].id, resource, tuple(index_rows(resource)), expected=expected)
        else:
            identifier = str(resource.pop("id", ""))
            write = Write("POST", kind, identifier, resource, tuple(index_rows(resource)), query)
        (written,) = await self.commit([write])
        return self._written(request, written)

    async def delete(self, request: Request, kind: str, identifier: str) -> Response:
        self.writable(kind)
        match = request.headers.get("if-match", "")
        write = Write("DELETE", kind, self._id(identifier), expected=etag_version(match) if match else None)
        (written,) = await self.commit([write])
        return Response(204, headers={"ETag": written.stored.etag})

    async def patch(self, request: Request, kind: str, identifier: str) -> Response:
        """JSON Patch (RFC 6902) on the current version; another write in between is a conflict, not a loss."""
        from fhir_registry.server.json_patch import PatchError, apply_patch, read_patch

        self.writable(kind)
        check_content_type(request)
        current = await self.ask(self.store.read, kind, self._id(identifier))
        if current is None or current.deleted:
            raise HttpError(410 if current else 404, "not-found", f"there is no {kind}/{identifier[:64]}")
        match = request.headers.get("if-match", "")
        if match and etag_version(match) != current.version:
            raise HttpError(412, "conflict", f"the current version is {current.version}, not {match[:20]}")
        try:
            changed = apply_patch(read_json(current.body), read_patch(request.body))
        except (PatchError, JsonError) as error:
            raise HttpError(getattr(error, "status", 400), "processing", str(error)) from None
        resource = self.resource(kind, changed if isinstance(changed, dict) else {})
        if resource.get("id") != identifier:
            raise HttpError(422, "business-rule", "a patch may not change the id of a resource")
        rows = tuple(index_rows(resource))
        write = Write("PATCH", kind, identifier, resource, rows, expected=current.version)
        (written,) = await self.commit([write])
        return self._written(request, written)

    async def commit(self, writes: Sequence[Write]) -> list[Written]:
        try:
            return await self.writer.submitted(writes)
        except ConflictError as error:
            issue = {404: "not-found", 409: "duplicate", 410: "deleted", 412: "conflict"}[error.status]
            raise HttpError(error.status, issue, str(error)) from None
        except SearchError as error:
            raise HttpError(400, error.code, str(error)) from None

    def resource(self, kind: str, body: bytes | dict[str, Any]) -> dict[str, Any]:
        """The valid resource of a body, without what the server decides. 400 for no JSON, 422 for an invalid one."""
        self.writable(kind)
        found = parsed_body(body) if isinstance(body, bytes) else body
        if not isinstance(found, dict) or found.get("resourceType") != kind:
            got = found.get("resourceType") if isinstance(found, dict) else None
            raise HttpError(400, "invalid", f"a {kind} belongs here, not {str(got)[:40] if got else 'something else'}")
        issues = [issue for issue in validate(found) if issue.severity in ("fatal", "error")]
        if issues:
            raise InvalidResourceError(issues)
        if kind == "Subscription":
            if self.subscribing is None:
                raise HttpError(405, "not-supported", "this server notifies nobody")
            found, issues = self.subscribing.accept(found)
            if issues:
                raise InvalidResourceError(issues)
        meta = found.get("meta")
        if isinstance(meta, dict):
            meta = {name: value for name, value in meta.items() if name not in ("versionId", "lastUpdated")}
            found = {**found, "meta": meta} if meta else {n: v for n, v in found.items() if n != "meta"}
        return found

    def writable(self, kind: str) -> None:
        if kind in READ_ONLY:
            raise HttpError(405, "not-supported", f"{kind} is written by the registry itself")

    def _written(self, request: Request, written: Written) -> Response:
        stored = written.stored
        headers = {"ETag": stored.etag, "Last-Modified": http_date(stored.updated)}
        headers["Location"] = f"{request.base}/{stored.type}/{stored.id}/_history/{stored.version}"
        minimal = "return=minimal" in request.headers.get("prefer", "")
        return Response(201 if written.created else 200, b"" if minimal else stored.body, headers)

    def _id(self, identifier: str) -> str:
        if ID.fullmatch(identifier) is None:
            raise HttpError(404, "not-found", f"{identifier[:70]!r} is no id of a resource")
        return identifier


class InvalidResourceError(Exception):
    """A resource that does not validate: 422 with every issue."""

    def __init__(self, issues: list[Issue]) -> None:
        super().__init__(issues[0].text)
        self.issues = issues


def _raw(found: Stored, headers: dict[str, str]) -> Response:
    """A Binary as what it is (http.html, serving Binary): always as a download, so that no browser runs it."""
    resource = read_json(found.body)
    assert isinstance(resource, dict)
    data = base64.b64decode(str(resource.get("data", "")))
    headers = {**headers, "Content-Disposition": "attachment", "Content-Security-Policy": "sandbox"}
    return Response(200, data, headers, str(resource["contentType"]))


def etag_version(text: str) -> int:
    match = _ETAG.fullmatch(text.strip())
    if match is None:
        raise HttpError(400, "invalid", f'If-Match is the ETag of a version, such as W/"3", not {text[:40]!r}')
    return int(match[1])


def _condition(request: Request) -> str:
    """The criteria of a conditional create: If-None-Exist, or those in the address, which fhirpy writes there."""
    header = request.headers.get("if-none-exist", "")
    pairs = [(name, value) for name, value in request.pairs if name not in ("_format", "_pretty")]
    if header and pairs:
        raise HttpError(400, "invalid", "a create has criteria in If-None-Exist or in its address, not in both")
    return urlencode(pairs) if pairs else header


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise HttpError(400, "invalid", f"{name} is a whole number, not {text[:40]!r}")
    return int(text)


def http_date(updated: str) -> str:
    """An instant of a resource, in UTC as the store writes it, in the form of RFC 9110 (without a slow parser)."""
    day = date(int(updated[:4]), int(updated[5:7]), int(updated[8:10]))
    return f"{_DAYS[day.weekday()]}, {updated[8:10]} {_MONTHS[day.month]} {updated[:4]} {updated[11:19]} GMT"


def bundle(kind: str, entries: Sequence[bytes], links: Sequence[tuple[str, str]], total: int | None) -> bytes:
    """A Bundle around the very bytes that are stored."""
    head: dict[str, Any] = {"resourceType": "Bundle", "type": kind}
    if total is not None:
        head["total"] = total
    if links:
        head["link"] = [{"relation": relation, "url": url} for relation, url in links]
    text = write_json(head)
    return text if not entries else text[:-1] + b',"entry":[' + b",".join(entries) + b"]}"


def _search_entry(base: str, item: Stored, mode: str, query: Query) -> bytes:
    body = item.body
    if query.summary or query.elements:
        from fhir_registry.server.subset import subset

        body = subset(body, query)
    url = write_json(f"{base}/{item.type}/{item.id}")
    return b'{"fullUrl":' + url + b',"resource":' + body + b',"search":{"mode":"' + mode.encode() + b'"}}'


def _history_entry(base: str, item: Stored) -> bytes:
    status = {"DELETE": "204", "POST": "201"}.get(item.method, "201" if item.version == 1 else "200")
    method = "PUT" if item.method == "PATCH" else item.method  # bdl-14: no PATCH in a history
    tail = {
        "request": {"method": method, "url": item.type if method == "POST" else f"{item.type}/{item.id}"},
        "response": {"status": status, "etag": item.etag, "lastModified": item.updated},
    }
    url = write_json(f"{base}/{item.type}/{item.id}")
    resource = b"" if item.deleted else b',"resource":' + item.body
    return b'{"fullUrl":' + url + resource + b"," + write_json(tail)[1:]


def _link(base: str, kind: str, pairs: Sequence[tuple[str, str]]) -> str:
    return f"{base}/{kind}" + (f"?{urlencode(pairs, quote_via=quote)}" if pairs else "")
