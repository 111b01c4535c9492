"""Which Winograd convolutions of a GPU engine keep their taps in device memory and transform them in the kernel.

Transformed weights take 16/9 of the bytes of the taps. A kernel that reads the taps computes the same U
(docs/arithmetic.md, 3.8) once per group of tiles, which takes time; so a layer does it where it saves much of the
engine's constants for little. It changes no bit: a constant is replaced only by taps whose transform has its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.order import FEW_CHANNELS
from compiler_kernels.ir.graph import Graph, Module, Op, Weight
from compiler_kernels.ir.layout import BLOCK, packed
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.packing import TAPS, pack_weight
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.winograd import winograd_shape
from compiler_kernels.targets.cuda.families.winograd_tiles import cheapest
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.tuning import table

SMALLEST: Final[int] = table("taps")["least_bytes"]
"""Bytes of transformed weights from which on taps are kept: below, 7/16 of them is too little to save."""
MOST_LOST: Final[float] = table("taps")["most_us"]
"""Microseconds an engine may lose to taps, by estimate: a layer as much of it as of the engine's constants it has."""


def may_take_taps(function: Graph) -> bool:
    """Whether ``function`` is a Winograd convolution of a plane whose transformed weights are large enough."""
    shape = winograd_shape(function)
    if shape is None or shape.axes != 2:
        return False
    weight = function.types()[root_of(function).operands[1]]
    return weight.dims[1] >= FEW_CHANNELS and weight.nbytes >= SMALLEST


def prefers_taps(function: Graph, gpu: Gpu, constants: int) -> bool:
    """Whether the kernel of ``function`` should transform the taps, in an engine with ``constants`` bytes of constants.
    Shapes decide, the target's tiles and their estimated microseconds among them; no number in a graph does."""
    plain = winograd_shape(function)
    if plain is None or not may_take_taps(function):
        return False
    taps = replace(plain, taps=True)
    without, tile = cheapest(plain, gpu), cheapest(taps, gpu)  # estimates only: one of a measured tile may be far off
    if without is None or tile is None:
        return False
    lost = tile.cost(taps, gpu) - without.cost(plain, gpu)
    return lost * constants <= MOST_LOST * function.types()[root_of(function).operands[1]].nbytes


def with_taps(module: Module, store: WeightStore, frozen: Graph, source: WeightStore, gpu: Gpu) -> Module:
    """An L2 ``module`` whose calls that :func:`prefers_taps` names read taps, which are added to ``store``.

    ``frozen`` is the frozen graph the module was lowered from, ``source`` holds its constants. A function one of whose
    calls has weights that are not among those, transformed, stays as it is.
    """
    main, taps = module.main, dict[str, Weight]()  # by the name of the transformed constant
    constants = sum(w.type.nbytes for w in main.weights)
    functions = {f.name: f for f in module.graphs[1:] if prefers_taps(f, gpu, constants)}
    places = {name: _place(f) for name, f in functions.items()}
    for op in main.ops:
        if op.name.startswith("call.") and op.kind in functions:
            name = [o for o in op.operands if o][places[op.kind]]
            found = taps.get(name) or _taps(main.weight(name), root_of(functions[op.kind]), frozen, store, source)
            if found is None:
                del functions[op.kind]
            else:
                taps[name] = found
    if not functions:
        return module
    ops = tuple(_reads_taps(op, places, taps) if op.kind in functions else op for op in main.ops)
    used = {o for op in ops for o in op.operands}
    weights = [w for weight in main.weights for w in (weight, taps.get(weight.id)) if w and w.id in used]
    graphs = (reading_taps(f) if f.name in functions else f for f in module.graphs[1:])
    return replace(module, graphs=(replace(main, ops=ops, weights=tuple(weights)), *graphs))


def _place(function: Graph) -> int:
    """Which parameter the weights are."""
    return [v.id for v in function.inputs].index(root_of(function).operands[1])


def _taps(weight: Weight | None, root: Op, frozen: Graph, store: WeightStore, source: WeightStore) -> Weight | None:
    """The taps whose transform is ``weight``, packed; ``None`` where the frozen graph has none."""
    if weight is None:
        return None
    kind = weight.type.layout.split(" ")[1]
    taps = frozen.weight(weight.id.partition(f".{kind}")[0])
    if taps is None or taps.type.layout or taps.type.dims != weight.type.dims:
        return None
    if pack_weight(kind, root, taps, source)[1].tobytes() != store.raw(weight).tobytes():
        return None
    return store.packed(f"{taps.id}.{TAPS}", *pack_weight(TAPS, root, taps, source))


def _reads_taps(call: Op, places: Mapping[str, int], taps: Mapping[str, Weight]) -> Op:
    present = [n for n, o in enumerate(call.operands) if o]
    at = present[places[call.kind]]
    operands = (*call.operands[:at], taps[call.operands[at]].id, *call.operands[at + 1 :])
    return replace(call, operands=operands)


def reading_taps(function: Graph) -> Graph:
    """``function``, a Winograd convolution, with taps in place of the transformed weights."""
    place = _place(function)
    value = function.inputs[place]
    dims = value.type.dims
    units, blocks = -(-dims[1] // UNIT), -(-dims[0] // BLOCK)
    taps = replace(value, type=replace(value.type, layout=packed(TAPS, blocks * units * 9 * UNIT * BLOCK)))
    return replace(function, inputs=(*function.inputs[:place], taps, *function.inputs[place + 1 :]))
