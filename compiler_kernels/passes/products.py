"""Matrix products: pack right operands, and read and write transposed operands through steps instead of moving them.

Right operands come to the kernels in panels of 16 columns, ``[batch][N/16][K][16]``, the last panel filled up with +0
(``panels16``, of a transposed constant ``panels16t``). Constants are packed here; a run-time operand is packed by a
statement of its own, unless its rows are whole panels that can be read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, Weight
from compiler_kernels.ir.layout import BLOCK, packed
from compiler_kernels.ir.views import MOVES, View, contiguous, views_of, written_view
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights
from compiler_kernels.passes.fuse import ELEMENTWISE, ELEMENTWISE_TYPED
from compiler_kernels.passes.infra import PassResult

PRODUCTS: Final = frozenset({"matmul", "gemm"})
PANELS: Final = "panels16"
PANELS_TRANSPOSED: Final = "panels16t"


@dataclass(frozen=True)
class LowerProducts:
    """Runs after layouts and before buffers. Only plain values take part."""

    name: ClassVar[str] = "lower-products"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        if not any(_root(op).kind in PRODUCTS for op in module.main.ops):
            return PassResult(module, False)
        work = _Lowering(module.main, store)
        graph = work.run()
        note = {"packed_constants": len(work.packed), "packed_values": work.copies, "moves_absorbed": work.absorbed}
        return PassResult(replace(module, graphs=(graph,)), True, (note,))


def _root(op: Op) -> Op:
    return op.body[0] if op.body else op


def panels(matrices: NDArray[np.float32]) -> NDArray[np.float32]:
    """``[batch, K, N]`` in panels of 16 columns, flat."""
    batch, depth, columns = matrices.shape
    full = np.zeros((batch, depth, -(-columns // BLOCK) * BLOCK), dtype=np.float32)
    full[:, :, :columns] = matrices
    return np.ascontiguousarray(full.reshape(batch, depth, -1, BLOCK).transpose(0, 2, 1, 3)).reshape(-1)


def panel_floats(dims: tuple[int, ...]) -> int:
    """Floats of a right operand of logical shape ``[..., K, N]`` (or ``[K]``, one column) in panels."""
    wide = dims if len(dims) > 1 else (*dims, 1)
    return prod(wide[:-1]) * (-(-wide[-1] // BLOCK) * BLOCK)


@dataclass
class _Lowering:
    graph: Graph
    store: WeightStore
    types: dict[str, TensorType] = field(default_factory=dict)
    makers: dict[str, Op] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    readers: dict[str, Op] = field(default_factory=dict)  # the first of every value
    packed: dict[tuple[str, str], Weight] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    skipped: set[str] = field(default_factory=set)  # moves that a product before them writes through
    panels_of: dict[tuple[str, ...], str] = field(default_factory=dict)
    copies: int = 0
    absorbed: int = 0
    counter: int = 0

    def run(self) -> Graph:
        graph = self.graph
        self.types, self.uses = graph.types(), graph.uses()
        self.makers = {op.result: op for op in graph.ops}
        self.readers = {o: op for op in reversed(graph.ops) for o in op.operands}
        for op in graph.ops:
            if op.result in self.skipped:
                continue
            kind = _root(op).kind
            if op.out.layout or op.out.dtype != "float32":
                self.ops.append(op)
            elif kind in PRODUCTS:
                self._product(op)
            elif kind in ELEMENTWISE:
                self._elementwise(op)
            else:
                self.ops.append(op)
        made = (*graph.weights, *self.packed.values())
        return drop_unused_weights(replace(graph, ops=_alive(self.ops, graph.outputs), weights=made))

    # products --------------------------------------------------------------------------------------------------------
    def _product(self, op: Op) -> None:
        body = list(op.body or (op,))
        root = body[0]
        left, right = root.operands[:2]
        before: list[Op] = []
        new_left, new_right = left, right
        chain = self._moves(left)
        if chain and self._view(chain) is not None:
            new_left = self._clone(chain, before)
        if self.graph.weight(right) is not None:
            new_right = self._packed_constant(right, root)
        else:
            chain = self._moves(right)
            view = self._view(chain) if chain else contiguous(right, self.types[right].dims)
            if root.kind == "matmul" and view is not None and self._in_place(view):
                new_right = self._clone(chain, before) if chain else right
            else:
                new_right = self._packed_value(right, chain if view is not None else [], root)
        # Only the product reads through the moves; an operation after it that reads the same value reads it as it was.
        root = replace(root, operands=(new_left, new_right, *root.operands[2:]))
        body = [*before, root, *body[1:]]
        body += self._written_through(op)
        self.ops.append(_statement(body, op))

    @staticmethod
    def _in_place(view: View) -> bool:
        return len(view.dims) >= 2 and view.dims[-1] % BLOCK == 0 and view.steps[-1] == 1

    def _packed_constant(self, operand: str, root: Op) -> str:
        kind = PANELS_TRANSPOSED if root.kind == "gemm" and root.attr("trans_b") else PANELS
        if (operand, kind) not in self.packed:
            weight = self.graph.weight(operand)
            assert weight is not None, operand
            w = self.store.get(weight).astype(np.float32)
            w = w.reshape(-1, 1) if w.ndim == 1 else w.swapaxes(-1, -2) if kind == PANELS_TRANSPOSED else w
            flat = panels(w.reshape(-1, *w.shape[-2:]))
            ttype = replace(weight.type, layout=packed(kind, flat.size))
            self.packed[operand, kind] = self.store.packed(self._fresh(f"{operand}.{kind}"), ttype, flat)
        return self.packed[operand, kind].id

    def _packed_value(self, operand: str, chain: list[Op], root: Op) -> str:
        """A run-time right operand copied into panels, through the moves that lead to it."""
        kind = PANELS_TRANSPOSED if root.kind == "gemm" and root.attr("trans_b") else PANELS
        key = (operand, kind)
        if key not in self.panels_of:
            dims = self.types[operand].dims
            shape = dims[::-1] if kind == PANELS_TRANSPOSED else dims
            ttype = TensorType(dims, "float32", packed(kind, panel_floats(shape)))
            body: list[Op] = []
            source = self._clone(chain, body) if chain else operand
            result = self._fresh(f"{operand}.{kind}")
            body.append(Op("op.copy", (source,), result, ttype, node=root.node))
            self.ops.append(_statement(body, body[-1]))
            self.types[result] = ttype
            self.panels_of[key] = result
            self.copies += 1
        return self.panels_of[key]

    def _written_through(self, op: Op) -> list[Op]:
        """Transposes and reshapes that follow the product and nothing else reads, where its rows stay rows."""
        found: list[Op] = []
        last, best = op, 0
        while self.uses.get(last.result) == 1 and last.result not in self.graph.outputs:
            reader = self.readers.get(last.result)
            if reader is None or reader.name not in ("op.transpose", "op.reshape") or reader.out.layout:
                break
            found.append(reader)
            view = written_view(found, op.out.dims)
            if view is None or (view.dims[-1] > 1 and view.steps[-1] != 1):
                break
            last = reader
            if reader.kind == "transpose":
                best = len(found)
        self.skipped.update(o.result for o in found[:best])
        self.absorbed += best
        return found[:best]

    # elementwise -----------------------------------------------------------------------------------------------------
    def _elementwise(self, op: Op) -> None:
        """Operands of the result's shape are read through the moves that make them, when nothing else reads those."""
        # Only the vector kernels read through moves, and they know no other element type.
        typed = any(o.kind in ELEMENTWISE_TYPED or o.out.dtype != "float32" for o in op.body or (op,))
        if typed or any(self.types[o].dtype != "float32" for o in op.operands if o):
            self.ops.append(op)
            return
        before: list[Op] = []
        names: dict[str, str] = {}
        for operand in op.operands:
            chain = self._moves(operand) if self.types[operand].dims == op.out.dims else []
            if self.uses.get(operand) != 1 or all(o.kind == "reshape" for o in chain):
                continue
            view = self._view(chain)
            # Axes of one element vanish in the kernel: the last of the others has to be contiguous.
            steps = [s for s, d in zip(view.steps, view.dims, strict=True) if d != 1] if view is not None else [0]
            if steps[-1:] in ([], [1]):
                names[operand] = self._clone(chain, before)
        if not names or any(self.types[o].layout for o in op.operands):
            self.ops.append(op)
            return
        body = [replace(o, operands=tuple(names.get(i, i) for i in o.operands)) for o in op.body or (op,)]
        self.ops.append(_statement([*before, *body], op))

    # moves -----------------------------------------------------------------------------------------------------------
    def _moves(self, value: str) -> list[Op]:
        """The chain of moves that makes ``value`` from a plain value, first to last."""
        chain: list[Op] = []
        while True:
            op = self.makers.get(value)
            if op is None or op.name not in {f"op.{k}" for k in MOVES} or op.out.layout:
                return chain
            if self.types[op.operands[0]].layout or op.result in self.skipped:
                return chain
            chain.insert(0, op)
            value = op.operands[0]

    def _view(self, chain: list[Op]) -> View | None:
        source = chain[0].operands[0]
        return views_of(chain, {source: self.types[source]}).get(chain[-1].result)

    def _clone(self, chain: list[Op], body: list[Op]) -> str:
        """Append copies of ``chain`` to ``body``, as values of that body; the last one's name."""
        value = chain[0].operands[0]
        for op in chain:
            result = self._fresh(f"{op.result}.m")
            body.append(replace(op, operands=(value,), result=result))
            value = result
        self.absorbed += len(chain)
        return value

    def _fresh(self, stem: str) -> str:
        while f"{stem}{self.counter}" in self.types:
            self.counter += 1
        self.counter += 1
        return f"{stem}{self.counter - 1}"


def _statement(body: list[Op], origin: Op) -> Op:
    """One statement for ``body``: the operation itself, or a fused one named after its operations."""
    last = body[-1]
    if len(body) == 1:
        return replace(last, node=origin.node, tensor=origin.tensor)
    inner = {o.result for o in body}
    operands = dict.fromkeys(i for o in body for i in o.operands if i and i not in inner)
    name = "fused." + "_".join(o.kind for o in body)
    tensor = last.tensor if last.tensor else origin.tensor
    return Op(name, tuple(operands), last.result, last.type, (), "", tuple(body), origin.node, tensor)


def _alive(ops: list[Op], outputs: tuple[str, ...]) -> tuple[Op, ...]:
    """Without moves that nothing reads any more."""
    needed = set(outputs)
    kept: list[Op] = []
    for op in reversed(ops):
        if op.result in needed or op.kind not in MOVES:
            needed.update(op.operands)
            kept.append(op)
    return tuple(reversed(kept))
