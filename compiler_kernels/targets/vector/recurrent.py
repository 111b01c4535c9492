"""The recurrence of lstm, gru and rnn on products with x made before (passes/recurrent.py).

A work item is the whole sequence of some rows of the batch. The recurrent sums use the register tile of matrix
products; the cell then works on vectors of the hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler_kernels.ir.graph import Graph, Op, TensorType, Value
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.recurrent_functions import functions
from compiler_kernels.ir.shapes_recurrent import GATES, STEPS
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.recurrent import reset_split
from compiler_kernels.targets.c.writer import Code, Kernel, c_float, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.epilogue import PlainChain, partial_load, partial_store
from compiler_kernels.targets.vector.product_tile import Reading, Tile, emit_tile, tile_shape
from compiler_kernels.targets.vector.recurrent_functions import applied
from compiler_kernels.targets.vector.vec import Vec


@dataclass(frozen=True, slots=True)
class Cell:
    """Sizes and names one kernel works with; operands are parameter names, "" for absent ones."""

    op: Op
    vec: Vec
    rows: int
    hidden: int
    gates: int
    operands: tuple[str, ...]

    @property
    def pitch(self) -> int:
        """Floats from row to row of a state, so that whole vectors may be stored."""
        return -(-self.hidden // BLOCK) * BLOCK

    @property
    def gate_pitch(self) -> int:
        """Floats from row to row of the gate sums; whole vectors may be read beyond the last gate."""
        return -(-self.gates * self.hidden // BLOCK) * BLOCK + BLOCK

    def gate(self, g: int) -> str:
        return self.vec.load(linear([("ar", 1), ("j", 1)], g * self.hidden))

    def clipped(self, value: str) -> str:
        if not self.op.has("clip"):
            return value
        limit = c_float(self.op.float_("clip"))
        low, high = self.vec.set1(f"-{limit}"), self.vec.set1(limit)
        return f"{self.vec('minn')}({self.vec('maxn')}({value}, {low}), {high})"

    def function(self, which: int, value: str) -> str:
        """f, g or h of ``value``."""
        return applied(self.vec, functions(self.op)[which], value)

    def activated(self, which: int, value: str) -> str:
        """f or g of a gate sum, which is clipped before."""
        return self.function(which, self.clipped(value))


def recurrent(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of a ``<kind>_steps`` statement; ``None`` for anything else."""
    op = function.ops[0]
    if op.kind not in STEPS or len(function.ops) > 1 or op.out.count == 0:
        return None
    time, batch, hidden = op.out.dims
    gates = GATES[op.kind.removesuffix("_steps")]
    most, _ = tile_shape(isa, batch)
    rows = max(r for r in range(1, min(most, batch) + 1) if batch % r == 0)
    operands = (*op.operands, *[""] * (7 - len(op.operands)))
    cell = Cell(op, Vec(isa), rows, hidden, gates, operands)
    split, count = reset_split(op, hidden), gates * hidden
    code = Code()
    for inner in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(inner)))
    first = _Sums(cell, name, 0, split, "h", False)
    second = _Sums(cell, name, split, count, "h" if _linear(op) else "rh", _linear(op))
    tile_scratch = max(s.functions(code) for s in (first, second) if s.columns)
    state = rows * cell.pitch
    params = ", ".join(f"const float *{v.id}" for v in function.inputs)
    g, _, _, _, h0, c0, _ = operands
    reverse = bool(op.attr("reverse"))
    with (
        code.block(f"static void {name}({params}, float *y, float *scratch, int begin, int end)"),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        code.add(f"float *h = scratch, *c = h + {state}, *rh = c + {state}, *a = rh + {state};")
        code.add(f"float *t = a + {rows * cell.gate_pitch};", "(void)c, (void)rh, (void)t;")
        code.add(*(f"(void){v.id};" for v in function.inputs if v.id not in operands))
        code.add(f"__builtin_memset(scratch, 0, {3 * state} * sizeof *scratch);")
        for state_name, start in (("h", h0), ("c", c0)):
            if start:
                source = f"{start} + (i * {rows} + r) * {hidden}"
                copy = f"__builtin_memcpy({state_name} + r * {cell.pitch}, {source}, {hidden} * sizeof *h);"
                code.add(f"for (int r = 0; r < {rows}; r++) {copy}")
        with code.block(f"for (int s = 0; s < {time}; s++)"):
            code.add(f"const int step = {f'{time - 1} - s' if reverse else 's'};")
            code.add(f"const float *g = {g} + ((long)step * {batch} + i * {rows}) * {count};", "(void)g;")
            code.add(f"float *out = y + ((long)step * {batch} + i * {rows}) * {hidden};")
            first.calls(code)
            if op.kind == "gru_steps":
                if not _linear(op):
                    _vectors(code, cell, lambda inner, n: _reset(inner, cell))
                second.calls(code)
            emit = {"lstm_steps": _lstm, "gru_steps": _gru, "rnn_steps": _rnn}[op.kind]
            _vectors(code, cell, lambda inner, n: emit(inner, cell, n))
    scratch = 3 * state + rows * cell.gate_pitch + tile_scratch
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), batch // rows, scratch)


def _linear(op: Op) -> bool:
    return op.kind == "gru_steps" and bool(op.attr("linear_before_reset"))


@dataclass(frozen=True, slots=True)
class _Sums:
    """The recurrent sums of columns ``begin`` to ``end`` of the gates, from rows of ``left``.

    ``alone``: (sum + rb) instead of (product with x + sum) + bias.
    """

    cell: Cell
    name: str
    begin: int
    end: int
    left: str
    alone: bool

    @property
    def columns(self) -> int:
        return self.end - self.begin

    @property
    def width(self) -> int:
        _, panels = tile_shape(self.cell.vec.isa, self.cell.rows)
        return min(panels * BLOCK, -(-self.columns // BLOCK) * BLOCK)

    @property
    def last(self) -> int:
        return self.columns - (-(-self.columns // self.width) - 1) * self.width

    @property
    def reading(self) -> Reading:
        hidden = self.cell.hidden
        return Reading(hidden, self.cell.pitch, 1, BLOCK, hidden * BLOCK)

    def _tile_name(self, columns: int) -> str:
        return f"{self.name}_{self.begin}_{self.cell.rows}x{columns}"

    def functions(self, code: Code) -> int:
        """Emit the tile functions; floats of scratch they need."""
        cell = self.cell
        wide = TensorType((cell.rows, cell.gates * cell.hidden))
        row = TensorType(wide.shape[-1:])
        names = [("b", row)] if self.alone else [("g", wide), ("b", row)]
        ops, value = [], "sum"
        for n, (operand, _) in enumerate(names):
            ops.append(Op("op.add", (operand, value), f"s{n}", wide))
            value = f"s{n}"
        function = Graph("sums", tuple(Value(o, t) for o, t in names), (), tuple(ops), (value,))
        chain = PlainChain(function, ops, wide.dims, cell.vec)
        scratch = 0
        for columns in dict.fromkeys((self.width, self.last) if self.columns > self.width else (self.last,)):
            tile = Tile(cell.rows, columns, cell.vec.isa)
            zero = [f"{{a}} = {cell.vec.add('{a}', cell.vec.set1('0.0f'))};"]
            emit_tile(code, self._tile_name(columns), tile, self.reading, chain, "sum", zero, cell.gate_pitch)
            scratch = max(scratch, tile.scratch(self.reading, True))
        return scratch

    def calls(self, code: Code) -> None:
        cell = self.cell
        r, bias = cell.operands[1], cell.operands[3] if self.alone else cell.operands[2]
        weights = -(-self.begin // BLOCK) * BLOCK * cell.hidden
        shift = 0 if self.alone else self.begin
        whole = (self.columns - self.last) // self.width

        def call(columns: int, at: str) -> str:
            terms = [(at, 1)] if at else []
            panel = [(at, cell.hidden)] if at else []
            operands = [] if self.alone else [linear([("g", 1), *terms], self.begin)]
            operands.append(linear([(bias, 1), *terms], shift))
            return (
                f"{self._tile_name(columns)}({self.left}, {linear([(r, 1), *panel], weights)}, "
                f"{linear([('a', 1), *terms], self.begin)}, t, {', '.join(operands)});"
            )

        if whole:
            code.add(f"for (int n = 0; n < {whole * self.width}; n += {self.width}) {call(self.width, 'n')}")
        code.add(call(self.last, "") if not whole else call(self.last, f"{whole * self.width}"))


def _vectors(code: Code, cell: Cell, emit: Callable[[Code, int], None]) -> None:
    """``emit(code, lanes)`` for every vector ``j`` of every row ``r``; the last one may have fewer lanes."""
    lanes = cell.vec.lanes
    whole = cell.hidden // lanes * lanes
    with code.block(f"for (int r = 0; r < {cell.rows}; r++)" if cell.rows > 1 else ""):
        if cell.rows == 1:
            code.add("{", "    const int r = 0;")
        code.add(f"float *hr = h + r * {cell.pitch}, *cr = c + r * {cell.pitch}, *rr = rh + r * {cell.pitch};")
        code.add(f"float *ar = a + r * {cell.gate_pitch}, *yr = out + r * {cell.hidden};")
        code.add("(void)hr, (void)cr, (void)rr, (void)ar, (void)yr;")
        if whole:
            with code.block(f"for (int j = 0; j < {whole}; j += {lanes})"):
                emit(code, lanes)
        if whole < cell.hidden:
            with code.block(""):
                code.add("{", f"    const int j = {whole};")
                emit(code, cell.hidden - whole)
                code.add("}")
        if cell.rows == 1:
            code.add("}")


def _operand(code: Code, cell: Cell, name: str, address: str, lanes: int) -> None:
    """Vector ``name`` of a parameter, of which only ``lanes`` may be read."""
    if lanes == cell.vec.lanes:
        code.add(f"const {cell.vec.type} {name} = {cell.vec.load(address)};")
    else:
        code.add(partial_load(cell.vec, name, address, lanes))


def _keep(code: Code, cell: Cell, value: str, lanes: int) -> None:
    """The step's result."""
    full = lanes == cell.vec.lanes
    code.add(cell.vec.store("yr + j", value) if full else partial_store(cell.vec, "yr + j", value, lanes))


def _rnn(code: Code, cell: Cell, lanes: int) -> None:
    code.add(f"const {cell.vec.type} hn = {cell.activated(0, cell.gate(0))};", cell.vec.store("hr + j", "hn"))
    _keep(code, cell, "hn", lanes)


def _lstm(code: Code, cell: Cell, lanes: int) -> None:
    vec, peephole, hidden = cell.vec, cell.operands[6], cell.hidden
    v, mul = vec.type, vec("mul")
    code.add(f"const {v} cp = {vec.load('cr + j')};")
    gates = {g: cell.gate(n) for n, g in enumerate("iofc")}
    if peephole:
        for n, g in enumerate("iof"):
            _operand(code, cell, f"p{g}", linear([(peephole, 1), ("j", 1)], n * hidden), lanes)
            if g != "o":
                gates[g] = vec.add(gates[g], f"{mul}(p{g}, cp)")
    code.add(f"const {v} ig = {cell.activated(0, gates['i'])};")
    forget = f"{vec('sub')}({vec.set1('1.0f')}, ig)" if cell.op.attr("input_forget") else cell.activated(0, gates["f"])
    code.add(f"const {v} fg = {forget};")
    kept, new = f"{mul}(fg, cp)", f"{mul}(ig, {cell.activated(1, gates['c'])})"
    code.add(f"const {v} cn = {vec.add(kept, new)};")
    if peephole:
        gates["o"] = vec.add(gates["o"], f"{mul}(po, cn)")
    code.add(f"const {v} hn = {mul}({cell.activated(0, gates['o'])}, {cell.function(2, 'cn')});")
    code.add(vec.store("cr + j", "cn"), vec.store("hr + j", "hn"))
    _keep(code, cell, "cn" if cell.op.str_("state") == "c" else "hn", lanes)


def _reset(code: Code, cell: Cell) -> None:
    """r · H, the left operand of the last gate's sums."""
    reset = f"{cell.vec('mul')}({cell.activated(0, cell.gate(1))}, {cell.vec.load('hr + j')})"
    code.add(cell.vec.store("rr + j", reset))


def _gru(code: Code, cell: Cell, lanes: int) -> None:
    vec, v, mul = cell.vec, cell.vec.type, cell.vec("mul")
    last = cell.gate(2)
    if _linear(cell.op):
        place = linear([("g", 1), ("r", cell.gates * cell.hidden), ("j", 1)], 2 * cell.hidden)
        _operand(code, cell, "xh", place, lanes)
        _operand(code, cell, "wb", linear([(cell.operands[2], 1), ("j", 1)], 2 * cell.hidden), lanes)
        last = vec.add(vec.add("xh", f"{mul}({cell.activated(0, cell.gate(1))}, {last})"), "wb")
    code.add(f"const {v} z = {cell.activated(0, cell.gate(0))};")
    fresh = f"{mul}({vec('sub')}({vec.set1('1.0f')}, z), {cell.activated(1, last)})"
    kept = f"{mul}(z, {vec.load('hr + j')})"
    code.add(f"const {v} hn = {vec.add(fresh, kept)};", vec.store("hr + j", "hn"))
    _keep(code, cell, "hn", lanes)
