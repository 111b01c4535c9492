"""Reference graphs of DFT, STFT, Det and TfIdfVectorizer, written from section 21 of docs/arithmetic.md."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import prod

import numpy as np

from evidence.reference.graph import RefGraph
from evidence.reference.vector_graph import GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")


@lru_cache(maxsize=4096)
def _cosine(part: int, turn: int) -> Fraction:
    """cos(2 pi part / turn) to some 70 digits, exactly 0 where it is."""
    if 4 * part % turn == 0 and 4 * part // turn % 2:
        return Fraction(0)
    with localcontext() as context:
        context.prec = 90
        angle = 2 * _PI * (part % turn) / turn
        term, total, k = Decimal(1), Decimal(0), 0
        while abs(term) > Decimal("1e-80") or k < 4:
            total += term
            k += 2
            term = -term * angle * angle / (k * (k - 1))
        return Fraction(total)


def _rounded(value: Fraction, dtype: str) -> np.floating:
    """The number of ``dtype`` next to ``value``."""
    t = np.dtype(dtype).type
    near = t(float(value))
    candidates = (np.nextafter(near, t(-8)), near, np.nextafter(near, t(8)))
    return min(candidates, key=lambda v: abs(Fraction(float(v)) - value))


def _matrix(rows: list[list[Fraction]], dtype: str) -> Array:
    return np.array([[_rounded(v, dtype) for v in row] for row in rows], dtype)


def _entries(n: int, k: int, length: int, inverse: bool) -> tuple[Fraction, Fraction]:
    """cos(a) and sin(a) of the definition, an inverse divided by ``length``."""
    part = (-n * k if inverse else n * k) % length
    cos, sin = _cosine(part, length), _cosine(4 * part - length, 4 * length)
    divisor = length if inverse else 1
    return cos / divisor, sin / divisor


def _spectrum(graph: GraphOf, x: str, axis: int, length: int, inverse: bool, onesided: bool) -> str:
    """``x`` (..., 1 or 2) transformed along ``axis``."""
    shape, dtype = graph.shapes[x], graph.types[x]
    back = inverse and onesided
    taps = min(shape[axis], length // 2 + 1 if back else length)
    bins = length // 2 + 1 if onesided and not inverse else length
    rows: list[list[Fraction]] = []
    for n in range(taps):
        pairs = [_entries(n, k, length, inverse) for k in range(bins)]
        if back:
            once = n == 0 or 2 * n == length
            rows.append([c * (1 if once else 2) for c, _ in pairs])
            rows.append([Fraction(0) if once else 2 * s for _, s in pairs])
            continue
        rows.append([v for c, s in pairs for v in (c, -s)])
        if shape[-1] == 2:
            rows.append([v for c, s in pairs for v in (s, c)])
    others = [a for a in range(len(shape) - 1) if a != axis]
    perm = [*others, axis, len(shape) - 1]
    starts, sizes = [0] * len(shape), [taps if a == axis else d for a, d in enumerate(shape)]
    cut = graph.node("slice", [x], sizes, starts=starts, steps=[1] * len(shape))
    lead = [shape[a] for a in others]
    moved = graph.node("transpose", [cut], [sizes[p] for p in perm], perm=perm)
    flat = graph.node("reshape", [moved], (prod(lead), len(rows)))
    y = graph.node("matmul", [flat, graph.constant(_matrix(rows, dtype))], (prod(lead), len(rows[0])))
    parts = 1 if back else 2
    y = graph.node("reshape", [y], (*lead, bins, parts))
    order = list(np.argsort(perm))
    return graph.node("transpose", [y], [(*lead, bins, parts)[p] for p in order], perm=[int(p) for p in order])


def _dft(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x = graph.wide(parts.inputs[0])
    shape, attrs = graph.shapes[x], parts.attributes
    inverse, onesided = bool(attrs.get("inverse", 0)), bool(attrs.get("onesided", 0))
    given = [parts.initializers[n] if n else None for n in (*parts.inputs[1:], "", "")]
    axis = attrs.get("axis", 1) if parts.opset < 20 else -2 if given[1] is None else int(given[1])
    axis %= len(shape)
    size = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    length = size if given[0] is None else int(given[0])
    return graph.finish(_spectrum(graph, x, axis, length, inverse, onesided), graph.half)


def _stft(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    names = [*parts.inputs, "", ""]
    x, step = graph.wide(names[0]), int(parts.initializers[names[1]])
    batch, size, complexity = graph.shapes[x]
    window = graph.wide(names[2]) if names[2] else ""
    length = int(parts.initializers[names[3]]) if names[3] else graph.shapes[window][0]
    frames = (size - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    shape = (batch, frames, length, complexity)
    cut = graph.node("gather", [x, graph.constant(places.astype(np.int64))], shape, axis=1)
    if window:
        cut = graph.node("mul", [cut, graph.node("reshape", [window], (length, 1))], shape)
    return graph.finish(_spectrum(graph, cut, 2, length, False, bool(parts.attributes.get("onesided", 1))), graph.half)


def _det(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x = graph.wide(parts.inputs[0])
    return graph.finish(graph.node("det", [x], graph.shapes[x][:-2]), graph.half)


def _tf_idf(parts: OnnxParts) -> Built:
    """Grams of n elements begin at ngram_counts[n - 1] of the pool; each has a column."""
    graph, attrs = GraphOf(parts), parts.attributes
    pool, columns = list(attrs["pool_int64s"]), list(attrs["ngram_indexes"])
    begins = [*attrs["ngram_counts"], len(pool)]
    longest, count = len(begins) - 1, max(columns) + 1
    rows, number = [], 0
    for n in range(1, longest + 1):
        for at in range(begins[n - 1], begins[n], n):
            if attrs["min_gram_length"] <= n <= attrs["max_gram_length"]:
                rows.append([n, columns[number], *pool[at : at + n], *[0] * (longest - n)])
            number += 1
    x = parts.inputs[0]
    batch = graph.shapes[x][0]
    grams = graph.constant(np.array(rows, np.int64))
    y = graph.node("count_ngrams", [x, grams], (batch, count), "float32", columns=count, skips=attrs["max_skip_count"])
    if attrs["mode"] == "IDF":
        y = graph.same("min", y, graph.constant(np.array(1, np.float32)))
    if attrs["mode"] != "TF":
        weights = np.zeros(count, np.float32)
        weights[columns] = attrs["weights"]
        y = graph.same("mul", y, graph.constant(weights))
    return graph.finish(y)


SIGNAL_GRAPHS: dict[str, Callable[[OnnxParts], Built]] = {
    "DFT": _dft,
    "STFT": _stft,
    "Det": _det,
    "TfIdfVectorizer": _tf_idf,
}
