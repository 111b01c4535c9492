"""A hospital's endpoint: keeps what it is sent, and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """``answers`` says what to answer next: a status, or ``None`` to end the connection; 200 when it is empty."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], Any]] = []
        self.answers: list[int | None] = []
        self.address = ""
        self.host = ""

    def bundles(self, kind: str = "event-notification") -> list[Any]:
        """The notifications of one type, in the order they came."""
        return [body for _, body in list(self.got) if body["entry"][0]["resource"]["type"] == kind]

    def numbers(self) -> list[int]:
        """Numbers of all events, as they came."""
        heads = [body["entry"][0]["resource"] for body in self.bundles()]
        return [int(event["eventNumber"]) for head in heads for event in head["notificationEvent"]]

    def until(self, there: Callable[[], object], seconds: float = 180.0) -> None:
        end = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < end, f"waited {seconds} s; got {[b['entry'][0]['resource'] for _, b in self.got]}"
            time.sleep(0.02)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = receiver.answers.pop(0) if receiver.answers else 200
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", receiver.address + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.host = f"127.0.0.1:{server.server_address[1]}"
    receiver.address = f"http://{receiver.host}/fhir-notify"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
