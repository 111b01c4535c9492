"""Requests to the registry, most of them a little wrong, drawn from a generator of random numbers."""

from __future__ import annotations

import base64
import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from registry_values import ODD, Maker, broken, text_of, torn

from fhir_registry.search.parameters import SERVED, parameters_of
from fhir_registry.subscriptions.topics import topics

WRITTEN: Final = (
    "DeviceDefinition",
    "Device",
    "DocumentReference",
    "Organization",
    "Provenance",
    "Binary",
    "Subscription",
)
_MODIFIERS: Final = (
    "", "", "", ":not", ":missing", ":exact", ":contains", ":below", ":above", ":in", ":identifier", ":Device",
    ":Organization", ":text", ":of-type", ":iterate", ":", "::", ":missing:not",
)  # fmt: skip
_PREFIXES: Final = ("", "eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap", "zz", "-")
_VALUES: Final = (
    "active", "retired", "x", "a|b", "|b", "a|", "|", "a|b|c", "\\|", "\\", "\\,", ",", "a,b", ",,,", "$",
    "2026", "2026-02", "2026-02-30", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+14:00", "0000", "9999",
    "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "1", "-1", "1.5", "1e300", "1e301", "NaN", "Infinity",
    "1e-400", "1|http://unitsofmeasure.org|mg", "Device/a", "Device/a/_history/1",
    "http://example.org/Device/a", "urn:uuid:x", "#a", "true", "false", "TRUE", "' OR '1'='1",
    "'; DROP TABLE resource; --", "\" OR 1=1", "x' UNION SELECT 1 --", "%", "_", "!", "!%", "%25", "a" * 3000,
    "é", "e\u0301", "肺炎", "\u0000", "\ud83d\ude00", " ", "\t", "\n", "(" * 50, "a" * 40 + "!",
    "${jndi:ldap://x}", "../../etc/passwd", "where(true)", "_lastUpdated desc", "*", "١٢", "²",
)  # fmt: skip
_RESULT: Final = (
    "_count", "_sort", "_include", "_revinclude", "_summary", "_elements", "_total", "_cursor", "_format",
    "_pretty", "_has:Provenance:target:_id", "_filter", "_query", "_text", "_content", "_list", "_type",
    "_since", "_at",
)  # fmt: skip
_IDS: Final = (
    "a", "none", "..", ".", "%2e%2e", "a%2fb", "a%00", "x" * 64, "x" * 65, "é", "a b", "'", "$verify",
    "_history", "%252e%252e", "%ff", ";x=1", "a?b", "%0d%0aX:1", "-", "\u0661",
)  # fmt: skip
_HEADERS: Final[dict[str, tuple[float, tuple[str, ...]]]] = {
    "If-Match": (0.15, ('W/"1"', '"1"', "*", 'W/"99999999999999999999"', "x", "", 'W/"1", W/"2"')),
    "If-None-Match": (0.05, ('W/"1"', "*", "x")),
    "If-None-Exist": (
        0.1,
        ("identifier=a", "?_id=a", "", "x=1", "identifier=" + "a" * 2000, "Device?_id=a", "&&&", "%", "_sort=_id"),
    ),
    "Prefer": (0.2, ("return=minimal", "return=OperationOutcome", "handling=lenient", "respond-async", "x;;=,")),
    "Accept": (
        0.2,
        ("application/fhir+json", "application/xml", "*/*;q=0", "text/html", "x", "", "json; fhirVersion=4.0"),
    ),
    "X-HTTP-Method-Override": (0.03, ("DELETE", "PUT")),
    "Content-Encoding": (0.03, ("gzip", "identity", "br", "deflate, gzip")),
    "Authorization": (0.03, ("Bearer x", "Bearer a.b.c", "Basic eDp5", "Bearer", "", "Bearer " + "e" * 9000)),
    "X-Forwarded-Host": (0.02, ("evil.example",)),
    "If-Modified-Since": (0.03, ("x", "Thu, 01 Jan 1970 00:00:00 GMT")),
}
_POINTERS: Final = (
    "", "/", "/id", "/identifier/0", "/identifier/-", "/deviceName/0/name", "/x/y", "/~", "/~2", "/identifier/00",
    "/meta", "/identifier/99999999999", "a", "/identifier/١", "/resourceType", "/meta/versionId",
)  # fmt: skip
_VERSIONS: Final = ("1", "2", "0", "-1", "99999999999999999999", "abc", "1.0", "٢", "²", "", "1%00")
_SUBSCRIPTION: Final = {
    "resourceType": "Subscription",
    "status": "requested",
    "filterBy": [{"filterParameter": "model-purpose", "modifier": "contains", "value": "x"}],
    "channelType": {"system": "http://terminology.hl7.org/CodeSystem/subscription-channel-type", "code": "rest-hook"},
    "parameter": [{"name": "X-A", "value": "1"}],
    "endpoint": "http://127.0.0.1:9/nobody-listens",
    "content": "full-resource",
    "heartbeatPeriod": 5,
}
_METHODS: Final = ("GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO")
_TYPES: Final = (
    "application/fhir+json", "application/json", "application/json-patch+json", "application/xml", "text/plain",
    "", "application/fhir+json; charset=utf-16", "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x", "application/merge-patch+json", "*/*",
    "application/fhir+json, text/html",
)  # fmt: skip


@dataclass(frozen=True)
class Ask:
    """One request; ``target`` is what stands behind the base, percent-encoded where a URL needs it."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    page: bool = False
    """A page for people, outside /fhir."""


@dataclass
class Seen:
    """What answers taught: addresses of resources, cursors, next links, bodies worth breaking."""

    places: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def keep(self, rng: random.Random) -> None:
        for held in (self.places, self.links, self.bodies):
            if len(held) > 300:
                del held[rng.randrange(len(held))]


class Asker:
    """Draws requests; the same seed and the same answers give the same requests."""

    def __init__(self, rng: random.Random, seen: Seen) -> None:
        self.rng, self.seen, self.maker = rng, seen, Maker(rng)

    def ask(self) -> Ask:
        kinds = (
            *(self._search, self._search, self._create, self._create, self._update, self._patch, self._bundle),
            *(self._read, self._history, self._operation, self._anything, self._follow, self._page),
        )
        return self.rng.choice(kinds)()

    def _place(self) -> str:
        if self.seen.places and self.rng.random() < 0.7:
            return self.rng.choice(self.seen.places)
        return f"{self.rng.choice(SERVED)}/{self._encoded(self.rng.choice(_IDS))}"

    def _encoded(self, text: str) -> str:
        safe = "%/?=&;" if self.rng.random() < 0.5 else ""
        return quote(text.encode("utf-8", "surrogatepass"), safe=safe)

    def _headers(self, **given: str) -> dict[str, str]:
        rng = self.rng
        found = {name.replace("_", "-"): value for name, value in given.items()}
        if rng.random() < 0.6:
            return found
        for name, (chance, values) in _HEADERS.items():
            if rng.random() < chance:
                found[name] = rng.choice(values)
        return found

    def _query(self, kind: str) -> str:
        rng = self.rng
        known = list(parameters_of(kind)) if kind in SERVED else []
        parts = []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 25))):
            if rng.random() < 0.35:
                name = rng.choice(_RESULT)
                code = rng.choice(known or ["x"])
                more = ("-" + code, f"{kind}:{code}", "count", "data", "Provenance:target", "id,meta", self._cursor())
                values = [*_VALUES, *known, *more]
                value = rng.choice(values)
            else:
                name = rng.choice(known or ["x"]) + rng.choice(_MODIFIERS)
                if rng.random() < 0.15:
                    name += "." + rng.choice(("name", "identifier", "_id", "x", "name:contains", "owner.name", ""))
                value = rng.choice(_PREFIXES) + rng.choice(_VALUES)
                if rng.random() < 0.3 and (known_texts := self._texts()):
                    value = rng.choice(known_texts)
                if rng.random() < 0.1:
                    value = ",".join(rng.choice(_VALUES) for _ in range(rng.choice((2, 5, 250))))
            parts.append(f"{self._encoded(name)}={self._encoded(value)}")
        return rng.choice(("&", "&", "&", ";", "&&")).join(parts)

    def _texts(self) -> list[str]:
        """Texts of a resource that was stored, so that some searches find something."""
        if not self.seen.bodies:
            return []
        found: list[str] = []

        def visit(item: Any) -> None:
            if isinstance(item, str):
                found.append(item[:200])
            for inner in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
                visit(inner)

        visit(self.rng.choice(self.seen.bodies))
        return found

    def _cursor(self) -> str:
        items = self.rng.choice(
            ((["1"]), ["x", "1"], [], ["1" * 30], [1], "x", ["\u0000", "5"], ["'", "5"], ["²"], [None], ["-1"])
        )
        text = base64.urlsafe_b64encode(json.dumps(items).encode()).decode().rstrip("=")
        return self.rng.choice((text, text, text[:-1], text + "=", "A", "é", ""))

    def _search(self) -> Ask:
        kind = self.rng.choice((*SERVED, "DeviceDefinition", "DeviceDefinition", "Patient", "Nothing"))
        query = self._query(kind)
        if self.rng.random() < 0.2:
            form = self.rng.choice(("application/x-www-form-urlencoded",) * 4 + _TYPES)
            return Ask("POST", f"{kind}/_search", self._headers(Content_Type=form), query.encode())
        return Ask("GET", f"{kind}?{query}", self._headers())

    def _resource(self, kind: str) -> bytes:
        rng = self.rng
        value: Any
        if kind == "Subscription" and rng.random() < 0.6:
            value = {**_SUBSCRIPTION, "topic": rng.choice([item["url"] for item in topics()])}
        elif self.seen.bodies and rng.random() < 0.4:
            value = json.loads(json.dumps(rng.choice(self.seen.bodies)))
        else:
            value = self.maker.resource(kind, rng.choice((0.0, 0.05, 0.15, 0.4)))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 5))):
            value = broken(rng, value)
        text = text_of(value)
        return torn(rng, text) if rng.random() < 0.15 else text

    def _type_header(self) -> str:
        return "application/fhir+json" if self.rng.random() < 0.9 else self.rng.choice(_TYPES)

    def _create(self) -> Ask:
        kind = self.rng.choice((*WRITTEN, "StructureDefinition", "SubscriptionTopic", "NamingSystem"))
        return Ask("POST", kind, self._headers(Content_Type=self._type_header()), self._resource(kind))

    def _update(self) -> Ask:
        rng = self.rng
        place = self._place()
        kind = place.split("/")[0]
        if rng.random() < 0.2:
            return Ask(
                "PUT",
                f"{kind}?{self._query(kind)}",
                self._headers(Content_Type=self._type_header()),
                self._resource(kind),
            )
        body = self._resource(kind)
        if rng.random() < 0.6:
            try:
                value = json.loads(body)
                if isinstance(value, dict):
                    body = text_of({**value, "id": place.partition("/")[2]})
            except (ValueError, RecursionError):
                pass
        return Ask(
            rng.choice(("PUT", "PUT", "PUT", "DELETE")), place, self._headers(Content_Type=self._type_header()), body
        )

    def _patch(self) -> Ask:
        rng = self.rng
        found: Any = [
            {
                "op": rng.choice(("add", "remove", "replace", "move", "copy", "test", "x", "")),
                "path": rng.choice(_POINTERS),
                "from": rng.choice(_POINTERS),
                "value": copy.deepcopy(rng.choice(ODD)),
            }
            for _ in range(rng.choice((0, 1, 1, 2, 30)))
        ]
        if rng.random() < 0.05:  # each copy doubles what the next one copies
            found = [{"op": "copy", "from": "/deviceName", "path": "/deviceName/-"} for _ in range(40)]
        if rng.random() < 0.3:
            found = broken(rng, found)
        text = text_of(found)
        return Ask(
            "PATCH",
            self._place(),
            self._headers(Content_Type="application/json-patch+json"),
            torn(rng, text) if rng.random() < 0.1 else text,
        )

    def _bundle(self) -> Ask:
        rng = self.rng
        entries: list[Any] = []
        for number in range(rng.choice((0, 1, 2, 3, 3, 8))):
            kind = rng.choice(WRITTEN)
            method = rng.choice(("POST", "POST", "PUT", "DELETE", "GET", "PATCH", "HEAD", "x"))
            url = kind if method == "POST" else self._place() if rng.random() < 0.7 else f"{kind}?{self._query(kind)}"
            asked: dict[str, Any] = {"method": method, "url": url}
            if rng.random() < 0.2:
                asked[rng.choice(("ifMatch", "ifNoneExist", "ifNoneMatch"))] = rng.choice(
                    ('W/"1"', "identifier=a", "x", "", 'W/"²"')
                )
            entry: dict[str, Any] = {
                "request": asked,
                "fullUrl": rng.choice((f"urn:uuid:{number}", f"urn:uuid:{number}", "x", "")),
            }
            if method in ("POST", "PUT") or rng.random() < 0.1:
                entry["resource"] = self.maker.resource(kind, 0.1)
                if rng.random() < 0.3:
                    entry["resource"]["owner"] = {"reference": f"urn:uuid:{rng.randrange(4)}"}
            entries.append(entry)
        form = rng.choice(("transaction", "transaction", "batch", "batch", "collection", "history", "x"))
        value: Any = {"resourceType": "Bundle", "type": form, "entry": entries}
        for _ in range(rng.choice((0, 0, 1, 2))):
            value = broken(rng, value)
        text = text_of(value)
        return Ask(
            "POST", "", self._headers(Content_Type=self._type_header()), torn(rng, text) if rng.random() < 0.1 else text
        )

    def _read(self) -> Ask:
        return Ask(
            self.rng.choice(("GET", "GET", "HEAD", "DELETE")),
            self._place() + self.rng.choice(("", "", "?_format=xml", "?x=1", "/", "//")),
            self._headers(),
        )

    def _history(self) -> Ask:
        rng = self.rng
        place = rng.choice((self._place() + "/_history", rng.choice(SERVED) + "/_history", "_history"))
        if rng.random() < 0.5:
            count, cursor = self._encoded(rng.choice(_VALUES)), self._encoded(rng.choice((*_VERSIONS, *_VALUES)))
            query = rng.choice((self._query("Device"), f"_count={count}", f"_cursor={cursor}"))
            return Ask("GET", f"{place}?{query}", self._headers())
        return Ask("GET", f"{place}/{self._encoded(rng.choice(_VERSIONS))}", self._headers())

    def _operation(self) -> Ask:
        rng = self.rng
        name = rng.choice(
            (
                "$validate",
                "$verify",
                "$model-resource",
                "$everything",
                "$x",
                "$",
                "$status",
                "$events",
                "$meta",
                "$graphql",
            )
        )
        place = rng.choice((self._place(), rng.choice(SERVED), ""))
        query = f"?{self._query('Device')}" if rng.random() < 0.3 else ""
        if rng.random() < 0.6:
            kind = rng.choice(
                (
                    *WRITTEN,
                    "Patient",
                    "Observation",
                    "Questionnaire",
                    "ValueSet",
                    "StructureDefinition",
                    "Bundle",
                    "Parameters",
                )
            )
            return Ask(
                "POST",
                f"{place}/{name}{query}".strip("/"),
                self._headers(Content_Type=self._type_header()),
                self._resource(kind),
            )
        return Ask("GET", f"{place}/{name}{query}".strip("/"), self._headers())

    def _anything(self) -> Ask:
        rng = self.rng
        parts = [
            self._encoded(rng.choice((*SERVED, *_IDS, *_VALUES, "fhir", "metadata")))
            for _ in range(rng.choice((0, 1, 1, 2, 3, 9)))
        ]
        body = rng.choice((b"", b"{}", b"[]", b"null", b"\x00" * 50, b"{" * 5000))
        return Ask(
            rng.choice(_METHODS),
            "/".join(parts) + (f"?{self._query('Device')}" if rng.random() < 0.3 else ""),
            self._headers(Content_Type=rng.choice(_TYPES)),
            body,
        )

    def _page(self) -> Ask:
        rng = self.rng
        place = self._place().partition("/")[2]
        within = rng.choice(("verify", "history", "x", ".."))
        paths = (
            "",
            f"models/{place}",
            f"models/{place}/{within}",
            "engines",
            f"static/x/{self._encoded(rng.choice(_IDS))}",
        )
        path = rng.choice((*paths, self._encoded(rng.choice(_VALUES))))
        names = (
            "q",
            "text",
            "purpose",
            "input",
            "status",
            "manufacturer",
            "identifier",
            "digest",
            "lang",
            "page",
            "cursor",
            "x",
        )
        query = "&".join(
            f"{rng.choice(names)}={self._encoded(rng.choice(_VALUES))}" for _ in range(rng.choice((0, 1, 2, 5)))
        )
        headers = {**self._headers(), "Accept-Language": rng.choice(("zh-CN", "en", "x;q=9", "", "*"))}
        return Ask(rng.choice(("GET", "GET", "GET", "HEAD", "POST")), f"{path}?{query}", headers, b"", True)

    def _follow(self) -> Ask:
        if not self.seen.links:
            return self._search()
        link = self.rng.choice(self.seen.links)
        if self.rng.random() < 0.5:
            at = self.rng.randrange(len(link) + 1)
            link = link[:at] + self.rng.choice(("", "%", "A", "&_count=1", "=", "%27")) + link[at:]
        return Ask("GET", link.replace(" ", "%20"), self._headers())
