"""Archives to export, the official OTLP messages, and an HTTP receiver made of them."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evidence.sessions.record import ERASURE, INFERENCE, encode_record, leaf_of, read_record
from evidence.verifier.audit import NO_LEAF

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PSEUDONYM = "0ji6Wb6kLYZPoPVNGVwnigs91MdfeYrFYS-607FQeHA"
TOKEN = "0123456789abcdef" * 2
ENGINE = {
    "arithmetic": "CA-1",
    "model": "cxr",
    "model_version": "1.2",
    "target": "x86_64-linux-musl",
    "config_digest": "1" * 128,
    "frozen_graph": "2" * 128,
    "weights_digest": "3" * 128,
}


def inference(number: int, **other: Any) -> dict[str, Any]:
    """The fields of one record; every second one has a trace."""
    trace = {"parent": PARENT, "state": f"cuvil={PSEUDONYM},congo=1"} if number % 2 == 0 else None
    tensor = {"digest": "4" * 128, "dtype": "float32", "name": "image", "shape": [1, 1, 28, 28]}
    return {
        "decisions": {"pneumonia": True, "low_quality": False},
        "engine": ENGINE,
        "failure": None,
        "guards": {"not_blank": True},
        "inputs": [tensor],
        "kept": False,
        "outputs": [{**tensor, "name": "prob"}],
        "quantities": None,
        "run": {"isa": "avx2", "threads": 2},
        "salted": False,
        "status": "decided",
        "subject": TOKEN if number == 0 else None,
        "trace": trace,
        **other,
    }


def archive(folder: Path, count: int = 4) -> list[str]:
    """An archive of ``count`` inferences, the last refused, with an erasure before it; the leaves."""
    leaves = [NO_LEAF]
    lines = []
    for index in range(count + 1):
        kind, fields = INFERENCE, inference(index)
        if index == count - 1:
            kind, fields = ERASURE, {"subject": TOKEN}
        if index == count:
            failure = {"guard": "not_blank", "kind": "safety_guard"}
            fields = inference(index, status="refused", failure=failure, decisions={}, outputs=[], trace=None)
        line = encode_record(index, kind, leaves[-1], fields)
        read_record(line)
        lines.append(line)
        leaves.append(leaf_of(line))
    folder.mkdir()
    (folder / "session.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return leaves[1:]


def message(request: Any) -> ExportTraceServiceRequest:
    """``request`` read by the official messages; an unknown field, a wrong type or a malformed number raises.

    The one thing in which OTLP's JSON is not protobuf's: ids are hexadecimal and not base64.
    """
    made = copy.deepcopy(request)
    for resource in made["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(made, ExportTraceServiceRequest())


def spans_of(*messages: ExportTraceServiceRequest) -> dict[bytes, Any]:
    """Spans by id, with resource and scope."""
    return {
        span.span_id: (resource.resource, scope.scope, span)
        for item in messages
        for resource in item.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


class Receiver(ThreadingHTTPServer):
    """Takes OTLP over HTTP, JSON or protobuf; ``answers`` are given first, as (status, headers, body)."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.got: list[tuple[str, dict[str, str], ExportTraceServiceRequest]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        kind = self.headers["Content-Type"]
        read = message(json.loads(data)) if kind == "application/json" else ExportTraceServiceRequest.FromString(data)
        self.server.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, read))
        status, headers, body = self.server.answers.pop(0) if self.server.answers else (200, {}, b"{}")
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if kind == "application/json" else b"")

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: Any) -> None:
        return


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
