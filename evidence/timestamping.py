"""Requesting an RFC 3161 timestamp over HTTP (section 3.4), and checking the answer before it is accepted."""

from __future__ import annotations

import http.client
import secrets
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from asn1crypto import cms, core, tsp

from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import CertificateFailure, UsageError
from evidence.verifier.strict_der import parse
from evidence.verifier.timestamp import Timestamp, read_timestamp

_MAX_ANSWER = 1 << 18
_QUERY, _REPLY = "application/timestamp-query", "application/timestamp-reply"
_CLOCK_TOLERANCE = timedelta(minutes=10)


class _Response(core.Sequence):  # type: ignore[misc]
    """TimeStampResp with the token optional, as RFC 3161 section 2.4.2 has it; asn1crypto's own class requires it."""

    _fields: ClassVar[list[Any]] = [
        ("status", tsp.PKIStatusInfo),
        ("time_stamp_token", cms.ContentInfo, {"optional": True}),
    ]


def request_der(imprint: bytes, nonce: int, policy_oid: str | None = None) -> bytes:
    """DER of a TimeStampReq for the SHA-512 ``imprint`` (64 bytes) that asks for the authority's certificate."""
    fields = {
        "version": "v1",
        "message_imprint": {"hash_algorithm": {"algorithm": "sha512"}, "hashed_message": imprint},
        "nonce": nonce,
        "cert_req": True,
    }
    der: bytes = tsp.TimeStampReq(fields | ({"req_policy": policy_oid} if policy_oid else {})).dump()
    return der


def token_of(response: bytes) -> bytes:
    """DER of the token in a TimeStampResp; ``UsageError`` with the authority's words when it refused.

    The set of certificates is put in the order of DER, which some authorities do not keep; nothing signs that order.
    """
    try:
        answer = _Response.load(response, strict=True)
        status = answer["status"]
        if status["status"].native not in ("granted", "granted_with_mods"):
            texts = [] if isinstance(status["status_string"], core.Void) else status["status_string"].native
            said = "; ".join([str(status["status"].native), *(str(text) for text in texts)])
            raise UsageError(f"it refused: {' '.join(said.split())[:200]}")
        if isinstance(answer["time_stamp_token"], core.Void):
            raise UsageError("its answer holds no token")
        token: bytes = answer["time_stamp_token"].dump()
        certificates = answer["time_stamp_token"]["content"]["certificates"]
        parts = [] if isinstance(certificates, core.Void) else [item.dump() for item in certificates]
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError):
        raise UsageError("its answer is not a TimeStampResp") from None
    if parts != sorted(parts):
        token = token.replace(b"".join(parts), b"".join(sorted(parts)), 1)
    try:
        parse(cms.ContentInfo, token, "the timestamp token", again=False)
    except MalformedError as error:
        raise UsageError(str(error)) from None
    return token


def request_timestamp(
    url: str,
    imprint: bytes,
    roots: Sequence[bytes],
    *,
    policy_oid: str | None = None,
    timeout_s: float = 20,
    intermediates: Sequence[bytes] = (),
    now: datetime | None = None,
) -> tuple[bytes, Timestamp]:
    """A token over ``imprint`` (SHA-512, 64 bytes) from the authority at ``url``, verified, with what it says.

    ``roots``: DER of the accepted authorities' roots. ``now``: the clock that genTime is compared with, to ten minutes.
    Raises ``UsageError`` naming ``timestamp.url`` for anything that keeps the token from being accepted.
    """
    nonce = secrets.randbits(63) | 1 << 62
    try:
        if not roots:
            raise UsageError("the trust root has no tsa_roots to check an answer with")
        token = token_of(_post(url, request_der(imprint, nonce, policy_oid), timeout_s))
        stamp = read_timestamp(token, imprint, roots, intermediates=intermediates)
    except (UsageError, CertificateFailure) as error:
        raise UsageError(f"timestamp.url {url}: {error}; check the address, or name another authority") from None
    if stamp.nonce != nonce:
        raise UsageError(f"timestamp.url {url}: the answer is to another request (nonce); ask again")
    if policy_oid is not None and stamp.policy != policy_oid:
        raise UsageError(f"timestamp.policy_oid is {policy_oid}, but the authority stamped under {stamp.policy}")
    if abs(stamp.gen_time - (now or datetime.now(UTC))) > _CLOCK_TOLERANCE:
        raise UsageError(
            f"timestamp.url {url}: the authority's time {stamp.gen_time:%Y-%m-%dT%H:%M:%SZ} is more than ten minutes "
            "from this machine's; set the clock"
        )
    return token, stamp


def _post(url: str, body: bytes, timeout_s: float) -> bytes:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": _QUERY, "Accept": _REPLY})
    if request.type not in ("http", "https"):
        raise UsageError("is not an http or https address")
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            kind = answer.headers.get_content_type()
            data: bytes = answer.read(_MAX_ANSWER + 1)
    except urllib.error.HTTPError as error:
        error.close()
        raise UsageError(f"answered with status {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UsageError(f"cannot be reached ({' '.join(str(reason).split())})") from None
    if len(data) > _MAX_ANSWER:
        raise UsageError(f"its answer is larger than {_MAX_ANSWER} bytes")
    if kind != _REPLY:
        raise UsageError(f"its answer is {kind}, not {_REPLY}")
    return data
