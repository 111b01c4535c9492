"""Where a shape rule fails for some sizes: the smallest such sizes, and the rule's own sentence there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from itertools import product as cartesian
from typing import Final

from compiler_kernels.errors import IRError
from compiler_kernels.ir.bind import bind_attrs, bind_type
from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import Attr, TensorType
from compiler_kernels.ir.ops import infer
from compiler_kernels.ir.symbols import UNKNOWN, Symbols, Unproved

TRIES: Final = 20_000
"""Most combinations of sizes that are tried, in increasing order of the first symbol, then the second, ..."""


def used_symbols(types: Sequence[TensorType | None], attrs: Mapping[str, Attr]) -> set[str]:
    texts = [d for t in types if t is not None for d in t.shape if isinstance(d, str)]
    texts += [v for value in attrs.values() if isinstance(value, tuple) for v in value if isinstance(v, str)]
    sizes = [parse_dim(text) for text in texts]
    return {name for size in sizes if isinstance(size, Expr) for name in size.symbols}


def _combinations(symbols: Symbols, names: Sequence[str]) -> Iterator[dict[str, int]]:
    spans = [symbols.get(n, UNKNOWN).values for n in names]
    for values in cartesian(*spans) if all(len(s) <= TRIES for s in spans) else zip(*spans, strict=False):
        yield dict(zip(names, values, strict=True))


def smallest_break(
    kind: str,
    operands: Sequence[TensorType | None],
    attrs: Mapping[str, Attr],
    declared: TensorType | None,
    symbols: Symbols,
    blamed: Sequence[str] = (),
) -> Unproved | None:
    """The smallest sizes at which operation ``kind`` is inconsistent, with what is wrong there in numbers.

    Only ``blamed`` symbols vary and are named if that suffices, the others being as small as they can be. ``None`` when
    none of the first ``TRIES`` combinations fails, or when the operation has no symbols.
    """
    used = used_symbols([*operands, declared], attrs)
    names = [n for n in symbols if n in used] + sorted(used - set(symbols))
    few = [n for n in names if n in blamed]
    least = {n: symbols.get(n, UNKNOWN).lo for n in names}
    for chosen in (few, names) if few and few != names else (names,):
        for values in islice(_combinations(symbols, chosen), TRIES) if chosen else ():
            wrong = _wrong(kind, operands, attrs, declared, {**least, **values})
            if wrong:
                return Unproved(wrong, values)
    return None


def _wrong(
    kind: str,
    operands: Sequence[TensorType | None],
    attrs: Mapping[str, Attr],
    declared: TensorType | None,
    values: Mapping[str, int],
) -> str:
    """What the shape rule says at these sizes; empty where it is content."""
    static = [None if t is None else bind_type(t, values) for t in operands]
    stated = None if declared is None else bind_type(declared, values)
    try:
        infer(kind, static, bind_attrs(attrs, values), stated)
    except IRError as error:
        return str(error)
    except ZeroDivisionError:
        return f"{kind}: a size is divided by 0"
    return ""
