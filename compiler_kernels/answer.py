"""The answer of an engine with clinical logic, read from the interface in runtime/cuvil_engine.h (docs/clinical.md)."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from numpy.typing import NDArray

from compiler_kernels.policy.clinical import FAILURES
from compiler_kernels.stage import Json

FORMAT: Final = "cuvil-answer/1"
Status = Literal["open", "decided", "fallback", "refused"]
STATUSES: Final[tuple[Status, ...]] = ("open", "decided", "fallback", "refused")
NUMBER: Final = {name: number for number, name in enumerate(FAILURES, 1)}
"""Numbers of the failures in C (CUVIL_INPUT_GUARD...)."""


class RawAnswer(ctypes.Structure):
    _fields_ = (
        ("status", ctypes.c_int),
        ("failure", ctypes.c_int),
        ("guard", ctypes.c_int),
        ("sentence", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
        ("quantities", ctypes.POINTER(ctypes.c_double)),
        ("quantities_known", ctypes.POINTER(ctypes.c_ubyte)),
        ("decisions", ctypes.POINTER(ctypes.c_byte)),
        ("guards", ctypes.POINTER(ctypes.c_byte)),
    )


class RawClinical(ctypes.Structure):
    _fields_ = (
        ("quantity_count", ctypes.c_int),
        ("decision_count", ctypes.c_int),
        ("guard_count", ctypes.c_int),
        ("quantities", ctypes.POINTER(ctypes.c_char_p)),
        ("decisions", ctypes.POINTER(ctypes.c_char_p)),
        ("guards", ctypes.POINTER(ctypes.c_char_p)),
        ("answer", ctypes.POINTER(RawAnswer)),
        ("begin", ctypes.CFUNCTYPE(None)),
        ("before", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("after", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("fail", ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)),
        ("erase", ctypes.CFUNCTYPE(None)),
        ("ring", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Failure:
    """What kept an engine from deciding: one of ``FAILURES``, the safety guard's name or nothing, and a sentence."""

    kind: str
    guard: str
    sentence: str


@dataclass(frozen=True)
class Answer:
    """The answer of one inference.

    ``status``: ``decided``; ``fallback``, where ``decisions`` are those of the policy's fallback; ``refused``, without
    decisions. ``quantities`` (binary64) and ``guards`` are those that were computed. ``outputs`` are the engine's
    outputs by name, none unless ``decided``.
    """

    status: Status
    failure: Failure | None
    message: str
    quantities: Mapping[str, float]
    decisions: Mapping[str, bool]
    guards: Mapping[str, bool]
    outputs: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The part of ``decisions.json`` that does not name the engine or files."""
        failure: Json = None
        if self.failure is not None:
            kind, guard, sentence = self.failure.kind, self.failure.guard or None, self.failure.sentence
            failure = {"kind": kind, "guard": guard, "sentence": sentence}
        return {
            "status": self.status,
            "failure": failure,
            "message": self.message,
            "quantities": {name: number_json(value) for name, value in self.quantities.items()},
            "decisions": dict(self.decisions),
            "guards": dict(self.guards),
        }


def number_json(value: float) -> Json:
    """``{"value", "bits"}`` of a quantity: NaN and infinities as text, the bits of binary64 in hex."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    shown: Json = value if math.isfinite(value) else str(value)
    return {"value": shown, "bits": f"0x{bits:016x}"}


def read_answer(raw: RawClinical, outputs: Mapping[str, NDArray[Any]]) -> Answer:
    """Copy the engine's answer; ``outputs`` become part of it where it is ``decided``."""
    answer = raw.answer[0]
    status = STATUSES[answer.status]
    failure = None
    if answer.failure:
        guard = _text(raw.guards[answer.guard]) if answer.guard >= 0 else ""
        failure = Failure(FAILURES[answer.failure - 1], guard, _text(answer.sentence))
    return Answer(
        status,
        failure,
        _text(answer.message),
        {
            _text(raw.quantities[i]): answer.quantities[i]
            for i in range(raw.quantity_count)
            if answer.quantities_known[i]
        },
        {
            _text(raw.decisions[i]): bool(answer.decisions[i])
            for i in range(raw.decision_count)
            if answer.decisions[i] >= 0
        },
        {_text(raw.guards[i]): bool(answer.guards[i]) for i in range(raw.guard_count) if answer.guards[i] >= 0},
        outputs if status == "decided" else {},
    )


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
