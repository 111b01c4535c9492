"""Result types of the L0 operations that compute: elementwise, products, normalisations, reductions.

Every rule takes a :class:`Site` and returns the result type; inconsistent operands raise ``IRError`` in one sentence.
Shapes are ONNX's (operator changelog, ai.onnx). Sizes are numbers or expressions over symbols with declared bounds
(docs/shapes.md); what depends on the size raises ``Unproved``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from typing import cast as cast_type

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import ANONYMOUS, Attr, TensorType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """One operation as its shape rule sees it; ``operands`` holds ``None`` for an absent optional operand."""

    kind: str
    operands: Sequence[TensorType | None]
    attrs: Mapping[str, Attr]
    declared: TensorType | None = None

    def fail(self, why: str) -> NoReturn:
        raise IRError(f"{self.kind}: {why}")

    def shape(self, index: int) -> Shape:
        """Shape of operand ``index``, which must be present and without anonymous dimensions.

        Sizes may be expressions (``ir/dims.py``). They are typed as ``int`` because rules treat them alike: arithmetic
        gives expressions, a comparison is decided for all sizes or raises ``Unproved``.
        """
        found = self.operands[index] if index < len(self.operands) else None
        if found is None:
            self.fail(f"operand {index} is absent")
        return self._sizes(found, f"operand {index}")

    def _sizes(self, found: TensorType, what: str) -> Shape:
        if found.is_static:
            return found.dims
        if ANONYMOUS in found.shape:
            self.fail(f"{what} has the shape {list(found.shape)}; give the anonymous dimension a name or a size")
        return cast_sizes(found.extents)

    def has(self, index: int) -> bool:
        return index < len(self.operands) and self.operands[index] is not None

    def ints(self, key: str, length: int | None = None) -> Shape:
        """Integer list ``key``, of ``length`` entries where given."""
        value = self.attrs[key]
        if not isinstance(value, tuple) or (length is not None and len(value) != length):
            self.fail(f"{key} must hold {length} integers, not {value}")
        return cast_sizes(tuple(parse_dim(v) if isinstance(v, str) else int(v) for v in value))

    def int_(self, key: str) -> int:
        value = self.attrs[key]
        if not isinstance(value, int):
            self.fail(f"{key} must be an integer, not {value}")
        return int(value)

    def str_(self, key: str) -> str:
        return str(self.attrs[key])

    def axis(self, rank: int) -> int:
        """Attribute ``axis``, which importers have made non-negative."""
        axis = self.int_("axis")
        if not 0 <= axis < rank:
            self.fail(f"axis {axis} is outside a tensor of rank {rank}")
        return axis

    def result(self, shape: Sequence[int], dtype: str = "") -> TensorType:
        """Result of ``shape``, by default of the first operand's element type."""
        first = self.operands[0]
        assert first is not None
        return TensorType(tuple(shape), dtype or first.dtype)

    def stated(self) -> Shape:
        """The declared result shape of an operation whose attributes do not determine it."""
        if self.declared is None:
            self.fail("needs a result type")
        return self._sizes(self.declared, "the result")


def broadcast(site: Site, a: Shape, b: Shape) -> Shape:
    """NumPy broadcasting of two shapes."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    out = []
    for x, y in zip(left, right, strict=True):
        if not (is_one(x) or is_one(y) or x == y):
            site.fail(f"shapes {list(a)} and {list(b)} do not broadcast")
        out.append(y if is_one(x) else x)
    return tuple(out)


def is_one(size: object) -> bool:
    """Whether ``size`` is the number 1; an expression that may be 1 is none that broadcasts."""
    return isinstance(size, int) and size == 1


def cast_sizes(sizes: Sequence[Size]) -> Shape:
    """Sizes as the rules' type for them."""
    return cast_type(Shape, tuple(sizes))


def require(site: Site, index: int, wanted: Shape, what: str) -> None:
    """Operand ``index``, where present, has exactly the shape ``wanted``."""
    if site.has(index) and site.shape(index) != wanted:
        site.fail(f"{what} has shape {list(site.shape(index))} where {list(wanted)} is needed")


def unary(site: Site) -> TensorType:
    return site.result(site.shape(0))


def binary(site: Site) -> TensorType:
    return site.result(broadcast(site, site.shape(0), site.shape(1)))


def compare(site: Site) -> TensorType:
    return site.result(broadcast(site, site.shape(0), site.shape(1)), "bool")


def cast(site: Site) -> TensorType:
    to = site.str_("to")
    if to not in DTYPES:
        site.fail(f"there is no element type {to!r}")
    return site.result(site.shape(0), to)


def where(site: Site) -> TensorType:
    """NumPy broadcasting of condition and both values; the result has the values' type."""
    value = site.operands[1]
    assert value is not None
    shape = broadcast(site, broadcast(site, site.shape(0), site.shape(1)), site.shape(2))
    return site.result(shape, value.dtype)


def prelu(site: Site) -> TensorType:
    """The slope broadcasts to x, never the other way round."""
    x, slope = site.shape(0), site.shape(1)
    if broadcast(site, x, slope) != x:
        site.fail(f"a slope of shape {list(slope)} does not broadcast to {list(x)}")
    return site.result(x)


def gemm(site: Site) -> TensorType:
    a, b = site.shape(0), site.shape(1)
    if len(a) != 2 or len(b) != 2:
        site.fail(f"operands must have rank 2, not {list(a)} and {list(b)}")
    m, k = a[::-1] if site.attrs["trans_a"] else a
    kb, n = b[::-1] if site.attrs["trans_b"] else b
    if k != kb:
        site.fail(f"inner sizes {k} and {kb} differ")
    if site.has(2) and broadcast(site, (m, n), site.shape(2)) != (m, n):
        site.fail(f"c of shape {list(site.shape(2))} does not broadcast to {[m, n]}")
    return site.result((m, n))


def matmul(site: Site) -> TensorType:
    a, b = site.shape(0), site.shape(1)
    if not a or not b:
        site.fail("a scalar operand is not allowed")
    wide_a = a if len(a) > 1 else (1, *a)
    wide_b = b if len(b) > 1 else (*b, 1)
    if wide_a[-1] != wide_b[-2]:
        site.fail(f"inner sizes {wide_a[-1]} and {wide_b[-2]} differ")
    out = broadcast(site, wide_a[:-2], wide_b[:-2])
    out += (wide_a[-2],) if len(a) > 1 else ()
    out += (wide_b[-1],) if len(b) > 1 else ()
    return site.result(out)


def along_axis(site: Site) -> TensorType:
    x = site.shape(0)
    site.axis(len(x))
    return site.result(x)


def per_channel(site: Site) -> TensorType:
    """Normalisations with one parameter per channel (axis 1): batch, instance, group."""
    x = site.shape(0)
    if len(x) < 2:
        site.fail(f"x needs a channel axis, but has shape {list(x)}")
    for index in range(1, len(site.operands)):
        require(site, index, (x[1],), f"operand {index}")
    if "num_groups" in site.attrs:
        groups = site.int_("num_groups")
        if groups < 1 or x[1] % groups:
            site.fail(f"{x[1]} channels do not divide into {groups} groups")
    return site.result(x)


def layer_normalization(site: Site) -> TensorType:
    x = site.shape(0)
    inner = x[site.axis(len(x)) :]
    require(site, 1, inner, "scale")
    require(site, 2, inner, "bias")
    return site.result(x)


def reduction(site: Site) -> TensorType:
    x, axes = site.shape(0), site.ints("axes")
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < len(x) for a in axes):
        site.fail(f"axes {list(axes)} are not sorted, distinct axes of a tensor of rank {len(x)}")
    if site.attrs["keepdims"]:
        return site.result([1 if i in axes else d for i, d in enumerate(x)])
    return site.result([d for i, d in enumerate(x) if i not in axes])
