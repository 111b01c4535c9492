"""Reading the records of a session archive strictly (docs/sessions.md).

A record is one line of RFC 8785 JSON. Its leaf is ``SHA3-512(0x00 || line)``, as in the audit log; every record names
the leaf of the one before it. Engines write inferences and repairs, the host writes erasures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evidence.verifier.audit import leaf_data, read_token
from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
    strict_json,
)

FORMAT = "cuvil-session/1"
INFERENCE, ERASURE, REPAIR = "inference", "erasure", "repair"
STATUSES = ("computed", "decided", "fallback", "refused")
LONGEST_LINE = 1 << 17
_COMMON = ("format", "index", "kind", "previous")
_KEYS = {
    INFERENCE: (
        *("decisions", "engine", "failure", "guards", "inputs", "kept", "outputs", "quantities"),
        *("run", "salted", "status", "subject", "trace"),
    ),
    ERASURE: ("subject",),
    REPAIR: ("dropped_bytes", "dropped_sha3_512"),
}
ENGINE_TEXTS = ("arithmetic", "model", "model_version", "target")
ENGINE_DIGESTS = ("config_digest", "frozen_graph", "weights_digest")
_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True)
class Tensor:
    """An input or output of an inference: name in the model, NumPy name of its type, actual shape, digest (hex)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class Record:
    """One record; ``leaf`` is its digest (hex), ``fields`` what its kind adds to format, index, kind and previous."""

    index: int
    kind: str
    previous: str
    leaf: str
    fields: Mapping[str, Json]

    @property
    def subject(self) -> str:
        """The token of the subject, or nothing."""
        return str(self.fields.get("subject") or "")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return _tensors(self.fields["inputs"], "inputs")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return _tensors(self.fields["outputs"], "outputs")


def leaf_of(line: bytes) -> str:
    """Hex ``SHA3-512(0x00 || line)``; ``line`` without its line feed."""
    return leaf_data(line).hex()


def encode_record(index: int, kind: str, previous: str, fields: Mapping[str, Json]) -> bytes:
    """The line of a record, without its line feed."""
    return canonical_bytes({"format": FORMAT, "index": index, "kind": kind, "previous": previous, **fields})


def read_record(line: bytes) -> Record:
    """Read one line strictly; ``MalformedError`` names the fault."""
    value = strict_json(line)
    if canonical_bytes(value) != line:
        raise MalformedError("is not in its RFC 8785 form")
    item = expect_map(value, "it")
    if item.get("format") != FORMAT:
        raise MalformedError(f"its format is not {FORMAT!r}")
    kind = item.get("kind")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise MalformedError(f"its kind is none of {', '.join(_KEYS)}")
    expect_object(item, "it", (*_COMMON, *_KEYS[kind]))
    for key, check in _CHECKS.items():
        if key in item:
            check(item[key], key)
    previous = expect_hex(item["previous"], "previous", 128)
    fields = {key: part for key, part in item.items() if key not in _COMMON}
    return Record(count(item["index"], "index"), kind, previous, leaf_of(line), fields)


def count(value: Json, where: str) -> int:
    """``value`` as a whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MalformedError(f"{where} is not a whole number")
    return value


def _tensors(value: Json, where: str) -> tuple[Tensor, ...]:
    found = []
    for number, entry in enumerate(expect_list(value, where)):
        place = f"{where}[{number}]"
        item = expect_object(entry, place, ("digest", "dtype", "name", "shape"))
        shape = tuple(count(size, f"{place}.shape") for size in expect_list(item["shape"], f"{place}.shape"))
        digest = expect_hex(item["digest"], f"{place}.digest", 128)
        name = item["name"]
        if not isinstance(name, str):
            raise MalformedError(f"{place}.name is no text")
        found.append(Tensor(name, expect_text(item["dtype"], f"{place}.dtype"), shape, digest))
    return tuple(found)


def _engine(value: Json, where: str) -> None:
    item = expect_object(value, where, (*ENGINE_TEXTS, *ENGINE_DIGESTS))
    for key in ENGINE_TEXTS:
        expect_text(item[key], f"{where}.{key}")
    for key in ENGINE_DIGESTS:
        expect_hex(item[key], f"{where}.{key}", 128)


def _failure(value: Json, where: str) -> None:
    if value is None:
        return
    item = expect_object(value, where, ("guard", "kind"))
    expect_text(item["kind"], f"{where}.kind")
    if item["guard"] is not None and not isinstance(item["guard"], str):
        raise MalformedError(f"{where}.guard is no text")


def _truths(value: Json, where: str) -> None:
    for name, truth in expect_map(value, where).items():
        if not isinstance(truth, bool):
            raise MalformedError(f"{where}.{name} is neither true nor false")


def _run(value: Json, where: str) -> None:
    item = expect_object(value, where, ("isa", "threads"), ("device",))
    if "device" in item:
        expect_text(item["device"], f"{where}.device")
    expect_text(item["isa"], f"{where}.isa")
    count(item["threads"], f"{where}.threads")


def _trace(value: Json, where: str) -> None:
    if value is None:
        return
    item = expect_object(value, where, ("parent", "state"))
    if not _PARENT.fullmatch(expect_text(item["parent"], f"{where}.parent")):
        raise MalformedError(f"{where}.parent is no traceparent of W3C Trace Context version 00")
    if item["state"] is not None:
        expect_text(item["state"], f"{where}.state")


def _optional_token(value: Json, where: str) -> None:
    if value is not None:
        read_token(value, where)


def _optional_digest(value: Json, where: str) -> None:
    if value is not None:
        expect_hex(value, where, 128)


def _boolean(value: Json, where: str) -> None:
    if not isinstance(value, bool):
        raise MalformedError(f"{where} is neither true nor false")


def _status(value: Json, where: str) -> None:
    if value not in STATUSES:
        raise MalformedError(f"{where} is none of {', '.join(STATUSES)}")


def _digest(value: Json, where: str) -> None:
    expect_hex(value, where, 128)


_CHECKS: dict[str, Callable[[Json, str], object]] = {
    "decisions": _truths,
    "engine": _engine,
    "failure": _failure,
    "guards": _truths,
    "inputs": _tensors,
    "kept": _boolean,
    "outputs": _tensors,
    "quantities": _optional_digest,
    "run": _run,
    "salted": _boolean,
    "status": _status,
    "subject": _optional_token,
    "trace": _trace,
    "dropped_bytes": count,
    "dropped_sha3_512": _digest,
}
