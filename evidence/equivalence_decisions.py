"""The decisions of an engine against the independent evaluator, as part of the equivalence stage (docs/clinical.md).

Two comparisons: whole inferences on the stage's inputs, and decisions on made-up outputs, which reach what the stage's
inputs, being no images, do not.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.answer import number_json
from compiler_kernels.errors import VerificationFailed
from compiler_kernels.stage import Json
from evidence.reference import RefGraph
from evidence.reference.clinical import Found, decide
from evidence.test_inputs import make_inputs

Array = npt.NDArray[Any]
GIVEN: Final = 200
"""Made-up inputs and outputs that are decided on, where all shapes are fixed."""
GIVEN_BYTES: Final = 64_000_000
TIMEOUT_SECONDS: Final = 600


@dataclass
class Decisions:
    """Answers compared so far; ``policy`` is ``policy.json`` as a mapping."""

    policy: Mapping[str, Any]
    inferences: int = 0
    given: int = 0
    differing: int = 0
    first: Json = None
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def wanted(self) -> bool:
        """Whether the policy has decisions or safety guards."""
        return bool(self.policy.get("decisions") or (self.policy.get("safety") or {}).get("guards"))

    def inference(
        self, command: Sequence[str], folder: Path, inputs: dict[str, Array], outputs: dict[str, Array]
    ) -> None:
        """One inference of the engine, which ``command`` runs, and the evaluator on the reference's outputs."""
        done = _run([*command, "--output-dir", str(folder / "decided"), "--json"])
        found = _object(done)
        self._compare(_of_engine(found.get("answer", found)), inputs, outputs, "inference")
        self.inferences += 1

    def made_up(self, engine: Sequence[str], folder: Path, graph: RefGraph) -> None:
        """``GIVEN`` random vectors (fewer where the tensors are large), through ``--decide --vectors``."""
        shapes = {node.output: (node.shape, node.dtype) for node in graph.nodes}
        shapes |= {t.id: (t.shape, t.dtype) for t in graph.inputs}
        if graph.extents or any(value_id not in shapes for value_id, _ in graph.outputs):
            return  # sizes that the data decides, or an output that is a constant
        ins = {t.name: (t.shape, t.dtype) for t in graph.inputs}
        outs = {name: shapes[value_id] for value_id, name in graph.outputs}
        size = sum(8 * int(np.prod(shape, dtype=np.int64)) for shape, _ in (*ins.values(), *outs.values()))
        count = max(1, min(GIVEN, GIVEN_BYTES // max(1, size)))
        inputs, outputs = (self._drawn(kind, space, count) for kind, space in (("inputs", ins), ("outputs", outs)))
        path = folder / "vectors"
        with path.open("wb") as stream:
            stream.write(b"CVEC1\0\0\0" + np.uint64(count).tobytes())
            for one, other in zip(inputs, outputs, strict=True):
                for array in (*one.values(), *other.values()):
                    stream.write(np.ascontiguousarray(array).tobytes())
                stream.write(bytes(4))
        done = _run([*engine, "--decide", "--vectors", str(path)])
        lines = done.stdout.splitlines()
        if done.returncode or len(lines) != count:
            raise VerificationFailed("engine-decides", f"the engine did not decide on given tensors: {_said(done)}")
        for line, one, other in zip(lines, inputs, outputs, strict=True):
            self._compare(_of_engine(json.loads(line)), one, other, "given")
            self.given += 1

    def _drawn(
        self, kind: str, tensors: Mapping[str, tuple[tuple[int, ...], str]], count: int
    ) -> list[dict[str, Array]]:
        ranges = {name: section.get("range") for name, section in self.policy.get(kind, {}).items()}
        shapes = {name: shape for name, (shape, _) in tensors.items()}
        dtypes = {name: dtype for name, (_, dtype) in tensors.items()}
        # numbers without a range are drawn as probabilities are: what thresholds are made for
        bounds = {name: ranges.get(name) or ((0.0, 1.0) if "float" in dtypes[name] else None) for name in tensors}
        made = make_inputs(shapes, bounds, count, seed=20261201 + len(kind), dtypes=dtypes)
        numbers = _numbers(self.policy)
        for index, one in enumerate(made if kind == "outputs" else ()):
            for name, values in one.items():
                if values.dtype.kind == "f" and values.ndim and index % 4 == 1:  # distributions, as softmax gives them
                    total = values.sum(axis=-1, keepdims=True, dtype=np.float64)
                    one[name] = (values / np.where(total == 0, 1.0, total)).astype(values.dtype)
                if values.dtype.kind == "f" and numbers and index % 4 == 3:  # a number of the policy, to the bit
                    one[name] = np.full(values.shape, numbers[index // 4 % len(numbers)]).astype(values.dtype)
        return made

    def _compare(
        self, got: dict[str, Json], inputs: Mapping[str, Array], outputs: Mapping[str, Array], how: str
    ) -> None:
        wanted = _of_evaluator(decide(self.policy, inputs, outputs))
        self.outcomes[str(wanted["failure"] or wanted["status"])] += 1
        if got["status"] == "refused" and how == "inference":  # the error object of a refusal holds no more
            wanted = {key: wanted[key] for key in ("status", "failure", "guard")}
            got = {key: got[key] for key in wanted}
        if got == wanted:
            return
        self.differing += 1
        if self.first is None:
            fields = [key for key in wanted if got.get(key) != wanted[key]]
            number = self.inferences if how == "inference" else self.given
            self.first = {
                "on": how,
                "number": number,
                "field": fields[0],
                "engine": got.get(fields[0]),
                "evaluator": wanted[fields[0]],
            }

    def report(self) -> dict[str, Json]:
        """The field ``decisions`` of ``equivalence.json``."""
        return {
            "inferences": self.inferences,
            "given": self.given,
            "differing": self.differing,
            "first_difference": self.first,
            "outcomes": {name: self.outcomes[name] for name in sorted(self.outcomes)},
        }


def _numbers(policy: Mapping[str, Any]) -> list[float]:
    """Numbers that the policy compares with: thresholds, and decimals in its texts."""
    texts = [q["value"] for q in policy.get("quantities", {}).values()]
    texts += [d["when"] for d in policy.get("decisions", {}).values()]
    texts += [g["require"] for g in (policy.get("safety") or {}).get("guards", {}).values()]
    found = {float(t["value"]) for t in policy.get("thresholds", {}).values()}
    found |= {float(number) for text in texts for number in re.findall(r"(?<![\w.])\d*\.\d+", text)}
    return sorted(value for value in found if abs(value) < 1e30)


def _of_evaluator(found: Found) -> dict[str, Json]:
    return {
        "status": found.status,
        "failure": found.failure or None,
        "guard": found.guard or None,
        "message": found.message,
        "quantities": {name: number_json(value) for name, value in found.quantities.items()},
        "decisions": {**found.decisions},
        "guards": {**found.guards},
    }


def _of_engine(answer: Mapping[str, Any]) -> dict[str, Json]:
    if "exit" in answer:  # an error object
        return {"status": "refused", "failure": answer.get("failure"), "guard": answer.get("guard")}
    failure = answer["failure"] or {}
    kept = {key: answer[key] for key in ("status", "message", "quantities", "decisions", "guards")}
    return {**kept, "failure": failure.get("kind"), "guard": failure.get("guard")}


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(words), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def _object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or done.returncode not in (0, 3):
        raise VerificationFailed("engine-decides", f"the engine did not decide on a test input: {_said(done)}")
    return found


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.strip() or f"exit code {done.returncode}"
