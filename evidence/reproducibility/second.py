"""The same generated C through a second compiler: another binary, which must behave the same to the bit.

A defect of one compiler that changes a result shows as a difference of outputs; both compilers would have to share it
to hide it (diverse double compiling, D. A. Wheeler 2009, in the weaker form of comparing behaviour).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler_kernels.errors import CuvilError, UsageError, VerificationFailed
from compiler_kernels.stage import Artifact, Json, as_json, sha3_512_hex
from compiler_kernels.targets.registry import resolve_target, runner
from compiler_kernels.toolchain.gcc import GccDriver, find_gcc
from compiler_kernels.toolchain.sources import runtime_sources
from evidence.equivalence import EQUIVALENCE, EngineRunner, trials_of
from evidence.reproducibility.inputs import Recorded

GCC = "gcc"
PASSED, FAILED, NOT_EXECUTED = "passed", "failed", "not executed"


@dataclass(frozen=True)
class SecondCompiler:
    """``verdict`` with a sentence; identity of the compiler and SHA3-512 of its engine; ``inputs`` that were run,
    ``outputs`` compared and ``differing`` ones by name."""

    verdict: str
    sentence: str
    compiler: Mapping[str, Json]
    engine: str = ""
    inputs: int = 0
    outputs: int = 0
    differing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "compiler": dict(self.compiler),
            "engine_sha3_512": self.engine,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "differing": list(self.differing),
        }


def compare_with_gcc(recorded: Recorded, find: Callable[[str], bytes | None]) -> SecondCompiler:
    """Compile the recorded C with gcc and run both engines on the test inputs of the build.

    ``find`` gives the bytes of a digest; ``UsageError`` when it lacks an artefact this needs.
    """
    target = resolve_target(recorded.statement.target)
    prefix = runner(target)
    if target.gpu:
        return SecondCompiler(
            NOT_EXECUTED,
            f"gcc compiles no kernels of {target.triple}; a policy with gpu.kernels: triton makes a second engine",
            {},
        )
    if find_gcc(target) is None:
        return SecondCompiler(NOT_EXECUTED, f"there is no gcc for {target.triple} on this machine", {})
    if prefix is None:
        return SecondCompiler(NOT_EXECUTED, f"engines for {target.triple} cannot be run on this machine", {})
    driver = GccDriver()
    generated = {
        name: _bytes(find, digest, f"generated_source/{name}")
        for name, digest in recorded.expected["generated_source"].items()
        if not name.endswith(".json")
    }
    try:
        other = driver.build({**runtime_sources(), **generated}, target).data
    except CuvilError as error:
        return SecondCompiler(FAILED, f"gcc does not compile the generated C: {error}", driver.identity(target))
    inputs = {}
    for path in EQUIVALENCE.reads:
        stage, _, name = path.partition("/")
        digest = recorded.expected[stage][name]
        inputs[path] = Artifact.of_known_digest(path, _bytes(find, digest, path), "", digest)
    trials, _ = trials_of(inputs, recorded.config)
    runs = outputs = 0
    differing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cuvil-second-") as folder:
        engines = []
        for name, data in (("first", inputs["engine/inference-engine.bin"].data), ("second", other)):
            place = Path(folder) / name
            place.mkdir()
            engines.append(EngineRunner(data, prefix, place))
        for one in (one for trial in trials for one in trial.sets):
            try:
                first, second = (engine.run(dict(one)) for engine in engines)
            except VerificationFailed as error:
                return SecondCompiler(FAILED, str(error), driver.identity(target), sha3_512_hex(other), runs)
            for name in sorted({**first, **second}):
                outputs += 1
                a, b = first.get(name), second.get(name)
                if a is None or b is None or a.dtype != b.dtype or not np.array_equal(_bits(a), _bits(b)):
                    differing.append(f"input {runs}, output {name}")
            runs += 1
    version = driver.identity(target)
    said = f"engines of zig and gcc {version['version']} give equal bits in {outputs} outputs of {runs} inputs"
    if differing:
        said = f"the engine of gcc {version['version']} differs in {len(differing)} of {outputs} outputs, first in "
        said += differing[0]
    verdict = FAILED if differing else PASSED
    facts = as_json(version)
    assert isinstance(facts, dict)
    return SecondCompiler(verdict, said, facts, sha3_512_hex(other), runs, outputs, tuple(differing))


def _bits(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    shape = np.array([values.ndim, *values.shape], dtype="<i8")
    return np.frombuffer(shape.tobytes() + np.ascontiguousarray(values).tobytes(), dtype=np.uint8)


def _bytes(find: Callable[[str], bytes | None], digest: str, what: str) -> bytes:
    data = find(digest)
    if data is None:
        raise UsageError(f"this machine's store does not hold {what} of this build; build the engine again here first")
    return data
