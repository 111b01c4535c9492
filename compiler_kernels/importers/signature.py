"""Graph inputs: symbolic dimensions as the model names them, and the pins that make them static."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import onnx

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.ir.graph import ANONYMOUS, Dim, TensorType
from compiler_kernels.ir.text import format_type

_RESERVED = re.compile(r"[vw]\d+")


def symbol(text: str) -> str:
    """A ``dim_param`` as an IR symbol; empty, ``?`` and negative numbers are anonymous."""
    if text.strip() in ("", "?") or re.fullmatch(r"\s*-\d+\s*", text):
        return ANONYMOUS
    name = re.sub(r"[^A-Za-z0-9_.]", "_", text)
    return name if re.match(r"[A-Za-z_]", name) and name not in ("inf", "nan") else f"d_{name}"


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
            dims.append(symbol(d.dim_param))
    return TensorType(tuple(dims), dtype_name(info.type.tensor_type.elem_type))


def pin(inputs: Mapping[str, TensorType | None], pins: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
    """Static types of all inputs: pinned shapes, and symbols that another input's pin resolves.

    ``UsageError`` for a pin that names no input, contradicts rank or a fixed size, or gives one symbol two values;
    ``UnsupportedError`` naming input, symbol and the flag to add for whatever stays symbolic.
    """
    for name in pins:
        if name not in inputs:
            raise UsageError(f"a shape is pinned for the input {name!r}, but the model's inputs are {_names(inputs)}")
    values: dict[str, tuple[int, str]] = {}
    for name, shape in pins.items():
        _bind_symbols(name, inputs[name], shape, values)
    return {name: _resolve(name, found, pins.get(name), values) for name, found in inputs.items()}


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
        elif dim != ANONYMOUS:
            known, where = values.setdefault(dim, (size, name))
            if known != size:
                raise UsageError(
                    f"the pinned shapes set the symbol {dim!r} to {known} in input {where!r} and to {size} in input "
                    f"{name!r}; give it one value"
                )


def _resolve(
    name: str, found: TensorType | None, shape: tuple[int, ...] | None, values: Mapping[str, tuple[int, str]]
) -> TensorType:
    if found is None:
        if shape is None:
            raise UnsupportedError(
                f"input {name!r} has no declared shape; add --input-shape {name}=SIZE,SIZE,... or "
                f"inputs.{name}.shape to the policy"
            )
        return TensorType(shape)
    if shape is not None:
        return TensorType(shape, found.dtype)
    dims = tuple(values[d][0] if isinstance(d, str) and d in values else d for d in found.shape)
    symbols = list(dict.fromkeys(d for d in dims if isinstance(d, str)))
    if symbols:
        label = " and ".join("an anonymous dimension ?" if d == ANONYMOUS else f"the symbol {d}" for d in symbols)
        flag = f"--input-shape {name}={','.join(str(d) for d in dims)}"
        raise UnsupportedError(
            f"input {name!r} is {format_type(found)} with {label}, and engines have static shapes; add {flag} with "
            f"a number for {', '.join(symbols)}, or inputs.{name}.shape to the policy"
        )
    if 0 in dims:
        raise UnsupportedError(f"input {name!r} is {format_type(found)}, an empty tensor, which is not compiled")
    return TensorType(dims, found.dtype)
