"""Resources made from the R5 definitions, and what breaks them: for the fuzzer of the registry."""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Final

from fhir_registry.definitions.types import Element, Kind, Structure, r5

_TEXTS: Final = (
    "cxr",
    "Röntgen",
    "肺炎 model",
    "a b",
    "x" * 300,
    "e\u0301",
    "\u202eabc",
    "𝔘",
    "O'Hara; --",
    "%27",
    "½",
)
_PLAIN: Final = {
    "string": _TEXTS,
    "markdown": ("**x**", "a\nb", *_TEXTS),
    "uri": ("https://example.org/x", "urn:uuid:05efabf0-4be2-4561-91ce-51548425acb9", "urn:oid:1.2.3"),
    "url": ("https://example.org/x", "http://[::1]/x", "mailto:a@example.org"),
    "canonical": ("https://example.org/x|1.0", "https://example.org/x"),
    "code": ("active", "x", "a b"),
    "id": ("a", "A-1.b", "0" * 64),
    "oid": ("urn:oid:1.2.3",),
    "uuid": ("urn:uuid:05efabf0-4be2-4561-91ce-51548425acb9",),
    "base64Binary": ("", "QUJD", "QUI=", "A" * 400),
    "boolean": (True, False),
    "integer": (0, -1, 2147483647),
    "integer64": ("0", "9223372036854775807"),
    "positiveInt": (1, 2147483647),
    "unsignedInt": (0, 7),
    "decimal": (0, -1.5, 1e22, 12345678901234567890),
    "date": ("2026", "2026-02", "2024-02-29"),
    "dateTime": ("2026", "2026-02-28T23:59:60Z", "2026-01-01T00:00:00.123456+08:00"),
    "instant": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+14:00"),
    "time": ("00:00:00", "23:59:59.999"),
    "xhtml": ('<div xmlns="http://www.w3.org/1999/xhtml"><p>x</p></div>',),
}
ODD: Final = (
    None, True, 0, -1, 10**30, 1e300, 5e-324, 0.1, "", " ", "\n", "\u0085", "x" * 5000, "\ud7ff", "\ufffe",
    "\U0010ffff", [], {}, [[]], [None], [{}], {"": ""}, {"resourceType": "Patient"}, {"extension": [{"url": "u"}]},
    "Patient/1", "#x", "../..", "2026-13-45", "0000-00-00", "9999-12-31", "9999-12-31T23:59:59.999999+14:00",
    "0001-01-01T00:00:00+14:00", "-1", "' OR 1=1 --", "%00", "\t", "$this", "*", "NaN", "{{7*7}}",
    "Device/x/_history/99999999999999999999", "http://127.0.0.1:1/x", "file:///etc/passwd", "a\u0000b",
)  # fmt: skip
_DEEP: Final = 4


class Maker:
    """Values for elements, drawn from ``rng``; most are valid, though no invariant is looked at."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.definitions = r5()

    def resource(self, kind: str, rich: float = 0.15) -> dict[str, Any]:
        structure = self.definitions.structure(kind)
        assert structure is not None
        found = {"resourceType": kind, **self._object(structure, kind, rich, 0)}
        if "contained" in structure.children[kind] and self.rng.random() < 0.1:
            inner = self.rng.choice(("Organization", "Device", "Basic", "Binary"))
            found["contained"] = [{**self.resource(inner, rich / 2), "id": "c"}]
            found["extension"] = [{"url": "https://example.org/x", "valueReference": {"reference": "#c"}}]
        return found

    def _object(self, structure: Structure, path: str, rich: float, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        taken: set[str] = set()
        for name, (element, kind) in structure.children.get(path, {}).items():
            wanted = element.low > 0 or (depth < _DEEP and self.rng.random() < rich)
            if wanted and element.path not in taken and element.name not in ("contained", "extension", "id"):
                if element.name == "modifierExtension" or (element.name == "text" and depth == 0):
                    continue
                taken.add(element.path)
                count = max(1, min(element.low or self.rng.choice((1, 1, 2)), element.high))
                values = [self._value(structure, element, kind, rich * 0.7, depth) for _ in range(count)]
                found[name] = values if element.many else values[0]
        if not found and depth < _DEEP + 3 and (names := structure.children.get(path)):
            for name in sorted(names, key=lambda n: (self.rng.random(), n)):
                element, kind = names[name]
                if element.name not in ("extension", "modifierExtension", "id", "contained"):
                    one = self._value(structure, element, kind, 0, depth + 1)
                    return {name: [one] if element.many else one}
        return found

    def _value(self, structure: Structure, element: Element, kind: Kind | None, rich: float, depth: int) -> Any:
        if element.same_as:
            return self._object(structure, element.same_as, rich, depth + 1)
        kind = kind or self.rng.choice(element.kinds)
        code = kind.code
        if code[0].islower():
            known = self.definitions.value_set(element.value_set) if element.strength == "required" else None
            return self.rng.choice(sorted(known[0])) if known else self.rng.choice(_PLAIN.get(code, _TEXTS))
        if code in ("BackboneElement", "Element"):
            return self._object(structure, element.path, rich, depth + 1)
        if code == "Resource" or self.definitions.is_resource(code):
            return {"resourceType": "Basic", "code": {"text": "x"}}
        if code == "Reference":
            targets = sorted(kind.targets) or ["Device"]
            return {"reference": f"{self.rng.choice(targets)}/{self.rng.choice(('a', 'b', 'none'))}"}
        inner = self.definitions.structure(code)
        return self._object(inner, code, rich, depth + 1) if inner is not None else {"x": 1}


def broken(rng: random.Random, value: Any) -> Any:
    """``value`` with one thing changed somewhere."""
    places: list[tuple[Any, Any]] = []

    def visit(item: Any) -> None:
        keys = list(item) if isinstance(item, dict) else list(range(len(item))) if isinstance(item, list) else []
        for key in keys:
            places.append((item, key))
            visit(item[key])

    visit(value)
    if not places:
        return copy.deepcopy(rng.choice(ODD))
    parent, key = rng.choice(places)
    one = parent[key]
    match rng.randrange(9):
        case 0:
            del parent[key]
        case 1 | 2:
            parent[key] = copy.deepcopy(rng.choice(ODD))
        case 3:
            parent[key] = [copy.deepcopy(one) for _ in range(rng.choice((1, 2, 40)))]
        case 4:
            parent[key] = one[0] if isinstance(one, list) and one else {"value": one}
        case 5 if isinstance(parent, dict):
            parent[rng.choice(("color", "_" + str(key), str(key).upper(), "valueString", "", "__proto__"))] = one
        case 6 if isinstance(parent, dict):
            parent["_" + str(key).lstrip("_")] = rng.choice((None, [], [None], {"id": "x"}, [{"id": "x"}], {}))
        case 7 if isinstance(one, str):
            at = rng.randrange(len(one) + 1)
            parent[key] = one[:at] + rng.choice(("\u0000", "\u200b", "\ud83d", "'", "\\", "|", "\r\n")) + one[at:]
        case _:
            parent[key] = nested(rng.choice((3, 30, 61)), one)
    return value


def nested(depth: int, value: Any) -> Any:
    for number in range(depth):
        value = {"extension": [value]} if number % 2 else [value]
    return value


def text_of(value: Any) -> bytes:
    """JSON that Python can write and strict readers refuse too (half surrogates as escapes)."""
    return json.dumps(value, ensure_ascii=True).encode()


def torn(rng: random.Random, text: bytes) -> bytes:
    """JSON text with one thing wrong as text."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(10):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        case 2:
            return text.replace(b"{", b'{"id":"a","id":"b",', 1)
        case 3:
            return text.replace(
                b": ", b":" + rng.choice((b"NaN", b"1e9999", b"-Infinity", b"0x1", b"1" * 5000, b"01")), 1
            )
        case 4:
            return b"\xef\xbb\xbf" + text
        case 5:
            return text.decode().encode(rng.choice(("utf-16", "utf-32", "utf-16-le")))
        case 6:
            return text + text
        case 7:
            return b"[" * rng.choice((59, 61, 10_000)) + text
        case 8:
            return text.replace(b'"', b"'")
        case _:
            return text[:at] + rng.choice((b"\xff\xfe", b"\x00", b"\\u0000", b"\\ud800", b"/**/", b",")) + text[at:]
