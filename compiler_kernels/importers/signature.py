"""Graph inputs: symbolic dimensions as the model names them, and the pins that make them static."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

import onnx

from compiler_kernels.errors import IRError, UnsupportedError, UsageError
from compiler_kernels.ir.dims import Expr, Size, as_dim, substitute
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import ANONYMOUS, Dim, TensorType
from compiler_kernels.ir.symbols import Symbols
from compiler_kernels.ir.text import format_type

_RESERVED = re.compile(r"[vw]\d+")


def symbol(text: str) -> str:
    """A ``dim_param`` as an IR symbol; empty, ``?`` and negative numbers are anonymous."""
    if text.strip() in ("", "?") or re.fullmatch(r"\s*-\d+\s*", text):
        return ANONYMOUS
    name = re.sub(r"[^A-Za-z0-9_.]", "_", text)
    return name if re.match(r"[A-Za-z_]", name) and name not in ("inf", "nan") else f"d_{name}"


def _parameter(text: str) -> Dim:
    """A ``dim_param``: an expression such as ``32*height`` where it reads as one (PyTorch writes them), or a symbol."""
    if re.search(r"[*/+()-]", text) and re.search(r"[A-Za-z_]", text):
        try:
            return as_dim(parse_dim(text))
        except IRError:
            pass
    return symbol(text)


def identifier(text: str, taken: Iterable[str]) -> str:
    """A value id made of ``text`` (letters, digits, ``_``, ``.``), unlike ``v0``, ``w0`` and those ``taken``."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", text) or "input"
    if _RESERVED.fullmatch(name) or not re.match(r"[A-Za-z_]", name):
        name = f"in_{name}"
    used, result, n = set(taken), name, 1
    while result in used:
        n += 1
        result = f"{name}_{n}"
    return result


def dtype_name(elem_type: int) -> str:
    """NumPy-style name of an ONNX element type (``bfloat16``, ``string`` and the like keep ONNX's own)."""
    try:
        name = str(onnx.TensorProto.DataType.Name(elem_type)).lower()
    except ValueError:
        return f"type{elem_type}"
    return {"float": "float32", "double": "float64"}.get(name, name)


def declared_type(info: onnx.ValueInfoProto) -> TensorType | None:
    """Declared type of an input or output; ``None`` when it is no tensor or has no shape."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    dims: list[Dim] = []
    for d in info.type.tensor_type.shape.dim:
        if d.HasField("dim_value"):
            dims.append(int(d.dim_value) if d.dim_value >= 0 else ANONYMOUS)
        else:
            dims.append(_parameter(d.dim_param))
    return TensorType(tuple(dims), dtype_name(info.type.tensor_type.elem_type))


def anonymous_name(input_name: str, axis: int) -> str:
    """The symbol that stands for an anonymous dimension: ``<input>_<axis>``."""
    return symbol(f"{input_name}_{axis}")


def pin(
    inputs: Mapping[str, TensorType | None],
    pins: Mapping[str, tuple[int, ...]],
    bounds: Symbols | None = None,
) -> dict[str, TensorType]:
    """Types of all inputs: sizes from pins, from symbols that another input's pin resolves, and from bounds that allow
    one size only; symbols where ``bounds`` leaves a choice. Without bounds every type is static.

    ``UsageError`` for a pin that names no input, contradicts rank, a fixed size or a bound, or gives one symbol two
    values, and for a bound of a symbol the model lacks; ``UnsupportedError`` naming input, symbol and remedy for
    whatever has neither size nor bounds.
    """
    for name in pins:
        if name not in inputs:
            raise UsageError(f"a shape is pinned for the input {name!r}, but the model's inputs are {_names(inputs)}")
    bounds = bounds or {}
    _known_symbols(inputs, bounds)
    values: dict[str, tuple[int, str]] = {}
    for name, shape in pins.items():
        _bind_symbols(name, inputs[name], shape, values)
    for dim, (value, where) in values.items():
        if dim in bounds and value not in bounds[dim]:
            raise UsageError(
                f"the pinned shape of input {where!r} sets the symbol {dim!r} to {value}, but the policy's "
                f"shapes.{dim} is {bounds[dim]}; change one of them"
            )
    values |= {n: (b.lo, "") for n, b in bounds.items() if n not in values and len(b.values) == 1}
    return {name: _resolve(name, found, pins.get(name), values, bounds) for name, found in inputs.items()}


def _known_symbols(inputs: Mapping[str, TensorType | None], bounds: Symbols) -> None:
    known = [s for name, found in inputs.items() if found is not None for s in _symbols(name, found)]
    for name in bounds:
        if name not in known:
            listed = ", ".join(dict.fromkeys(known)) or "none"
            raise UsageError(
                f"the policy bounds the symbol shapes.{name}, but the symbols of the model's inputs are {listed}; "
                "correct the name"
            )


def _symbols(name: str, found: TensorType) -> list[str]:
    """Symbols in the dimensions of one input, an anonymous one under its own name."""
    symbols: list[str] = []
    for axis, dim in enumerate(found.shape):
        size = parse_dim(dim) if isinstance(dim, str) and dim != ANONYMOUS else dim
        symbols += [anonymous_name(name, axis)] if size == ANONYMOUS else []
        symbols += sorted(size.symbols) if isinstance(size, Expr) else []
    return symbols


def _names(inputs: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in inputs) or "none"


def _bind_symbols(
    name: str, found: TensorType | None, shape: tuple[int, ...], values: dict[str, tuple[int, str]]
) -> None:
    text = ",".join(str(d) for d in shape)
    if any(d < 1 for d in shape):
        raise UsageError(f"the pinned shape {name}={text} has a dimension below 1; give positive sizes")
    if found is None:
        return
    if len(shape) != len(found.shape):
        raise UsageError(
            f"the pinned shape {name}={text} has rank {len(shape)}, but input {name!r} is {format_type(found)}; "
            f"give {len(found.shape)} sizes"
        )
    for axis, (size, dim) in enumerate(zip(shape, found.shape, strict=True)):
        if isinstance(dim, int):
            if dim != size:
                raise UsageError(
                    f"the pinned shape {name}={text} says {size} for axis {axis}, but input {name!r} is "
                    f"{format_type(found)}; that axis must be {dim}"
                )
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", dim):
            known, where = values.setdefault(dim, (size, name))
            if known != size:
                raise UsageError(
                    f"the pinned shapes set the symbol {dim!r} to {known} in input {where!r} and to {size} in input "
                    f"{name!r}; give it one value"
                )


def _resolve(
    name: str,
    found: TensorType | None,
    shape: tuple[int, ...] | None,
    values: Mapping[str, tuple[int, str]],
    bounds: Symbols,
) -> TensorType:
    if found is None:
        if shape is None:
            raise UnsupportedError(
                f"input {name!r} has no declared shape; add --input-shape {name}=SIZE,SIZE,... or "
                f"inputs.{name}.shape to the policy"
            )
        return TensorType(shape)
    known: dict[str, Size] = {n: value for n, (value, _) in values.items()}
    if shape is not None:
        for axis, (given, dim) in enumerate(zip(shape, found.shape, strict=True)):
            size = substitute(parse_dim(dim), known) if isinstance(dim, str) and dim != ANONYMOUS else given
            if isinstance(size, int) and size != given:
                raise UsageError(
                    f"the pinned shape {name}={','.join(map(str, shape))} says {given} for axis {axis}, but {dim} is "
                    f"{size}; change one of the pins"
                )
        return TensorType(shape, found.dtype)
    dims: list[Dim] = []
    open_: list[str] = []  # symbols with neither size nor bounds
    for axis, dim in enumerate(found.shape):
        named = anonymous_name(name, axis) if dim == ANONYMOUS else dim
        size = substitute(parse_dim(named), known) if isinstance(named, str) else named
        missing = [s for s in sorted(size.symbols) if s not in bounds] if isinstance(size, Expr) else []
        open_ += missing
        dims.append(dim if missing else as_dim(size))
    if open_:
        _refuse(name, TensorType(tuple(dims), found.dtype), list(dict.fromkeys(open_)))
    return TensorType(tuple(dims), found.dtype)


def _refuse(name: str, found: TensorType, symbols: list[str]) -> NoReturn:
    shown = list(dict.fromkeys(d for d in found.shape if isinstance(d, str)))
    label = " and ".join("an anonymous dimension ?" if d == ANONYMOUS else f"the symbol {d}" for d in shown)
    keys = " and ".join(f"shapes.{s}" for s in symbols)
    raise UnsupportedError(
        f"input {name!r} is {format_type(found)} with {label}, of neither fixed nor bounded size; add --input-shape "
        f"{name}={','.join(str(d) for d in found.shape)} with a number for {', '.join(shown)}, or inputs.{name}.shape "
        f"to the policy, or bounds such as [1, 8] as {keys}"
    )
