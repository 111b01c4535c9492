"""HTTP/1.1 below the application: what nobody can parse is answered as FHIR, and what never ends is dropped."""

from __future__ import annotations

import asyncio
import ssl
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fhir_registry.json_text import write_json
from fhir_registry.server.http import FHIR_JSON
from fhir_registry.validation.issues import one_outcome

HEAD_SECONDS: Final = 20.0
"""How long the head of a request may take."""
LARGEST_HEAD: Final = 64 << 10
SEND_SECONDS: Final = 60.0
"""How long a client may leave an answer lying that is larger than the buffers."""
MOST_CONNECTIONS: Final = 1000


class FhirProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with OperationOutcomes for plain text and limits on time and size of a request's head."""

    _deadline: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0

    _unsent: asyncio.TimerHandle | None = None
    _certificate = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._limit_time()
        secured = transport.get_extra_info("ssl_object")
        shown = secured.getpeercert(True) if secured is not None else None
        if shown:
            self._certificate = ssl.DER_cert_to_PEM_cert(shown)
        if len(self.connections) > MOST_CONNECTIONS:
            text = f"{MOST_CONNECTIONS} connections are open; try again later"
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "throttled", text)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        self._sent()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD and not self.transport.is_closing():
                text = f"address and header fields may have {LARGEST_HEAD} bytes"
                self._answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too-long", text)

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._limit_time()
        super().on_message_begin()
        if self._certificate:
            # As the extension TLS of ASGI has it: what the TLS layer has verified, in PEM.
            self.scope["extensions"] = {"tls": {"client_cert_chain": [self._certificate]}}

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._in_time()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unsent is None:
            self._unsent = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._sent()
        super().resume_writing()

    def _sent(self) -> None:
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # the client asks nothing more and takes nothing
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """``msg`` is uvicorn's own sentence."""
        self._answer(HTTPStatus.BAD_REQUEST, "structure", "the request is not HTTP/1.1 as RFC 9112 has it")

    def _answer(self, status: HTTPStatus, issue: str, text: str) -> None:
        body = write_json(one_outcome(issue, text))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {FHIR_JSON}; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _limit_time(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._in_head and self._head_bytes:
            text = f"the head of the request did not end within {HEAD_SECONDS:.0f} s"
            self._answer(HTTPStatus.REQUEST_TIMEOUT, "timeout", text)
        else:
            self.transport.close()
