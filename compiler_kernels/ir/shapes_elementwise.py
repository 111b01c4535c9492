"""Result types of elementwise predicates, reinterpretation of bits, and generators (ONNX operator changelog)."""

from __future__ import annotations

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site


def predicate(site: Site) -> TensorType:
    return site.result(site.shape(0), "bool")


def bit_cast(site: Site) -> TensorType:
    """To a type of the same width."""
    to, first = site.str_("to"), site.operands[0]
    if to not in DTYPES:
        site.fail(f"there is no element type {to!r}")
    if first is not None and DTYPES[first.dtype].nbytes != DTYPES[to].nbytes:
        site.fail(f"{first.dtype} and {to} have not the same width")
    return site.result(site.shape(0), to)


def random_bits(site: Site) -> TensorType:
    """uint32 words of the declared shape: one word of the block of each element."""
    limits = {"seed": 64, "stream": 32, "word": 2}
    for key, width in limits.items():
        if not 0 <= site.int_(key) < 1 << width:
            site.fail(f"{key} must be from 0 to 2^{width} - 1, not {site.int_(key)}")
    return TensorType(site.stated(), "uint32")


def multinomial(site: Site) -> TensorType:
    """Unnormalised logarithms of probabilities (batch, classes) and numbers in [0, 1) (batch, samples)."""
    x, u = site.shape(0), site.shape(1)
    if len(x) != 2 or len(u) != 2 or x[0] != u[0]:
        site.fail(f"shapes {list(x)} and {list(u)} are not (batch, classes) and (batch, samples)")
    if x[1] == 0:
        site.fail("there is no class to draw")
    return site.result(u, "int32")
