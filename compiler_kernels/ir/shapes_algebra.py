"""Result types of the determinant and of counting n-grams."""

from __future__ import annotations

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site

LARGEST_MATRIX = 64
"""Most rows of a matrix whose determinant is computed: a kernel holds one on its stack."""


def det(site: Site) -> TensorType:
    """x (..., n, n): one number per matrix."""
    x = site.shape(0)
    if len(x) < 2 or x[-1] != x[-2]:
        site.fail(f"x of shape {list(x)} holds no square matrices")
    if x[-1] > LARGEST_MATRIX:
        site.fail(f"a matrix of {x[-1]} rows is larger than {LARGEST_MATRIX}")
    return site.result(x[:-2])


def count_ngrams(site: Site) -> TensorType:
    """x (B, C), grams (G, 2 + longest): a row is length, column, elements (padded). Result (B, columns), float32."""
    x, grams, columns = site.shape(0), site.shape(1), site.int_("columns")
    if len(x) != 2 or len(grams) != 2 or grams[1] < 3 or columns < 1 or site.int_("skips") < 0:
        site.fail(f"x of shape {list(x)} and grams of shape {list(grams)} are not rows to count {columns} grams in")
    return site.result((x[0], columns), "float32")
