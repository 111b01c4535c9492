"""Records as OpenTelemetry spans: read by the official messages, sent over HTTP, taken by a collector."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from otlp_case import ENGINE, PARENT, PSEUDONYM, TOKEN, archive, inference, message, receiving, spans_of

from cuvil_assets.cli import main
from evidence.keys import init_keys
from evidence.sessions.archive import Archive
from evidence.sessions.otlp import SPANS_A_REQUEST, Moment, moments, requests
from evidence.sessions.otlp_http import endpoint, send
from evidence.sessions.record import INFERENCE, encode_record, read_record
from evidence.sessions.seal import Seal, make_seal
from evidence.verifier.audit import NO_LEAF
from evidence.verifier.errors import UsageError, VerificationFailed

NOON = int(datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()) * 10**9


@pytest.fixture(autouse=True)
def straight_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_HEADERS", raising=False)


def facts(attributes: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in attributes}


def exported(folder: Path, strict: bool = False) -> list[Any]:
    records = Archive(folder).records()
    return list(requests(records, [Moment(NOON + item.index, "file") for item in records], strict))


def test_the_official_messages_read_every_field(tmp_path: Path) -> None:
    leaves = archive(tmp_path / "a")
    (request,) = exported(tmp_path / "a")
    read = message(json.loads(json.dumps(request)))
    (resource,) = read.resource_spans
    assert facts(resource.resource.attributes) == {
        "service.name": "cxr",
        "service.version": "1.2",
        "host.arch": "amd64",
        **{f"cuvil.engine.{name}": ENGINE[name] for name in ENGINE if not name.startswith("model")},
    }
    (scope,) = resource.scope_spans
    assert scope.scope.name == "cuvil.session" and len(scope.spans) == 4
    first, second, _, refused = scope.spans
    assert (first.name, first.kind, first.start_time_unix_nano, first.end_time_unix_nano) == (
        "inference",
        1,
        NOON,
        NOON,
    )
    assert first.trace_id.hex() == PARENT[3:35] and first.parent_span_id.hex() == PARENT[36:52]
    assert first.trace_state == f"cuvil={PSEUDONYM},congo=1" and first.flags == 0x301
    assert first.status.code == 0
    assert facts(first.attributes) == {
        "cuvil.record.index": 0,
        "cuvil.record.leaf": leaves[0],
        "cuvil.status": "decided",
        "cuvil.run.isa": "avx2",
        "cuvil.run.threads": 2,
        "cuvil.time.basis": "file",
        "cuvil.decision.pneumonia": True,
        "cuvil.decision.low_quality": False,
        "cuvil.guard.not_blank": True,
        "cuvil.input.image.digest": "4" * 128,
        "cuvil.output.prob.digest": "4" * 128,
        "cuvil.pseudonym": PSEUDONYM,
        "cuvil.subject": TOKEN,
    }
    # without a trace of its own each is the root of one that follows from the record
    assert second.parent_span_id == b"" and second.trace_state == "" and second.flags == 0x101
    assert len({span.trace_id for span in (first, second, refused)}) == len({s.span_id for s in scope.spans}) - 1 == 3
    assert (refused.status.code, refused.status.message) == (2, "safety_guard")
    found = facts(refused.attributes)
    assert (found["error.type"], found["cuvil.failure.guard"]) == ("safety_guard", "not_blank")
    assert [len(span.trace_id) for span in scope.spans] == [16] * 4 and [len(s.span_id) for s in scope.spans] == [8] * 4
    assert exported(tmp_path / "a") == [request]


def test_strict_spans_carry_nothing_of_the_image(tmp_path: Path) -> None:
    archive(tmp_path / "a")
    text = json.dumps(exported(tmp_path / "a", strict=True))
    assert PSEUDONYM not in text and TOKEN not in text and "4" * 128 not in text and '"congo=1"' in text


def test_engines_are_resources_and_requests_are_bounded() -> None:
    previous, records = NO_LEAF, []
    for index in range(2 * SPANS_A_REQUEST + 5):
        engine = {**ENGINE, "target": "aarch64-linux-musl" if index % 300 == 299 else "riscv64-unknown"}
        records.append(read_record(encode_record(index, INFERENCE, previous, inference(index, engine=engine))))
        previous = records[-1].leaf
    made = list(requests(records, [Moment(NOON, "file")] * len(records)))
    read = [message(item) for item in made]
    assert [len(spans_of(item)) for item in read] == [SPANS_A_REQUEST, SPANS_A_REQUEST, 5]
    assert len(spans_of(*read)) == len(records)
    assert [len(item.resource_spans) for item in read] == [1, 3, 1]
    arm = facts(read[1].resource_spans[1].resource.attributes)
    assert arm["host.arch"] == "arm64" and "host.arch" not in facts(read[0].resource_spans[0].resource.attributes)
    assert max(len(json.dumps(item)) for item in made) < 1 << 20


def test_a_record_stands_at_the_seal_that_covers_it() -> None:
    seals = [Seal(2, "", "", "2026-12-01T12:00:00Z", ""), Seal(3, "", "", "2026-12-01T13:00:00Z", "")]
    hour = 3600 * 10**9
    assert moments(5, seals, NOON + 9 * hour) == [
        *[Moment(NOON, "seal")] * 2,
        Moment(NOON + hour, "seal", "2026-12-01T12:00:00Z"),
        *[Moment(NOON + 9 * hour, "file", "2026-12-01T13:00:00Z")] * 2,
    ]
    assert moments(1, [], 7) == [Moment(7, "file")]


def test_the_command_writes_a_file_that_collectors_read(
    tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path / "a")
    keys = init_keys(home)
    make_seal(Archive(tmp_path / "a"), keys.signers, ("2026-12-01T12:00:00Z", "test"))
    out = tmp_path / "spans.jsonl"
    assert main(["trace", "export", str(tmp_path / "a"), "--otlp", str(out), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"spans": 4, "place": str(out), "strict": False}
    (line,) = out.read_text().splitlines()
    spans = [span for _, _, span in spans_of(message(json.loads(line))).values()]
    assert {span.start_time_unix_nano for span in spans} == {NOON}
    assert main(["trace", "export", str(tmp_path / "a"), "--otlp", str(out), "--strict"]) == 0
    assert PSEUDONYM not in out.read_text()


def test_a_changed_archive_is_not_exported(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    archive(tmp_path / "a")
    path, out = tmp_path / "a" / "session.jsonl", tmp_path / "out.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pneumonia":true', b'"pneumonia":false', 1))
    assert main(["trace", "export", str(tmp_path / "a"), "--otlp", str(out)]) == 1
    assert "[session-edited]" in capfd.readouterr().err and not out.exists()
    for words in (["missing", "--otlp", str(out)], ["a", "--otlp", "ftp://x"], ["a", "--otlp", "/no/such/folder/x"]):
        assert main(["trace", "export", str(tmp_path / words[0]), *words[1:]]) in (1, 2)
    assert not out.exists()


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://h/tenant/v1/traces", "https://h/tenant/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ],
)
def test_an_address_without_a_path_gets_that_of_traces(given: str, url: str) -> None:
    assert endpoint(given) == url


@pytest.mark.parametrize(
    "text", ["ftp://h", "http://", "http://h:99999", "http://h:x", "http://u:p@h", "http://h/?q=1"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address of a collector"):
        endpoint(text)


def test_sending_retries_what_may_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path / "a")
    (request,) = exported(tmp_path / "a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, y = z")
    waited: list[float] = []
    with receiving() as server:
        server.answers = [(503, {}, b""), (429, {"Retry-After": "7"}, b""), (502, {"Retry-After": "999"}, b"")]
        send(server.url + "/v1/traces", request, waited.append)
        assert waited == [1.0, 7.0, 30.0] and len(server.got) == 4
        path, headers, read = server.got[-1]
        assert path == "/v1/traces" and read == message(request)
        assert (headers["x-key"], headers["y"]) == ("a b", "z")


@pytest.mark.parametrize(
    ("answers", "error", "part"),
    [
        ([(400, {}, b'{"message": "bad\\n span"}')], UsageError, "answers 400 Bad Request .*bad"),
        ([(307, {"Location": "/elsewhere"}, b"")], UsageError, "answers 307"),
        ([(503, {}, b"")] * 5, UsageError, "answers 503"),
        (
            [(200, {}, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "no"}}')],
            VerificationFailed,
            "2 spans .no",
        ),
    ],
)
def test_what_the_collector_refuses_is_said(
    tmp_path: Path, answers: list[Any], error: type[Exception], part: str
) -> None:
    archive(tmp_path / "a")
    with receiving() as server:
        server.answers = list(answers)
        with pytest.raises(error, match=part):
            send(server.url, exported(tmp_path / "a")[0], lambda _: None)


@pytest.mark.parametrize("body", [b"", b"{}", b"ok", b"[]", b'{"partialSuccess": null}', b'{"partialSuccess": {}}'])
def test_every_body_of_a_200_that_rejects_nothing_is_taken(tmp_path: Path, body: bytes) -> None:
    archive(tmp_path / "a")
    with receiving() as server:
        server.answers = [(200, {}, body)]
        send(server.url, exported(tmp_path / "a")[0])


def test_no_collector_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(UsageError, match=r"cannot be reached \(.+\); is it running\?"):
            send(f"http://127.0.0.1:{free.getsockname()[1]}", {})
    for headers in ("nonsense", "a=b%0d%0ac: d", "ü=1"):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
        with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS"):
            send("http://127.0.0.1:9", {})


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for item in sockets:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


@pytest.mark.skipif(importlib.util.find_spec("rotel") is None, reason="the collector (rotel) is not installed")
def test_a_stock_collector_takes_the_spans_and_passes_them_on(
    tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rotel, as published, between the command and a receiver made of the official messages."""
    archive(tmp_path / "a", 300)
    spec = importlib.util.find_spec("rotel")
    assert spec is not None and spec.origin is not None
    grpc, http = free_ports(2)
    with receiving() as server:
        program = Path(spec.origin).with_name("rotel-agent")
        words = [
            *(str(program), "start", "--otlp-grpc-endpoint", f"127.0.0.1:{grpc}"),
            *("--otlp-http-endpoint", f"127.0.0.1:{http}", "--exporter", "otlp", "--otlp-exporter-protocol", "http"),
            *("--otlp-exporter-endpoint", server.url),
        ]
        collector = subprocess.Popen(words, env={"PATH": os.environ["PATH"]}, cwd=tmp_path, stdout=subprocess.DEVNULL)
        try:
            _until(lambda: _listens(http), collector)
            url = f"http://127.0.0.1:{http}"
            code = main(["trace", "export", str(tmp_path / "a"), "--otlp", url])
            assert (code, capfd.readouterr().out) == (0, f"{url}/v1/traces: 300 spans\n")
            _until(lambda: len(spans_of(*(item[2] for item in server.got))) == 300, collector)
        finally:
            collector.terminate()
            collector.wait(20)
        passed_on = spans_of(*(item[2] for item in server.got))
    path = tmp_path / "spans.jsonl"
    assert main(["trace", "export", str(tmp_path / "a"), "--otlp", str(path)]) == 0
    assert passed_on == spans_of(*(message(json.loads(line)) for line in path.read_text().splitlines()))


def _until(holds: Any, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, "the collector ended"
        assert time.monotonic() < end
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
