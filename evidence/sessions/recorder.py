"""Recording what an engine computes inside a Python process, in the records that engine programs write.

A second implementation of the format (docs/sessions.md): ``tests/sessions`` compares the two byte by byte.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.answer import Answer, number_json
from compiler_kernels.engine import Engine, EngineTensor
from evidence.audit_erase import Subject
from evidence.sessions.archive import Archive
from evidence.sessions.inputs import keep, new_subject
from evidence.sessions.record import INFERENCE, Record
from evidence.sessions.tensor import tensor_digest
from evidence.sessions.trace_context import TraceContext
from evidence.verifier.canonical import Json
from evidence.verifier.errors import UsageError
from evidence.verifier.trust import default_home

QUANTITIES_FORMAT = "cuvil-quantities/1"


class SessionRecorder:
    """Give it to ``Engine.run(..., session=...)``: one record of each inference goes into ``folder``.

    ``subject``: whose inputs they are; the record holds a random token, ``home`` ($CUVIL_HOME if not given) the name.
    ``keep_inputs``: the inputs go into the archive, encrypted under the subject's key. ``trace``: what the records
    name, and may be set again between inferences. A record that cannot be written raises ``UsageError``, and the engine
    then gives no output. ``last`` is the record written last.
    """

    def __init__(
        self,
        folder: Path,
        subject: str = "",
        *,
        keep_inputs: bool = False,
        home: Path | None = None,
        trace: TraceContext | None = None,
    ) -> None:
        if keep_inputs and not subject:
            raise UsageError("inputs are kept under the key of their subject: say whose they are")
        self.archive = Archive(folder)
        self.trace = trace
        self.last: Record | None = None
        self._keep = keep_inputs
        self._subject: Subject | None = new_subject(home or default_home(), self.archive, subject) if subject else None
        self._inputs: list[Json] = []

    def begin(self, engine: Engine) -> None:
        """Digest the inputs, and keep them, before the inference."""
        values = engine.present_inputs()
        self._inputs = self._tensors(engine.inputs, values)
        if self._keep and self._subject is not None:
            files = {str(item["digest"]): _npy(values[str(item["name"])]) for item in map(_object, self._inputs)}
            keep(self.archive, self._subject, files)

    def record(self, engine: Engine, answer: Answer | None, failure: str, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Append the record; durable on return."""
        identity: dict[str, Json] = {
            "arithmetic": engine.arithmetic,
            "config_digest": engine.config_digest.removeprefix("sha3-512:"),
            "frozen_graph": engine.frozen_graph.removeprefix("sha3-512:"),
            "model": engine.model,
            "model_version": engine.version,
            "target": engine.target,
            "weights_digest": engine.weights_digest.removeprefix("sha3-512:"),
        }
        guard = answer.failure.guard if answer and answer.failure else ""
        trace: Json = None
        if self.trace is not None:
            trace = {"parent": self.trace.traceparent, "state": self.trace.tracestate or None}
        self.last = self.archive.append(
            INFERENCE,
            {
                "decisions": dict(answer.decisions) if answer else {},
                "engine": identity,
                "failure": {"guard": guard or None, "kind": failure} if failure else None,
                "guards": dict(answer.guards) if answer else {},
                "inputs": self._inputs,
                "kept": self._keep,
                "outputs": self._tensors(engine.outputs, outputs) if outputs else [],
                "quantities": self._quantities(answer) if answer else None,
                "run": {**({"device": engine.device} if engine.device else {}), "isa": engine.isa, "threads": 1},
                "salted": self._subject is not None,
                "status": answer.status if answer else "refused" if failure else "computed",
                "subject": self._subject.token if self._subject else None,
                "trace": trace,
            },
        )

    @property
    def _salt(self) -> bytes | None:
        return self._subject.salt if self._subject else None

    def _tensors(self, described: tuple[EngineTensor, ...], values: Mapping[str, NDArray[Any]]) -> list[Json]:
        found: list[Json] = []
        for tensor in described:
            array = values[tensor.name]
            digest = tensor_digest(tensor.dtype, array.shape, array.tobytes(), self._salt)
            found.append({"digest": digest, "dtype": tensor.dtype, "name": tensor.name, "shape": [*array.shape]})
        return found

    def _quantities(self, answer: Answer) -> str:
        bits = {name: str(_object(number_json(value))["bits"])[2:] for name, value in answer.quantities.items()}
        text = "".join(f"{name}={bits[name]}\n" for name in sorted(bits))
        return hashlib.sha3_512((self._salt or b"") + f"{QUANTITIES_FORMAT}\n{text}".encode()).hexdigest()


def _npy(array: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def _object(value: Json) -> dict[str, Json]:
    assert isinstance(value, dict)
    return value
