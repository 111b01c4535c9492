"""Before the freeze: a convolution or matrix product between DequantizeLinear and QuantizeLinear computes in integers.

    float32(sum (qx - zx)(qw - zw) + qb) * float32(sx * sw), then what follows, then QuantizeLinear

The integer sum is exact, so it has no order; docs/arithmetic.md has the text. Everything else about Q/DQ stays float,
as written. A sum that could leave 32 bits stays float too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Attr, Graph, Module, Op, TensorType, Weight, make_attrs
from compiler_kernels.ir.ops import infer
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import FreshIds, drop_unused_weights
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.stage import Json

Array = NDArray[Any]
BETWEEN: Final = frozenset({"relu", "clip"})
"""What may stand between the sum and its QuantizeLinear."""
LARGEST: Final = 2**31 - 1
_NARROW: Final = ("int8", "uint8")


@dataclass(frozen=True)
class IntegerArithmetic:
    """Rewrites ``conv``, ``matmul`` and ``gemm`` whose operands are dequantised and whose result is only quantised."""

    name: ClassVar[str] = "integer-arithmetic"
    changes_bits: ClassVar[bool] = True

    def run(self, module: Module, store: WeightStore) -> PassResult:
        work = _Rewriting(module.main, store)
        graph = work.run()
        if not work.notes:
            return PassResult(module, False)
        return PassResult(replace(module, graphs=(graph, *module.graphs[1:])), True, tuple(work.notes))


@dataclass(frozen=True)
class _Quantised:
    """A dequantised operand: the integers, their scale and zero point as arrays where constant."""

    op: Op
    scale: Array
    zero: Array
    values: Array | None


@dataclass
class _Rewriting:
    graph: Graph
    store: WeightStore
    notes: list[dict[str, Json]] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    added: dict[str, Weight] = field(default_factory=dict)

    def run(self) -> Graph:
        graph = self.graph
        self.constants: Mapping[str, Weight] = {w.id: w for w in graph.weights}
        self.made = {op.result: op for op in graph.ops}
        self.types = graph.types()
        self.readers: dict[str, list[Op]] = {}
        for op in graph.ops:
            for operand in op.operands:
                self.readers.setdefault(operand, []).append(op)
        self.ids = FreshIds(graph, "q")
        for op in graph.ops:
            if op.kind not in ("conv", "matmul", "gemm") or not self._only_quantised(op) or not self._rewritten(op):
                self.ops.append(op)
        changed = replace(graph, ops=tuple(self.ops), weights=(*graph.weights, *self.added.values()))
        return drop_unused_weights(_alive(changed))

    def _only_quantised(self, op: Op) -> bool:
        """Every path from the result leads, through ``BETWEEN``, to a QuantizeLinear."""
        if op.result in self.graph.outputs:
            return False
        readers = self.readers.get(op.result, [])
        return bool(readers) and all(
            r.kind == "quantize" or (r.kind in BETWEEN and self._only_quantised(r)) for r in readers
        )

    def _constant(self, value: str) -> Array | None:
        return self.store.get(self.constants[value]) if value in self.constants else None

    def _dequantised(self, value: str) -> _Quantised | None:
        """The operand, if it is a DequantizeLinear of an 8-bit tensor with constant scale and zero point."""
        op = self.made.get(value)
        if op is None or op.kind != "dequantize" or self.types[op.operands[0]].dtype not in (*_NARROW, "int32"):
            return None
        scale = self._constant(op.operands[1])
        zero = self._constant(op.operands[2]) if len(op.operands) > 2 else np.zeros((), np.int32)
        if scale is None or zero is None:
            return None
        return _Quantised(op, scale, zero.astype(np.int32), self._constant(op.operands[0]))

    def _rewritten(self, op: Op) -> bool:
        x, w = self._dequantised(op.operands[0]), self._dequantised(op.operands[1])
        if x is None or w is None or w.values is None or x.scale.size != 1 or x.zero.size != 1:
            return False
        if "int32" in (self.types[x.op.operands[0]].dtype, w.values.dtype.name):
            return False
        weights = self._weights(op, w)
        if weights is None:
            return False
        centred, scale, outputs = weights
        product = np.asarray(x.scale.reshape(()) * scale, dtype=np.float32)
        bias = self._bias(op, product)
        if bias is None:
            return False
        largest = 255 * np.abs(centred.astype(np.int64)).sum(axis=tuple(a for a in range(centred.ndim) if a != outputs))
        if int(np.max(largest + np.abs(bias.astype(np.int64)), initial=0)) > LARGEST:
            return False
        self._emit(op, x, centred, product, bias)
        return True

    def _weights(self, op: Op, w: _Quantised) -> tuple[Array, Array, int] | None:
        """Centred integers as the integer operation takes them, the scale against its result, and its output axis."""
        assert w.values is not None
        wide = w.values.astype(np.int32) - w.zero
        if op.kind == "conv":
            steering = (w.values.shape[0], *[1] * (w.values.ndim - 1))
            if w.scale.size != 1 and w.scale.shape != steering:
                return None
            scale = w.scale.reshape(-1, *[1] * (w.values.ndim - 2)) if w.scale.size != 1 else w.scale.reshape(())
            return _narrowest(wide), scale, 0
        if w.values.ndim != 2 or (op.kind == "gemm" and not _is_plain_gemm(op)):
            return None
        transposed = op.kind == "gemm" and bool(op.attr("trans_b"))
        wide, scale = (wide.T, w.scale.T) if transposed else (wide, w.scale)
        if scale.size != 1 and np.broadcast_shapes(scale.shape, wide.shape[1:]) != wide.shape[1:]:
            scale = scale.reshape(-1) if scale.shape == (1, wide.shape[1]) else scale
            if scale.shape != wide.shape[1:]:
                return None
        return _narrowest(wide), scale if scale.size != 1 else scale.reshape(()), 1

    def _bias(self, op: Op, product: Array) -> Array | None:
        """int32 bias per output, of the product's scale; zeros where there is none, ``None`` where it is another."""
        if len(op.operands) < 3 or not op.operands[2]:
            return np.zeros((1,), np.int32)
        bias = self._dequantised(op.operands[2])
        if bias is None or bias.values is None or bias.values.dtype != np.int32 or np.any(bias.zero):
            return None
        if not np.array_equal(np.broadcast_to(bias.scale.reshape(-1), bias.values.shape).reshape(-1),
                              np.broadcast_to(product.reshape(-1), (bias.values.size,))):  # fmt: skip
            return None
        return np.asarray(bias.values).reshape(-1)

    def _emit(self, op: Op, x: _Quantised, weights: Array, product: Array, bias: Array) -> None:
        source = x.op.operands[0]
        if int(x.zero.reshape(())):
            source = self._add(op, "cast", (source,), {"to": "int16"})
            source = self._add(op, "sub", (source, self._weight(np.asarray(x.zero.reshape(()), np.int16))))
        kind = "conv_integer" if op.kind == "conv" else "matmul_integer"
        attrs = {k: v for k, v in op.attrs if k in ("group", "strides", "dilations", "pads")}
        total = self._add(op, kind, (source, self._weight(weights)), attrs)
        if np.any(bias):
            shaped = bias.reshape(-1, *[1] * (len(op.out.shape) - 2)) if op.kind == "conv" else bias
            total = self._add(op, "add", (total, self._weight(shaped)))
        value = self._add(op, "cast", (total,), {"to": "float32"})
        last = Op("op.mul", (value, self._weight(product)), op.result, op.type, (), node=op.node, tensor=op.tensor)
        self.ops.append(last)
        self.notes.append({"node": op.node, "taps": int(weights.size // max(1, bias.size)), "sum": "exact in int32"})

    def _weight(self, array: Array) -> str:
        weight = self.store.weight(self.ids.take(), np.ascontiguousarray(array).reshape(array.shape))
        self.added[weight.id] = weight
        self.types[weight.id] = weight.type
        return weight.id

    def _add(self, op: Op, kind: str, operands: tuple[str, ...], attrs: Mapping[str, Attr] | None = None) -> str:
        found: TensorType = infer(kind, [self.types[o] for o in operands], attrs or {})
        name = self.ids.take()
        self.types[name] = found
        self.ops.append(Op(f"op.{kind}", operands, name, found, make_attrs(attrs or {}), node=op.node))
        return name


def _narrowest(values: Array) -> Array:
    """int8 where every value fits, else int16."""
    fits = values.size == 0 or (values.min() >= -128 and values.max() <= 127)
    return values.astype(np.int8 if fits else np.int16)


def _is_plain_gemm(op: Op) -> bool:
    return op.float_("alpha") == 1.0 and op.float_("beta") == 1.0 and not op.attr("trans_a")


def _alive(graph: Graph) -> Graph:
    """Without operations whose result nothing reads any more."""
    needed, kept = set(graph.outputs), []
    for op in reversed(graph.ops):
        if op.result in needed:
            needed.update(op.operands)
            kept.append(op)
    return replace(graph, ops=tuple(reversed(kept)))
