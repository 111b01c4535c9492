"""SM2 in plain integers (GB/T 32918.2), written from the standard for the tests: slow, not constant time."""

from __future__ import annotations

import hashlib

P = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
A = P - 3
B = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93
N = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
G = (
    0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
    0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
)
Point = tuple[int, int] | None


def add(left: Point, right: Point) -> Point:
    if left is None or right is None:
        return right if left is None else left
    (x1, y1), (x2, y2) = left, right
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    slope = (3 * x1 * x1 + A) * pow(2 * y1, -1, P) if left == right else (y2 - y1) * pow(x2 - x1, -1, P)
    x3 = (slope * slope - x1 - x2) % P
    return x3, (slope * (x1 - x3) - y1) % P


def multiply(scalar: int, point: Point) -> Point:
    result: Point = None
    while scalar:
        if scalar & 1:
            result = add(result, point)
        point, scalar = add(point, point), scalar >> 1
    return result


def public_point(d: int) -> bytes:
    """x || y of the public key of ``d``."""
    point = multiply(d, G)
    assert point is not None
    return b"".join(value.to_bytes(32, "big") for value in point)


def za(identity: bytes, point: bytes) -> bytes:
    constants = b"".join(value.to_bytes(32, "big") for value in (A, B, *G))
    return hashlib.new("sm3", (8 * len(identity)).to_bytes(2, "big") + identity + constants + point).digest()


def sign(d: int, k: int, identity: bytes | None, message: bytes) -> tuple[int, int]:
    """``(r, s)`` with the given random number ``k``; ``identity=None`` leaves Z out, as some tools wrongly do."""
    prefix = b"" if identity is None else za(identity, public_point(d))
    e = int.from_bytes(hashlib.new("sm3", prefix + message).digest(), "big")
    point = multiply(k, G)
    assert point is not None
    r = (e + point[0]) % N
    return r, pow(1 + d, -1, N) * (k - r * d) % N


def pkcs8(d: int) -> bytes:
    """PKCS#8 DER of the private key ``d`` (RFC 5958, RFC 5915)."""
    point = b"\x03\x42\x00\x04" + public_point(d)
    sec1 = b"\x30\x6b\x02\x01\x01\x04\x20" + d.to_bytes(32, "big") + b"\xa1\x44" + point
    algorithm = bytes.fromhex("301306072a8648ce3d020106082a811ccf5501822d")
    body = b"\x02\x01\x00" + algorithm + b"\x04\x6d" + sec1
    return b"\x30\x81" + bytes([len(body)]) + body
