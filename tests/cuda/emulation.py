"""Emulated GPU kernels against the scalar section's, call by call: what the tests of this folder share.

    check_model(model_bytes)                 # every launch of the model, seeds 1 and 2
    check_module(module, store, inputs)      # of a lowered module

Both compare every bit the kernel leaves in the output buffers and the arena, halo included, and name the first launch
that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tiny_models import tiny_model_bytes

from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.engine import load_engine
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype
from compiler_kernels.ir.graph import Module, TensorType
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.gpu import SM_90, Gpu
from compiler_kernels.targets.cuda.plan import Emitter, Launch, emit_cuda, outputs_of, places_of, plan
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.emulator import Emulator, Memory, emulated_driver

Array = NDArray[Any]


def tiny_engine(folder: Path, faults: bool = False) -> tuple[str, ...]:
    """``engine.bin`` of the tiny model for sm_90, an input ``x.npy`` and a ``driver`` in ``folder``; the words that
    emulate its GPU, which with ``faults`` can fail."""
    model = tiny_model_bytes(batch=1)
    files = generate_frozen(freeze_model(model), resolve_target("cuda-sm_90"))
    compile_model(model, target="cuda-sm_90", kind="bin", output=folder / "engine.bin")
    np.save(folder / "x.npy", np.random.default_rng(1).random((1, 1, 8, 8), dtype=np.float32))
    place = folder / "driver"
    place.mkdir()
    return emulated_driver(files["kernels.cu"], "sm_90", place, faults=faults)


def lowered(
    model: bytes, pins: Mapping[str, tuple[int, ...]] | None = None, numerics: Numerics | None = None
) -> tuple[Module, WeightStore]:
    """The L2 module of an ONNX model and its constants."""
    module, store = import_onnx(model, filename="model.onnx", pins=dict(pins or {}))
    frozen, _ = freeze(module, store, numerics or Numerics())
    return lower_to_l2(frozen, store), store


def random_input(ttype: TensorType, seed: int = 0) -> Array:
    """Values of a row-major input: normal floats, small integers."""
    rng = np.random.default_rng(seed)
    dtype, shape = numpy_dtype(ttype.dtype), ttype.dims
    if DTYPES[ttype.dtype].kind == "float":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if ttype.dtype == "bool" else 5, shape).astype(dtype)


def run_module(
    module: Module,
    store: WeightStore,
    inputs: Sequence[Array],
    gpu: Gpu = SM_90,
    emit: Emitter = emit_cuda,
    gcc: str = "",
) -> dict[str, Array]:
    """The outputs of one emulated inference by name, NaN canonical."""
    launches = plan(module, gpu, "g", emit)
    emulator = Emulator([launch.kernel for launch in launches], gcc)
    return run_launches(module, store, launches, emulator, inputs)


def run_launches(
    module: Module,
    store: WeightStore,
    launches: Sequence[Launch],
    emulator: Emulator,
    inputs: Sequence[Array],
    seed: int = 0,
) -> dict[str, Array]:
    """The outputs of one inference by name, NaN canonical; all memory but inputs and weights is full of NaN before."""
    memory = memory_of(module, store, inputs)
    emulator.guard(memory)
    for launch in launches:
        emulator.run(launch, memory, seed)
    found = {}
    for op, place in zip(outputs_of(module.main), places_of(module.main)[1], strict=True):
        data = memory.at(place, op.out.nbytes).copy()
        value = data.view(numpy_dtype(op.out.dtype)).reshape(op.out.dims)
        if value.dtype.kind == "f":
            value[np.isnan(value)] = np.nan
        found[op.str_("output")] = value
    return found


def engine_outputs(model: bytes, inputs: Mapping[str, Array], **options: Any) -> dict[str, Array]:
    """The outputs of the CPU engine by name."""
    return load_engine(compile_model(model, **options)).run(dict(inputs))


def memory_of(module: Module, store: WeightStore, inputs: Sequence[Array]) -> Memory:
    """Device memory of the module with its constants and inputs in place."""
    sizes = [DTYPES[op.out.dtype].nbytes * max(1, op.out.count) for op in outputs_of(module.main)]
    weights = pack(module.main, store) or bytes(64)
    memory = Memory(inputs, sizes, weights, max(64, int(dict(module.meta).get("arena_bytes", "0"))))
    for array, place in zip(inputs, places_of(module.main)[0], strict=True):
        memory.at(place, array.nbytes)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memory


def check_model(
    model: bytes,
    gpu: Gpu = SM_90,
    emit: Emitter = emit_cuda,
    pins: Mapping[str, tuple[int, ...]] | None = None,
    numerics: Numerics | None = None,
    seeds: Sequence[int] = (1, 2),
    gcc: str = "",
) -> list[str]:
    """``check_module`` of a model given as ONNX bytes, with random inputs."""
    module, store = lowered(model, pins, numerics)
    inputs = [random_input(v.type, n) for n, v in enumerate(module.main.inputs)]
    return check_module(module, store, inputs, gpu, emit, seeds, gcc)


def check_module(
    module: Module,
    store: WeightStore,
    inputs: Sequence[Array],
    gpu: Gpu = SM_90,
    emit: Emitter = emit_cuda,
    seeds: Sequence[int] = (1, 2),
    gcc: str = "",
    skip: Callable[[str], bool] = lambda name: False,
) -> list[str]:
    """Run every launch twice from the same memory, once as scalar code and once as ``emit`` gives it, and compare.

    Returns the names of the functions that were not scalar code in the second run. ``skip`` leaves launches whose
    kernel's name it takes to the scalar code alone. ``AssertionError`` with the launch's nodes and the first bytes.
    """
    plain = plan(module, gpu, "s", emit_fallback)
    tested = plan(module, gpu, "g", emit)
    emulator = Emulator([launch.kernel for launch in (*plain, *tested)], gcc)
    memory = memory_of(module, store, inputs)
    emulator.guard(memory)
    own = []
    for reference, launch in zip(plain, tested, strict=True):
        before = memory.snapshot()
        emulator.launch(reference.kernel.name, memory.pointers(reference))
        wanted = memory.snapshot()
        if launch.kernel.text.replace("g_", "s_") == reference.kernel.text or skip(launch.kernel.name):
            continue
        own.append(launch.kernel.name)
        for seed in seeds:
            memory.restore(before)
            emulator.launch(launch.kernel.name, memory.pointers(launch), seed)
            for key, expected in wanted.items():
                got = memory.of(*key)
                wrong = np.flatnonzero(got != expected)
                assert not len(wrong), (
                    f"{launch.kernel.name} ({launch.node}), seed {seed}: {len(wrong)} bytes of {key} differ, "
                    f"first at {int(wrong[0])}"
                )
        memory.restore(wanted)
    return own
