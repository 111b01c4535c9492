"""Bundles of type batch and transaction (http.html 3.2.0.11): a transaction is one commit, a batch is many requests."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from fhir_registry.json_text import write_json
from fhir_registry.search.parameters import SERVED
from fhir_registry.search.query import may_be_long
from fhir_registry.server.http import HttpError, Request, Response, check_content_type, parsed_body
from fhir_registry.server.service import InvalidResourceError, Service, bundle, etag_version
from fhir_registry.store.base import StoreUnavailableError, Write, Written
from fhir_registry.validation.issues import Issue, one_outcome, operation_outcome

MOST: Final = 500
_URL: Final = re.compile(r"([A-Z][A-Za-z]+)(?:/([A-Za-z0-9.-]{1,64}))?(?:\?(.*))?")


async def process(service: Service, request: Request) -> Response:
    """Answer a Bundle posted to the base."""
    check_content_type(request)
    found = await service.apart(request.body, parsed_body, request.body)
    kind = found.get("type") if isinstance(found, dict) and found.get("resourceType") == "Bundle" else None
    if not isinstance(found, dict) or kind not in ("batch", "transaction"):
        raise HttpError(400, "invalid", "a Bundle of type batch or transaction is posted to the base")
    entries = found.get("entry", [])
    if not isinstance(entries, list) or len(entries) > MOST:
        raise HttpError(413 if isinstance(entries, list) else 400, "too-costly", f"a Bundle may have {MOST} entries")
    items = [_Item(number, entry) for number, entry in enumerate(entries)]
    if kind == "transaction":
        return await _transaction(service, request, items)
    answers = await asyncio.gather(*(_one(service, request, item) for item in items))
    return _response("batch-response", request, items, answers)


def _response(kind: str, request: Request, items: Sequence[_Item], answers: Sequence[bytes]) -> Response:
    about = tuple(_about(request.base, item, answer) for item, answer in zip(items, answers, strict=True))
    return Response(200, bundle(kind, answers, [], None), about=about)


def _about(base: str, item: _Item, answer: bytes) -> str:
    """The resource of an entry, or its search; of a create, the resource it became."""
    if item.id or item.method == "GET":
        return f"{item.kind}/{item.id}" if item.id else item.url
    made = answer.rpartition(b'"location":"')[2].partition(b"/_history")[0] if b'"location":"' in answer else b""
    return made.decode("utf-8", "replace").removeprefix(f"{base}/") or item.kind


class _Item:
    """One entry, read strictly."""

    def __init__(self, number: int, entry: Any) -> None:
        self.place = f"Bundle.entry[{number}]"
        asked = entry.get("request") if isinstance(entry, dict) else None
        if (
            not isinstance(asked, dict)
            or not isinstance(asked.get("method"), str)
            or not isinstance(asked.get("url"), str)
        ):
            raise HttpError(400, "required", f"{self.place}: an entry needs request.method and request.url")
        self.method: str = asked["method"]
        match = _URL.fullmatch(asked["url"])
        if match is None or self.method not in ("GET", "POST", "PUT", "DELETE"):
            raise HttpError(
                400, "not-supported", f"{self.place}: {self.method[:10]} {asked['url'][:80]!r} is not served here"
            )
        self.kind, self.id, self.query = match[1], match[2] or "", match[3] or ""
        if self.kind not in SERVED:
            raise HttpError(400, "not-supported", f"{self.place}: {self.kind} is no resource type of this server")
        self.url: str = asked["url"]
        self.match = str(asked.get("ifMatch", ""))
        self.none_exist = str(asked.get("ifNoneExist", ""))
        self.full_url = str(entry.get("fullUrl", ""))
        self.resource: Any = entry.get("resource")
        if self.method in ("POST", "PUT") and not isinstance(self.resource, dict):
            raise HttpError(400, "required", f"{self.place}: {self.method} needs a resource")
        if self.method == "POST" and (self.id or self.query):
            raise HttpError(400, "invalid", f"{self.place}: a create is posted to its type; criteria go to ifNoneExist")
        if self.method == "PUT" and not self.id:
            raise HttpError(
                400, "not-supported", f"{self.place}: a conditional update within a Bundle is not supported"
            )


async def _transaction(service: Service, request: Request, items: Sequence[_Item]) -> Response:
    """All or nothing: DELETE, POST, PUT in that order (http.html), reads after the commit."""
    identifiers = {id(item): str(uuid.uuid4()) for item in items if item.method == "POST"}
    renamed = {
        item.full_url: f"{item.kind}/{identifiers[id(item)]}"
        for item in items
        if item.method == "POST" and item.full_url.startswith("urn:")
    }
    ordered = sorted((i for i in items if i.method != "GET"), key=lambda i: ("DELETE", "POST", "PUT").index(i.method))
    writes = await service.apart(request.body, _writes, service, ordered, renamed, identifiers)
    done = await service.commit(writes) if writes else []
    answers: dict[int, bytes] = {}
    for item, written in zip(ordered, done, strict=True):
        answers[id(item)] = _answer(item, written)
    for item in items:
        if item.method == "GET":
            answers[id(item)] = await _one(service, request, item)
    return _response("transaction-response", request, items, [answers[id(item)] for item in items])


def _writes(
    service: Service, ordered: Sequence[_Item], renamed: dict[str, str], identifiers: dict[int, str]
) -> list[Write]:
    """One write for each entry, in order; the first that may not be is the answer to all."""
    seen: set[tuple[str, str]] = set()
    writes: list[Write] = []
    for item in ordered:
        if item.id and (item.kind, item.id) in seen:
            raise HttpError(400, "duplicate", f"{item.place}: {item.kind}/{item.id} is written twice")
        seen.add((item.kind, item.id))
        try:
            writes.append(_write(service, item, renamed, identifiers.get(id(item), "")))
        except InvalidResourceError as error:
            raise InvalidResourceError([_placed(item, issue) for issue in error.issues]) from None
        except HttpError as error:
            raise HttpError(error.status, error.issue, f"{item.place}: {error.text}") from None
    return writes


def _write(service: Service, item: _Item, renamed: dict[str, str], identifier: str) -> Write:
    if item.method == "DELETE":
        service.writable(item.kind)
        return Write("DELETE", item.kind, item.id, expected=etag_version(item.match) if item.match else None)
    resource = _with_targets(item.resource, renamed)
    if item.method == "PUT":
        return service.update_write(item.kind, item.id, resource, item.match)
    made = service.create_write(item.kind, resource, item.none_exist)
    return replace(made, id=identifier)


def _with_targets(value: Any, renamed: dict[str, str]) -> Any:
    """A copy in which every reference to an entry of this Bundle is one to the resource it becomes."""
    if isinstance(value, dict):
        return {
            name: renamed[item] if name in ("reference", "url", "uri") and isinstance(item, str) and item in renamed
            else _with_targets(item, renamed)
            for name, item in value.items()
        }  # fmt: skip
    if isinstance(value, list):
        return [_with_targets(item, renamed) for item in value]
    return value


def _placed(item: _Item, issue: Issue) -> Issue:
    _, dot, rest = issue.expression.partition(".")
    return Issue(issue.severity, issue.code, f"{item.place}.resource{dot}{rest}", issue.text)


async def _one(service: Service, request: Request, item: _Item) -> bytes:
    """One entry of a batch as the request it stands for."""
    from urllib.parse import parse_qsl

    # JSON is asked for: a Binary as its own bytes would be text of the client within the answer.
    headers = {"content-type": "application/fhir+json", "accept": "application/fhir+json"}
    headers.update({"if-match": item.match} if item.match else {})
    headers.update({"if-none-exist": item.none_exist} if item.none_exist else {})
    body = write_json(item.resource) if isinstance(item.resource, dict) else b""
    inner = Request(item.method, item.url, item.query, headers, body, request.base, request.client, request.who)
    try:
        if item.method == "GET" and item.id:
            response = await service.ask(service.read, inner, item.kind, item.id)
        elif item.method == "GET":
            pairs = parse_qsl(item.query, keep_blank_values=True)
            response = await service.ask(service.search, inner, item.kind, pairs, long=may_be_long(pairs))
        elif item.method == "POST":
            response = await service.create(inner, item.kind)
        elif item.method == "PUT":
            response = await service.update(inner, item.kind, item.id)
        else:
            response = await service.delete(inner, item.kind, item.id)
    except InvalidResourceError as error:
        return _failed(422, operation_outcome(error.issues))
    except HttpError as error:
        return _failed(error.status, one_outcome(error.issue, error.text))
    except StoreUnavailableError as error:
        return _failed(503, one_outcome("transient", f"{error}; try again later"))
    answer: dict[str, Any] = {"status": str(response.status)}
    for name, header in (("location", "Location"), ("etag", "ETag")):
        if header in response.headers:
            answer[name] = response.headers[header]
    entry = b'{"resource":' + response.body + b"," if response.body else b"{"
    return entry + b'"response":' + write_json(answer) + b"}"


def _failed(status: int, outcome: dict[str, Any]) -> bytes:
    return write_json({"response": {"status": str(status), "outcome": outcome}})


def _answer(item: _Item, written: Written) -> bytes:
    stored = written.stored
    status = "204" if item.method == "DELETE" else ("201" if written.created else "200")
    answer = {"status": status, "etag": stored.etag, "lastModified": stored.updated}
    answer["location"] = f"{stored.type}/{stored.id}/_history/{stored.version}"
    body = b"" if stored.deleted else b'"resource":' + stored.body + b","
    return b"{" + body + b'"response":' + write_json(answer) + b"}"
