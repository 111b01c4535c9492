"""Constants in the order their kernels read them; the same for every instruction set.

``oc16``       [output block][channel block of 8, or channel][kernel position][8, or nothing][16 outputs]; of a
               transposed convolution one such array per output phase, phases row-major.
``dw16``       depthwise: [channel block][kernel position][16 channels].
``w23_L``, ``w1_23_L``  transformed for a Winograd form: [output block][position][channel block of 8][group][8][16].
``taps16``     the taps of a Winograd form of a plane as ``oc16``, for GPU kernels that transform them.
``channels16`` one number per channel, filled up with +0 to a multiple of 16.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.order import FEW_CHANNELS
from compiler_kernels.arithmetic.winograd import transformed_weights
from compiler_kernels.ir.graph import Op, TensorType, Weight
from compiler_kernels.ir.layout import BLOCK, packed
from compiler_kernels.ir.weights import WeightStore

Floats = NDArray[np.float32]
TAPS: Final = "taps16"


def fill_up(array: Floats, axis: int, multiple: int) -> Floats:
    """``array`` with +0 appended along ``axis`` up to a multiple."""
    width = [(0, 0)] * array.ndim
    width[axis] = (0, -array.shape[axis] % multiple)
    return np.pad(array, width)


def by_outputs(w: Floats) -> Floats:
    """``w`` [outputs, channels, positions] as ``oc16``, flat."""
    w = fill_up(w, 0, BLOCK)
    blocks, positions = w.shape[0] // BLOCK, w.shape[2]
    if not positions:
        return np.zeros(0, np.float32)
    if w.shape[1] < FEW_CHANNELS:
        return np.ascontiguousarray(w.reshape(blocks, BLOCK, -1, positions).transpose(0, 2, 3, 1)).reshape(-1)
    w = fill_up(w, 1, UNIT).reshape(blocks, BLOCK, -1, UNIT, positions)
    return np.ascontiguousarray(w.transpose(0, 2, 4, 3, 1)).reshape(-1)


def phases(op: Op, kernel: tuple[int, ...]) -> list[list[int]]:
    """Flat kernel positions of every output phase of a ``conv_transpose``, in the order of the arithmetic."""
    rank = len(kernel)
    stride, dilation, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")[:rank]
    spatial = op.out.dims[2:]
    found = []
    for first in product(*(range(min(s, e)) for s, e in zip(stride, spatial, strict=True))):
        axes = [
            [k for k in range(kernel[a]) if (first[a] + pads[a] - k * dilation[a]) % stride[a] == 0]
            for a in range(rank)
        ]
        found.append([int(np.ravel_multi_index(at, kernel)) for at in product(*axes)])
    return found


def pack_weight(kind: str, op: Op, weight: Weight, store: WeightStore) -> tuple[TensorType, Floats]:
    """Type and bytes of ``weight`` packed as ``kind`` for the root operation ``op``."""
    w = store.get(weight).astype(np.float32)
    dims = weight.type.dims
    if kind == "channels16":
        # +0 added: a bias of -0 is +0, and no other reader of these constants can tell the zeros apart.
        flat = fill_up(w.reshape(-1), 0, BLOCK)
    elif kind == "dw16":
        flat = fill_up(w.reshape(dims[0], -1), 0, BLOCK)
        flat = np.ascontiguousarray(flat.reshape(-1, BLOCK, flat.shape[1]).transpose(0, 2, 1)).reshape(-1)
    elif kind == TAPS:
        flat = by_outputs(w.reshape(dims[0], dims[1], -1))
    elif kind.startswith("w"):
        u = transformed_weights(op.str_("arithmetic"), w)
        u = fill_up(fill_up(u, 1, BLOCK), 2, UNIT)
        u = u.reshape(u.shape[0], -1, BLOCK, u.shape[2] // UNIT, UNIT, u.shape[3])
        flat = np.ascontiguousarray(u.transpose(1, 0, 3, 5, 4, 2)).reshape(-1)
    elif op.kind == "conv_transpose":
        by_position = w.reshape(dims[0], dims[1], -1).transpose(1, 0, 2)
        flat = np.concatenate([by_outputs(by_position[:, :, k]) for k in phases(op, dims[2:])])
    else:
        flat = by_outputs(w.reshape(dims[0], dims[1], -1))
    return TensorType(dims, weight.type.dtype, packed(kind, flat.size)), flat
