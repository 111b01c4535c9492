"""What is compared on a test set: an engine's program, or a model under onnxruntime."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.registry import TARGETS, runner

Array = NDArray[Any]
TIMEOUT_SECONDS: Final = 600
COMPUTED: Final = "computed"
"""Status of an answer without clinical logic; the others are those of docs/clinical.md."""


@dataclass(frozen=True)
class Answer:
    """What one side says about one item. ``outputs``: none unless it was ``decided`` or ``computed``."""

    status: str
    outputs: Mapping[str, Array] = field(default_factory=dict)
    decisions: Mapping[str, bool] = field(default_factory=dict)


class EngineSide:
    """An engine as the program that is shipped, under an emulator where its target needs one.

    Raises ``UsageError`` for a file that is no engine or has several inputs, ``UnsupportedError`` where it cannot run.
    """

    def __init__(self, engine: Path) -> None:
        self.path = engine
        self.sha3_512 = sha3_512_hex(engine.read_bytes())
        words = [str(engine.absolute())]
        described = self._describe(words)
        if described is None:
            raise UsageError(
                f"{engine}: does not run here as an engine does; give one that `cuvil build` wrote, for this "
                "processor or one that an installed qemu emulates"
            )
        self.target = str(described["target"])
        self.model_version = str(described["model_version"])
        if len(described["inputs"]) != 1:
            names = ", ".join(item["name"] for item in described["inputs"])
            raise UnsupportedError(f"{engine}: has the inputs {names}; a test set feeds engines with one")
        (self.input,) = described["inputs"]
        self.outputs = {item["name"]: item for item in described["outputs"]}
        self.decides = False
        """Set by the first answer: whether the engine has clinical logic."""

    def _describe(self, words: list[str]) -> dict[str, Any] | None:
        """Try the engine natively, then under the emulator of each target."""
        for prefix in _prefixes():
            self.words = [*prefix, *words]
            try:
                done = self._run(["--version", "--json"])
                found = json.loads(done.stdout)
            except (OSError, ValueError):
                continue
            if isinstance(found, dict) and {"inputs", "outputs", "target"} <= set(found):
                return found
        return None

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [*self.words, *words],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UnsupportedError(
                f"{self.path}: gave no answer within {TIMEOUT_SECONDS} s; use a faster machine"
            ) from None

    def answer(self, item: Array) -> Answer:
        """One inference. ``UsageError`` with the engine's sentence where it does not take the item at all."""
        with tempfile.TemporaryDirectory(prefix="cuvil-decisions-") as name:
            folder = Path(name)
            np.save(folder / "item.npy", item)
            words = ["--input", f"{self.input['name']}={folder / 'item.npy'}", "--output-dir", str(folder / "out")]
            return self._answer(words, folder / "out", {})

    def decide_on(self, item: Array, outputs: Mapping[str, Array]) -> Answer:
        """The decisions of this engine's clinical logic on outputs that another side computed."""
        with tempfile.TemporaryDirectory(prefix="cuvil-decisions-") as name:
            folder = Path(name)
            np.save(folder / "item.npy", item)
            words = ["--decide", "--input", f"{self.input['name']}={folder / 'item.npy'}"]
            for number, output in enumerate(self.outputs):
                if output not in outputs:
                    raise UsageError(f"{self.path}: decides on the output {output}, which the other side lacks")
                np.save(folder / f"{number}.npy", outputs[output])
                words += ["--output", f"{output}={folder / f'{number}.npy'}"]
            return self._answer([*words, "--output-dir", str(folder / "out")], folder / "out", outputs)

    def _answer(self, words: list[str], folder: Path, given: Mapping[str, Array]) -> Answer:
        done = self._run([*words, "--json"])
        try:
            found = json.loads(done.stdout)
        except ValueError:
            found = {}
        if done.returncode == 3:
            self.decides = self.decides or "failure" in found
            return Answer("refused")
        if done.returncode != 0:
            said = str(found.get("message") or done.stderr.strip() or f"exit code {done.returncode}")
            kind = UnsupportedError if done.returncode == 4 else UsageError
            raise kind(f"{self.path}: {said}")
        answer = found.get("answer")
        self.decides = self.decides or answer is not None
        if answer is not None and answer["status"] != "decided":
            return Answer(answer["status"], {}, answer["decisions"])
        outputs = given or {name: self._output(folder, spec) for name, spec in self.outputs.items()}
        return Answer(COMPUTED, outputs) if answer is None else Answer("decided", outputs, answer["decisions"])

    @staticmethod
    def _output(folder: Path, spec: Mapping[str, Any]) -> Array:
        loaded: Array = np.load(folder / spec["file"], allow_pickle=False)
        wanted = numpy_dtype(spec["dtype"])
        return loaded if loaded.dtype == wanted else loaded.view(wanted)


def _prefixes() -> list[tuple[str, ...]]:
    found = [runner(target) for target in TARGETS.values()]
    return list(dict.fromkeys([(), *(prefix for prefix in found if prefix is not None)]))


class OnnxRuntimeSide:
    """A model file under onnxruntime on one thread; it has no clinical logic.

    Raises ``UnsupportedError`` without onnxruntime and for a model it cannot run.
    """

    decides = False

    def __init__(self, model: Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise UnsupportedError(f"{model}: onnxruntime is not installed; run pip install onnxruntime") from None
        try:
            data = model.read_bytes()
        except OSError as error:
            raise UsageError(f"{model}: cannot be read ({error.strerror}); give a model or an engine") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.path = model
        self.sha3_512 = sha3_512_hex(data)
        self.target, self.model_version = f"onnxruntime {onnxruntime.__version__}", ""
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it raises many kinds
            raise UnsupportedError(f"{model}: onnxruntime does not load it ({_first(error)})") from None
        if len(self._session.get_inputs()) != 1:
            raise UnsupportedError(f"{model}: has several inputs; a test set feeds models with one")
        self._input = self._session.get_inputs()[0].name
        self._outputs = [output.name for output in self._session.get_outputs()]

    def answer(self, item: Array) -> Answer:
        """One inference."""
        try:
            values = self._session.run(self._outputs, {self._input: item})
        except Exception as error:  # it raises many kinds
            raise UnsupportedError(f"{self.path}: onnxruntime does not run it ({_first(error)})") from None
        return Answer(COMPUTED, {name: np.asarray(value) for name, value in zip(self._outputs, values, strict=True)})


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


Side = EngineSide | OnnxRuntimeSide


def score_of(answer: Answer, output: str, positive: int) -> float | None:
    """The score as binary64: the output's only element, or element number ``positive`` in row-major order.

    ``None`` where there was no answer, and for NaN. ``UsageError`` where the output is not there or too small.
    """
    if not answer.outputs:
        return None
    if output not in answer.outputs:
        raise UsageError(f"there is no output {output!r}, but {', '.join(answer.outputs)}; name one of them as score")
    flat = answer.outputs[output].reshape(-1)
    index = 0 if flat.size == 1 else positive
    if index >= flat.size:
        raise UsageError(f"the output {output!r} has {flat.size} elements, and positive is {positive}; lower it")
    value = float(flat[index])
    return None if np.isnan(value) else value
