"""Who may do what: reads are open or for those who are known, writes are for registered builders.

Somebody is known by a token (``tokens``) or by the client certificate of the connection. A builder is a P-384 key that
the trust root holds, with the role ``builder`` where it has a keyring. This is the seam for an identity gateway:
``admit`` takes a request and gives it back with the name of who asks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from cryptography.x509 import load_pem_x509_certificate

from evidence.verifier.errors import VerifierError
from evidence.verifier.signing import P384, key_id
from evidence.verifier.trust import TrustRoot, default_trust_root, load_trust_root
from fhir_registry.server.http import HttpError, Request
from fhir_registry.server.limits import Rates
from fhir_registry.server.tokens import RefusedTokenError, make_token, read_token
from fhir_registry.server.used import UsedTokens

__all__ = ["Access", "make_token"]

BUILDER: Final = "builder"
_READS: Final = ("GET", "HEAD", "OPTIONS")
_OPEN_POSTS: Final = ("_search", "$validate", "$verify", "$model-resource")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="cuvil registry"'}
LOG: Final = logging.getLogger("cuvil.registry")
_FRESH_SECONDS: Final = 1.0


def writes(request: Request) -> bool:
    return request.method not in _READS and (request.parts[-1:] or [""])[0] not in _OPEN_POSTS


class Access:
    """Admits requests. ``trust_root``: whose builders may write; this machine's own keys if absent.

    ``private``: reads too need a token or certificate, of anybody known; ``metadata`` stays open, which clients read
    before they know how to ask. ``rates``: what each of those known may do in a second. ``audience``: whom tokens must
    be for; the address the request came to if empty, which its sender chooses.
    """

    def __init__(
        self,
        trust_root: Path | None,
        used: UsedTokens,
        *,
        private: bool = False,
        rates: Rates | None = None,
        clock: Callable[[], float] = time.time,
        audience: str = "",
    ) -> None:
        self.audience = audience
        self.path = trust_root
        self.used = used
        self.private = private
        self.rates = rates
        self.clock = clock
        self._kept: tuple[float, TrustRoot] | None = None

    async def admit(self, request: Request) -> Request:
        """The request with the name of who sends it.

        ``HttpError`` 401 without a token or certificate where one is needed, 403 with a wrong one, 429 for too many
        requests of one name.
        """
        writing = writes(request)
        who = await self._who(request, writing)
        if not who and (writing or (self.private and request.parts != ["metadata"])):
            text = "a write needs the token of a registered builder" if writing else "this registry is not public"
            raise HttpError(401, "login", f"{text}; send Authorization: Bearer", _CHALLENGE)
        if who and self.rates is not None:
            self.rates.check(f"as {who}", writing)
        return replace(request, who=who) if who else request

    async def _who(self, request: Request, writing: bool) -> str:
        given = request.headers.get("authorization", "")
        if given:
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer":
                raise HttpError(401, "login", "Authorization is Bearer and a token", _CHALLENGE)
            try:
                return await self._holder(token.strip(), self.audience or request.base, writing)
            except RefusedTokenError as error:
                raise HttpError(403, "forbidden", f"the token is refused: {error}") from None
        return self._certified(request.certificate, writing) if request.certificate else ""

    async def _holder(self, text: str, base: str, writing: bool) -> str:
        token = read_token(text)
        spki, person = self._key(token.issuer, BUILDER if writing else "")
        if not _signed(spki, token.message, token.signature):
            raise RefusedTokenError("its signature does not hold")
        ends = token.ends(self.clock(), base)
        if writing:
            if not 16 <= len(token.identifier) <= 200:
                raise RefusedTokenError("its jti must have 16 to 200 characters")
            if not await self.used.take(token.issuer, token.identifier, ends):
                raise RefusedTokenError("it was used before; make a new one for each write")
        return person

    def _certified(self, certificate: str, writing: bool) -> str:
        """The holder of a client certificate, which the TLS layer has checked against the client authorities."""
        spki, subject = _certificate(certificate)
        try:
            return self._key(key_id(spki), BUILDER if writing else "")[1]
        except RefusedTokenError as error:
            if writing:
                raise HttpError(403, "forbidden", f"the client certificate is refused: {error}") from None
            return subject

    def _key(self, identifier: str, role: str) -> tuple[bytes, str]:
        """The P-384 key with that id (SubjectPublicKeyInfo) and its person; ``role`` empty: any role."""
        root = self._root()
        ring = root.keyring
        entry = ring.entry(identifier) if ring is not None else None
        if entry is not None and ring is not None:
            try:
                ring.check(identifier, role or entry.roles[0], datetime.fromtimestamp(self.clock(), UTC), stamped=False)
            except VerifierError as error:
                raise RefusedTokenError(str(error)) from None
            spki, algorithm, person = entry.spki, entry.algorithm, entry.person
        else:
            key = root.key(identifier)
            if key is None:
                raise RefusedTokenError("no builder with this P-384 key is registered here")
            spki, algorithm, person = key.spki, key.algorithm, f"key {identifier[:16]}"
        if algorithm != P384:
            raise RefusedTokenError("its key is not a P-384 key")
        return spki, person

    def _root(self) -> TrustRoot:
        """Read again after a second: a key that is revoked or added counts soon, and not every write reads files."""
        now = time.monotonic()
        if self._kept is None or now - self._kept[0] > _FRESH_SECONDS:
            try:
                self._kept = now, load_trust_root(self.path or default_trust_root())
            except VerifierError as error:
                LOG.warning("no token can be accepted: %s", error)  # with the path, which is not for clients
                raise RefusedTokenError(
                    "this server trusts nobody yet: it has no trust root that it can read"
                ) from None
        return self._kept[1]


# Kept: where a registry is private, one token comes with many reads.
@lru_cache(maxsize=4096)
def _signed(spki: bytes, message: bytes, signature: bytes) -> bool:
    """ECDSA with SHA-384, by the package cryptography: half the time of the system's library, for each write."""
    try:
        _public_key(spki).verify(signature, message, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=256)
def _public_key(spki: bytes) -> ec.EllipticCurvePublicKey:
    found = load_der_public_key(spki)
    assert isinstance(found, ec.EllipticCurvePublicKey)  # the trust root says so of every key of this algorithm
    return found


@lru_cache(maxsize=256)
def _certificate(pem: str) -> tuple[bytes, str]:
    """SubjectPublicKeyInfo and the subject as text (RFC 4514)."""
    found = load_pem_x509_certificate(pem.encode())
    spki = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return spki, found.subject.rfc4514_string()[:200] or "certificate without a subject"
