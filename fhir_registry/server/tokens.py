"""JSON Web Tokens (RFC 7519) signed with ES384 (RFC 7518) by the P-384 key of a registered person."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from evidence.verifier.der import encode_signature
from evidence.verifier.signing import Signer, key_id

LONGEST: Final = 300
SKEW: Final = 60
_LONGEST_TEXT: Final = 8000


class RefusedTokenError(Exception):
    """Why a token is not accepted."""


@dataclass(frozen=True)
class Token:
    """A token as it was sent: nothing of it is to be believed before ``signature`` (DER) over ``message`` holds."""

    claims: dict[str, Any]
    message: bytes
    signature: bytes

    @property
    def issuer(self) -> str:
        """The id of the key that is said to have signed it."""
        return str(self.claims.get("iss", ""))

    @property
    def identifier(self) -> str:
        return str(self.claims.get("jti", ""))

    def ends(self, now: float, audience: str) -> int:
        """When it ends; ``RefusedTokenError`` for a token that holds too long, not now, or for another server."""
        issued, ends = self.claims.get("iat"), self.claims.get("exp")
        if not isinstance(issued, int) or not isinstance(ends, int) or not issued < ends <= issued + LONGEST:
            raise RefusedTokenError(f"it must end at most {LONGEST} seconds after it was made")
        begins = self.claims.get("nbf", issued)
        if not isinstance(begins, int) or not max(issued, begins) - SKEW <= now < ends:
            raise RefusedTokenError("it has ended, does not hold yet, or is from a clock that goes ahead")
        if self.claims.get("aud") != audience:
            raise RefusedTokenError(f"it is for {str(self.claims.get('aud'))[:80]!r}, and this is {audience}")
        return ends


def make_token(signer: Signer, audience: str, now: float | None = None, seconds: int = 120) -> str:
    """A token of ``signer`` (P-384) for the server at ``audience``."""
    issued = int(time.time() if now is None else now)
    claims = {
        "iss": key_id(signer.spki),
        "aud": audience,
        "iat": issued,
        "exp": issued + seconds,
        "jti": secrets.token_urlsafe(24),
    }
    head = {"alg": "ES384", "typ": "JWT", "kid": key_id(signer.spki)}
    text = f"{_encode(json.dumps(head).encode())}.{_encode(json.dumps(claims).encode())}"
    return f"{text}.{_encode(_raw(signer.sign(text.encode())))}"


def read_token(text: str) -> Token:
    """The parts of a token; ``RefusedTokenError`` for anything but a JSON Web Token signed with ES384."""
    parts = text.split(".")
    if len(parts) != 3 or len(text) > _LONGEST_TEXT:
        raise RefusedTokenError("it is no JSON Web Token")
    try:
        head, claims = (json.loads(_decode(part)) for part in parts[:2])
        signature = _decode(parts[2])
    except (ValueError, binascii.Error, RecursionError):
        raise RefusedTokenError("it is no JSON Web Token") from None
    if not isinstance(head, dict) or not isinstance(claims, dict) or len(signature) != 96:
        raise RefusedTokenError("it is no JSON Web Token signed with ES384")
    if head.get("alg") != "ES384" or "crit" in head:
        raise RefusedTokenError("it is not signed with ES384")
    return Token(claims, f"{parts[0]}.{parts[1]}".encode(), _der(signature))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encode(data) != text:
        raise ValueError("not canonical")
    return data


def _raw(der: bytes) -> bytes:
    """r and s of 48 bytes each, as RFC 7518 section 3.4 writes a signature."""
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

    r, s = decode_dss_signature(der)
    return r.to_bytes(48, "big") + s.to_bytes(48, "big")


def _der(raw: bytes) -> bytes:
    return encode_signature(int.from_bytes(raw[:48], "big"), int.from_bytes(raw[48:], "big"))
