"""Who may do what: reads are open, writes need the signed token of a registered builder.

The token is a JSON Web Token (RFC 7519) signed with ES384 (RFC 7518) by a P-384 key that the trust root holds: ``iss``
is the key id, ``aud`` the address of the server, ``exp`` at most five minutes after ``iat``, and ``jti`` is taken once
by each server process.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evidence.verifier.der import encode_signature
from evidence.verifier.errors import VerifierError
from evidence.verifier.signing import P384, Signer, key_id
from evidence.verifier.trust import TrustRoot, default_trust_root, load_trust_root
from fhir_registry.server.http import HttpError, Request

LONGEST: Final = 300
SKEW: Final = 60
_READS: Final = ("GET", "HEAD", "OPTIONS")
_OPEN_POSTS: Final = ("_search", "$validate", "$verify", "$model-resource")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="cuvil registry"'}


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


class Access:
    """Admits requests; ``trust_root``: whose builders may write; this machine's own keys if absent."""

    def __init__(self, trust_root: Path | None, clock: Callable[[], float] = time.time) -> None:
        self.path = trust_root
        self.clock = clock
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()

    def admit(self, request: Request) -> Request:
        """The request with the name of who sends it. 401 without a token where one is needed, 403 with a wrong one."""
        given = request.headers.get("authorization", "")
        writes = request.method not in _READS and (request.parts[-1:] or [""])[0] not in _OPEN_POSTS
        if not given:
            if writes:
                raise HttpError(401, "login", "a write needs the token of a registered builder", _CHALLENGE)
            return request
        scheme, _, token = given.partition(" ")
        if scheme.lower() != "bearer":
            raise HttpError(401, "login", "Authorization is Bearer and a token", _CHALLENGE)
        try:
            return replace(request, who=self._holder(token.strip(), request.base, once=writes))
        except _RefusedTokenError as error:
            raise HttpError(403, "forbidden", f"the token is refused: {error}") from None

    def _holder(self, token: str, base: str, once: bool) -> str:
        head, claims, message, signature = _parse(token)
        if head.get("alg") != "ES384" or "crit" in head:
            raise _RefusedTokenError("it is not signed with ES384")
        identifier = str(claims.get("iss", ""))
        verifier, person = self._key(identifier)
        if not verifier.verify(message, _der(signature)):
            raise _RefusedTokenError("its signature does not hold")
        now, issued, ends = self.clock(), claims.get("iat"), claims.get("exp")
        if not isinstance(issued, int) or not isinstance(ends, int) or not issued < ends <= issued + LONGEST:
            raise _RefusedTokenError(f"it must end at most {LONGEST} seconds after it was made")
        if not issued - SKEW <= now < ends:
            raise _RefusedTokenError("it has ended, or is from a clock that goes ahead")
        if claims.get("aud") != base:
            raise _RefusedTokenError(f"it is for {str(claims.get('aud'))[:80]!r}, and this is {base}")
        if once:
            self._take(str(claims.get("jti", "")), ends, now)
        return person or f"key {identifier[:16]}"

    def _key(self, identifier: str) -> tuple[Any, str]:
        root = self._root()
        ring = root.keyring
        entry = ring.entry(identifier) if ring is not None else None
        if entry is not None and ring is not None:
            from datetime import UTC, datetime

            try:
                ring.check(identifier, "builder", datetime.fromtimestamp(self.clock(), UTC), stamped=False)
            except VerifierError as error:
                raise _RefusedTokenError(str(error)) from None
            if entry.algorithm != P384:
                raise _RefusedTokenError("its key is not a P-384 key")
            from evidence.verifier.public_keys import verifier_of

            return verifier_of(entry.spki), entry.person
        key = root.key(identifier)
        if key is None or key.algorithm != P384:
            raise _RefusedTokenError("no builder with this P-384 key is registered here")
        return key.verifier(), ""

    def _root(self) -> TrustRoot:
        try:
            return load_trust_root(self.path or default_trust_root())
        except VerifierError as error:
            raise _RefusedTokenError(f"this server trusts nobody yet ({error})") from None

    def _take(self, identifier: str, ends: int, now: float) -> None:
        if len(identifier) < 16 or len(identifier) > 200:
            raise _RefusedTokenError("its jti must have 16 to 200 characters")
        digest = hashlib.sha256(identifier.encode()).hexdigest()
        with self._lock:
            self._used = {known: end for known, end in self._used.items() if end > now}
            if digest in self._used:
                raise _RefusedTokenError("it was used before; make a new one for each write")
            self._used[digest] = ends


class _RefusedTokenError(Exception):
    """Why a token is not accepted."""


def _parse(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > 8000:
        raise _RefusedTokenError("it is no JSON Web Token")
    try:
        head, claims = (json.loads(_decode(part)) for part in parts[:2])
        signature = _decode(parts[2])
    except (ValueError, binascii.Error, RecursionError):
        raise _RefusedTokenError("it is no JSON Web Token") from None
    if not isinstance(head, dict) or not isinstance(claims, dict) or len(signature) != 96:
        raise _RefusedTokenError("it is no JSON Web Token signed with ES384")
    return head, claims, f"{parts[0]}.{parts[1]}".encode(), signature


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
