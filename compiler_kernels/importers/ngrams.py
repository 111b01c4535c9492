"""TfIdfVectorizer of integers: counts of n-grams, weighted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_kernels.importers.context import Array, Context, constant
from compiler_kernels.importers.node import f32

MODES = ("TF", "IDF", "TFIDF")


def tf_idf(ctx: Context) -> None:
    """(C) to (columns) or (B, C) to (B, columns), float32."""
    node, x = ctx.at, ctx.tensor(0)
    if node.attr("pool_strings") or x.type.dtype not in ("int32", "int64"):
        node.unsupported("works on strings, which engines have no values for; give it integers")
    mode, skips = node.str_("mode", ""), node.int_("max_skip_count", 0)
    columns = node.ints("ngram_indexes")
    if x.rank not in (1, 2) or mode not in MODES or not columns or min(columns) < 0 or skips < 0:
        node.invalid(f"counts in mode {mode!r}, with {skips} skips, in a tensor of shape {list(x.shape)}")
    count = max(columns) + 1
    rows = ctx.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    y = ctx.emit("count_ngrams", [rows, constant(_grams(ctx, columns))], {"columns": count, "skips": skips})
    given = node.attr("weights")
    if mode != "TF" and isinstance(given, list | tuple) and given:
        if len(given) != len(columns) or not all(isinstance(v, int | float) for v in given):
            node.invalid(f"has {len(given)} weights for {len(columns)} grams")
        if len(set(columns)) < len(columns):
            node.unsupported("weights several grams of one column; give each gram a column of its own")
        weights = np.zeros(count, np.float32)
        weights[list(columns)] = [f32(v) for v in given]
        y = ctx.emit("mul", [ctx.emit("min", [y, ctx.scalar(1.0)]) if mode == "IDF" else y, constant(weights)])
    elif mode == "IDF":
        y = ctx.emit("min", [y, ctx.scalar(1.0)])
    ctx.bind(ctx.reshape(y, (count,)) if x.rank == 1 else y)


def _grams(ctx: Context, columns: tuple[int, ...]) -> Array:
    """Rows (length, column, elements, zeros) of the grams whose length counts."""
    node = ctx.at
    pool, begins = node.ints("pool_int64s"), node.ints("ngram_counts")
    shortest, longest = node.int_("min_gram_length", 1), node.int_("max_gram_length", 1)
    ends = (*begins[1:], len(pool))
    if not 1 <= shortest <= longest or any(not 0 <= b <= e <= len(pool) for b, e in zip(begins, ends, strict=True)):
        node.invalid(f"has grams of {shortest} to {longest} elements at {list(begins)} of a pool of {len(pool)}")
    rows, number = [], 0
    for n, (begin, end) in enumerate(zip(begins, ends, strict=True), start=1):
        if (end - begin) % n or number + (end - begin) // n > len(columns):
            node.invalid(f"has {end - begin} elements of {n}-grams for {len(columns)} ngram_indexes")
        for at in range(begin, end, n):
            if shortest <= n <= longest:
                rows.append([n, columns[number], *pool[at : at + n], *[0] * (len(begins) - n)])
            number += 1
    if not rows:
        node.invalid(f"has no gram of {shortest} to {longest} elements")
    return np.array(rows, np.int64)


IMPORTERS: dict[str, Callable[[Context], None]] = {"TfIdfVectorizer": tf_idf}
