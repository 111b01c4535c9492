"""Strict DER of ECDSA and SM2 signatures, and strict PEM.

OpenSSL, gmssl and others differ on long-form lengths, redundant zeros and trailing bytes; one decoder of our own gives
every backend the same answer. Sources: RFC 3279 section 2.2.3 and GM/T 0009 (a SEQUENCE of two INTEGERs), ITU-T X.690.
"""

from __future__ import annotations

import base64
import textwrap

from evidence.verifier.canonical import MalformedError, strict_base64


def encode_signature(r: int, s: int) -> bytes:
    """DER of SEQUENCE { INTEGER r, INTEGER s }; both positive and below 2**384."""
    body = b"".join(_encode_integer(value) for value in (r, s))
    return bytes([0x30, len(body)]) + body


def decode_signature(data: bytes, order: int) -> tuple[int, int]:
    """``(r, s)`` of a strict DER signature with ``1 <= r, s <= order - 1``; ``MalformedError`` otherwise."""
    if len(data) < 2 or data[0] != 0x30 or data[1] >= 0x80 or len(data) != 2 + data[1]:
        raise MalformedError("the signature is not one DER sequence of the stated length")
    r, position = _decode_integer(data, 2)
    s, position = _decode_integer(data, position)
    if position != len(data):
        raise MalformedError("the signature has bytes after its two integers")
    if not (1 <= r < order and 1 <= s < order):
        raise MalformedError("the signature's numbers are outside 1..n-1")
    return r, s


def _encode_integer(value: int) -> bytes:
    body = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return bytes([0x02, len(body)]) + body


def _decode_integer(data: bytes, position: int) -> tuple[int, int]:
    if position + 2 > len(data) or data[position] != 0x02:
        raise MalformedError("the signature does not hold two DER integers")
    start, length = position + 2, data[position + 1]
    body = data[start : start + length]
    if not 1 <= length < 0x80 or len(body) != length:
        raise MalformedError("the signature has an integer of wrong length")
    if body[0] & 0x80 or (length > 1 and body[0] == 0 and not body[1] & 0x80):
        raise MalformedError("the signature has a negative or not minimally encoded integer")
    return int.from_bytes(body, "big"), start + length


def encode_pem(label: str, der: bytes) -> str:
    """PEM (RFC 7468) with 64-column lines and a final newline."""
    lines = textwrap.wrap(base64.b64encode(der).decode("ascii"), 64)
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def decode_pem(text: str) -> tuple[str, bytes]:
    """``(label, der)`` of a text that is exactly one PEM block; ``MalformedError`` otherwise."""
    lines = text.strip().splitlines()
    if len(lines) < 3 or not lines[0].startswith("-----BEGIN ") or not lines[0].endswith("-----"):
        raise MalformedError("is not one PEM block")
    label = lines[0][len("-----BEGIN ") : -len("-----")]
    if lines[-1] != f"-----END {label}-----":
        raise MalformedError("is not one PEM block")
    return label, strict_base64("".join(lines[1:-1]), "the PEM body")
