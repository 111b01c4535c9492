"""Strict DER of whole structures (ITU-T X.690, clauses 8, 10 and 11), and parsing that refuses anything else.

Two independent checks: a walk over all tags and lengths that knows no schema, and asn1crypto's own encoding of what it
parsed, which must be the same bytes. What neither signature nor schema covers would otherwise be free to change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from asn1crypto.core import Asn1Value

from evidence.verifier.canonical import MalformedError

T = TypeVar("T", bound=Asn1Value)
_DEPTH = 40
_MAX_SIZE = 1 << 20
_SEQUENCE, _SET = 0x10, 0x11
_UTC_TIME = re.compile(rb"[0-9]{12}Z")
_GENERALIZED_TIME = re.compile(rb"[0-9]{14}(\.[0-9]*[1-9])?Z")
_TEXTS = {0x0C: "utf-8", 0x12: "ascii", 0x13: "ascii", 0x16: "ascii", 0x1A: "ascii", 0x1E: "utf-16-be"}


def parse(kind: type[T], data: bytes, what: str, *, again: bool = True) -> T:
    """``data`` as the asn1crypto class ``kind``; ``MalformedError`` naming ``what`` when it is not DER of exactly that.

    ``again=False`` leaves out the second check (its time grows steeply with depth) where the caller makes it part by
    part: explicit DEFAULT values and sets under an implicit tag are all that the walk alone cannot see.
    """
    check_der(data, what)
    try:
        value: T = kind.load(data, strict=True)
        encoded = kind.load(data, strict=True).dump(force=True) if again else data
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError):
        raise MalformedError(f"{what} cannot be parsed") from None
    if encoded != data:
        raise MalformedError(f"{what} does not re-encode to the same DER")
    return value


def native(value: Any, what: str) -> Any:
    """``value.native`` of a lazily parsed asn1crypto value; ``MalformedError`` when its content is not of its type."""
    try:
        return value.native
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, RecursionError):
        raise MalformedError(f"{what} cannot be parsed") from None


def check_sorted(parts: list[bytes], what: str) -> None:
    """``MalformedError`` unless the encodings of a SET OF under an implicit tag are in the order of DER."""
    if parts != sorted(parts):
        raise MalformedError(f"{what} is not sorted as DER demands")


def check_der(data: bytes, what: str) -> None:
    """``MalformedError`` unless ``data`` is one value in definite, minimal DER without bytes after it."""
    if len(data) > _MAX_SIZE:
        raise MalformedError(f"{what} is larger than {_MAX_SIZE} bytes")
    try:
        end = _value(data, 0, len(data), 0)
    except _Fault as fault:
        raise MalformedError(f"{what} is not DER: {fault}") from None
    if end != len(data):
        raise MalformedError(f"{what} is not DER: bytes follow it")


class _Fault(Exception):
    pass


def _header(data: bytes, start: int, end: int) -> tuple[int, int, int]:
    """``(identifier octet, start of the contents, their length)``."""
    if end - start < 2:
        raise _Fault("it ends inside a value")
    tag, length, body = data[start], data[start + 1], start + 2
    if tag & 0x1F == 0x1F:
        raise _Fault("a tag number is above 30")
    if length >= 0x80:
        count = length & 0x7F
        if count == 0:
            raise _Fault("a length is indefinite")
        octets = data[body : body + count]
        if count > 4 or len(octets) != count:
            raise _Fault("a length does not fit")
        length, body = int.from_bytes(octets, "big"), body + count
        if octets[0] == 0 or length < 0x80:
            raise _Fault("a length is not minimal")
    if body + length > end:
        raise _Fault("a length reaches beyond its value")
    return tag, body, length


def _value(data: bytes, start: int, end: int, depth: int) -> int:
    """Check the value at ``start``; returns where it ends."""
    if depth > _DEPTH:
        raise _Fault("it is nested too deeply")
    tag, body, length = _header(data, start, end)
    stop, number = body + length, tag & 0x1F
    universal, constructed = tag < 0x40, bool(tag & 0x20)
    if universal and constructed != (number in (_SEQUENCE, _SET)):
        raise _Fault("a primitive value is constructed, or a sequence is not")
    if not constructed:
        if universal:
            _primitive(number, data[body:stop])
        return stop
    parts = list(_parts(data, body, stop, depth))
    if universal and number == _SET and parts != sorted(parts):
        raise _Fault("a set is not sorted")
    return stop


def _parts(data: bytes, body: int, stop: int, depth: int) -> Iterator[bytes]:
    position = body
    while position < stop:
        following = _value(data, position, stop, depth + 1)
        yield data[position:following]
        position = following


def _primitive(number: int, contents: bytes) -> None:
    """The rules of X.690 for the contents of the universal primitive types that certificates use."""
    size = len(contents)
    if number == 0x01 and contents not in (b"\x00", b"\xff"):
        raise _Fault("a boolean is neither 00 nor FF")
    if number in (0x02, 0x0A) and (
        not contents or (size > 1 and (contents[0], contents[1] >> 7) in ((0x00, 0), (0xFF, 1)))
    ):
        raise _Fault("an integer is not minimal")
    if number == 0x03:
        unused = contents[0] if contents else 8
        if unused > 7 or (size == 1 and unused) or contents[-1] & ((1 << unused) - 1) * (size > 1):
            raise _Fault("a bit string has unused bits that are not zero")
    if number == 0x05 and contents:
        raise _Fault("a NULL has contents")
    if number == 0x06 and (not contents or contents[-1] & 0x80 or _padded(contents)):
        raise _Fault("an object identifier is not minimal")
    if number == 0x17 and not _UTC_TIME.fullmatch(contents):
        raise _Fault("a UTCTime is not YYMMDDhhmmssZ")
    if number == 0x18 and not _GENERALIZED_TIME.fullmatch(contents):
        raise _Fault("a GeneralizedTime is not YYYYMMDDhhmmss[.f]Z")
    if number in _TEXTS:
        try:
            contents.decode(_TEXTS[number])
        except UnicodeDecodeError:
            raise _Fault("a text is not in its character set") from None
    if number in (0x00, 0x0E, 0x0F):
        raise _Fault("a reserved tag is used")


def _padded(contents: bytes) -> bool:
    """Whether an arc of an object identifier begins with the octet 80, a zero digit."""
    return any(octet == 0x80 and (index == 0 or not contents[index - 1] & 0x80) for index, octet in enumerate(contents))
