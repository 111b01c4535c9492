"""Gather and scatter: elements read or written where run-time indices say, never outside their buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import SUFFIX, Code, c_type, decode, is_one, linear, root_of, strides


def _sum(terms: Sequence[str]) -> str:
    return " + ".join(t for t in terms if t != "0") or "0"


def _scaled(name: str, factor: int) -> str:
    return name if is_one(factor) else f"{name} * {factor}"


def gather(function: Graph, code: Code) -> None:
    """x with ``axis`` replaced by the axes of the indices."""
    op = root_of(function)
    x, indices = op.operands
    types, axis = function.types(), op.int_("axis")
    dims, index_dims = types[x].dims, types[indices].dims
    step, index_step, rank = strides(dims), strides(index_dims), len(index_dims)
    code.add(*decode(op.out.dims))
    at = linear([(f"i{axis + a}", index_step[a]) for a in range(rank)])
    code.add(f"const int j = ca1_read_at((int64_t){indices}[{at}], {dims[axis]});")
    rest = [(f"i{a}", step[a]) for a in range(axis)]
    rest += [(f"i{a + rank - 1}", step[a]) for a in range(axis + 1, len(dims))]
    code.add(f"const {c_type(op.out)} t0 = {x}[{linear([*rest, ('j', step[axis])])}];")


def gather_elements(function: Graph, code: Code) -> None:
    """x at the element's own coordinates but for ``axis``, where the index says."""
    op = root_of(function)
    x, indices = op.operands
    dims, axis = function.types()[x].dims, op.int_("axis")
    step = strides(dims)
    code.add(*decode(op.out.dims), f"const int j = ca1_read_at((int64_t){indices}[i], {dims[axis]});")
    terms = [("j" if a == axis else f"i{a}", step[a]) for a in range(len(dims))]
    code.add(f"const {c_type(op.out)} t0 = {x}[{linear(terms)}];")


def gather_nd(function: Graph, code: Code) -> None:
    """The slice of x that each index tuple addresses, within its batch."""
    op = root_of(function)
    x, indices = op.operands
    types, batch = function.types(), op.int_("batch_dims")
    dims, index_dims = types[x].dims, types[indices].dims
    depth, inner = index_dims[-1], prod(dims[batch + index_dims[-1] :])
    step = strides(dims)
    code.add(f"const int tuple = {'i' if is_one(inner) else f'i / {inner}'};")
    terms = ["0" if is_one(inner) else f"i % {inner}"]
    per_batch = prod(index_dims[batch:-1])
    if batch:
        terms.append(_scaled(f"(tuple / {per_batch})" if not is_one(per_batch) else "tuple", prod(dims[batch:])))
    for d in range(depth):
        place = f"{indices}[tuple * {depth} + {d}]" if depth > 1 else f"{indices}[tuple]"
        size = dims[batch + d]
        terms.append(_scaled(f"ca1_read_at((int64_t){place}, {size})", step[batch + d]))
    code.add(f"const {c_type(op.out)} t0 = {x}[{_sum(terms)}];")


def combine(reduction: str, dtype: str, old: str, new: str) -> str:
    """The element after one update: ``none`` replaces it, otherwise old (op) new."""
    if reduction == "none":
        return new
    if dtype == "float32":
        form = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "ca1_max_v1({0}, {1})", "min": "ca1_min_v1({0}, {1})"}
        return form[reduction].format(old, new)
    if dtype == "float64" and reduction in ("add", "mul"):
        return f"{old} {'+' if reduction == 'add' else '*'} {new}"
    return f"ca1_{reduction}_{SUFFIX[dtype]}({old}, {new})"


def scatter_lines(function: Graph) -> int:
    op = root_of(function)
    return op.out.count // op.out.dims[op.int_("axis")]


def scatter_elements(function: Graph, code: Code) -> None:
    """Item ``i`` is one line of x along ``axis``: copied, then updated by its line of indices in order."""
    op = root_of(function)
    x, indices, updates = op.operands
    types, axis = function.types(), op.int_("axis")
    dims, index_dims = types[x].dims, types[indices].dims
    step, index_step = strides(dims), strides(index_dims)
    others = [a for a in range(len(dims)) if a != axis]
    code.add(*decode([dims[a] for a in others]))
    base = linear([(f"i{n}", step[a]) for n, a in enumerate(others)])
    from_ = linear([(f"i{n}", index_step[a]) for n, a in enumerate(others)])
    at = _scaled("k", step[axis])
    code.add(f"const {c_type(types[x])} *line = {x} + {base};", f"{c_type(op.out)} *out = y + {base};")
    code.add(f"for (int k = 0; k < {dims[axis]}; k++) out[{at}] = line[{at}];")
    inside = " && ".join(f"i{n} < {index_dims[a]}" for n, a in enumerate(others) if index_dims[a] < dims[a])
    with (
        code.block(f"if ({inside})" if inside else ""),
        code.block(f"for (int k = 0; k < {index_dims[axis]}; k++)"),
    ):
        place = f"{from_} + {_scaled('k', index_step[axis])}"
        code.add(f"const int j = ca1_write_at((int64_t){indices}[{place}], {dims[axis]});", "if (j < 0) continue;")
        target = f"out[{_scaled('j', step[axis])}]"
        new = combine(op.str_("reduction"), op.out.dtype, target, f"{updates}[{place}]")
        code.add(f"{target} = {new};")


CHUNK: Final = 256


def scatter_nd_items(function: Graph) -> int:
    """One item per ``CHUNK`` positions inside the slices that index tuples address."""
    op = root_of(function)
    return -(-prod(op.out.dims[function.types()[op.operands[1]].dims[-1] :]) // CHUNK)


def scatter_nd(function: Graph, code: Code) -> None:
    """Item ``i`` is a stretch of positions inside every slice: copied, then updated by the index tuples in order."""
    op = root_of(function)
    x, indices, updates = op.operands
    index_dims = function.types()[indices].dims
    dims, depth = op.out.dims, index_dims[-1]
    slices, inner, tuples = prod(dims[:depth]), prod(dims[depth:]), prod(index_dims[:-1])
    step = strides(dims[:depth])
    code.add(f"const int first = i * {CHUNK}, end = first + {CHUNK} < {inner} ? first + {CHUNK} : {inner};")
    at = f"k * {inner} + e"
    each = "for (int e = first; e < end; e++)"
    code.add(f"for (int k = 0; k < {slices}; k++)", f"    {each} y[{at}] = {x}[{at}];")
    with code.block(f"for (int k = 0; k < {tuples}; k++)"):
        for d in range(depth):
            code.add(f"const int j{d} = ca1_write_at((int64_t){indices}[k * {depth} + {d}], {dims[d]});")
        code.add(f"if ({' || '.join(f'j{d} < 0' for d in range(depth))}) continue;")
        code.add(f"{c_type(op.out)} *out = y + ({linear([(f'j{d}', step[d]) for d in range(depth)])}) * {inner};")
        code.add(f"{each} out[e] = {combine(op.str_('reduction'), op.out.dtype, 'out[e]', f'{updates}[{at}]')};")


def tensor_scatter(function: Graph, code: Code) -> None:
    """The update where its sequence covers this position, else what was there."""
    op = root_of(function)
    x, update, *first = op.operands
    axis = op.int_("axis")
    dims, update_dims = op.out.dims, function.types()[update].dims
    step, size, count = strides(update_dims), dims[axis], update_dims[axis]
    code.add(*decode(dims))
    start = f"(int64_t){first[0]}[i0]" if first else "0"
    if op.str_("mode") == "circular":
        code.add(f"const int64_t j = ((i{axis} - {start} % {size}) % {size} + {size}) % {size};")
    else:
        code.add(f"const int64_t j = i{axis} - ca1_start({start}, {size});")
    index = linear([("(int)j" if a == axis else f"i{a}", step[a]) for a in range(len(dims))])
    code.add(f"const {c_type(op.out)} t0 = j >= 0 && j < {count} ? {update}[{index}] : {x}[i];")


POINT: Final[Mapping[str, Callable[[Graph, Code], None]]] = {
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "tensor_scatter": tensor_scatter,
}
"""Emitters of one output element ``t0``."""
ROW: Final[Mapping[str, tuple[Callable[[Graph, Code], None], Callable[[Graph], int]]]] = {
    "scatter_elements": (scatter_elements, scatter_lines),
    "scatter_nd": (scatter_nd, scatter_nd_items),
}
"""Emitters of a whole item, and the number of items."""
