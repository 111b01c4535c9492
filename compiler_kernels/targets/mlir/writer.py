"""MLIR text, one operation at a time: names, types, literals and the few operation forms the lowerings are made of.

Only forms that MLIR 16 and xDSL 0.75 both read are written: ``tensor.expand_shape`` stands in the generic form, because
its short form changed between MLIR versions, and maximum and minimum are comparisons, because their names did.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Attr, TensorType

ELEMENTS: Final[Mapping[str, str]] = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64",
}  # fmt: skip
"""MLIR's integers have no sign; the operations do."""
FLOATS: Final = ("float32", "float64", "float16", "bfloat16")
_PLAIN_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*|[0-9]+")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the output: its name without ``%``, shape and element type (IR name)."""

    name: str
    dims: tuple[int, ...]
    dtype: str = "float32"

    @property
    def text(self) -> str:
        return tensor_text(self.dims, self.dtype)

    @property
    def rank(self) -> int:
        return len(self.dims)


def tensor_text(dims: Sequence[int], dtype: str) -> str:
    """``tensor<1x3xf32>``."""
    return f"tensor<{''.join(f'{d}x' for d in dims)}{ELEMENTS[dtype]}>"


def string(text: str) -> str:
    """A string literal; what is not printable ASCII becomes a hexadecimal escape."""
    plain = set(range(0x20, 0x7F)) - {ord('"'), ord("\\")}
    return '"' + "".join(chr(b) if b in plain else f"\\{b:02X}" for b in text.encode()) + '"'


def float_text(value: float, dtype: str = "float32") -> str:
    """A float literal that reads back to the same number of the type; hexadecimal where MLIR has no decimal form."""
    if not math.isfinite(value):
        if dtype == "float64":
            return f"0x{np.float64(value).view(np.uint64):016X}"
        bits = int(np.float32(value).view(np.uint32))
        if dtype == "float16":
            return f"0x{np.float16(value).view(np.uint16):04X}"
        return f"0x{bits >> 16:04X}" if dtype == "bfloat16" else f"0x{bits:08X}"
    text = repr(float(value)) if dtype == "float64" else str(np.float32(value))
    mantissa, e, exponent = text.partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent


def dense(array: NDArray[np.generic], dtype: str) -> str:
    """``dense<[[1.0, 2.0]]> : tensor<1x2xf32>``; one number alone where all are equal."""
    flat = array.reshape(-1)
    write: Callable[[object], str]
    if dtype in FLOATS:
        write = lambda v: float_text(float(v), dtype)  # type: ignore[arg-type]  # noqa: E731
    elif dtype == "bool":
        write = lambda v: "true" if v else "false"  # noqa: E731
    else:
        bits = 8 * array.dtype.itemsize
        write = lambda v: str((int(v) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))  # type: ignore[call-overload]  # noqa: E731
    same = flat.size and flat.tobytes() == flat[:1].tobytes() * flat.size
    body = write(flat[0]) if same else _nested(array, write) if flat.size else ""
    return f"dense<{body}> : {tensor_text(array.shape, dtype)}"


def _nested(array: NDArray[np.generic], write: Callable[[object], str]) -> str:
    if array.ndim == 0:
        return write(array[()])
    return "[" + ", ".join(_nested(row, write) for row in array) + "]"


def attribute(value: Attr) -> str:
    """An IR attribute as an MLIR attribute."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value} : i64"
    if isinstance(value, float):
        return f"{float_text(value, 'float64')} : f64"
    if isinstance(value, str):
        return string(value)
    return "[" + ", ".join(attribute(v) for v in value) + "]"


def affine(loops: int, results: Sequence[str]) -> str:
    """``affine_map<(d0, d1) -> (d1)>``."""
    return f"affine_map<({', '.join(f'd{i}' for i in range(loops))}) -> ({', '.join(results)})>"


@dataclass
class Body:
    """The scalar part of a ``linalg.generic``: ``args`` are its parameters, one per operand and one per result.

    Names inside hold a ``$``, which names of values do not.
    """

    args: Sequence[str]
    dtype: str
    lines: list[str] = field(default_factory=list)

    @property
    def element(self) -> str:
        return ELEMENTS[self.dtype]

    def op(self, name: str, *operands: str, flags: str = "") -> str:
        """``%t = name operands : element``, where operands and result have the element type."""
        return self.line(f"{name} {flags}{', '.join(operands)} : {self.element}")

    def line(self, text: str) -> str:
        result = f"%t${len(self.lines)}"
        self.lines.append(f"{result} = {text}")
        return result

    def const(self, value: float) -> str:
        return self.line(f"arith.constant {float_text(value, self.dtype)} : {self.element}")

    def index(self, value: int) -> str:
        return self.line(f"arith.constant {value} : index")

    def compare(self, how: str, a: str, b: str) -> str:
        """An ``i1``; ``how`` is a predicate of ``arith.cmpf``."""
        return self.line(f"arith.cmpf {how}, {a}, {b} : {self.element}")

    def select(self, condition: str, a: str, b: str) -> str:
        return self.line(f"arith.select {condition}, {a}, {b} : {self.element}")

    def extreme(self, how: str, a: str, b: str) -> str:
        """Maximum (``oge``) or minimum (``ole``): a NaN propagates, of equal operands the first."""
        chosen = self.select(self.compare(how, a, b), a, b)
        return self.select(self.compare("uno", a, a), a, chosen)


Scalar = Callable[[Body], str]


@dataclass
class Writer:
    """Statements of one function. ``notes`` are the attributes that the operations of the current statement carry."""

    lines: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    notes: dict[str, str] = field(default_factory=dict)
    tile: tuple[int, ...] = ()
    externals: dict[tuple[str, str], str] = field(default_factory=dict)  # declared functions by kind and type

    def name(self, wanted: str) -> str:
        """``wanted`` where it is a free identifier, else something like it."""
        base = wanted if _PLAIN_ID.fullmatch(wanted) else "v_" + re.sub(r"[^A-Za-z0-9_.]", "_", wanted)
        found, number = base, 0
        while found in self.taken:
            number += 1
            found = f"{base}_{number}" if not base.isdecimal() else f"v_{base}_{number}"
        self.taken.add(found)
        return found

    def attrs(self, tile: Sequence[int] = ()) -> str:
        """The attribute dictionary of the current statement, with tile sizes where given."""
        found = dict(self.notes)
        if any(tile):
            found["cuvil.tile"] = f"array<i64: {', '.join(map(str, tile))}>"
        return "{" + ", ".join(f"{k} = {v}" for k, v in found.items()) + "}" if found else ""

    def tail(self) -> str:
        """The same behind a blank, or nothing."""
        return f" {self.attrs()}" if self.notes else ""

    def add(self, stem: str, dims: Sequence[int], dtype: str, text: str) -> Tensor:
        """``%stem = text``, giving a tensor."""
        result = Tensor(self.name(stem), tuple(dims), dtype)
        self.lines.append(f"%{result.name} = {text}")
        return result

    # operation forms -------------------------------------------------------------------------------------------------
    def constant(self, stem: str, array: NDArray[np.generic], dtype: str) -> Tensor:
        return self.add(stem, array.shape, dtype, f"arith.constant {dense(array, dtype)}")

    def scalar(self, value: float, dtype: str) -> str:
        """A constant outside of any tensor; its name with ``%``."""
        name = self.name("c")
        self.lines.append(f"%{name} = arith.constant {float_text(value, dtype)} : {ELEMENTS[dtype]}")
        return f"%{name}"

    def empty(self, dims: Sequence[int], dtype: str) -> Tensor:
        return self.add("e", dims, dtype, f"tensor.empty() : {tensor_text(dims, dtype)}")

    def filled(self, dims: Sequence[int], dtype: str, value: float) -> Tensor:
        into, number = self.empty(dims, dtype), self.scalar(value, dtype)
        ins, outs = f"ins({number} : {ELEMENTS[dtype]})", f"outs(%{into.name} : {into.text})"
        return self.add("f", dims, dtype, f"linalg.fill {ins} {outs} -> {into.text}")

    def generic(
        self,
        stem: str,
        operands: Sequence[tuple[Tensor, Sequence[str]]],
        into: Tensor,
        kinds: Sequence[str],
        scalar: Scalar,
        result: Sequence[str] = (),
        tile: Sequence[int] = (),
    ) -> Tensor:
        """``linalg.generic``: operands with their index expressions, ``kinds`` "p" or "r" per loop, ``result`` the
        expressions of the result (its own loops in order where not given), ``scalar`` the body."""
        own = list(result) or [f"d{i}" for i in range(into.rank)]
        maps = [affine(len(kinds), expressions) for _, expressions in operands] + [affine(len(kinds), own)]
        types = {"p": '"parallel"', "r": '"reduction"'}
        body = Body([f"%x${i}" for i in range(len(operands))] + ["%acc$"], into.dtype)
        value = scalar(body)
        parameters = [f"{n}: {ELEMENTS[t.dtype]}" for n, (t, _) in zip(body.args, [*operands, (into, ())], strict=True)]
        header = (
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], "
            f"iterator_types = [{', '.join(types[k] for k in kinds)}]}} "
        )
        if operands:
            names, texts = ", ".join(f"%{t.name}" for t, _ in operands), ", ".join(t.text for t, _ in operands)
            header += f"ins({names} : {texts}) "
        header += f"outs(%{into.name} : {into.text}) "
        attrs = self.attrs(tile)
        found = self.add(stem, into.dims, into.dtype, f"{header}{f'attrs = {attrs} ' if attrs else ''}{{")
        self.lines += [f"^bb0({', '.join(parameters)}):", *(f"  {line}" for line in body.lines)]
        self.lines += [f"  linalg.yield {value} : {ELEMENTS[into.dtype]}", f"}} -> {into.text}"]
        return found

    def external(self, kind: str, stem: str, operands: Sequence[Tensor], out: TensorType, attrs: str) -> Tensor:
        """A call of a declared function, for what has no linalg form here."""
        result = tensor_text(out.dims, out.dtype)
        signature = f"({', '.join(t.text for t in operands)}) -> {result}"
        function = self.externals.get((kind, signature))
        if function is None:
            number = sum(1 for known, _ in self.externals if known == kind)
            function = self.externals[kind, signature] = f"cuvil_{kind}" + (f"_{number}" if number else "")
        notes = {**self.notes, "cuvil.attributes": attrs}
        dictionary = ", ".join(f"{k} = {v}" for k, v in notes.items())
        names = ", ".join(f"%{t.name}" for t in operands)
        return self.add(stem, out.dims, out.dtype, f"func.call @{function}({names}) {{{dictionary}}} : {signature}")


def static(ttype: TensorType, what: str) -> tuple[int, ...]:
    """The shape of ``ttype``; ``UnsupportedError`` when it is symbolic or its element type unknown."""
    if not ttype.is_static or ttype.dtype not in ELEMENTS:
        raise UnsupportedError(
            f"{what} has the type {ttype.dtype}{[str(d) for d in ttype.shape]}, which the MLIR export cannot write; "
            "pin the shape with --input-shape"
        )
    return ttype.dims
