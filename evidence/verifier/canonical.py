"""Canonical JSON (RFC 8785), strict reading, and the checks that readers of signed data share.

RFC 8785 writes numbers as ECMAScript does; to keep that rule out of the evidence, no float is ever signed: floats
become their shortest round-trip decimal string and integers beyond 2**53 - 1 their decimal string.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from evidence.verifier.errors import UsageError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_MAX_SAFE_INTEGER = 2**53 - 1
_HEX = {64: re.compile(r"[0-9a-f]{64}"), 128: re.compile(r"[0-9a-f]{128}")}


class MalformedError(UsageError):
    """Signed or to-be-signed data breaks its format; the message names the place and the fault."""


def signable(value: Json) -> Json:
    """``value`` without floats and without integers outside +-(2**53 - 1): both become strings.

    ``0.1`` becomes ``"0.1"``, ``-0.0`` ``"-0.0"``, not-a-number ``"nan"``, an infinity ``"inf"`` or ``"-inf"``.
    """
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, Mapping):
        return {str(key): signable(item) for key, item in value.items()}
    return [signable(item) for item in value]


def canonical_bytes(value: Json) -> bytes:
    """RFC 8785 form of ``value``; ``MalformedError`` for what evidence does not carry: floats (see above), integers
    beyond 2**53 - 1, lone surrogates."""
    try:
        return "".join(_canonical(value)).encode("utf-8")
    except UnicodeEncodeError:
        raise MalformedError("has no RFC 8785 form: a text holds a lone surrogate") from None
    except RecursionError:
        raise MalformedError("is nested too deeply") from None


def _canonical(value: Json) -> Iterator[str]:
    if value is None or isinstance(value, bool):
        yield {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int):
        if abs(value) > _MAX_SAFE_INTEGER:
            raise MalformedError(f"has no RFC 8785 form: {value} is beyond 2**53 - 1")
        yield str(value)
    elif isinstance(value, str):
        # RFC 8785, 3.2.2.2: the short escapes of JSON, \\u00xx for other control characters, all else as it is.
        yield json.dumps(value, ensure_ascii=False)
    elif isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            yield "," if index else ""
            yield from _canonical(item)
        yield "]"
    elif isinstance(value, dict):
        # Keys sort by their UTF-16 code units (3.2.3).
        yield "{"
        for index, key in enumerate(sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))):
            yield ("," if index else "") + json.dumps(key, ensure_ascii=False) + ":"
            yield from _canonical(value[key])
        yield "}"
    else:
        raise MalformedError(f"has no RFC 8785 form in evidence: {value!r}")


def strict_json(data: bytes) -> Json:
    """Parse UTF-8 JSON; ``MalformedError`` for a byte order mark, duplicate keys, NaN/Infinity or deep nesting."""

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        result: dict[str, Json] = {}
        for key, item in items:
            if key in result:
                raise MalformedError(f"key {key!r} appears twice in one object")
            result[key] = item
        return result

    def constant(name: str) -> Json:
        raise MalformedError(f"{name} is not JSON")

    try:
        return cast(Json, json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant))
    except UnicodeDecodeError as error:
        raise MalformedError(f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise MalformedError(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise MalformedError("is nested too deeply") from None
    except ValueError:
        # int() of thousands of digits raises a plain ValueError.
        raise MalformedError("holds an unreadable number") from None


def strict_base64(text: str, where: str) -> bytes:
    """Decode standard base64 in its one canonical spelling (padding, no line breaks, zero trailing bits)."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise MalformedError(f"{where} is not base64") from None
    if base64.b64encode(data).decode("ascii") != text:
        raise MalformedError(f"{where} is not canonical base64")
    return data


def expect_object(value: Json, where: str, keys: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Json]:
    """``value`` as an object with exactly ``keys`` and any of ``optional``; ``MalformedError`` names the difference."""
    if not isinstance(value, dict):
        raise MalformedError(f"{where} is not an object")
    required = set(keys)
    missing, unknown = sorted(required - set(value)), sorted(set(value) - required - set(optional))
    if missing:
        raise MalformedError(f"{where} lacks {', '.join(missing)}")
    if unknown:
        raise MalformedError(f"{where} has the unknown key {', '.join(unknown)}")
    return value


def expect_map(value: Json, where: str) -> dict[str, Json]:
    """``value`` as an object with free keys."""
    if not isinstance(value, dict):
        raise MalformedError(f"{where} is not an object")
    return value


def expect_list(value: Json, where: str) -> list[Json]:
    """``value`` as an array."""
    if not isinstance(value, list):
        raise MalformedError(f"{where} is not an array")
    return value


def expect_text(value: Json, where: str) -> str:
    """``value`` as a non-empty string."""
    if not isinstance(value, str) or not value:
        raise MalformedError(f"{where} is not a non-empty string")
    return value


def expect_hex(value: Json, where: str, digits: int) -> str:
    """``value`` as exactly ``digits`` (64 or 128) lower-case hex digits."""
    if not isinstance(value, str) or not _HEX[digits].fullmatch(value):
        raise MalformedError(f"{where} is not {digits} lower-case hex digits")
    return value
