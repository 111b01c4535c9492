"""Frozen dataclasses shared by the three IR levels; immutable and hashable, so content addressing is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, cast

from compiler_kernels.ir.dims import Expr, Size, as_dim
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.layout import Layout, parse_layout
from compiler_kernels.ir.symbols import interval, prover, simplified

Attr = bool | int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Dim = int | str
"""A size, the text of an expression over symbols (the simplest: a symbol's name; ``ir/dims.py``), or ``ANONYMOUS``
(printed ``?``), which never equals another dimension."""

ANONYMOUS: Final = "?"
LEVELS: Final = ("l0", "frozen", "l1", "l2")
DTYPE_BYTES: Final[Mapping[str, int]] = {name: row.nbytes for name, row in DTYPES.items()}


_EXPRESSIONS: ContextVar[bool] = ContextVar("expressions", default=False)


@contextmanager
def sizes_as_expressions() -> Iterator[None]:
    """Let ``TensorType.dims`` give expressions within the ``with`` statement: for the generators (targets/c)."""
    token = _EXPRESSIONS.set(True)
    try:
        yield
    finally:
        _EXPRESSIONS.reset(token)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type (NumPy name) and shape; dimensions are sizes, texts of expressions, or ``?``. An ``Expr`` among the
    dimensions given becomes its text, simplified under the bounds in scope.

    ``layout`` says how the value lies in memory (``ir/layout.py``); it is empty, plain row-major, before L1.
    """

    shape: tuple[Dim, ...]
    dtype: str = "float32"
    layout: str = ""

    def __post_init__(self) -> None:
        for d in self.shape:
            if type(d) is not int and type(d) is not str:
                dims = tuple(d if isinstance(d, str) else as_dim(_simple(d)) for d in self.shape)
                object.__setattr__(self, "shape", dims)
                return

    @property
    def logical(self) -> TensorType:
        """The same type in plain layout."""
        return self if not self.layout else TensorType(self.shape, self.dtype)

    @property
    def physical(self) -> Layout:
        """The parsed layout; ``ValueError`` when it does not fit the shape."""
        return parse_layout(self.layout, self.dims)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as integers; ``ValueError`` when a dimension is symbolic.

        Within :func:`sizes_as_expressions` the expressions themselves: code written for integers computes with them.
        """
        if not self.is_static:
            if _EXPRESSIONS.get():
                return cast(tuple[int, ...], self.extents)
            raise ValueError(f"shape {list(self.shape)} is not static")
        return tuple(int(d) for d in self.shape)

    @property
    def extents(self) -> tuple[Size, ...]:
        """The shape as numbers and expressions; ``ValueError`` when a dimension is anonymous."""
        if ANONYMOUS in self.shape:
            raise ValueError(f"shape {list(self.shape)} has an anonymous dimension")
        return tuple(parse_dim(d) if isinstance(d, str) else d for d in self.shape)

    @property
    def count(self) -> int:
        """Number of elements (1 for a scalar)."""
        return prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, halo and padding included; of a symbolic shape at the largest sizes in scope."""
        if not self.is_static:
            return prod(_most(d) for d in self.extents) * DTYPE_BYTES[self.dtype]
        elements = self.physical.elements if self.layout else self.count
        return elements * DTYPE_BYTES[self.dtype]

    def unifies(self, other: TensorType) -> bool:
        """Same dtype, rank and dimensions, where an anonymous dimension equals nothing, not even itself."""
        return (
            self.dtype == other.dtype
            and len(self.shape) == len(other.shape)
            and all(a == b and a != ANONYMOUS for a, b in zip(self.shape, other.shape, strict=True))
        )


def _most(size: Size) -> int:
    """The largest value of a size for the bounds in scope."""
    return size if isinstance(size, int) else interval(size, prover().symbols)[1]


def _simple(dim: object) -> object:
    return simplified(dim) if isinstance(dim, Expr) else dim


@dataclass(frozen=True, slots=True)
class Value:
    """A named graph input or function parameter. ``name`` is the model's own name where ``id`` had to be sanitised."""

    id: str
    type: TensorType
    name: str = ""


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant tensor held outside the text, by reference: ``ref`` is ``sha3-512:<hex>`` of its bytes.

    Bytes are little-endian in C order.
    """

    id: str
    type: TensorType
    ref: str


@dataclass(frozen=True, slots=True)
class Op:
    """One statement. ``name`` is qualified: ``op.conv``, ``fused.conv_relu``, ``tensor.alloc``, ``call.k0``.

    ``operands`` are value ids, "" for an absent optional one. ``into`` is the buffer an L1/L2 statement writes.
    ``body`` holds the atomic operations of a fused statement; its last operation defines ``result``.
    ``node`` and ``tensor`` are the source model's node and output names.
    """

    name: str
    operands: tuple[str, ...]
    result: str = ""
    type: TensorType | None = None
    attrs: tuple[tuple[str, Attr], ...] = ()
    into: str = ""
    body: tuple[Op, ...] = ()
    node: str = ""
    tensor: str = ""

    @property
    def kind(self) -> str:
        """The name without its dialect: ``conv`` of ``op.conv``."""
        return self.name.partition(".")[2]

    def attr(self, key: str) -> Attr:
        """Value of attribute ``key``; ``KeyError`` when absent."""
        for name, value in self.attrs:
            if name == key:
                return value
        raise KeyError(f"{self.name} has no attribute {key!r}")

    def has(self, key: str) -> bool:
        return any(name == key for name, _ in self.attrs)

    def ints(self, key: str) -> tuple[int, ...]:
        value = self.attr(key)
        assert isinstance(value, tuple)
        return tuple(int(v) for v in value)

    def extents(self, key: str) -> tuple[Size, ...]:
        """An attribute of kind ``sizes``: numbers, or texts of expressions where the operation has symbols."""
        value = self.attr(key)
        assert isinstance(value, tuple)
        return tuple(parse_dim(v) if isinstance(v, str) else int(v) for v in value)

    def floats(self, key: str) -> tuple[float, ...]:
        value = self.attr(key)
        assert isinstance(value, tuple)
        return tuple(float(v) for v in value)

    def int_(self, key: str) -> int:
        value = self.attr(key)
        assert isinstance(value, int)
        return value

    def float_(self, key: str) -> float:
        value = self.attr(key)
        assert isinstance(value, float)
        return value

    def number(self, key: str) -> int | float:
        value = self.attr(key)
        assert isinstance(value, int | float)
        return value

    def str_(self, key: str) -> str:
        value = self.attr(key)
        assert isinstance(value, str)
        return value

    @property
    def out(self) -> TensorType:
        """The result type; only for statements that have one."""
        assert self.type is not None, self.name
        return self.type

    def with_attrs(self, **changes: Attr) -> Op:
        merged = {**dict(self.attrs), **changes}
        return replace(self, attrs=make_attrs(merged))


def make_attrs(values: Mapping[str, Attr]) -> tuple[tuple[str, Attr], ...]:
    """Attributes sorted by name, the only order in which two equal operations compare equal."""
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph (L0, L1) or a function (L2). ``outputs`` are value ids; ``output_names`` the model's names for them."""

    name: str
    inputs: tuple[Value, ...]
    weights: tuple[Weight, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...] = ()
    # Filled at the first look-up; no part of the graph's value.
    _constants: dict[str, Weight] = field(default_factory=dict, init=False, repr=False, compare=False)

    def types(self) -> dict[str, TensorType]:
        """Type of every value defined in the graph, weights and inputs included."""
        found: dict[str, TensorType] = {v.id: v.type for v in self.inputs}
        found.update({w.id: w.type for w in self.weights})
        for op in self.ops:
            if op.result and op.type is not None:
                found[op.result] = op.type
        return found

    def weight(self, value_id: str) -> Weight | None:
        """The constant ``value_id``, or ``None`` when that is no constant."""
        if not self._constants:
            self._constants.update({w.id: w for w in reversed(self.weights)})
        return self._constants.get(value_id)

    def uses(self) -> dict[str, int]:
        """How many operands (graph outputs included) refer to each value."""
        count: dict[str, int] = {}
        for op in self.ops:
            for operand in all_operands(op):
                count[operand] = count.get(operand, 0) + 1
        for out in self.outputs:
            count[out] = count.get(out, 0) + 1
        return count


def all_operands(op: Op) -> Iterator[str]:
    """Operands of ``op`` and, for a fused statement, of its body, without values the body itself defines."""
    inner = {o.result for o in op.body}
    seen = [o for o in op.operands if o]
    yield from seen
    for inside in op.body:
        for operand in inside.operands:
            if operand and operand not in inner and operand not in seen:
                yield operand


@dataclass(frozen=True, slots=True)
class Module:
    """The unit that is printed, hashed and verified: one level, one or more graphs, the first being the entry."""

    level: str
    graphs: tuple[Graph, ...]
    meta: tuple[tuple[str, str], ...] = field(default=())

    @property
    def main(self) -> Graph:
        return self.graphs[0]
