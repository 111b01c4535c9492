"""What the canonical forms share: decoding, the error of a file that is not what its name says, and value text."""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_DECIMAL_LIMIT: Final = 1 << 64
"""Integers of this size and above are written in hexadecimal: decimal text of huge integers takes quadratic time."""


class Unreadable(Exception):
    """A file breaks the rules of its kind: ``why`` without file name, ``line`` from 1 or 0 where there is none."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


@dataclass(frozen=True)
class Literal:
    """A scalar whose text is fixed already: a number, or a word that only some readers take for text."""

    text: str


@dataclass(frozen=True)
class Named:
    """A map with a name in front: a node of a syntax tree, a tagged value."""

    name: str
    fields: Mapping[str, Value]


Value = None | bool | int | str | bytes | Literal | Named | Sequence["Value"] | Mapping[str, "Value"]


def decode(data: bytes) -> str:
    """UTF-8 text without a byte order mark. Raises ``Unreadable`` with the line of the first wrong byte."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise Unreadable("is not UTF-8 text", data[: error.start].count(b"\n") + 1) from None


def line_of(text: str, position: int) -> int:
    """Line number, from 1, of ``position``."""
    return text.count("\n", 0, position) + 1


def quoted(text: str) -> str:
    """``text`` as a JSON string with the escapes of RFC 8785 section 3.2.2.2; a lone surrogate as ``\\udxxx``."""
    return _SURROGATE.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))


def number(text: str) -> Literal:
    """The exact decimal value of ``text`` as ``[-]DIGITSeEXPONENT`` without trailing zeros, or inf, -inf, nan.

    Raises ``Unreadable`` for an exponent that no reader can take.
    """
    plain = text.replace("_", "")
    if plain.lower().lstrip("+-") in ("inf", "nan"):
        return Literal("nan" if plain.lower().endswith("nan") else f"{'-' if plain[0] == '-' else ''}inf")
    try:
        sign, digits, exponent = decimal.Decimal(plain).as_tuple()
    except decimal.InvalidOperation:
        raise Unreadable(f"holds the number {text[:40]}, whose exponent is out of range") from None
    assert isinstance(exponent, int)
    mantissa = "".join(map(str, digits)).lstrip("0")
    stripped = mantissa.rstrip("0")
    shown = f"{stripped}e{exponent + len(mantissa) - len(stripped)}" if stripped else "0e0"
    return Literal(f"{'-' if sign else ''}{shown}")


def value_text(value: Value) -> str:
    """The one text of ``value``: like JSON, one element a line, one space of indent a level, keys in UTF-8 order.

    Raises ``Unreadable`` when the value is nested too deeply.
    """
    try:
        return "".join(_text(value, "\n")) + "\n"
    except RecursionError:
        raise Unreadable("is nested too deeply") from None


def _text(value: Value, start: str) -> Iterator[str]:
    if value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield str(value) if abs(value) < _DECIMAL_LIMIT else hex(value)
    elif isinstance(value, Literal):
        yield value.text
    elif isinstance(value, str):
        yield quoted(value)
    elif isinstance(value, bytes):
        yield f'b"{value.hex()}"'
    elif isinstance(value, Named):
        yield value.name
        yield from _map(value.fields, start)
    elif isinstance(value, Mapping):
        yield from _map(value, start)
    else:
        inner = start + " "
        for index, item in enumerate(value):
            yield ("," if index else "[") + inner
            yield from _text(item, inner)
        yield start + "]" if value else "[]"


def _map(fields: Mapping[str, Value], start: str) -> Iterator[str]:
    inner = start + " "
    for index, key in enumerate(sorted(fields, key=lambda k: k.encode("utf-8", "surrogatepass"))):
        yield ("," if index else "{") + f"{inner}{quoted(key)}:"
        yield from _text(fields[key], inner)
    yield start + "}" if fields else "{}"
