"""Canonical forms of JSON, TOML and the lock files written in TOML: the data they hold, keys sorted."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from evidence.keygen.text import Literal, Named, Unreadable, Value, decode, line_of, number, value_text

_LOCK_LISTS: Final = frozenset(["package", "packages"])
_ENTRY_LISTS: Final = frozenset(["dependencies", "files", "wheels"])
"""Lists of a lock file, and of each package in it, that are sets: the tools that write them sort by name."""
_TOML_LINE: Final = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)$")
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def canonical_json(data: bytes) -> bytes:
    """Canonical form of JSON (RFC 8259). Raises ``Unreadable``, also for a key given twice and for NaN."""
    text = decode(data)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=Literal,
            parse_float=number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise Unreadable(f"is not valid JSON ({error.msg})", error.lineno) from None
    except _Twice as error:
        raise Unreadable(f"gives the key {error.key!r} twice in one object", _line_of_second(text)) from None
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    return value_text(value).encode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Twice(key)
        result[key] = value
    return result


def _constant(name: str) -> Value:
    raise Unreadable(f"holds {name}, which is not JSON")


def _line_of_second(text: str) -> int:
    """Line of the first key that its object has already; ``text`` is known to be well formed up to there."""
    seen: list[set[str] | None] = []
    expects_key = False
    for match in _JSON_TOKEN.finditer(text):
        mark = match[0]
        if mark in "{[":
            seen.append(set() if mark == "{" else None)
            expects_key = mark == "{"
        elif mark in "}]":
            seen.pop()
            expects_key = False
        elif mark == ",":
            expects_key = seen[-1] is not None
        elif expects_key and mark != ":":
            keys, key = seen[-1], str(json.loads(mark))
            assert keys is not None
            if key in keys:
                return line_of(text, match.start())
            keys.add(key)
            expects_key = False
    return 0


def canonical_toml(data: bytes) -> bytes:
    """Canonical form of TOML 1.0. Raises ``Unreadable``, also for a key given twice."""
    return value_text(_plain(_toml(data))).encode()


def canonical_lock(data: bytes) -> bytes:
    """Canonical form of poetry.lock, uv.lock, pdm.lock, pylock.toml or Cargo.lock: TOML whose packages are a set."""
    document = {key: _plain(value) for key, value in _toml(data).items()}
    for key in _LOCK_LISTS & document.keys():
        packages = document[key]
        if isinstance(packages, list):
            document[key] = _as_set([_package(item) for item in packages])
    return value_text(document).encode()


def _package(item: Value) -> Value:
    if not isinstance(item, Mapping):
        return item
    return {k: _as_set(v) if k in _ENTRY_LISTS and isinstance(v, list) else v for k, v in item.items()}


def _as_set(items: list[Value]) -> list[Value]:
    return sorted(items, key=lambda item: value_text(item).encode())


def _toml(data: bytes) -> dict[str, Any]:
    try:
        # A number object would be a second type to keep apart from text, so numbers are parsed into Literal directly.
        return tomllib.loads(decode(data), parse_float=number)
    except tomllib.TOMLDecodeError as error:
        match = _TOML_LINE.search(str(error))
        why = _TOML_LINE.sub("", str(error))
        line = int(match[1]) if match and match[1] else data.count(b"\n") + 1
        raise Unreadable(f"is not valid TOML ({why})", line) from None
    except RecursionError:
        raise Unreadable("is nested too deeply") from None
    except ValueError:
        raise Unreadable("holds an integer with too many digits") from None


def _plain(value: Any) -> Value:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return Named("time", {"value": value.isoformat()})
    assert isinstance(value, bool | int | str | Literal)
    return value
