"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901)."""

from __future__ import annotations

import copy
from typing import Any, Final

from fhir_registry.json_text import JsonError, count_values, read_json

MOST: Final = 1000
MOST_COPIED: Final = 100_000
"""JSON values that all copies of a patch together may make: a list copied into itself doubles each time."""
_NEEDS: Final = {"add": "value", "replace": "value", "test": "value", "move": "from", "copy": "from", "remove": "path"}


class PatchError(ValueError):
    """Why a patch is none (400), cannot be applied (422), or its test fails (422)."""

    def __init__(self, text: str, status: int = 422) -> None:
        super().__init__(text)
        self.status = status


def read_patch(body: bytes) -> list[dict[str, Any]]:
    """The operations of a patch, each of the right form."""
    try:
        found = read_json(body)
    except JsonError as error:
        raise PatchError(f"the patch cannot be read: {error}", 400) from None
    if not isinstance(found, list) or not found or len(found) > MOST:
        raise PatchError(f"a JSON Patch is a list of 1 to {MOST} operations", 400)
    for number, item in enumerate(found):
        name = item.get("op") if isinstance(item, dict) else None
        if (
            not isinstance(name, str)
            or name not in _NEEDS
            or not isinstance(item.get("path"), str)
            or _NEEDS[name] not in item
        ):
            raise PatchError(f"operation {number} needs op, path and what its op asks for (RFC 6902)", 400)
        if name in ("move", "copy") and not isinstance(item["from"], str):
            raise PatchError(f"operation {number} has a from that is no pointer", 400)
    return found


def apply_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    """A changed copy of ``document``; ``PatchError`` leaves no trace."""
    document = copy.deepcopy(document)
    copied = 0
    for number, item in enumerate(operations):
        try:
            if item["op"] == "copy":
                copied += count_values(_get(document, _pointer(item["from"])))
                if copied > MOST_COPIED:
                    raise PatchError(f"the patch copies more than {MOST_COPIED} values", 413)
            document = _apply(document, item)
        except PatchError as error:
            raise PatchError(f"operation {number} ({item['op']} {item['path'][:80]}): {error}", error.status) from None
    return document


def _apply(document: Any, item: dict[str, Any]) -> Any:
    name, path = item["op"], _pointer(item["path"])
    if name == "test":
        if not _same(_get(document, path), item["value"]):
            raise PatchError("the value is another one")
        return document
    if name == "remove":
        return _remove(document, path)
    if name == "replace":
        _get(document, path)
        return _add(_remove(document, path) if path else document, path, copy.deepcopy(item["value"]))
    if name == "add":
        return _add(document, path, copy.deepcopy(item["value"]))
    source = _pointer(item["from"])
    value = copy.deepcopy(_get(document, source))
    if name == "move":
        if path[: len(source)] == source and path != source:
            raise PatchError("a value cannot be moved into itself")
        document = _remove(document, source)
    return _add(document, path, value)


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise PatchError("a pointer is empty or begins with /", 400)
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_position(part, len(document) - 1)]
        else:
            raise PatchError("there is nothing at this place")
    return document


def _position(part: str, last: int) -> int:
    if (
        not part.isascii()
        or not part.isdigit()
        or (part != "0" and part[0] == "0")
        or len(part) > 9
        or int(part) > last
    ):
        raise PatchError("there is nothing at this place")
    return int(part)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else _position(path[-1], len(parent)), value)
    else:
        raise PatchError("there is nothing at this place")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole document cannot be removed")
    parent = _get(document, path[:-1])
    _get(parent, path[-1:])
    if isinstance(parent, list):
        del parent[_position(path[-1], len(parent) - 1)]
    else:
        del parent[path[-1]]
    return document


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON values: 1 and true differ, 1 and 1.0 do not."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
