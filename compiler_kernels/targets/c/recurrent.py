"""Recurrent operations in plain code: an item is the whole sequence of one row of the batch."""

from __future__ import annotations

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.shapes_recurrent import GATES
from compiler_kernels.targets.c.products import chain
from compiler_kernels.targets.c.writer import Code, c_float, root_of


def recurrent_items(function: Graph) -> int:
    return root_of(function).out.dims[1]


def recurrent(function: Graph, code: Code) -> None:
    """Steps of docs/arithmetic.md, section 12, for the batch row ``i``; states and gate sums lie on the stack."""
    op = root_of(function)
    x, w, r, b, h0, c0, p = (*op.operands, *[""] * (7 - len(op.operands)))
    time, batch, hidden = op.out.dims
    inputs, gates = function.types()[x].dims[2], GATES[op.kind]
    count = gates * hidden
    code.add(f"float h[{hidden}], a[{count}];")
    states = [("h", h0)]
    if op.kind == "lstm":
        code.add(f"float c[{hidden}];")
        states.append(("c", c0))
    for name, start in states:
        value = f"{start}[i * {hidden} + j]" if start else "0.0f"
        code.add(f"for (int j = 0; j < {hidden}; j++) {name}[j] = {value};")
    with code.block(f"for (int s = 0; s < {time}; s++)"):
        code.add(f"const int t = {f'{time - 1} - s' if op.attr('reverse') else 's'};")
        code.add(
            f"const float *row = {x} + (t * {batch} + i) * {inputs};", f"float *out = y + (t * {batch} + i) * {hidden};"
        )
        split = 2 * hidden if op.kind == "gru" else count
        _sums(code, op, "0", str(split), (inputs, hidden), (w, r, b), count)
        if op.kind == "gru":
            _gru(code, op, (inputs, hidden), (w, r, b))
        with code.block(f"for (int j = 0; j < {hidden}; j++)"):
            {"lstm": _lstm, "gru": _gru_cell, "rnn": _rnn}[op.kind](code, op, hidden, p)


def _product(code: Code, name: str, depth: int, left: str, right: str) -> None:
    """``const float name``: the sum of products of a row and a row of weights."""
    code.add(f"float {name};", "{")
    code.depth += 1
    chain(code, sum_order(depth, 1), (), (), None, f"{left}[c]", f"{right}[c]")
    code.add(f"{name} = sum;")
    code.depth -= 1
    code.add("}")


def _bias(b: str, first: str, second: str) -> str:
    return f"(({b}[{first}] + {b}[{second}]) + 0.0f)" if b else "0.0f"


def _sums(
    code: Code, op: Op, begin: str, end: str, sizes: tuple[int, int], names: tuple[str, str, str], count: int
) -> None:
    """Gate sums a[begin..end-1] = (X + H) + b."""
    inputs, hidden = sizes
    w, r, b = names
    with code.block(f"for (int k = {begin}; k < {end}; k++)"):
        code.add(f"const float *wk = {w} + k * {inputs}, *rk = {r} + k * {hidden};")
        _product(code, "across", inputs, "row", "wk")
        _product(code, "back", hidden, "h", "rk")
        code.add(f"a[k] = (across + back) + {_bias(b, 'k', f'{count} + k')};")


def _gru(code: Code, op: Op, sizes: tuple[int, int], names: tuple[str, str, str]) -> None:
    """The sums of the last gate, from r · H or scaled by r."""
    inputs, hidden = sizes
    w, r, b = names
    code.add(f"float rh[{hidden}];")
    with code.block(f"for (int j = 0; j < {hidden}; j++)"):
        code.add(f"const float reset = ca1_sigmoid({_clipped(op, f'a[{hidden} + j]')});")
        code.add("rh[j] = reset;" if op.attr("linear_before_reset") else "rh[j] = reset * h[j];")
    with code.block(f"for (int k = {2 * hidden}; k < {3 * hidden}; k++)"):
        code.add(f"const float *wk = {w} + k * {inputs}, *rk = {r} + k * {hidden};")
        _product(code, "across", inputs, "row", "wk")
        if op.attr("linear_before_reset"):
            _product(code, "back", hidden, "h", "rk")
            wb, rb = (f"({b}[{at}] + 0.0f)" if b else "0.0f" for at in ("k", f"{3 * hidden} + k"))
            code.add(f"const float scaled = rh[k - {2 * hidden}] * (back + {rb});", f"a[k] = (across + scaled) + {wb};")
        else:
            _product(code, "back", hidden, "rh", "rk")
            code.add(f"a[k] = (across + back) + {_bias(b, 'k', f'{3 * hidden} + k')};")


def _clipped(op: Op, value: str) -> str:
    if not op.has("clip"):
        return value
    limit = c_float(op.float_("clip"))
    return f"ca1_minn_v1(ca1_maxn_v1({value}, -{limit}), {limit})"


def _rnn(code: Code, op: Op, hidden: int, p: str) -> None:
    code.add(f"h[j] = out[j] = ca1_tanh({_clipped(op, 'a[j]')});")


def _gru_cell(code: Code, op: Op, hidden: int, p: str) -> None:
    code.add(
        f"const float z = ca1_sigmoid({_clipped(op, 'a[j]')});",
        f"const float fresh = (1.0f - z) * ca1_tanh({_clipped(op, f'a[{2 * hidden} + j]')});",
        "const float kept = z * h[j];",
        "h[j] = out[j] = fresh + kept;",
    )


def _lstm(code: Code, op: Op, hidden: int, p: str) -> None:
    gate = {g: f"a[{n * hidden} + j]" for n, g in enumerate("iofc")}
    if p:
        for n, g in (("0", "i"), ("2", "f")):
            code.add(f"const float p{g} = {p}[{int(n) * hidden} + j] * c[j];")
            code.add(f"const float a{g} = {gate[g]} + p{g};")
            gate[g] = f"a{g}"
    code.add(f"const float ig = ca1_sigmoid({_clipped(op, gate['i'])});")
    forget = "1.0f - ig" if op.attr("input_forget") else f"ca1_sigmoid({_clipped(op, gate['f'])})"
    code.add(
        f"const float fg = {forget};",
        "const float kept = fg * c[j];",
        f"const float fresh = ig * ca1_tanh({_clipped(op, gate['c'])});",
        "c[j] = kept + fresh;",
    )
    if p:
        code.add(f"const float po = {p}[{hidden} + j] * c[j];", f"const float ao = {gate['o']} + po;")
        gate["o"] = "ao"
    code.add(f"h[j] = ca1_sigmoid({_clipped(op, gate['o'])}) * ca1_tanh(c[j]);")
    code.add(f"out[j] = {'c' if op.str_('state') == 'c' else 'h'}[j];")
