"""Recurrent operations in plain code: an item is the whole sequence of one row of the batch."""

from __future__ import annotations

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.recurrent_functions import functions
from compiler_kernels.ir.shapes_recurrent import GATES
from compiler_kernels.targets.c.products import chain
from compiler_kernels.targets.c.recurrent_functions import applied, clipped
from compiler_kernels.targets.c.writer import Code, c_number, c_type, root_of


def recurrent_items(function: Graph) -> int:
    return root_of(function).out.dims[1]


def recurrent(function: Graph, code: Code) -> None:
    """Steps of docs/arithmetic.md, section 12, for the batch row ``i``; states and gate sums lie on the stack."""
    op = root_of(function)
    x, w, r, b, h0, c0, p = (*op.operands, *[""] * (7 - len(op.operands)))
    time, batch, hidden = op.out.dims
    inputs, gates = function.types()[x].dims[2], GATES[op.kind]
    count = gates * hidden
    ctype, zero = c_type(op.out), c_number(0.0, op.out.dtype)
    code.add(f"{ctype} h[{hidden}], a[{count}];")
    states = [("h", h0)]
    if op.kind == "lstm":
        code.add(f"{ctype} c[{hidden}];")
        states.append(("c", c0))
    for name, start in states:
        value = f"{start}[i * {hidden} + j]" if start else zero
        code.add(f"for (int j = 0; j < {hidden}; j++) {name}[j] = {value};")
    with code.block(f"for (int s = 0; s < {time}; s++)"):
        code.add(f"const int t = {f'{time - 1} - s' if op.attr('reverse') else 's'};")
        code.add(
            f"const {ctype} *row = {x} + (t * {batch} + i) * {inputs};",
            f"{ctype} *out = y + (t * {batch} + i) * {hidden};",
        )
        split = 2 * hidden if op.kind == "gru" else count
        _sums(code, op, "0", str(split), (inputs, hidden), (w, r, b), count)
        if op.kind == "gru":
            _gru(code, op, (inputs, hidden), (w, r, b))
        with code.block(f"for (int j = 0; j < {hidden}; j++)"):
            {"lstm": _lstm, "gru": _gru_cell, "rnn": _rnn}[op.kind](code, op, hidden, p)


def _product(code: Code, name: str, depth: int, left: str, right: str, dtype: str) -> None:
    """``float name`` (or double): the sum of products of a row and a row of weights."""
    code.add(f"{DTYPES[dtype].c} {name};", "{")
    code.depth += 1
    chain(code, sum_order(depth, 1), (), (), None, f"{left}[c]", f"{right}[c]", dtype)
    code.add(f"{name} = sum;")
    code.depth -= 1
    code.add("}")


def _bias(op: Op, b: str, first: str, second: str) -> str:
    zero = c_number(0.0, op.out.dtype)
    return f"(({b}[{first}] + {b}[{second}]) + {zero})" if b else zero


def _sums(
    code: Code, op: Op, begin: str, end: str, sizes: tuple[int, int], names: tuple[str, str, str], count: int
) -> None:
    """Gate sums a[begin..end-1] = (X + H) + b."""
    inputs, hidden = sizes
    w, r, b = names
    ctype, dtype = c_type(op.out), op.out.dtype
    with code.block(f"for (int k = {begin}; k < {end}; k++)"):
        code.add(f"const {ctype} *wk = {w} + k * {inputs}, *rk = {r} + k * {hidden};")
        _product(code, "across", inputs, "row", "wk", dtype)
        _product(code, "back", hidden, "h", "rk", dtype)
        code.add(f"a[k] = (across + back) + {_bias(op, b, 'k', f'{count} + k')};")


def _gru(code: Code, op: Op, sizes: tuple[int, int], names: tuple[str, str, str]) -> None:
    """The sums of the last gate, from r · H or scaled by r."""
    inputs, hidden = sizes
    w, r, b = names
    ctype, dtype, zero = c_type(op.out), op.out.dtype, c_number(0.0, op.out.dtype)
    code.add(f"{ctype} rh[{hidden}];")
    with code.block(f"for (int j = 0; j < {hidden}; j++)"):
        code.add(f"const {ctype} reset = {_activated(op, 0, f'a[{hidden} + j]')};")
        code.add("rh[j] = reset;" if op.attr("linear_before_reset") else "rh[j] = reset * h[j];")
    with code.block(f"for (int k = {2 * hidden}; k < {3 * hidden}; k++)"):
        code.add(f"const {ctype} *wk = {w} + k * {inputs}, *rk = {r} + k * {hidden};")
        _product(code, "across", inputs, "row", "wk", dtype)
        if op.attr("linear_before_reset"):
            _product(code, "back", hidden, "h", "rk", dtype)
            wb, rb = (f"({b}[{at}] + {zero})" if b else zero for at in ("k", f"{3 * hidden} + k"))
            code.add(
                f"const {ctype} scaled = rh[k - {2 * hidden}] * (back + {rb});", f"a[k] = (across + scaled) + {wb};"
            )
        else:
            _product(code, "back", hidden, "rh", "rk", dtype)
            code.add(f"a[k] = (across + back) + {_bias(op, b, 'k', f'{3 * hidden} + k')};")


def _activated(op: Op, index: int, a: str) -> str:
    """Activation ``index`` of a gate sum: clipped, then the function."""
    limit = op.float_("clip") if op.has("clip") else None
    return applied(functions(op)[index], clipped(a, limit, op.out.dtype), op.out.dtype)


def _rnn(code: Code, op: Op, hidden: int, p: str) -> None:
    code.add(f"h[j] = out[j] = {_activated(op, 0, 'a[j]')};")


def _gru_cell(code: Code, op: Op, hidden: int, p: str) -> None:
    ctype, one = c_type(op.out), c_number(1.0, op.out.dtype)
    code.add(
        f"const {ctype} z = {_activated(op, 0, 'a[j]')};",
        f"const {ctype} fresh = ({one} - z) * {_activated(op, 1, f'a[{2 * hidden} + j]')};",
        f"const {ctype} kept = z * h[j];",
        "h[j] = out[j] = fresh + kept;",
    )


def _lstm(code: Code, op: Op, hidden: int, p: str) -> None:
    ctype, one = c_type(op.out), c_number(1.0, op.out.dtype)
    gate = {g: f"a[{n * hidden} + j]" for n, g in enumerate("iofc")}
    if p:
        for n, g in ((0, "i"), (2, "f")):
            code.add(f"const {ctype} p{g} = {p}[{n * hidden} + j] * c[j];")
            code.add(f"const {ctype} a{g} = {gate[g]} + p{g};")
            gate[g] = f"a{g}"
    code.add(f"const {ctype} ig = {_activated(op, 0, gate['i'])};")
    forget = f"{one} - ig" if op.attr("input_forget") else _activated(op, 0, gate["f"])
    code.add(
        f"const {ctype} fg = {forget};",
        f"const {ctype} kept = fg * c[j];",
        f"const {ctype} fresh = ig * {_activated(op, 1, gate['c'])};",
        "c[j] = kept + fresh;",
    )
    if p:
        code.add(f"const {ctype} po = {p}[{hidden} + j] * c[j];", f"const {ctype} ao = {gate['o']} + po;")
        gate["o"] = "ao"
    code.add(f"const {ctype} og = {_activated(op, 0, gate['o'])};")
    code.add(f"h[j] = og * {applied(functions(op)[2], 'c[j]', op.out.dtype)};")
    code.add(f"out[j] = {'c' if op.str_('state') == 'c' else 'h'}[j];")
