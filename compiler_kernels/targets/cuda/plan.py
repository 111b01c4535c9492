"""The calls of an L2 module as launches, with the place in memory of every pointer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.extents import SUFFIX
from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.symbols import Symbols, symbols_of
from compiler_kernels.ir.weights import layout
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.families import emit_family_kernel
from compiler_kernels.targets.cuda.families.text import constant_operands
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.open_batch import at_most

Space = Literal["input", "output", "weights", "arena"]
Emitter = Callable[[Graph, Gpu, str, Symbols], CudaKernel]


@dataclass(frozen=True, slots=True)
class Place:
    """``offset`` bytes into a buffer: of the graph's input or output ``index``, or of the weights or the arena."""

    space: Space
    offset: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """One call: its kernel, the places of the operands and of the result, and what of the model it computes.

    ``workspace`` is the place of the kernel's in the arena; ``None`` where launches share one outside. ``refusal`` is
    the number of the word in which it may refuse a run-time value, among those of all launches that may; -1 for none.
    """

    kernel: CudaKernel
    arguments: tuple[Place, ...]
    function: Graph
    node: str
    workspace: Place | None = None
    refusal: int = -1


def emit_cuda(function: Graph, gpu: Gpu, name: str, symbols: Symbols) -> CudaKernel:
    """The kernel of the first family that takes ``function``, else of its scalar text; with an open number of rows, of
    as many as there may be."""
    function = at_most(function) or function
    return emit_family_kernel(function, gpu, name) or emit_fallback(function, gpu, name, symbols)


def outputs_of(main: Graph) -> list[Op]:
    """Allocations of the graph's outputs, in order."""
    found = [op for op in main.ops if op.name == "tensor.alloc" and op.has("output")]
    return sorted(found, key=lambda op: op.int_("position"))


def named_outputs(main: Graph) -> list[Op]:
    """Those that a host sees: without the ones that say the size of another."""
    return [op for op in outputs_of(main) if not op.str_("output").endswith(SUFFIX)]


def constant_parameters(main: Graph) -> dict[str, frozenset[str]]:
    """Of every function, the parameters that are constants at every call."""
    found: dict[str, frozenset[str]] = {}
    for op in main.ops:
        if op.name.startswith("call."):
            operands = [o for o in op.operands if o]
            here = frozenset(f"p{n}" for n, o in enumerate(operands) if main.weight(o) is not None)
            found[op.kind] = found.get(op.kind, here) & here
    return found


def kernels_of(module: Module, gpu: Gpu, prefix: str = "cuvil", emit: Emitter = emit_cuda) -> dict[str, CudaKernel]:
    """The kernel of every function of an L2 ``module``, called ``<prefix>_<function>``. ``UnsupportedError`` where one
    has none."""
    symbols, constants = symbols_of(module.meta), constant_parameters(module.main)
    kernels = {}
    for f in module.graphs[1:]:
        with constant_operands(constants.get(f.name, frozenset())):
            kernel = emit(f, gpu, f"{prefix}_{f.name}", symbols)
        # Code for chips that cannot wait for the kernel before must not start early on a later chip either.
        kernels[f.name] = kernel if gpu.clusters else replace(kernel, dependent=False)
    return kernels


def places_of(main: Graph) -> tuple[list[Place], list[Place]]:
    """Where inputs and outputs lie: in the arena where it is planned for them (arena.py)."""
    inputs = [Place("input", 0, n) for n in range(len(main.inputs))]
    for op in main.ops:
        if op.name == "tensor.alloc" and op.has("input"):
            inputs[op.int_("input")] = Place("arena", op.int_("offset"))
    outputs = [
        Place("arena", op.int_("offset")) if op.has("offset") else Place("output", 0, n)
        for n, op in enumerate(outputs_of(main))
    ]
    return inputs, outputs


def plan(module: Module, gpu: Gpu, prefix: str = "cuvil", emit: Emitter = emit_cuda) -> list[Launch]:
    """The launches of an L2 ``module`` in order, with kernels of their own. ``UnsupportedError`` where a function has
    none."""
    return launches_of(module, kernels_of(module, gpu, prefix, emit))


def launches_of(module: Module, kernels: Mapping[str, CudaKernel]) -> list[Launch]:
    """The launches of an L2 ``module`` in order; ``kernels`` by function.

    A call that a selection may not need (``when``) is launched always: what it computes is then not selected.
    ``UnsupportedError`` where such a call may refuse a run-time value.
    """
    main = module.main
    functions = {f.name: f for f in module.graphs[1:]}
    offsets, _ = layout(main.weights)
    inputs, outputs = places_of(main)
    where = {v.id: place for v, place in zip(main.inputs, inputs, strict=True)}
    where |= {w.id: Place("weights", offsets[w.ref]) for w in main.weights}
    buffers = {op.result: place for op, place in zip(outputs_of(main), outputs, strict=True)}
    launches: list[Launch] = []
    refusing = 0
    for op in main.ops:
        if op.name == "tensor.alloc":
            if not op.has("output"):
                buffers[op.result] = Place("arena", op.int_("offset"))
        elif op.name == "tensor.part":
            base = buffers[op.operands[0]]
            buffers[op.result] = Place(base.space, base.offset + op.int_("first"), base.index)
        elif op.name.startswith("view."):
            where[op.result] = where[op.operands[0]]
        else:
            where[op.result] = buffers[op.into]
            arguments = (*(where[o] for o in op.operands if o), buffers[op.into])
            workspace = buffers[op.str_("workspace")] if op.has("workspace") else None
            kernel, refusal = kernels[op.kind], -1
            if kernel.refusals:
                if op.has("when"):
                    raise UnsupportedError(
                        f"node {op.node or op.kind} may refuse a run-time value in a branch that is not always taken, "
                        "and GPU code computes every branch: build for a CPU target"
                    )
                refusal, refusing = refusing, refusing + 1
            launches.append(Launch(kernel, arguments, functions[op.kind], op.node, workspace, refusal))
    return launches
