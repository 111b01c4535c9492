"""Records of a session archive as OpenTelemetry spans: OTLP 1.x in its JSON encoding, one span an inference.

The encoding is the protobuf JSON mapping of ``ExportTraceServiceRequest`` with OTLP's own rules: trace and span ids in
hexadecimal, 64-bit numbers as text, enumerations as numbers. Attributes follow the OpenTelemetry semantic conventions
where they have a name (``service.name``, ``service.version``, ``host.arch``, ``error.type``); the others begin with
``cuvil.``.

A record has no time, because an engine reads no clock. What is known is an interval: after the seal before it, and
before the first seal that covers it, or where none does, the last change of the file. A span stands at the end of that
interval, with no duration, and says so in ``cuvil.time.basis`` and ``cuvil.time.not_before``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from evidence.sessions.record import INFERENCE, Record
from evidence.sessions.seal import Seal
from evidence.sessions.trace_context import TraceContext, read_context
from evidence.verifier.canonical import Json, canonical_bytes

SCOPE = "cuvil.session"
SPAN = "inference"
SPANS_A_REQUEST = 256
"""Spans of one request; a collector takes 4 MiB or more, a span has some kilobytes."""
_INTERNAL, _ERROR = 1, 2
"""SPAN_KIND_INTERNAL and STATUS_CODE_ERROR of opentelemetry/proto/trace/v1/trace.proto."""
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm": "arm32"}
"""First word of a target to ``host.arch`` of the semantic conventions."""


@dataclass(frozen=True)
class Moment:
    """When a record was made, as far as the archive says: at ``unix_nano`` or before, by ``basis`` (``seal`` or
    ``file``), and not before ``not_before`` (RFC 3339, or nothing)."""

    unix_nano: int
    basis: str
    not_before: str = ""


def moments(count: int, seals: Sequence[Seal], changed_ns: int) -> list[Moment]:
    """The moment of each of ``count`` records; ``changed_ns``: when their file last changed (ns since 1970, UTC)."""
    found: list[Moment] = []
    before = ""
    for seal in seals:
        moment = Moment(_nanoseconds(seal.time), "seal", before)
        found += [moment] * (min(seal.count, count) - len(found))
        before = seal.time
    return found + [Moment(changed_ns, "file", before)] * (count - len(found))


def requests(records: Sequence[Record], when: Sequence[Moment], strict: bool = False) -> Iterator[dict[str, Json]]:
    """``ExportTraceServiceRequest`` after another, of at most 256 spans each, for the inferences among ``records``.

    ``when`` has a moment for each record. ``strict``: without what stands for an image or person: pseudonyms,
    digests of inputs and outputs, tokens of subjects.
    """
    chosen = [(item, moment) for item, moment in zip(records, when, strict=True) if item.kind == INFERENCE]
    for start in range(0, len(chosen), SPANS_A_REQUEST):
        part = chosen[start : start + SPANS_A_REQUEST]
        groups = groupby(part, key=lambda pair: canonical_bytes(pair[0].fields["engine"]))
        yield {"resourceSpans": [_resource([(item, when) for item, when in group], strict) for _, group in groups]}


def _resource(part: Sequence[tuple[Record, Moment]], strict: bool) -> dict[str, Json]:
    """The spans of one engine, which is the resource."""
    engine = _object(part[0][0].fields["engine"])
    target = str(engine["target"])
    known: dict[str, Json] = {"service.name": engine["model"], "service.version": engine["model_version"]}
    if (architecture := _ARCHITECTURES.get(target.partition("-")[0])) is not None:
        known["host.arch"] = architecture
    known |= {f"cuvil.engine.{name}": engine[name] for name in sorted(engine) if name not in ("model", "model_version")}
    return {
        "resource": {"attributes": _attributes(known)},
        "scopeSpans": [{"scope": {"name": SCOPE}, "spans": [_span(item, moment, strict) for item, moment in part]}],
    }


def _span(item: Record, moment: Moment, strict: bool) -> dict[str, Json]:
    context, parent = _context(item)
    if strict:
        context = context.with_pseudonym(None)
    made: dict[str, Json] = {
        "traceId": context.trace_id,
        "spanId": _identifier("span", item.leaf, 8),
        **({"parentSpanId": context.parent_id} if parent else {}),
        "traceState": context.tracestate,
        "flags": context.flags & 0xFF | _HAS_IS_REMOTE | (_IS_REMOTE if parent else 0),
        "name": SPAN,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(moment.unix_nano),
        "endTimeUnixNano": str(moment.unix_nano),
        "attributes": _attributes(_facts(item, moment, context, strict)),
    }
    failure = item.fields["failure"]
    if item.fields["status"] == "refused":
        reason = str(_object(failure)["kind"]) if failure is not None else "refused"
        made["status"] = {"code": _ERROR, "message": reason}
    return made


def _facts(item: Record, moment: Moment, context: TraceContext, strict: bool) -> dict[str, Json]:
    run, failure = _object(item.fields["run"]), item.fields["failure"]
    found: dict[str, Json] = {
        "cuvil.record.index": item.index,
        "cuvil.record.leaf": item.leaf,
        "cuvil.status": item.fields["status"],
        **({"cuvil.run.device": run["device"]} if "device" in run else {}),
        "cuvil.run.isa": run["isa"],
        "cuvil.run.threads": run["threads"],
        "cuvil.time.basis": moment.basis,
    }
    if moment.not_before:
        found["cuvil.time.not_before"] = moment.not_before
    if failure is not None:
        kind, guard = _object(failure)["kind"], _object(failure)["guard"]
        found["cuvil.failure.kind"] = kind
        if guard:
            found["cuvil.failure.guard"] = guard
        if item.fields["status"] == "refused":
            found["error.type"] = kind
    for name in ("decision", "guard"):
        found |= {f"cuvil.{name}.{key}": truth for key, truth in sorted(_object(item.fields[f"{name}s"]).items())}
    if not strict:
        for name, tensors in (("input", item.inputs), ("output", item.outputs)):
            found |= {f"cuvil.{name}.{tensor.name}.digest": tensor.digest for tensor in tensors}
        if context.pseudonym:
            found["cuvil.pseudonym"] = context.pseudonym
        if item.subject:
            found["cuvil.subject"] = item.subject
    return found


def _context(item: Record) -> tuple[TraceContext, bool]:
    """The trace that the record names, and whether it names one; without, a trace of its own that follows from it."""
    trace = item.fields["trace"]
    if trace is not None:
        state = _object(trace)["state"]
        context = read_context(str(_object(trace)["parent"]), None if state is None else str(state))
        if context is not None:
            return context, True
    return TraceContext(_identifier("trace", item.leaf, 16), "0" * 16), False


def _identifier(what: str, leaf: str, size: int) -> str:
    """Hex of ``size`` bytes that follow from the record, so that exporting twice gives the same span."""
    return hashlib.sha3_256(f"cuvil-otlp-{what}/1\n{leaf}".encode()).hexdigest()[: 2 * size]


def _attributes(values: Mapping[str, Json]) -> list[Json]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Json) -> dict[str, Json]:
    """``AnyValue`` of opentelemetry/proto/common/v1/common.proto."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": str(value)}


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)  # the record was read strictly
    return value


def _nanoseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1_000_000_000
