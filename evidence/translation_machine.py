"""Executes a module after the freeze on real memory, for translation validation.

An arena of bytes, buffers and parts at their offsets, halos and padded channels, statements that write over their
operands. Every atomic operation is evaluated by the independent reference. Memory that nothing has written holds NaN.
Statements whose result overlaps an operand are executed in two parts, as a kernel may, so that reading what was just
written shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType
from compiler_kernels.ir.weights import WeightStore
from evidence.reference import RefNode
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.interpreter import evaluate
from evidence.translation_memory import Fault, decode, encode, reach, table, transformed, winograd_weights
from evidence.translation_recurrent import STEPS, evaluate_steps

Floats = npt.NDArray[np.float32]
Values = Mapping[str, Floats]
_POISON: Final = 0x7FBADBAD
_SAME: Final = frozenset({"copy", "relayout"})
_NO_MEANING: Final = ("in_place", "runtime_weights", "when")
"""Attributes that tell a kernel how, not what, to compute."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value or buffer: floats ``start`` to ``start + size`` of an allocation, and the type to read them with."""

    base: Floats
    start: int
    size: int
    type: TensorType

    @property
    def memory(self) -> Floats:
        return self.base[self.start : self.start + self.size]


def _poisoned(count: int) -> Floats:
    return np.full(max(count, 1), _POISON, np.uint32).view(np.float32)


@lru_cache(maxsize=64)
def _first_part(count: int) -> npt.NDArray[np.bool_]:
    """The half of a result that is written first: scattered, so that no shift of one buffer against another escapes."""
    return np.asarray(np.random.Generator(np.random.PCG64(count)).integers(0, 2, count), dtype=np.bool_)


def _floats(ttype: TensorType) -> int:
    if ttype.dtype != "float32":
        raise Fault(f"a value of type {ttype.dtype} is not float32")
    return ttype.nbytes // 4


class Machine:
    """One execution of a module's main graph on named inputs."""

    def __init__(self, module: Module, store: WeightStore, originals: Sequence[Floats] = ()) -> None:
        self.module = module
        self.originals = originals
        self.known: dict[int, Floats] = {}  # recognised constants, by the identity of their memory
        self.store = store
        self.functions = {g.name: g for g in module.graphs[1:]}
        self.arithmetic = ARITHMETICS["ca1"]
        self.constants: dict[str, Place] = {}
        for w in module.main.weights:
            if w.type.dtype == "float32":
                flat = np.ascontiguousarray(store.raw(w), dtype=np.float32)
                self.constants[w.id] = Place(flat, 0, flat.size, w.type)
        arena = int(dict(module.meta).get("arena_bytes", "0"))
        # From the memory plan on every buffer has its place in the arena; before it, memory of its own.
        self.planned = module.level == "l2" or any(o.has("offset") for o in module.main.ops)
        self.arena_floats = arena // 4 if self.planned else 0

    def run(self, inputs: Values) -> dict[str, Floats]:
        """Outputs by name, NaN canonical. ``Fault`` when the module does something no kernel may rely on."""
        graph = self.module.main
        self.arena = _poisoned(self.arena_floats)
        self.values = dict(self.constants)
        self.rooms: dict[str, Place] = {}
        for value in graph.inputs:
            given = np.array(inputs[value.name or value.id], dtype=np.float32).reshape(-1)
            self.values[value.id] = Place(given, 0, given.size, value.type)
        for op in graph.ops:
            self._statement(op)
        found: dict[str, Floats] = {}
        for position, (vid, name) in enumerate(zip(graph.outputs, graph.output_names or graph.outputs, strict=True)):
            found[name] = self._output(graph, position, vid, name)
        return found

    def _output(self, graph: Graph, position: int, vid: str, name: str) -> Floats:
        """What the engine's caller finds: after L1 the bytes of the output's own buffer, whatever %vid is."""
        if self.module.level not in ("l1", "l2"):
            place = self.values[vid]
            return self._read(vid, place)
        for op in graph.ops:
            if op.name == "tensor.alloc" and op.has("output") and op.int_("position") == position:
                if op.str_("output") != name:
                    raise Fault(f"output {position} is called {op.str_('output')!r}, not {name!r}")
                return self._read(op.result, self.rooms[op.result])
        raise Fault(f"no buffer receives output {name!r}")

    # statements ------------------------------------------------------------------------------------------------------
    def _statement(self, op: Op) -> None:
        if op.name == "tensor.alloc":
            self.rooms[op.result] = self._allocate(op)
        elif op.name == "tensor.part":
            whole, first = self.rooms[op.operands[0]], op.int_("first")
            if first % 4 or first < 0 or first // 4 + _floats(op.out) > whole.size:
                raise Fault(f"%{op.result} does not lie inside %{op.operands[0]}")
            self.rooms[op.result] = Place(whole.base, whole.start + first // 4, _floats(op.out), op.out)
        elif op.name == "tensor.free":
            self.rooms[op.operands[0]].memory.view(np.uint32)[:] = _POISON
        elif op.name.startswith("view."):
            self.values[op.result] = self._view(op)
        else:
            self._compute(op)

    def _allocate(self, op: Op) -> Place:
        size = _floats(op.out)
        if not self.planned or op.has("output"):
            return Place(_poisoned(size), 0, size, op.out)
        start = op.int_("offset")
        if start % 64 or start < 0 or start // 4 + size > self.arena_floats:
            raise Fault(f"%{op.result} at byte {start} does not lie in the arena of {self.arena_floats * 4} bytes")
        return Place(self.arena, start // 4, size, op.out)

    def _view(self, op: Op) -> Place:
        """A view moves nothing: its bytes are those of its operands, read with its own type."""
        parts = [self.values[o] for o in op.operands]
        first, end = parts[0], parts[-1].start + parts[-1].size
        if op.kind not in ("reshape", "concat") or any(p.base is not first.base for p in parts):
            raise Fault(f"%{op.result} is a view of values that do not lie in one buffer")
        size = end - first.start if len(parts) > 1 else first.size
        if size < _floats(op.out):
            raise Fault(f"%{op.result} is larger than what it is a view of")
        return Place(first.base, first.start, _floats(op.out), op.out)

    def _compute(self, op: Op) -> None:
        size = _floats(op.out)
        if op.into:
            room = self.rooms[op.into]
            if room.size < size:
                raise Fault(f"%{op.result} does not fit its buffer %{op.into}")
            target = Place(room.base, room.start, size, op.out)
        else:
            target = Place(_poisoned(size), 0, size, op.out)
        result = self._evaluate(op)
        memory = target.memory
        if any(np.may_share_memory(self.values[o].memory, memory) for o in op.operands if o):
            first = _first_part(size)
            memory[first] = result[first]
            memory[~first] = self._evaluate(op)[~first]
        else:
            memory[:] = result
        self.values[op.result] = target

    def _evaluate(self, op: Op) -> Floats:
        """The result as it lies in memory, computed from what the operands' bytes hold now."""
        operands = [o for o in op.operands if o]
        if op.name.startswith("call."):
            function = self.functions[op.kind]
            body: Sequence[Op] = function.ops
            places = dict(zip((p.id for p in function.inputs), (self.values[o] for o in operands), strict=True))
            types = {p.id: p.type for p in function.inputs}
            places = {name: Place(p.base, p.start, p.size, types[name]) for name, p in places.items()}
        else:
            body = op.body or (op,)
            places = {o: self.values[o] for o in operands}
        source = places[body[0].operands[0]] if body[0].operands and body[0].operands[0] else None
        if len(body) == 1 and body[0].kind == "reshape" and source and (source.type.layout or op.out.layout):
            # Outside plain order a reshape means the bytes themselves: buffer assignment makes a view of it.
            if source.size < _floats(op.out):
                raise Fault(f"%{op.result} is larger than what it reshapes")
            return source.memory[: _floats(op.out)].copy()
        inner: dict[str, Floats] = {}
        for one in body:
            attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in one.attrs if k not in _NO_MEANING}
            given: list[Any] = []
            for position, name in enumerate(one.operands):
                if not name:
                    given.append(None)
                elif name in inner:
                    given.append(inner[name])
                else:
                    self._check_reach(one, attrs, position, places[name], places)
                    given.append(self._read(name, places[name], (one.kind, attrs, one.out.dims)))
            inner[one.result] = self._atomic(one, attrs, given)
        last = body[-1]
        layout = op.out.layout
        return encode(inner[last.result], table(layout, op.out.dims, (last.kind, {}, op.out.dims)))

    def _atomic(self, op: Op, attrs: Mapping[str, Any], given: list[Any]) -> Floats:
        if op.kind in _SAME:
            if given[0].shape != op.out.dims:
                raise Fault(f"%{op.result} is a copy of a value of another shape")
            return np.asarray(given[0])
        if op.kind in STEPS:
            return evaluate_steps(self.arithmetic, op, attrs, given)
        if op.kind == "affine":
            x, a, b = given
            channel = (1, -1, *(1,) * (x.ndim - 2))
            node = RefNode("reshape", (), op.result, op.out.dims, "float32", {})
            with np.errstate(all="ignore"):
                value = self.arithmetic.fma(x, a.reshape(channel), b.reshape(channel))
            return evaluate(self.arithmetic, node, [value])
        node = RefNode(op.kind, op.operands, op.result, op.out.dims, op.out.dtype, attrs, op.node)
        return evaluate(self.arithmetic, node, given)

    def _read(
        self, name: str, place: Place, reader: tuple[str, Mapping[str, Any], tuple[int, ...]] | None = None
    ) -> Floats:
        packing = place.type.layout.removeprefix("packed ").partition(" ")[0]
        wino = transformed(packing, place.type.dims) if place.type.layout.startswith("packed w") else None
        if wino is not None:
            return self._recognised(name, place, *wino)
        index = table(place.type.layout, place.type.dims, reader or ("", {}, ()))
        return decode(place.memory, index, place.type.dims, name)

    def _recognised(self, name: str, place: Place, index: npt.NDArray[np.int64], shape: tuple[int, ...]) -> Floats:
        """The constant of the frozen graph whose transform the bytes hold: the transform itself cannot be undone."""
        key = id(place.base)
        if key not in self.known:
            bits = decode(place.memory, index, shape, name).view(np.uint32)
            same_shape = [w for w in self.originals if w.shape == place.type.dims]
            found = [w for w in same_shape if np.array_equal(winograd_weights(w).view(np.uint32), bits)]
            if not found:
                raise Fault(f"%{name} does not hold the Winograd transform of any constant of the frozen graph")
            if not any(place.base is c.base for c in self.constants.values()):
                return found[0]
            self.known[key] = found[0]
        return self.known[key]

    @staticmethod
    def _check_reach(op: Op, attrs: Mapping[str, Any], position: int, x: Place, places: Mapping[str, Place]) -> None:
        """A convolution of a value with a halo reads its padding there: the halo must be wide enough."""
        word, *halo = x.type.layout.split(" ")
        if position or op.kind not in ("conv", "conv_transpose") or word not in ("c16", "planar"):
            return
        kernel = places[op.operands[1]].type.dims[2:]
        for have, need in zip(halo, reach(op.kind, attrs, x.type.dims, kernel, op.out.dims), strict=True):
            if need > int(have):
                raise Fault(f"%{op.result} reads {need} elements beyond %{op.operands[0]}, whose halo is {have}")
