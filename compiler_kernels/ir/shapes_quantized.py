"""Result types of the quantised L0 operations: integers with a scale and a zero point."""

from __future__ import annotations

from dataclasses import replace

from compiler_kernels.ir import shapes, shapes_window
from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site, broadcast

QUANTISED = ("int8", "uint8", "int16", "uint16")


def _steered(site: Site) -> tuple[int, ...]:
    """Scale and zero point broadcast to x, never the other way round."""
    x = site.shape(0)
    for index in (1, 2):
        if site.has(index) and broadcast(site, x, site.shape(index)) != x:
            site.fail(f"operand {index} of shape {list(site.shape(index))} does not broadcast to {list(x)}")
    return x


def quantize(site: Site) -> TensorType:
    to = site.str_("to")
    if to not in QUANTISED:
        site.fail(f"values are not quantised to {to!r}")
    zero = site.operands[2] if len(site.operands) > 2 else None
    if zero is not None and zero.dtype != to:
        site.fail(f"the zero point is {zero.dtype}, the result {to}")
    return site.result(_steered(site), to)


def dequantize(site: Site) -> TensorType:
    zero, x = (site.operands[2] if len(site.operands) > 2 else None), site.operands[0]
    if zero is not None and x is not None and zero.dtype != x.dtype:
        site.fail(f"the zero point is {zero.dtype}, the values {x.dtype}")
    return site.result(_steered(site), "float32")


def conv_integer(site: Site) -> TensorType:
    return replace(shapes_window.conv(site), dtype="int32")


def matmul_integer(site: Site) -> TensorType:
    return replace(shapes.matmul(site), dtype="int32")
