"""Resize of blocked values along spatial axes: the nested two-tap form of the scalar kernel, on vectors of channels."""

from __future__ import annotations

from compiler_kernels.arithmetic.resize import AxisTable, resize_tables
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, Kernel, c_float, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import full_access
from compiler_kernels.targets.vector.block_rows import Rows


def resize(function: Graph, isa: Isa, name: str) -> Kernel | None:
    op = root_of(function)
    if op.kind != "resize" or not function.ops[-1].out.layout.startswith("c16"):
        return None
    rows = Rows(function, isa, name)
    vec = rows.vec
    x_type = function.types()["p0"]
    x = full_access("p0_" if "p0" in rows.chain.accesses else "p0", x_type)
    missing = 3 - (len(x_type.dims) - 2)
    tables = {t.axis - 2 + missing: t for t in resize_tables(op, x_type.dims)}
    index = ["d", "h", "c"]

    for axis, table in tables.items():
        for label, values, ctype in _columns(table):
            rows.head.append(f"static const {ctype} {name}_{label}{axis}[] = {{{', '.join(values)}}};")

    def nested(axis: int, address: str, lane: int) -> str:
        """The value over the axes from ``axis`` on, innermost finished first."""
        if axis == 3:
            return vec.load(f"{address} + {lane}")
        table = tables.get(axis)
        if table is None:
            return nested(axis + 1, f"{address} + {index[axis]} * {x.spatial[axis]}", lane)
        low = nested(axis + 1, f"{address} + {name}_low{axis}[{index[axis]}] * {x.spatial[axis]}", lane)
        if not table.weight_low:
            return low
        high = nested(axis + 1, f"{address} + {name}_high{axis}[{index[axis]}] * {x.spatial[axis]}", lane)
        wl, wh = (vec.set1(f"{name}_{w}{axis}[{index[axis]}]") for w in ("wl", "wh"))
        return vec.fma(wh, high, f"{vec('mul')}({wl}, {low})")

    def row(code: Code, tail: int) -> None:
        code.add(f"const float *xb = {x.at('n', 'cb', ['0', '0', '0'])};")

        def column(inner: Code, lane: int) -> None:
            inner.add(f"const {vec.type} value = {nested(0, 'xb', lane)};")
            rows.chain.emit(inner, "value", (0, 0, 0), lane, tail)

        rows.columns(code, tail, column)

    assert x.spatial[2] == BLOCK
    return rows.emit(row)


def _columns(table: AxisTable) -> list[tuple[str, list[str], str]]:
    columns = [("low", [str(v) for v in table.low], "int")]
    if table.weight_low:
        columns += [
            ("high", [str(v) for v in table.high], "int"),
            ("wl", [c_float(v) for v in table.weight_low], "float"),
            ("wh", [c_float(v) for v in table.weight_high], "float"),
        ]
    return columns
