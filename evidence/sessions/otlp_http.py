"""Sending OTLP over HTTP with JSON (OTLP specification, "OTLP/HTTP"): one request after another, with its retries."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from evidence.verifier.canonical import Json
from evidence.verifier.errors import UsageError, VerificationFailed

PATH = "/v1/traces"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""Environment variable of the OpenTelemetry specification: ``name=value,name=value``, percent-encoded."""
TIMEOUT_S = 10.0
_RETRYABLE = frozenset({429, 502, 503, 504})
_TRIES = 5
_LONGEST_WAIT_S = 30.0
_ANSWER_MAX = 1 << 20


def endpoint(text: str) -> str:
    """The URL to send traces to: ``text``, with ``/v1/traces`` where it has no path. ``UsageError`` for no HTTP URL."""
    parts = urlsplit(text)
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(f"{text!r}: is no address of a collector; give http://HOST:PORT, or a file's name")
    return urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else PATH))


def send(url: str, request: dict[str, Json], pause: Callable[[float], None] = time.sleep) -> None:
    """Send one ``ExportTraceServiceRequest``; retried where the specification allows it.

    ``UsageError`` when the collector cannot be reached or refuses it, ``VerificationFailed`` ``otlp-partial`` when it
    took only part of the spans.
    """
    body = json.dumps(request, separators=(",", ":"), ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "cuvil", **_headers()}
    for number in range(_TRIES):
        try:
            answer = _opener.open(urllib.request.Request(url, body, headers), timeout=TIMEOUT_S)
            with answer:
                _check(url, answer.read(_ANSWER_MAX))
            return
        except urllib.error.HTTPError as error:
            if error.code not in _RETRYABLE or number == _TRIES - 1:
                raise UsageError(f"{url}: the collector answers {error.code} {_reason(error)}; see its log") from None
            pause(_wait(error.headers.get("Retry-After"), number))
        except (OSError, ValueError) as error:
            raise UsageError(f"{url}: the collector cannot be reached ({_sentence(error)}); is it running?") from None


def _check(url: str, answer: bytes) -> None:
    """What ``ExportTraceServiceResponse`` says about rejected spans."""
    try:
        document: Any = json.loads(answer or b"{}")
        partial = document.get("partialSuccess") or {}
        rejected, message = int(partial.get("rejectedSpans") or 0), str(partial.get("errorMessage") or "")
    except (ValueError, AttributeError, TypeError):
        return  # 200 is the answer; a body that is not JSON says nothing about spans
    if rejected:
        reason = message or "it does not say why"
        raise VerificationFailed("otlp-partial", f"{url}: the collector rejected {rejected} spans ({reason})")


def _headers() -> dict[str, str]:
    found = {}
    for part in os.environ.get(HEADERS, "").split(","):
        name, equals, value = part.partition("=")
        if equals:
            found[name.strip()] = unquote(value.strip())
        elif part.strip():
            raise UsageError(f"{HEADERS}: {part.strip()!r} is no name=value; correct it")
    if any(not (name + value).isascii() or not (name + value).isprintable() for name, value in found.items()):
        raise UsageError(f"{HEADERS}: holds characters that no header may have; correct it")
    return found


def _wait(given: str | None, number: int) -> float:
    seconds = float(given) if given and given.isascii() and given.isdigit() else float(2**number)
    return min(seconds, _LONGEST_WAIT_S)


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read(_ANSWER_MAX).decode("utf-8", "replace")
    return f"{error.reason} ({' '.join(text.split())[:200]})" if text.strip() else str(error.reason)


def _sentence(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would be sent again as GET, without the spans."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Message, newurl: str) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)
