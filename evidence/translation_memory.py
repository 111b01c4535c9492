"""How values lie in memory, for translation validation: written from the definitions in docs/ir.md and the packings'
descriptions, sharing no code with the passes that lay values out.

A layout is a table: for every float in memory the row-major index of the element it holds, or -1 where it holds +0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
LANES: Final = 16
UNIT: Final = 8
FEW: Final = 16
"""Input channels come in blocks of ``UNIT`` from ``FEW`` on, else one by one (docs/arithmetic.md, 3.1)."""


class Fault(Exception):
    """What a module does that no kernel may rely on, or that cannot be interpreted; one sentence."""


def _filled(index: Index, axis: int, multiple: int) -> Index:
    width = [(0, 0)] * index.ndim
    width[axis] = (0, -index.shape[axis] % multiple)
    return np.pad(index, width, constant_values=-1)


def _activation(index: Index, halo: Sequence[int], blocked: bool) -> Index:
    index = np.pad(index, [(0, 0), (0, 0), *((h, h) for h in halo)], constant_values=-1)
    if not blocked:
        return index.reshape(-1)
    index = _filled(index, 1, LANES)
    index = index.reshape(index.shape[0], -1, LANES, *index.shape[2:])
    return np.moveaxis(index, 2, -1).reshape(-1)


def _by_outputs(index: Index) -> Index:
    """``[outputs, channels, positions]`` to blocks of 16 outputs, channel blocks of 8 (or channels), positions."""
    channels, positions = index.shape[1:]
    index = _filled(index, 0, LANES)
    if channels >= FEW:
        index = _filled(index, 1, UNIT)
    unit = UNIT if channels >= FEW else 1
    table = index.reshape(-1, LANES, index.shape[1] // unit, unit, positions)
    return np.ascontiguousarray(table.transpose(0, 2, 4, 3, 1)).reshape(-1)


def _phases(attrs: Mapping[str, Any], kernel: Sequence[int], out: Sequence[int]) -> list[list[int]]:
    """Flat kernel positions that meet each residue of output positions, of a transposed convolution."""
    axes = range(len(kernel))
    stride, dilation, pads = attrs["strides"], attrs["dilations"], attrs["pads"]
    found = []
    for residue in product(*(range(min(stride[a], out[a])) for a in axes)):
        taps = [
            position
            for position, at in enumerate(product(*(range(k) for k in kernel)))
            if all((residue[a] + pads[a] - at[a] * dilation[a]) % stride[a] == 0 for a in axes)
        ]
        found.append(taps)
    return found


def _packed(name: str, index: Index, kind: str, attrs: Mapping[str, Any], out: Sequence[int]) -> Index:
    if name == "channels16":
        return _filled(index.reshape(-1), 0, LANES)
    if name == "dw16":
        rows = _filled(index.reshape(index.shape[0], -1), 0, LANES)
        return np.ascontiguousarray(rows.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1)).reshape(-1)
    if name == "oc16" and kind == "conv_transpose":
        kernel = index.shape[2:]
        table = index.reshape(*index.shape[:2], -1).transpose(1, 0, 2)
        return np.concatenate([_by_outputs(table[:, :, taps]) for taps in _phases(attrs, kernel, out[2:])])
    if name == "oc16" and kind == "conv":
        return _by_outputs(index.reshape(*index.shape[:2], -1))
    if name in ("panels16", "panels16t"):
        matrix = index.reshape(-1, 1) if index.ndim == 1 else index
        matrix = matrix.swapaxes(-1, -2) if name == "panels16t" else matrix
        matrix = _filled(matrix.reshape(-1, *matrix.shape[-2:]), 2, LANES)
        split = matrix.reshape(*matrix.shape[:2], -1, LANES)
        return np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(-1)
    if name == "recurrent16":
        hidden = index.shape[0]
        split = 2 * hidden if kind.startswith("gru") else index.shape[1]
        parts = [part for part in (index[:, :split], index[:, split:]) if part.shape[1]]
        return np.concatenate([_packed("panels16", part, kind, attrs, out) for part in parts])
    raise Fault(f"the packing {name!r} of an operand of {kind} is not known to translation validation")


@lru_cache(maxsize=512)
def _table(layout: str, dims: tuple[int, ...], kind: str, attrs: str, out: tuple[int, ...]) -> Index:
    index = np.arange(prod(dims), dtype=np.int64).reshape(dims)
    word, *numbers = layout.split(" ")
    if not layout:
        return index.reshape(-1)
    if word in ("c16", "planar") and len(numbers) == len(dims) - 2:
        return _activation(index, [int(n) for n in numbers], word == "c16")
    if word == "packed" and len(numbers) == 2:
        table = _packed(numbers[0], index, kind, _ATTRS.get(attrs, {}), out)
        if table.size != int(numbers[1]):
            raise Fault(
                f"a constant of shape {list(dims)} packed as {numbers[0]} has {table.size} floats, not {numbers[1]}"
            )
        return table
    raise Fault(f"{layout!r} is not a layout of a tensor of shape {list(dims)}")


_ATTRS: dict[str, Mapping[str, Any]] = {}


def table(layout: str, dims: tuple[int, ...], reader: tuple[str, Mapping[str, Any], tuple[int, ...]]) -> Index:
    """The table of a layout; ``reader`` (operation, attributes, result shape) says what packed weights are for."""
    kind, attrs, out = reader
    key = ""
    if layout.startswith("packed oc16") and kind == "conv_transpose":
        key = repr(sorted((k, attrs[k]) for k in ("strides", "dilations", "pads")))
        _ATTRS[key] = attrs
    return _table(layout, dims, kind, key, out if key else ())


def transformed(name: str, dims: tuple[int, ...]) -> tuple[Index, tuple[int, ...]] | None:
    """Table and shape ``[positions, outputs, channels, groups]`` of transformed weights packed as ``name`` for a
    constant of shape ``dims``; ``None`` for any other packing."""
    family, _, leaf = name.rpartition("_")
    if family not in ("w23", "w1_23") or not leaf.isdigit():
        return None
    shape = (16, *dims[:2], 1) if family == "w23" else (4, *dims[:2], -(-dims[2] // 3))
    index = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    index = _filled(_filled(index, 1, LANES), 2, UNIT)
    index = index.reshape(shape[0], -1, LANES, index.shape[2] // UNIT, UNIT, shape[3])
    return np.ascontiguousarray(index.transpose(0, 1, 3, 5, 4, 2)).reshape(-1), shape


def winograd_weights(w: Floats) -> Floats:
    """U of ``w [M, C, 3, 3]`` or ``[M, C, k]`` as ``[positions, M, C, groups]`` (docs/arithmetic.md, 3.6 to 3.9)."""

    def four(g: Sequence[Any]) -> list[Any]:
        half = np.float64(0.5)
        return [g[0], ((g[0] + g[1]) + g[2]) * half, ((g[0] - g[1]) + g[2]) * half, g[2]]

    wide = w.astype(np.float64)
    with np.errstate(over="ignore"):
        if w.ndim == 4:
            down = [four([wide[:, :, i, j] for i in range(3)]) for j in range(3)]
            taps = [u for a in range(4) for u in four([down[j][a] for j in range(3)])]
            return np.stack(taps)[..., None].astype(np.float32)
        groups = -(-w.shape[2] // 3)
        padded = np.zeros((*w.shape[:2], 3 * groups))
        padded[:, :, : w.shape[2]] = wide
        return np.stack(four([padded[:, :, i::3] for i in range(3)])).astype(np.float32)


def encode(values: Floats, index: Index) -> Floats:
    """``values`` as they lie in memory."""
    flat = np.append(values.reshape(-1), np.float32(0.0))
    result: Floats = flat[index]
    return result


def decode(memory: Floats, index: Index, dims: tuple[int, ...], name: str) -> Floats:
    """The elements in ``memory``. ``Fault`` when halo, padded channels or padded columns do not hold +0."""
    if memory.size < index.size:
        raise Fault(f"%{name} needs {index.size} floats of memory and has {memory.size}")
    memory = memory[: index.size]
    held = index >= 0
    if memory[~held].view(np.uint32).any():
        raise Fault(f"%{name} is read while its halo or padded channels hold something other than +0")
    flat = np.zeros(prod(dims), np.float32)
    flat[index[held]] = memory[held]
    return flat.reshape(dims)


def reach(
    kind: str, attrs: Mapping[str, Any], x: Sequence[int], kernel: Sequence[int], out: Sequence[int]
) -> list[int]:
    """Per spatial axis, how far the taps of a convolution go beyond ``x`` on the worse side (0: not at all)."""
    widths = []
    for a, size in enumerate(kernel):
        stride, dilation, pad = attrs["strides"][a], attrs["dilations"][a], attrs["pads"][a]
        if kind == "conv":
            first, last = -pad, (out[a + 2] - 1) * stride - pad + (size - 1) * dilation
        else:
            read = [o + pad - k * dilation for o in range(out[a + 2]) for k in range(size)]
            whole = [r // stride for r in read if r % stride == 0] or [0]
            first, last = min(whole), max(whole)
        widths.append(max(-first, last - (x[a + 2] - 1), 0))
    return widths
