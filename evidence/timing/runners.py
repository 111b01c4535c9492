"""What is timed: Cuvil's engine and its peers, each as a prepared call."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from compiler_kernels.compile import Frozen, build_frozen, native_target
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.targets.isa import Isa
from evidence.bisect_systems import subject
from evidence.bisect_torch import TorchGraph
from evidence.equivalence import output_file_stem
from evidence.timing.network import Array, Inputs, Network


@dataclass(frozen=True)
class Sample:
    """One inference: processor time of the process, processor time of the calling thread, wall time; nanoseconds."""

    cpu: int
    thread: int
    wall: int


class Runner(ABC):
    """One system with one model loaded and its input set."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.version = ""
        self.flags: dict[str, Any] = {}

    @abstractmethod
    def infer(self) -> None:
        """One inference, as a user of the system runs it."""

    @abstractmethod
    def output(self) -> Array:
        """The first output of the last inference."""

    def sample(self) -> Sample:
        cpu, thread, wall = time.process_time_ns(), time.thread_time_ns(), time.perf_counter_ns()
        self.infer()
        wall = time.perf_counter_ns() - wall
        return Sample(time.process_time_ns() - cpu, time.thread_time_ns() - thread, wall)


class Ours(Runner):
    """An engine in this process, on one thread: the time is that of ``infer()``, without copying input and output."""

    name = "cuvil"

    def __init__(self, frozen: Frozen, x: Inputs, folder: Path, isas: tuple[Isa, ...] | None = None) -> None:
        super().__init__()
        start = time.perf_counter()
        label = "-".join(isa.name for isa in isas) if isas else "best"
        path = folder / f"{label}.so"
        path.write_bytes(build_frozen(frozen, native_target(), "so", isas))
        self.build_seconds = round(time.perf_counter() - start, 2)
        self.engine = load_engine(path)
        self.engine.set_inputs(x)
        self.infer = self.engine.infer  # type: ignore[method-assign]
        self.version = self.engine.frozen_graph[:16]
        self.flags = {"isa": self.engine.isa, "threads": 1, "timed": "infer() in process"}

    def infer(self) -> None:
        raise AssertionError("replaced in __init__")

    def output(self) -> Array:
        return self.engine.get_outputs()[self.engine.outputs[0].name]


class OursThreads(Runner):
    """The engine as a program with ``--threads N``; a sample is the mean of ``RUNS`` inferences of one start."""

    name = "cuvil"
    RUNS: ClassVar[int] = 5

    def __init__(self, frozen: Frozen, x: Inputs, folder: Path, threads: int) -> None:
        super().__init__()
        self.folder, self.threads = folder, threads
        self.path = folder / "engine.bin"
        start = time.perf_counter()
        self.path.write_bytes(build_frozen(frozen, native_target(), "bin"))
        self.build_seconds = round(time.perf_counter() - start, 2)
        self.path.chmod(0o755)
        self.words = [str(self.path), "--threads", str(threads)]
        for number, (name, value) in enumerate(x.items()):
            np.save(folder / f"x{number}.npy", value)
            self.words += ["--input", f"{name}={folder / f'x{number}.npy'}"]
        self.output_name = frozen.module.main.output_names[0]
        self._bench()

    def _bench(self) -> dict[str, Any]:
        words = [*self.words, "--bench", str(self.RUNS), "--json"]
        answer: dict[str, Any] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        timed = f"mean of {self.RUNS} inferences of the program"
        self.flags = {"isa": answer["isa"], "threads": answer["threads"], "timed": timed}
        return answer

    def infer(self) -> None:
        self._bench()

    def sample(self) -> Sample:
        answer = self._bench()
        cpu, wall = (int(answer[clock]["mean"] * 1000) for clock in ("cpu_us", "wall_us"))
        return Sample(cpu, 0, wall)

    def output(self) -> Array:
        out = self.folder / "out"
        subprocess.run([*self.words, "--output-dir", str(out)], capture_output=True, check=True)
        found = {path.stem: np.load(path) for path in out.glob("*.npy")}
        return np.asarray(output_file_stem(found, self.output_name), np.float32)


class OnnxRuntime(Runner):
    name = "onnxruntime"

    def __init__(self, network: Network, x: Inputs, threads: int) -> None:
        super().__init__()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(network.path), options, providers=["CPUExecutionProvider"])
        self.feed = dict(x)
        self.version = onnxruntime.__version__
        self.flags = {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "provider": "CPUExecutionProvider"}

    def infer(self) -> None:
        self.values = self.session.run(None, self.feed)

    def output(self) -> Array:
        return np.asarray(self.values[0])


class OpenVino(Runner):
    name = "openvino"

    def __init__(self, network: Network, x: Inputs, threads: int) -> None:
        super().__init__()
        import openvino

        self.flags = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        self.compiled = openvino.Core().compile_model(str(network.path), "CPU", self.flags)
        self.request = self.compiled.create_infer_request()
        self.feed = dict(x)
        self.version = version("openvino")

    def infer(self) -> None:
        self.values = self.request.infer(self.feed, share_inputs=True)

    def output(self) -> Array:
        return np.array(self.values[self.compiled.outputs[0]])


class Torch(Runner):
    """PyTorch eager on the network itself where it is known, else on the operations of the ONNX file."""

    name = "torch"

    def __init__(self, network: Network, x: Inputs, threads: int) -> None:
        super().__init__()
        import torch

        torch.set_num_threads(threads)
        self.no_grad = torch.inference_mode
        self.version = torch.__version__
        self.flags = {"threads": threads, "mode": "inference_mode"}
        tensors = {name: torch.from_numpy(value) for name, value in x.items()}
        if network.module is not None:
            call, given = self._prepare(network.module()), tuple(tensors.values())
            self.call: Callable[[], Any] = lambda: call(*given)
            self.flags["form"] = "the network"
        else:
            self.call = self._from_file(network, tensors)
            self.flags["form"] = "operations of the ONNX file"

    def _prepare(self, module: Any) -> Any:
        return module

    def _from_file(self, network: Network, tensors: dict[str, Any]) -> Callable[[], Any]:
        graph = TorchGraph(subject(network.path.read_bytes(), network.pins).source)
        first = graph.graph.outputs[0][0]
        return lambda: graph(tensors)[first]

    def infer(self) -> None:
        with self.no_grad():
            self.value = self.call()

    def output(self) -> Array:
        return np.asarray(self.value.numpy())


class Inductor(Torch):
    """torch.compile with its default backend and frozen parameters, on networks known in torch."""

    name = "inductor"

    def _prepare(self, module: Any) -> Any:
        import torch
        import torch._inductor.config as config

        config.freezing = True
        self.flags |= {"torch.compile": "default mode", "freezing": True}
        return torch.compile(module)

    def _from_file(self, network: Network, tensors: dict[str, Any]) -> Callable[[], Any]:
        raise UnsupportedError(f"{self.name} takes networks written in torch, and {network.path.name} is an ONNX file")


PEERS: dict[str, type[OnnxRuntime] | type[OpenVino] | type[Torch]] = {
    peer.name: peer for peer in (OnnxRuntime, OpenVino, Torch, Inductor)
}
_PACKAGE = {"onnxruntime": "onnxruntime", "openvino": "openvino", "torch": "torch", "inductor": "torch"}


def installed(peer: str) -> bool:
    try:
        version(_PACKAGE[peer])
    except PackageNotFoundError:
        return False
    return True


def parse_peers(text: str | None) -> list[str] | None:
    """``onnxruntime,torch`` to names, ``none`` to no peer, ``None`` (the installed ones) for no text."""
    return None if text is None else [part for part in text.split(",") if part and part != "none"]


def make_ours(frozen: Frozen, x: Inputs, threads: int, folder: Path) -> Ours | OursThreads:
    place = Path(tempfile.mkdtemp(dir=folder))
    return Ours(frozen, x, place) if threads == 1 else OursThreads(frozen, x, place, threads)


def make_peer(peer: str, network: Network, x: Inputs, threads: int) -> Runner:
    """``UnsupportedError`` when the peer cannot run the model, in one sentence."""
    try:
        return PEERS[peer](network, x, threads)
    except CuvilError:
        raise
    except Exception as error:  # a peer may raise anything on a model it cannot run
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UnsupportedError(f"{peer} cannot run {network.path.name}: {lines[0][:200]}") from error
