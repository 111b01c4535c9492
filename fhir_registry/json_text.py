"""JSON as FHIR means it: strict on reading, decimals with the digits their author wrote, one canonical form on writing.

FHIR gives the precision of a decimal a meaning (0.9430 is not 0.943), which binary floating point loses. Refused is
what JSON parsers commonly let through: a name given twice, NaN, Infinity, half surrogates, NUL, nesting past a limit.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final

DEEPEST: Final = 60
_LONGEST_NUMBER: Final = 400

Json = dict[str, Any] | list[Any] | str | int | Decimal | bool | None


class JsonError(ValueError):
    """Why a text is not the JSON wanted here, as a sentence."""


class JsonContentError(JsonError):
    """JSON by its grammar that FHIR does not allow; ``expression``: FHIRPath of the member."""

    def __init__(self, text: str, expression: str = "") -> None:
        super().__init__(text)
        self.expression = expression


def read_json(data: bytes) -> Json:
    """Parse UTF-8 ``data``; numbers with a fraction or an exponent become ``Decimal``.

    ``JsonError`` for what is no JSON or too large, ``JsonContentError`` for what JSON allows and FHIR does not.
    """
    if _depth(data) > DEEPEST:
        raise JsonError(f"the text is nested deeper than {DEEPEST} levels")
    try:
        found: Json = json.loads(
            data.decode("utf-8"),
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_constant,
            object_pairs_hook=_object,
        )
    except JsonContentError as error:
        raise JsonContentError(str(error), _place(data)) from None
    except UnicodeDecodeError as error:
        raise JsonError(f"the text is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"the text is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise JsonError("the text is nested too deeply") from None
    return found


def count_values(value: Json) -> int:
    """How many JSON values there are in ``value``, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(count_values, value.values()))
    return 1 + sum(map(count_values, value)) if isinstance(value, list) else 1


def write_json(value: Json) -> bytes:
    """UTF-8 without white space, members in their order; decimals keep their digits."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode("utf-8")


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(encode_basestring(value))
    elif isinstance(value, dict):
        separator = "{"
        for name, item in value.items():
            parts.append(f"{separator}{encode_basestring(name)}:")
            _write(item, parts)
            separator = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list | tuple):
        separator = "["
        for item in value:
            parts.append(separator)
            _write(item, parts)
            separator = ","
        parts.append("]" if value else "[]")
    elif value is None:
        parts.append("null")
    elif isinstance(value, bool):
        parts.append("true" if value else "false")
    elif isinstance(value, int | Decimal):
        parts.append(str(value))
    else:
        raise TypeError(f"{type(value).__name__} is no JSON value here")


def _depth(data: bytes) -> int:
    """The deepest nesting, without recursion and without looking into strings."""
    deepest = level = 0
    within = escaped = False
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return 0
    for byte in data:
        if within:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                within = False
        elif byte == 0x22:
            within = True
        elif byte in (0x5B, 0x7B):
            level += 1
            if level > DEEPEST:
                return level
            deepest = max(deepest, level)
        elif byte in (0x5D, 0x7D):
            level -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonContentError(f"the member {twice[:60]!r} is given twice")
    for name, value in pairs:
        _check_text(name)
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, str):
                    _check_text(item)
    return found


class _Marked(dict[str, Any]):
    """An object that ``_object`` refuses; ``member``: the name it is refused for."""

    member = ""


def _place(data: bytes) -> str:
    """FHIRPath of the first member that ``_object`` refuses; the text is read once more, for errors alone."""

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        try:
            return _object(pairs)
        except JsonContentError:
            marked, seen = _Marked(pairs), set()
            for name, value in pairs:
                if name in seen or _refused(name, value):
                    marked.member = name
                    break
                seen.add(name)
            return marked

    top = json.loads(data.decode("utf-8"), object_pairs_hook=hook)
    kind = top.get("resourceType") if isinstance(top, dict) else None
    return _marked(top, kind if isinstance(kind, str) and kind.isalnum() else "") or ""


def _refused(name: str, value: Any) -> bool:
    try:
        _object([(name, value)])
    except JsonContentError:
        return True
    return False


def _marked(value: Any, path: str) -> str | None:
    if isinstance(value, _Marked):
        inner = _marked(value[value.member], f"{path}.{value.member}".lstrip("."))
        return inner or f"{path}.{value.member}".lstrip(".")
    if isinstance(value, dict):
        parts = ((f"{path}.{name}".lstrip("."), item) for name, item in value.items())
    elif isinstance(value, list):
        parts = ((f"{path}[{number}]", item) for number, item in enumerate(value))
    else:
        return None
    return next((found for place, item in parts if (found := _marked(item, place)) is not None), None)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise JsonContentError("a string holds the character NUL")
    if not text.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise JsonContentError("a string holds half of a surrogate pair")


def _decimal(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if len(text) > _LONGEST_NUMBER or not found.is_finite() or abs(found.adjusted()) > _LONGEST_NUMBER:
        raise JsonError(f"the number {text[:20]}... is too long or too large")
    return found


def _integer(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise JsonError(f"the number {text[:20]}... is too long")
    return int(text)


def _constant(text: str) -> Any:
    raise JsonError(f"{text} is no JSON number")
