"""What an operator importer works with: known tensors, constants, and the list of L0 operations so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import FunctionProto

from compiler_kernels.errors import IRError, UsageError
from compiler_kernels.importers.counted import counted_result
from compiler_kernels.importers.node import Node
from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.dtypes import DTYPES, HALVES, numpy_dtype
from compiler_kernels.ir.graph import Attr, Op, TensorType, Weight, make_attrs
from compiler_kernels.ir.ops import FINITE, infer
from compiler_kernels.ir.shapes import cast_sizes
from compiler_kernels.ir.symbols import Unproved, prover, same_shape, simplified
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.proofs.breaks import smallest_break

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A run-time value (``id`` set), a constant (``const`` set), or sizes that depend on symbols (``sym`` set, an array
    of objects: numbers and ``Expr``); ``index_like`` marks constants computed from shapes."""

    type: TensorType
    id: str = ""
    const: Array | None = None
    name: str = ""
    index_like: bool = False
    sym: Array | None = None
    count: Tensor | None = None
    """A run-time number of elements where the size of axis ``counted`` depends on the data; the type says the bound."""
    counted: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, some of which may be ``Expr``: typed as ``int`` because importers compute with them alike
        (``ir/dims.py``: a comparison that depends on the size raises ``Unproved``, which names the node)."""
        return self.type.dims if self.type.is_static else cast_sizes(self.type.extents)

    @property
    def rank(self) -> int:
        return len(self.type.shape)


def constant(array: Array, name: str = "", *, index_like: bool = False) -> Tensor:
    """Wrap a NumPy array."""
    return Tensor(TensorType(tuple(array.shape), array.dtype.name), const=array, name=name, index_like=index_like)


def symbols_in(sizes: Array) -> str:
    """The symbols among ``sizes``, as words."""
    return " and ".join(sorted({n for s in sizes.reshape(-1) for n in getattr(s, "symbols", ())}))


def _nothing(ctx: Context, node: Node) -> None:
    raise AssertionError("no importer is set")


@dataclass
class Context:
    """Mutable state of one import. ``live`` holds the tensor names something still needs."""

    store: WeightStore
    live: frozenset[str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    weights: dict[str, Weight] = field(default_factory=dict)
    ids: dict[tuple[str, TensorType], str] = field(default_factory=dict)
    node: Node | None = None
    dispatch: Callable[[Context, Node], None] = _nothing
    """Imports one node: set by the importer, for bodies that are imported in place (inline.py)."""
    domains: Mapping[str, int] = field(default_factory=dict)
    """Opset of every imported domain."""
    stated: Mapping[str, TensorType] = field(default_factory=dict)
    """Types the model declares for its outputs and inner values, by name."""
    functions: Mapping[tuple[str, str, str], FunctionProto] = field(default_factory=dict)
    """Functions the model brings along, by domain, name and overload (functions.py)."""
    open_functions: list[tuple[str, str, str]] = field(default_factory=list)
    """Those being expanded."""
    expanded: int = 0
    """Nodes that expansions of functions have created."""
    random_seed: int | None = None
    """The policy's seed of random operators that have none of their own."""
    random_streams: int = 0
    """How many of them draw from it so far."""
    highest: dict[str, float] = field(default_factory=dict)
    """Upper ends of the policy's ranges of inputs, by value id."""

    @property
    def at(self) -> Node:
        assert self.node is not None
        return self.node

    # reading ---------------------------------------------------------------------------------------------------------
    def tensor(self, index: int) -> Tensor:
        """Input ``index`` of the current node; a missing one is the model's fault."""
        if not self.at.has_input(index):
            self.at.invalid(f"lacks its input {index}")
        return self.tensors[self.at.inputs[index]]

    def optional(self, index: int) -> Tensor | None:
        return self.tensor(index) if self.at.has_input(index) else None

    def const(self, index: int, what: str) -> Array:
        """Input ``index`` as an array; unsupported when it is only known at run time."""
        found = self.tensor(index)
        if found.sym is not None:
            self.at.unsupported(f"takes {what} from sizes that depend on {symbols_in(found.sym)}; pin or narrow them")
        if found.const is None:
            self.at.unsupported(
                f"takes {what} from the run-time tensor {self.at.inputs[index]!r}; it must be a constant"
            )
        return found.const

    def const_ints(self, index: int, what: str) -> tuple[int, ...]:
        """Integers, some of which may be ``Expr`` (see ``Tensor.shape``)."""
        found = self.tensor(index)
        if found.sym is not None:
            return cast_sizes(found.sym.reshape(-1).tolist())
        array = self.const(index, what)
        if array.dtype.kind not in "iu":
            self.at.invalid(f"has {what} of type {array.dtype.name} where integers are needed")
        return tuple(int(v) for v in array.reshape(-1))

    def const_float(self, index: int, what: str) -> float:
        array = self.const(index, what)
        if array.size != 1:
            self.at.invalid(f"has {what} with {array.size} elements where one is needed")
        return float(array.reshape(-1)[0])

    def used(self, index: int) -> bool:
        """Whether output ``index`` of the current node is needed by anything."""
        outputs = self.at.outputs
        return index < len(outputs) and outputs[index] in self.live

    def declared(self, index: int) -> TensorType | None:
        """The type the model declares for output ``index`` of the current node, if it does."""
        outputs = self.at.outputs
        return self.stated.get(outputs[index]) if index < len(outputs) else None

    # writing ---------------------------------------------------------------------------------------------------------
    def operand(self, tensor: Tensor, kind: str = "") -> str:
        """Value id of ``tensor`` as an operand of L0 operation ``kind``; a constant becomes a weight, once per content
        and type.

        ``UnsupportedError`` for an element type that is not compiled, ``UsageError`` for a NaN or an infinity among
        the weights of a sum of products (``FINITE``): skipped and executed padding taps would differ.
        """
        if tensor.type.dtype not in DTYPES:
            label = f" {tensor.name!r}" if tensor.name else ""
            self.at.unsupported(f"computes on the {tensor.type.dtype} tensor{label}, a type that is not compiled")
        if tensor.sym is not None:
            self.at.unsupported(
                f"computes on sizes that depend on {symbols_in(tensor.sym)}, which engines have no values for; pin them"
            )
        if tensor.const is None:
            return tensor.id
        if kind in FINITE and tensor.const.dtype.kind == "f" and not np.isfinite(tensor.const).all():
            bad = int(np.flatnonzero(~np.isfinite(tensor.const.reshape(-1)))[0])
            raise UsageError(
                f"constant {tensor.name or self.at.name!r} used by {self.at.where} holds a NaN or an infinity at "
                f"element {bad}; Canonical Arithmetic 1 refuses non-finite weights, so repair the model"
            )
        key = (self.store.add(tensor.const), tensor.type)
        if key not in self.ids:
            self.ids[key] = f"w{len(self.ids)}"
            self.weights[self.ids[key]] = Weight(self.ids[key], tensor.type, key[0])
        return self.ids[key]

    def emit(
        self,
        kind: str,
        operands: Sequence[Tensor | None],
        attrs: dict[str, Attr] | None = None,
        shape: Sequence[int] | None = None,
        dtype: str = "",
    ) -> Tensor:
        """Append ``op.<kind>``; ``shape`` states the result where attributes do not give it, of ``dtype`` or the first
        operand's type. Trailing ``None`` drop."""
        found = list(operands)
        while found and found[-1] is None:
            found.pop()
        ids = tuple("" if t is None else self.operand(t, kind) for t in found)
        declared = None
        if shape is not None:
            first = found[0].type.dtype if found and found[0] is not None else ""
            declared = TensorType(tuple(shape), dtype or first)
        types = [None if t is None else t.type for t in found]
        try:
            result = infer(kind, types, attrs or {}, declared)
        except (IRError, Unproved) as error:
            blamed = list(error.values) if isinstance(error, Unproved) else []
            refused = smallest_break(kind, types, attrs or {}, declared, prover().symbols, blamed)
            if refused is None and isinstance(error, Unproved):
                raise
            if refused is not None:
                raise refused from None
            self.at.invalid(f"is inconsistent: {error}")
        if result.is_static and result.count == 0 and kind != "reshape" and "message" not in (attrs or {}):
            return constant(np.zeros(result.dims, numpy_dtype(result.dtype)))  # an operation that may refuse stays
        dependent = any(t is not None and t.count is not None for t in found)
        count, axis = counted_result(self.at, kind, found, attrs or {}, result) if dependent else (None, 0)
        value = f"v{len(self.ops)}"
        made = make_attrs(attrs or {})
        self.ops.append(Op(f"op.{kind}", ids, value, result, made, node=self.at.name))
        name = self.at.outputs[0] if self.at.outputs else ""
        return Tensor(result, id=value, name=name, count=count, counted=axis)

    def bind(self, tensor: Tensor, index: int = 0) -> None:
        """Make ``tensor`` the node's output ``index`` and, where this node just computed it, record the source name."""
        outputs = self.at.outputs
        if index >= len(outputs) or not outputs[index]:
            return
        name = outputs[index]
        self.tensors[name] = replace(tensor, name=name)
        for position in range(len(self.ops) - 1, -1, -1):
            op = self.ops[position]
            if op.node != self.at.name:
                break
            if op.result == tensor.id and not op.tensor:
                self.ops[position] = Op(op.name, op.operands, op.result, op.type, op.attrs, node=op.node, tensor=name)
                break

    # small conveniences ----------------------------------------------------------------------------------------------
    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x`` in another shape of as many elements: no operation where nothing changes or ``x`` is a constant."""
        if same_shape(tuple(shape), x.shape):
            return x
        if x.const is not None and all(isinstance(d, int) for d in shape):
            if x.const.size != prod(shape):
                self.at.invalid(f"needs {list(shape)} elements where {x.name or 'a constant'!r} has {list(x.shape)}")
            return constant(x.const.reshape(tuple(shape)), x.name, index_like=x.index_like)
        return self.emit("reshape", [x], shape=shape)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        if list(perm) == list(range(x.rank)):
            return x
        return self.emit("transpose", [x], {"perm": tuple(perm)})

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return x if same_shape(tuple(shape), x.shape) else self.emit("expand", [x], shape=shape)

    def slice(self, x: Tensor, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> Tensor:
        if same_shape(tuple(sizes), x.shape) and all(s == 1 for s in steps):
            return x
        begin: Attr = tuple(starts)
        if any(isinstance(s, Expr) for s in starts):
            begin = tuple(str(simplified(s)) for s in starts)
        return self.emit("slice", [x], {"starts": begin, "steps": tuple(steps)}, shape=sizes)

    def crop(self, x: Tensor, begins: Sequence[int], ends: Sequence[int]) -> Tensor:
        """``x`` without its first ``begins`` and last ``ends`` elements along each axis."""
        sizes = [d - b - e for d, b, e in zip(x.shape, begins, ends, strict=True)]
        if any(s < 1 for s in sizes):
            self.at.invalid(f"crops {list(x.shape)} to {sizes}")
        return self.slice(x, begins, [1] * x.rank, sizes)

    def scalar(self, value: float, dtype: str = "float32") -> Tensor:
        return constant(np.array(value, dtype=numpy_dtype(dtype)))

    def cast(self, x: Tensor, to: str) -> Tensor:
        """``x`` in element type ``to``: no operation where nothing changes."""
        return x if x.type.dtype == to else self.emit("cast", [x], {"to": to})

    def wide(self, index: int) -> Tensor:
        """Input ``index`` as an operand of arithmetic: float16 and bfloat16 widen to float32, which is exact."""
        x = self.tensor(index)
        return self.cast(x, "float32") if x.type.dtype in HALVES else x

    def narrow(self, x: Tensor, like: Tensor) -> Tensor:
        """``x`` rounded to the element type of ``like`` where that is a half type: the other half of :meth:`wide`."""
        return self.cast(x, like.type.dtype) if like.type.dtype in HALVES else x
