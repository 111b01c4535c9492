"""The recurrence of lstm, gru and rnn on products with x made before: every time step in one launch.

A thread keeps the weights of one leaf of one gate column in registers; h goes round in shared memory. The blocks of a
cluster share the hidden units of a batch row, each sending its part of the new h to all. Where the weights do not fit
the registers, the threads of one block read them again at each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.recurrent_functions import functions
from compiler_kernels.ir.shapes_recurrent import GATES, STEPS
from compiler_kernels.passes.recurrent import reset_split
from compiler_kernels.targets.c.writer import Code, c_float, linear
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats, kernel_text, launched, split, sum_tree
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.recurrent_functions import applied

RESIDENT_THREADS: Final = 512
"""Threads of a block that keep 64 weights each: with 128 registers they fill the register file."""
CLUSTERS: Final = (1, 2, 4, 8)
AHEAD: Final = 3
"""Steps by which the products with x are fetched before they are needed."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Sizes and names of one kernel; ``units`` hidden units of each of ``blocks`` blocks; operands "" where absent."""

    op: Op
    hidden: int
    gates: int
    blocks: int
    resident: bool
    operands: tuple[str, ...]

    @property
    def units(self) -> int:
        return self.hidden // self.blocks

    @property
    def columns(self) -> int:
        return self.gates * self.units

    @property
    def leaf(self) -> int:
        order = sum_order(self.hidden, 1)
        return min(self.hidden, order.block * order.blocks_per_leaf)

    @property
    def leaves(self) -> int:
        return -(-self.hidden // self.leaf)

    @property
    def threads(self) -> int:
        items = self.columns * self.leaves
        return -(-(items if self.resident else min(items, 1024)) // 32) * 32

    @property
    def kind(self) -> str:
        return self.op.kind.removesuffix("_steps")

    @property
    def linear_reset(self) -> bool:
        return self.kind == "gru" and bool(self.op.attr("linear_before_reset"))

    @property
    def late(self) -> bool:
        """Whether gate sums are activated where the cell is computed, as peepholes need the cell's state."""
        return bool(self.operands[6])

    def activated(self, which: int, value: str) -> str:
        """f or g of a gate sum, which is clipped before."""
        if self.op.has("clip"):
            limit = c_float(self.op.float_("clip"))
            value = f"{ONE('minn')}({ONE('maxn')}({value}, -{limit}), {limit})"
        return self.function(which, value)

    def function(self, which: int, value: str) -> str:
        return applied(ONE, functions(self.op)[which], value)


def recurrent(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a ``<kind>_steps`` statement; ``None`` for anything else."""
    op = function.ops[0]
    if op.kind not in STEPS or len(function.ops) > 1 or not computes_floats(function):
        return None
    time, batch, hidden = op.out.dims
    gates = GATES[op.kind.removesuffix("_steps")]
    operands = (*op.operands, *[""] * (7 - len(op.operands)))
    cell = Cell(op, hidden, gates, 1, False, operands)
    for blocks in CLUSTERS if gpu.clusters else CLUSTERS[:1]:
        if hidden % blocks == 0 and cell.leaves * gates * hidden // blocks <= RESIDENT_THREADS:
            cell = Cell(op, hidden, gates, blocks, True, operands)
            break
    cells = cell.columns * cell.leaves
    shared = 3 * hidden + cells + cell.columns * (AHEAD + 2 if cell.resident else 1)
    if 4 * shared > gpu.shared_bytes:
        return None
    with kernel_text(function, name) as code:
        code.add("float *hs = (float *)cuvil_shared;  /* h of even and odd steps, then r * h */")
        code.add(
            f"float *rh = hs + {2 * hidden}, *part = rh + {hidden}, *gate = part + {cells};", "(void)rh, (void)part;"
        )
        split(code, "block", [batch, cell.blocks], ["row", "rank"])
        code.add(f"const int j = rank * {cell.units} + (int)threadIdx.x, own = threadIdx.x < {cell.units};")
        _begin(code, cell, batch)
        if cell.resident:
            code.add(f"const float own_bias = works ? {operands[2]}[column] : 0.0f;")
            code.add(f"float *ring = gate + {cell.columns} + item;  /* products with x of {AHEAD + 1} steps */")
            first = f"{operands[0]} + {(time - 1) * batch * gates * hidden if op.attr('reverse') else 0}L"
            code.add(f"const float *across = {first} + (long)row * {gates * hidden} + column;")
            with code.block(f"for (int s = 0; s < {AHEAD}; s++)"):
                code.add(_fetch(cell, time, "s"), "cuvil_copy_commit();")
        with code.block(f"for (int s = 0; s < {time}; s++)"):
            code.add(f"const int step = {f'{time - 1} - s' if op.attr('reverse') else 's'};")
            code.add(f"const float *g = {operands[0]} + ((long)step * {batch} + row) * {gates * hidden};", "(void)g;")
            if cell.resident:
                _coming(code, cell, time)
            code.add(f"const float *h = hs + s % 2 * {hidden};", f"float *next = hs + (s + 1) % 2 * {hidden};")
            _step(code, cell)
            code.add(f"float *out = y + ((long)step * {batch} + row) * {hidden};")
            _cell(code, cell)
            code.add(_meet(cell))
    return launched(function, name, code, batch * cell.blocks, cell.threads, 4 * shared, cluster=cell.blocks)


def _fetch(cell: Cell, time: int, step: str) -> str:
    """The product with x of step ``step`` on its way to the ring."""
    batch, gates = cell.op.out.dims[1], cell.gates
    away = f"across {'-' if cell.op.attr('reverse') else '+'} (long)({step}) * {batch * gates * cell.hidden}"
    slot = f"ring + ({step}) % {AHEAD + 1} * {cell.columns}"
    return f"if (works && leaf == 0 && {step} < {time}) cuvil_copy_async<4>({slot}, {away});"


def _coming(code: Code, cell: Cell, time: int) -> None:
    """``gx``, this step's product with x, fetched ``AHEAD`` steps ago. (As loads they would share the counters on which
    the chain below waits.)"""
    code.add(f"cuvil_copy_wait<{AHEAD - 1}>();")
    code.add(f"const float gx = works && leaf == 0 ? ring[s % {AHEAD + 1} * {cell.columns}] : 0.0f;")
    code.add(_fetch(cell, time, f"s + {AHEAD}"), "cuvil_copy_commit();")


def _begin(code: Code, cell: Cell, batch: int) -> None:
    """Weights into registers, states into their places."""
    op, hidden = cell.op, cell.hidden
    h0, c0 = cell.operands[4:6]
    border = reset_split(op, hidden)
    if cell.resident:
        code.add(f"const int leaf = threadIdx.x / {cell.columns}, item = threadIdx.x % {cell.columns};")
        code.add(f"const int works = leaf < {cell.leaves};")
        _column(code, cell, border)
        code.add(f"float wk[{cell.leaf}];", "#pragma unroll")
        taps = "" if hidden % cell.leaf == 0 else f" && leaf * {cell.leaf} + k < {hidden}"
        code.add(
            f"for (int k = 0; k < {cell.leaf}; k++) if (works{taps}) wk[k] = w[(leaf * {cell.leaf} + k) * {BLOCK}];"
        )
    code.add("cuvil_grid_wait();")  # the weights above are constants
    state = f"{h0}[row * {hidden} + k]" if h0 else "0.0f"
    code.add(f"for (int k = (int)threadIdx.x; k < {hidden}; k += {cell.threads}) hs[k] = {state};")
    if cell.kind == "lstm":
        code.add(f"float c = {f'own ? {c0}[row * {hidden} + j] : 0.0f' if c0 else '0.0f'};")
    code.add(_meet(cell))


def _column(code: Code, cell: Cell, border: int) -> None:
    """Of the thread's ``item``: gate ``which``, ``column`` among all gates, its weights ``w``."""
    code.add(
        f"const int which = item / {cell.units};",
        f"const int column = which * {cell.hidden} + rank * {cell.units} + item % {cell.units};",
    )
    first = -(-border // BLOCK) * BLOCK * cell.hidden
    start = f"{cell.operands[1]} + column / {BLOCK} * {cell.hidden * BLOCK} + column % {BLOCK}"
    if border < cell.gates * cell.hidden:
        rest = f"(column - {border})"
        behind = f"{cell.operands[1]} + {first} + {rest} / {BLOCK} * {cell.hidden * BLOCK} + {rest} % {BLOCK}"
        start = f"column < {border} ? {start} : {behind}"
    code.add(f"const float *w = {start};", "(void)which;")


def _step(code: Code, cell: Cell) -> None:
    """The gates: sums, clipped and activated, in ``gate`` [gate][unit]."""
    two_stages = cell.kind == "gru" and not cell.linear_reset
    stages = [("which < 2", "h"), ("which == 2", "rh")] if two_stages else [("", "h")]
    for number, (condition, source) in enumerate(stages):
        if number:  # r * H of every unit, for every block
            code.add(f"if (own) {{ const float reset = {ONE('mul')}(gate[{cell.units} + threadIdx.x], h[j]);")
            code.add(f"    {_everywhere(cell, 'rh', 'reset')} }}", _meet(cell))
        code.add("{")
        code.depth += 1
        _stage(code, cell, condition, source)
        code.depth -= 1
        code.add("}", "__syncthreads();")


def _meet(cell: Cell) -> str:
    """All threads of all blocks of the batch row."""
    return "__syncthreads();" if cell.blocks == 1 else "cuvil_cluster_sync();"


def _stage(code: Code, cell: Cell, condition: str, source: str) -> None:
    """Gates of the columns for which ``condition`` holds, from ``source``."""
    if not cell.resident:
        _streamed(code, cell, condition, source)
        return
    working = f"if ({' && '.join(filter(None, ['works', condition]))})"
    first = f"if ({' && '.join(filter(None, ['works', 'leaf == 0', condition]))})"
    with code.block(working):
        _chain(code, cell, source)
        if cell.leaves == 1:
            code.add("const float sum = acc;")
            _gate(code, cell)
        else:
            code.add("part[threadIdx.x] = acc;")
    if cell.leaves > 1:
        code.add("__syncthreads();")
        with code.block(first):
            sum_tree(code, [f"part[{n * cell.columns} + item]" for n in range(cell.leaves)], "sum")
            _gate(code, cell)


def _chain(code: Code, cell: Cell, source: str) -> None:
    code.add("float acc = 0.0f;", f"const float *from = {source} + leaf * {cell.leaf};", "#pragma unroll")
    ragged = cell.hidden % cell.leaf != 0
    if cell.leaf % 4 or cell.hidden % 4:
        test = f"if (leaf * {cell.leaf} + k < {cell.hidden}) " if ragged else ""
        code.add(f"for (int k = 0; k < {cell.leaf}; k++) {test}acc = {ONE.fma('from[k]', 'wk[k]', 'acc')};")
        return
    with (
        code.block(f"for (int k = 0; k < {cell.leaf}; k += 4)"),
        code.block(f"if (leaf * {cell.leaf} + k < {cell.hidden})" if ragged else ""),
    ):
        code.add("const float4 v = *(const float4 *)(from + k);")
        code.add(*(f"acc = {ONE.fma(f'v.{part}', f'wk[k + {n}]', 'acc')};" for n, part in enumerate("xyzw")))


def _streamed(code: Code, cell: Cell, condition: str, source: str) -> None:
    items = cell.columns * cell.leaves
    with code.block(f"for (int place = (int)threadIdx.x; place < {items}; place += {cell.threads})"):
        code.add(f"const int leaf = place / {cell.columns}, item = place % {cell.columns};")
        _column(code, cell, reset_split(cell.op, cell.hidden))
        code.add(*([f"if (!({condition})) continue;"] if condition else []))
        code.add("float acc = 0.0f;", f"const int first = leaf * {cell.leaf};", "#pragma unroll 8")
        bound = f"k < first + {cell.leaf}" + ("" if cell.hidden % cell.leaf == 0 else f" && k < {cell.hidden}")
        code.add(f"for (int k = first; {bound}; k++) acc = {ONE.fma(f'{source}[k]', f'w[k * {BLOCK}]', 'acc')};")
        code.add("part[place] = acc;")
    code.add("__syncthreads();")
    with code.block(f"for (int item = (int)threadIdx.x; item < {cell.columns}; item += {cell.threads})"):
        code.add(f"const int which = item / {cell.units}, column = which * {cell.hidden} + item % {cell.units};")
        code.add(*([f"if (!({condition})) continue;"] if condition else []), "const float gx = g[column];")
        if cell.leaves <= 64:
            sum_tree(code, [f"part[{n * cell.columns} + item]" for n in range(cell.leaves)], "sum")
        else:
            code.add("ca1_tree tree;", "ca1_tree_init(&tree);")
            code.add(f"for (int n = 0; n < {cell.leaves}; n++) ca1_tree_push(&tree, part[n * {cell.columns} + item]);")
            code.add("const float sum = ca1_tree_sum(&tree);")
        _gate(code, cell)


def _gate(code: Code, cell: Cell) -> None:
    """From ``sum`` and ``gx`` to ``gate[item]``."""
    bias, rb = cell.operands[2], cell.operands[3]
    summed = ONE.add("own_bias" if cell.resident else f"{bias}[column]", ONE.add("gx", ONE.add("sum", "0.0f")))
    candidate = cell.gates - 1
    if cell.linear_reset:
        alone = ONE.add(f"{rb}[column - {2 * cell.hidden}]", ONE.add("sum", "0.0f"))
        code.add(f"const float a = which < 2 ? {summed} : {alone};")
        code.add(f"gate[item] = which < 2 ? {cell.activated(0, 'a')} : a;")
        return
    code.add(f"const float a = {summed};")
    if cell.late:
        code.add("gate[item] = a;")
    elif cell.kind == "rnn":
        code.add(f"gate[item] = {cell.activated(0, 'a')};")
    else:
        code.add(
            f"if (which < {candidate}) gate[item] = {cell.activated(0, 'a')};",
            f"else gate[item] = {cell.activated(1, 'a')};",
        )


def _everywhere(cell: Cell, array: str, value: str) -> str:
    """Store ``value`` of unit ``j`` to ``array`` in every block of the cluster."""
    if cell.blocks == 1:
        return f"{array}[j] = {value};"
    return f"for (unsigned r = 0; r < {cell.blocks}; r++) *cuvil_cluster_at({array} + j, r) = {value};"


def _cell(code: Code, cell: Cell) -> None:
    """The unit's new state from its gates."""
    units, hidden, mul = cell.units, cell.hidden, ONE("mul")
    places = [linear([("threadIdx.x", 1)], n * units) for n in range(cell.gates)]
    with code.block("if (own)"):
        kept = "hn"
        if cell.kind == "rnn":
            code.add("const float hn = gate[threadIdx.x];")
        elif cell.kind == "gru":
            code.add(f"const float z = gate[threadIdx.x], candidate = gate[{places[2]}];")
            fresh = "candidate"
            if cell.linear_reset:
                bias = cell.operands[2]
                scaled = f"{mul}(gate[{places[1]}], candidate)"
                code.add(
                    f"const float a = {ONE.add(ONE.add(f'g[{2 * hidden} + j]', scaled), f'{bias}[{2 * hidden} + j]')};"
                )
                fresh = cell.activated(1, "a")
            new = f"{mul}({ONE('sub')}(1.0f, z), {fresh})"
            code.add(f"const float hn = {ONE.add(new, f'{mul}(z, h[j])')};")
        else:
            kept = _lstm(code, cell, places)
        code.add(_everywhere(cell, "next", "hn"), f"out[j] = {kept};")


def _lstm(code: Code, cell: Cell, places: list[str]) -> str:
    peephole, hidden, mul, op = cell.operands[6], cell.hidden, ONE("mul"), cell.op
    gates = {g: f"gate[{places[n]}]" for n, g in enumerate("iofc")}
    if cell.late:
        for n, g in ((0, "i"), (2, "f")):
            code.add(f"const float a{g} = {ONE.add(gates[g], f'{mul}({peephole}[{n * hidden} + j], c)')};")
            gates[g] = cell.activated(0, f"a{g}")
        gates["c"] = cell.activated(1, gates["c"])
    code.add(f"const float ig = {gates['i']};")
    forget = f"{ONE('sub')}(1.0f, ig)" if op.attr("input_forget") else gates["f"]
    candidate = gates["c"]
    code.add(f"const float fg = {forget};")
    code.add(f"const float cn = {ONE.add(f'{mul}(fg, c)', f'{mul}(ig, {candidate})')};")
    if cell.late:
        code.add(f"const float ao = {ONE.add(gates['o'], f'{mul}({peephole}[{hidden} + j], cn)')};")
        gates["o"] = cell.activated(0, "ao")
    code.add(f"const float hn = {mul}({gates['o']}, {cell.function(2, 'cn')});", "c = cn;")
    return "cn" if op.str_("state") == "c" else "hn"
