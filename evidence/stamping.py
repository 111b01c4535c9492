"""The asking side of RFC 3161: a request for an imprint, and the token out of a response."""

from __future__ import annotations

import secrets

from asn1crypto import tsp

from evidence.verifier.errors import UsageError


def request_of(imprint: bytes) -> bytes:
    """A TimeStampReq (DER) over a SHA-512 imprint of 64 bytes, with a nonce, asking for the TSA's certificate."""
    request = tsp.TimeStampReq(
        {
            "version": "v1",
            "message_imprint": {"hash_algorithm": {"algorithm": "sha512"}, "hashed_message": imprint},
            "nonce": secrets.randbits(63),
            "cert_req": True,
        }
    )
    return bytes(request.dump())


def token_of(response: bytes) -> bytes:
    """The token (DER) of a TimeStampResp that grants one; ``UsageError`` with the TSA's status otherwise.

    The token is not verified here: the release that carries it is, before it is delivered.
    """
    try:
        parsed = tsp.TimeStampResp.load(response, strict=True)
        status = parsed["status"]["status"].native
        token = bytes(parsed["time_stamp_token"].dump())
    except (ValueError, TypeError, KeyError):
        raise UsageError("the timestamp authority's answer is no RFC 3161 response; check its address") from None
    if status not in ("granted", "granted_with_mods"):
        raise UsageError(f"the timestamp authority refused the request: {status}; ask its operator")
    return token
