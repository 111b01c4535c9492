"""The same model through a second compiler: another binary, which must behave the same to the bit.

A defect of one compiler that changes a result shows as a difference of outputs; both compilers would have to share it
to hide it (diverse double compiling, D. A. Wheeler 2009, in the weaker form of comparing behaviour). Of a CPU engine
gcc compiles the same C; kernels of a GPU engine come from the other generator (docs/gpu.md, "A second compiler").
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError, VerificationFailed
from compiler_kernels.policy import policy_from_json
from compiler_kernels.policy.gpu import GpuSection
from compiler_kernels.stage import Artifact, Json, as_json, sha3_512_hex
from compiler_kernels.stages.backend import ENGINE, GENERATED_SOURCE, wants_triton
from compiler_kernels.targets.registry import Target, resolve_target, runner, why_not_here
from compiler_kernels.targets.triton.emit import triton_kernels
from compiler_kernels.toolchain.gcc import GccDriver, find_gcc
from compiler_kernels.toolchain.sources import runtime_sources
from compiler_kernels.toolchain.triton import TRITON_FILE, VERSION, installed_version
from evidence.equivalence import EQUIVALENCE, EngineRunner, Trial, trials_of
from evidence.reproducibility.inputs import Recorded

GCC, TRITON = SECOND_ONES = ("gcc", "triton")
PASSED, FAILED, NOT_EXECUTED = "passed", "failed", "not executed"
POLICY: Final = "source_model/policy.json"
Find = Callable[[str], bytes | None]


@dataclass(frozen=True)
class SecondCompiler:
    """``name``: what a policy calls it. ``verdict`` with a sentence; identity of the compiler and SHA3-512 of its
    engine; ``inputs`` that were run, ``outputs`` compared and ``differing`` ones by name."""

    name: str
    verdict: str
    sentence: str
    compiler: Mapping[str, Json]
    engine: str = ""
    inputs: int = 0
    outputs: int = 0
    differing: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "compiler": dict(self.compiler),
            "engine_sha3_512": self.engine,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "differing": list(self.differing),
        }


def compare_with_second(recorded: Recorded, find: Find) -> SecondCompiler:
    """Make the engine of the second compiler and run it and the recorded one on the test inputs of the build.

    ``find`` gives the bytes of a digest; ``UsageError`` when it lacks an artefact this needs.
    """
    target = resolve_target(recorded.statement.target)
    return _with_other_kernels(recorded, find, target) if target.gpu else _with_gcc(recorded, find, target)


def _with_gcc(recorded: Recorded, find: Find, target: Target) -> SecondCompiler:
    prefix = runner(target)
    if find_gcc(target) is None:
        return SecondCompiler(GCC, NOT_EXECUTED, f"there is no gcc for {target.triple} on this machine", {})
    if prefix is None:
        return SecondCompiler(GCC, NOT_EXECUTED, f"engines for {target.triple} cannot be run on this machine", {})
    driver = GccDriver()
    names = [name for name in recorded.expected["generated_source"] if not name.endswith(".json")]
    found = _artifacts(recorded, find, [f"generated_source/{name}" for name in names])
    generated = {name: found[f"generated_source/{name}"].data for name in names}
    version = driver.identity(target)
    try:
        other = driver.build({**runtime_sources(), **generated}, target).data
    except CuvilError as error:
        return SecondCompiler(GCC, FAILED, f"gcc does not compile the generated C: {error}", version)
    facts = as_json(version)
    assert isinstance(facts, dict)
    return _both(recorded, find, prefix, other, GCC, facts, ("zig", f"gcc {version['version']}"))


def _with_other_kernels(recorded: Recorded, find: Find, target: Target) -> SecondCompiler:
    """Kernels of the generator that did not make the recorded engine: Triton's, or CUDA C++ where that one has
    Triton's. Without the GPU they are compiled, pass the gate of the PTX, and are not executed."""
    inputs = _artifacts(recorded, find, GENERATED_SOURCE.reads)
    policy = policy_from_json(inputs[POLICY].data)
    first, second = ("Triton", "CUDA C++") if wants_triton(policy) else ("CUDA C++", "Triton")
    section = GpuSection(kernels="triton" if second == "Triton" else "cuda")
    if second == "Triton" and installed_version() != VERSION:
        said = f"the second compiler of GPU kernels is Triton {VERSION}, which is not here: pip install 'cuvil[triton]'"
        return SecondCompiler(TRITON, NOT_EXECUTED, said, {})
    changed = Artifact(POLICY, policy.model_copy(update={"gpu": section}).canonical_json())
    made = GENERATED_SOURCE.execute({**inputs, POLICY: changed}, recorded.config)
    files = {f"{GENERATED_SOURCE.name}/{item.name}": item for item in made.artifacts}
    ours = recorded.expected["generated_source"]
    text = files.get(f"{GENERATED_SOURCE.name}/{TRITON_FILE}")
    if text is None and TRITON_FILE not in ours:
        return SecondCompiler(TRITON, NOT_EXECUTED, "no function of this model has a Triton kernel", {})
    try:
        engine = ENGINE.execute(files, recorded.config)
    except (UnsupportedError, UsageError) as error:  # a compiler that is not here, or is of another version
        return SecondCompiler(TRITON, NOT_EXECUTED, str(error), {})
    except CuvilError as error:
        return SecondCompiler(TRITON, FAILED, f"the kernels in {second} do not compile: {error}", {})
    report = json.loads(engine.artifact("build.json").data)["cuda"]
    facts = {k: v for k, v in (report["triton"] if text else report["compiler"]).items() if k != "kernels"}
    other = engine.artifact("inference-engine.bin").data
    prefix = runner(target)
    if prefix is None:
        what = f"Triton kernels of {len(triton_kernels(text.text))} functions" if text else "the kernels in CUDA C++"
        said = f"{what} were compiled and passed the gate; {why_not_here(target)}"
        return SecondCompiler(TRITON, NOT_EXECUTED, said, facts, sha3_512_hex(other))
    return _both(recorded, find, prefix, other, TRITON, facts, (first, second))


def _both(
    recorded: Recorded,
    find: Find,
    prefix: tuple[str, ...],
    other: bytes,
    name: str,
    facts: Mapping[str, Json],
    called: tuple[str, str],
) -> SecondCompiler:
    inputs = _artifacts(recorded, find, EQUIVALENCE.reads)
    trials, _ = trials_of(inputs, recorded.config)
    engines = ((inputs["engine/inference-engine.bin"].data, prefix), (other, prefix))
    try:
        runs, outputs, differing = outputs_of_both(engines, trials)
    except VerificationFailed as error:
        return SecondCompiler(name, FAILED, str(error), facts, sha3_512_hex(other))
    said = f"engines of {called[0]} and {called[1]} give equal bits in {outputs} outputs of {runs} inputs"
    if differing:
        said = f"the engine of {called[1]} differs in {len(differing)} of {outputs} outputs, first in {differing[0]}"
    verdict = FAILED if differing else PASSED
    return SecondCompiler(name, verdict, said, facts, sha3_512_hex(other), runs, outputs, tuple(differing))


def outputs_of_both(
    engines: Sequence[tuple[bytes, tuple[str, ...]]], trials: Sequence[Trial]
) -> tuple[int, int, list[str]]:
    """Run two engines, each with the words that run it, on every input of ``trials``: inputs, outputs compared, and
    those that differ by name. ``VerificationFailed`` where one refuses an input."""
    runs = outputs = 0
    differing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="cuvil-second-") as folder:
        runners = []
        for place, (data, prefix) in zip((Path(folder) / "first", Path(folder) / "second"), engines, strict=True):
            place.mkdir()
            runners.append(EngineRunner(data, prefix, place))
        for one in (one for trial in trials for one in trial.sets):
            first, second = (engine.run(dict(one)) for engine in runners)
            for name in sorted({**first, **second}):
                outputs += 1
                a, b = first.get(name), second.get(name)
                if a is None or b is None or a.dtype != b.dtype or not np.array_equal(_bits(a), _bits(b)):
                    differing.append(f"input {runs}, output {name}")
            runs += 1
    return runs, outputs, differing


def _artifacts(recorded: Recorded, find: Find, paths: Sequence[str]) -> dict[str, Artifact]:
    """Artefacts of the build by ``STAGE/NAME``; ``UsageError`` where the store lacks one."""
    found = {}
    for path in paths:
        stage, _, name = path.partition("/")
        digest = recorded.expected[stage][name]
        found[path] = Artifact.of_known_digest(path, _bytes(find, digest, path), "", digest)
    return found


def _bits(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    shape = np.array([values.ndim, *values.shape], dtype="<i8")
    return np.frombuffer(shape.tobytes() + np.ascontiguousarray(values).tobytes(), dtype=np.uint8)


def _bytes(find: Find, digest: str, what: str) -> bytes:
    data = find(digest)
    if data is None:
        raise UsageError(f"this machine's store does not hold {what} of this build; build the engine again here first")
    return data
