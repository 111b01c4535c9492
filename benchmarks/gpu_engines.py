"""Engines for the evidence on a GPU: models of the zoo and files, compiled for CPU and GPU, and run in one process.

Uses the pinned zig where it is installed, else gcc: results do not depend on it, and a bare machine has gcc.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import zoo
from compiler_kernels.compile import Frozen, freeze_model, generate_frozen
from compiler_kernels.engine import load_engine
from compiler_kernels.policy import Numerics, Policy
from compiler_kernels.policy.gpu import GpuSection
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.driver import Driver
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.engines import CUDA_FILE, build_engine
from compiler_kernels.toolchain.gcc import GccDriver
from compiler_kernels.toolchain.zig import ZigDriver

Array = NDArray[Any]
CPU: Final = "x86_64-linux-musl"


@dataclass(frozen=True)
class Subject:
    """One model: of the zoo by name, or a file. ``batch`` is the size of the first axis of every input."""

    name: str
    file: str = ""
    batch: int = 1
    prefer: str = ""
    """``size``: numerics.prefer of the policy, which keeps every convolution direct."""
    kernels: str = ""
    """gpu.kernels of the policy."""

    @property
    def key(self) -> str:
        """The name, with what the policy prefers."""
        return f"{self.name}:{self.prefer}" if self.prefer else self.name

    def onnx(self) -> bytes:
        """The model's bytes; a network of the zoo is exported for its batch."""
        if self.file:
            return Path(self.file).read_bytes()
        net = zoo.ZOO[self.name]
        return zoo.onnx_bytes(replace(net, shape=(self.batch, *net.shape[1:])))

    def pins(self, data: bytes) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs that the file leaves open: the batch first, 64 for further open axes, 32 of volumes."""
        import onnx

        found = {}
        for value in onnx.load_from_string(data).graph.input if self.file else ():
            dims = [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim]
            if any(isinstance(d, str) for d in dims):
                first = self.batch if isinstance(dims[0], str) else int(dims[0])
                side = 32 if len(dims) == 5 else 64
                found[value.name] = (first, *(side if isinstance(d, str) else int(d) for d in dims[1:]))
        return found

    def batch_is_open(self) -> bool:
        """Whether the model exists for other batches: a file may fix its own."""
        if not self.file:
            return True
        import onnx

        graph = onnx.load_from_string(self.onnx()).graph
        first = [v.type.tensor_type.shape.dim[0] for v in graph.input if v.type.tensor_type.shape.dim]
        return bool(first) and all(d.dim_param for d in first)

    @property
    def label(self) -> str:
        return f"{self.key} batch {self.batch}"


@dataclass
class Built:
    """A compiled subject: where its engine is, how it was made, and what it says about itself."""

    subject: Subject
    target: str
    path: str
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    emulated: tuple[str, ...] = ()


def c_driver() -> Driver:
    """zig, or gcc on a machine without it."""
    return ZigDriver() if importlib.util.find_spec("ziglang") else GccDriver()


def frozen_of(subject: Subject) -> Frozen:
    """The subject up to the freeze."""
    data = subject.onnx()
    policy = None
    if subject.prefer or subject.kernels:
        identity = ModelIdentity(name=subject.name, version="0")
        policy = Policy(
            version=1,
            model=identity,
            numerics=Numerics.model_validate({"prefer": subject.prefer or "speed"}),
            gpu=GpuSection.model_validate({"kernels": subject.kernels or "cuda"}),
        )
    return freeze_model(data, subject.pins(data), policy)


def build(subject: Subject, target: str, folder: Path, emulate: bool = False) -> Built:
    """Compile one subject into ``folder``; ``emulate``: a program and the words that run it without a GPU."""
    began = time.perf_counter()
    frozen = frozen_of(subject)
    made = build_files(
        frozen, target, folder / f"{subject.name}-{subject.prefer or 'speed'}-{subject.batch}-{target}", emulate
    )
    made.subject = subject
    made.seconds["all"] = round(time.perf_counter() - began, 2)
    return made


def build_files(frozen: Frozen, target: str, stem: Path, emulate: bool = False) -> Built:
    """Compile a frozen model; the engine's file name starts with ``stem``."""
    chosen = resolve_target(target)
    files = generate_frozen(frozen, chosen)
    kind = "bin" if emulate else "so"
    output = build_engine(files, chosen, "bin" if emulate else "so", c_driver())
    path = stem.with_suffix(f".{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(output.data)
    path.chmod(0o755)
    facts: dict[str, Any] = {"engine_bytes": len(output.data), "frozen_graph": frozen.digest[:32]}
    words: tuple[str, ...] = ()
    if chosen.gpu:
        report = output.report["cuda"]
        assert isinstance(report, dict)
        facts |= {"images": report["images"], "ptx_instructions": report["ptx_instructions"]}
        text = files[CUDA_FILE]
        facts |= {"kernels_sha3_512": sha3_512_hex(text), "kernels": text.count(b'extern "C" __global__')}
        facts["scalar_kernels"] = text.count(b"_item(")
        if emulate:
            place = stem.with_name(stem.name + "-driver")
            place.mkdir(parents=True, exist_ok=True)
            words = emulated_driver(text, chosen.gpu, place, "" if importlib.util.find_spec("ziglang") else "g++")
    return Built(Subject(stem.name), target, str(path), {}, facts, words)


class Runner:
    """An engine that runs here: in this process, or as a program on the emulated driver."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self.engine = None if built.emulated else load_engine(built.path)
        self.device = ""
        if self.engine is not None:
            self.device = self.engine.device
            self.shapes = {t.name: (t.shape, t.dtype) for t in self.engine.inputs}
        else:
            version = json.loads(self._call("--version", "--json"))
            self.shapes = {t["name"]: (tuple(t["shape"]), t["dtype"]) for t in version["inputs"]}
            self.device = "no GPU: kernels emulated on the CPU"

    def _call(self, *words: str) -> str:
        command = [*self.built.emulated, self.built.path, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600).stdout

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference: outputs by name, NaN canonical."""
        if self.engine is not None:
            return self.engine.run(dict(inputs))
        with tempfile.TemporaryDirectory(prefix="cuvil-gpu-evidence-") as place:
            folder, words = Path(place), []
            for n, (name, value) in enumerate(inputs.items()):
                np.save(folder / f"{n}.npy", value)
                words += ["--input", f"{name}={folder / f'{n}.npy'}"]
            told = json.loads(self._call(*words, "--output-dir", str(folder / "out"), "--json"))
            return {row["name"]: np.load(folder / "out" / row["file"]) for row in told["outputs"]}

    def gpu_microseconds(self, runs: int) -> list[float]:
        """Time of the kernels by the device's events, ``runs`` times after ten."""
        assert self.engine is not None
        return self.engine.device_times(runs + 10)[10:]

    def wall_microseconds(self, runs: int) -> list[float]:
        """Wall time of whole inferences, copies included, ``runs`` times after ten."""
        assert self.engine is not None
        found = []
        for _ in range(runs + 10):
            before = time.perf_counter_ns()
            self.engine.infer()
            found.append((time.perf_counter_ns() - before) / 1000)
        return found[10:]


def inputs_for(runner: Runner, number: int) -> dict[str, Array]:
    """Input set ``number``: 0 and 1 random, then constants, huge and tiny values, and some NaN and infinities."""
    rng = np.random.Generator(np.random.PCG64([number, 20261201]))
    made: dict[str, Array] = {}
    for name, (shape, dtype) in runner.shapes.items():
        if not dtype.startswith("float"):
            made[name] = rng.integers(0, 2 if dtype == "bool" else 8, shape).astype(dtype)
            continue
        x = rng.standard_normal(shape)
        if number == 2:
            x = np.full(shape, 0.5)
        elif number == 3:
            x = x * np.exp2(rng.integers(-140, 100, shape).astype(np.float64))
        elif number == 4:
            x = np.where(rng.random(shape) < 0.001, np.inf, x)
            x = np.where(rng.random(shape) < 0.001, np.nan, x)
        with np.errstate(over="ignore", under="ignore"):
            made[name] = x.astype(dtype)
    return made


def differing(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, int]:
    """Values of each output whose bits differ; an output that only one has counts as 1."""
    found = {}
    for name in {**a, **b}:
        x, y = a.get(name), b.get(name)
        if x is None or y is None or x.shape != y.shape or x.dtype != y.dtype:
            found[name] = 1
        else:
            bits = f"u{x.dtype.itemsize}"
            same = np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)
            found[name] = int(np.count_nonzero(~same))
    return found


def row_inputs(inputs: Mapping[str, Array], row: int) -> dict[str, Array]:
    """Row ``row`` of a batch as a batch of one."""
    return {name: np.ascontiguousarray(value[row : row + 1]) for name, value in inputs.items()}


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """Minimum, median, 95th and 99th percentile, and p99 over the median."""
    ordered = np.sort(np.asarray(samples))
    median, p99 = (float(np.percentile(ordered, q)) for q in (50, 99))
    return {
        "min": round(float(ordered[0]), 3),
        "median": round(median, 3),
        "p95": round(float(np.percentile(ordered, 95)), 3),
        "p99": round(p99, 3),
        "p99_over_p50": round(p99 / median, 4) if median else 0.0,
        "runs": len(ordered),
    }
