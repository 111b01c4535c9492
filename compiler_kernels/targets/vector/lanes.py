"""Rows of contiguous plain values: softmax, log_softmax, layer_normalization, reductions over trailing axes.

Sums and selections run in the 16 virtual lanes of CA-1, which every vector width divides; an item is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from compiler_kernels.arithmetic.order import RADIX, ROW_LANES, SUM_LEAF
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.rows import in_lanes
from compiler_kernels.targets.c.writer import Code, Kernel, c_float
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.vec import Vec

Value = Callable[[str], str]
"""C expression of the vector whose first element is the row's element of the given index."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of ``size`` contiguous elements in groups of 16: ``whole`` groups, then ``rest`` elements."""

    vec: Vec
    size: int

    @property
    def whole(self) -> int:
        return self.size // ROW_LANES

    @property
    def rest(self) -> int:
        return self.size % ROW_LANES

    @property
    def leaves(self) -> int:
        return -(-self.size // (ROW_LANES * SUM_LEAF))

    @property
    def parts(self) -> range:
        """First lanes of the vectors of a group."""
        return range(0, ROW_LANES, self.vec.lanes)

    @property
    def names(self) -> list[str]:
        return [f"a{n}" for n in range(len(self.parts))]

    def declare(self, code: Code, start: str) -> None:
        code.add(f"{self.vec.type} {', '.join(f'{a} = {self.vec.set1(start)}' for a in self.names)};")

    def each(self, code: Code, statement: Callable[[str, str, int], str], start: str = "0", stop: str = "") -> None:
        """``statement(accumulator, index, lane)`` for every vector of the whole groups from ``start`` to ``stop``."""
        stop = stop or str(self.whole * ROW_LANES)
        if self.whole == 0:
            return
        with code.block(f"for (int k = {start}; k < {stop}; k += {ROW_LANES})"):
            for name, lane in zip(self.names, self.parts, strict=True):
                code.add(statement(name, f"k + {lane}" if lane else "k", lane))

    def tail(self, code: Code, fill: str, element: str, statement: Callable[[str, str, int], str]) -> None:
        """The same for the rest, from an array ``part`` of ``element`` (index ``k``) and ``fill`` in absent lanes; with
        no ``element`` the array of the last call of :meth:`part` in an outer block."""
        if self.rest:
            if element:
                self.part(code, fill, element)
            code.add(*(statement(a, f"part + {lane}", lane) for a, lane in zip(self.names, self.parts, strict=True)))

    def part(self, code: Code, fill: str, element: str) -> None:
        """Declare ``part``: ``element`` for the rest of the row, ``fill`` in absent lanes."""
        if not self.rest:
            return
        base = self.whole * ROW_LANES
        code.add(
            f"float part[{ROW_LANES}];",
            f"for (int l = 0; l < {ROW_LANES}; l++) part[l] = {fill};",
            f"for (int k = {base}; k < {self.size}; k++) part[k - {base}] = {element};",
        )

    def fold(self, code: Code, result: str, combine: str) -> None:
        """``const float result``: lanes 8, 4, 2, 1 apart combined by the scalar expression ``combine`` of {0}, {1}."""
        lanes = f"{result}_lane"
        code.add(f"float {lanes}[{ROW_LANES}];")
        code.add(*(self.vec.store(f"{lanes} + {lane}", a) for a, lane in zip(self.names, self.parts, strict=True)))
        apart = ROW_LANES // 2
        while apart:
            step = combine.format(f"{lanes}[l]", f"{lanes}[l + {apart}]")
            code.add(f"for (int l = 0; l < {apart}; l++) {lanes}[l] = {step};")
            apart //= 2
        code.add(f"const float {result} = {lanes}[0];")

    def total(
        self,
        code: Code,
        result: str,
        add: Callable[[str, str], str],
        value: Value,
        element: str,
    ) -> None:
        """``const float result``: sum of ``add(accumulator, value)`` over the row; ``element`` makes the tail."""
        vec = self.vec

        def step(a: str, index: str, lane: int) -> str:
            return f"{a} = {add(a, value(index))};"

        def tail_step(a: str, address: str, lane: int) -> str:
            return f"{a} = {add(a, vec.load(address))};"

        with code.block(""):
            code.add("float " + result + ";", "{")
            code.depth += 1
            if self.leaves <= 1:
                self.declare(code, "0.0f")
                self.each(code, step)
                self.tail(code, "0.0f", element, tail_step)
            else:
                self._tree(code, step, tail_step, element)
            self.fold(code, "folded", "{0} + {1}")
            code.add(f"{result} = folded;")
            code.depth -= 1
            code.add("}")

    def _tree(
        self,
        code: Code,
        step: Callable[[str, str, int], str],
        tail_step: Callable[[str, str, int], str],
        element: str,
    ) -> None:
        vec, leaf = self.vec, ROW_LANES * SUM_LEAF
        levels, left = 0, self.leaves - 1
        while left:
            levels, left = levels + 1, left // RADIX
        code.add(f"float node[{levels * ROW_LANES}];")
        self.declare(code, "0.0f")
        end = self.whole * ROW_LANES
        with code.block("for (int s = 0;; s++)"):
            code.add(*(f"{a} = {vec.set1('0.0f')};" for a in self.names))
            code.add(f"const int stop = (s + 1) * {leaf} < {end} ? (s + 1) * {leaf} : {end};")
            self.each(code, step, f"s * {leaf}", "stop")
            code.add(f"if (s == {self.leaves - 1}) break;")
            size = 1
            for level in range(levels):
                place = f"s / {size} % {RADIX}"
                slots = [(a, f"node + {level * ROW_LANES + n}") for a, n in zip(self.names, self.parts, strict=True)]
                stores = " ".join(vec.store(t, a) for a, t in slots)
                code.add(f"if ({place} == 0) {{ {stores} continue; }}")
                code.add(*(f"{a} = {vec.add(vec.load(t), a)};" for a, t in slots))
                code.add(stores if level == levels - 1 else f"if ({place} != {RADIX - 1}) {{ {stores} continue; }}")
                size *= RADIX
        self.tail(code, "0.0f", element, tail_step)
        done = self.leaves - 1
        for level in range(levels):
            if done % RADIX:
                for a, n in zip(self.names, self.parts, strict=True):
                    code.add(f"{a} = {vec.add(vec.load(f'node + {level * ROW_LANES + n}'), a)};")
            done //= RADIX


def _plain(function: Graph) -> bool:
    return len(function.ops) == 1 and not any(t.layout for t in function.types().values())


def _kernel(function: Graph, name: str, size: int, items: int, out: int, emit: Callable[[Code], None]) -> Kernel:
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    params = ", ".join(f"const float *{v.id}" for v in function.inputs)
    with (
        code.block(f"static void {name}({params}, float *y, int begin, int end)"),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        code.add(f"const float *x = {function.ops[0].operands[0]} + (long)i * {size};")
        code.add(f"float *out = y + (long)i * {out};")
        emit(code)
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), items)


def softmax(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """softmax and log_softmax over a last axis: the exponentials wait in the result's row."""
    op = function.ops[0]
    dims = op.out.dims
    if op.kind not in ("softmax", "log_softmax") or not _plain(function) or op.int_("axis") != len(dims) - 1:
        return None
    size, vec = dims[-1], Vec(isa)
    row = Row(vec, size)

    def emit(code: Code) -> None:
        # Absent lanes hold -inf for the maximum, then the maximum (exp of -inf would underflow, which is slow on some
        # processors), and +0 for the sum.
        row.part(code, "-__builtin_inff()", "x[k]")
        _select(code, row, "m", "max", "-__builtin_inff()", "")
        code.add(f"const {vec.type} mv = {vec.set1('m')};")
        exponential = f"{vec('exp_nonpositive')}({vec('sub')}({{0}}, mv))"

        def kept(index: str) -> str:
            return f"(e = {exponential.format(vec.load(f'x + {index}'))}, {vec('store')}(out + {index}, e), e)"

        code.add(f"{vec.type} e;", "(void)e;")
        if row.rest:
            absent = f"for (int l = {row.rest}; l < {ROW_LANES}; l++) part[l] ="
            code.add(f"{absent} m;")
            for lane in row.parts:
                code.add(vec.store(f"part + {lane}", exponential.format(vec.load(f"part + {lane}"))))
            code.add(f"{absent} 0.0f;")
            code.add(f"__builtin_memcpy(out + {row.whole * ROW_LANES}, part, {row.rest} * sizeof *out);")
        row.total(code, "s", vec.add, kept, "")
        if op.kind == "softmax":
            code.add(f"const {vec.type} sv = {vec.set1('s')};")
            _through(code, row, lambda i: f"{vec('div')}({vec.load(f'out + {i}')}, sv)", "out[k] / s")
        else:
            code.add("const float ls = ca1_log(s);", f"const {vec.type} lv = {vec.set1('ls')};")
            shifted = f"{vec('sub')}({vec('sub')}({{0}}, mv), lv)"
            _through(code, row, lambda i: shifted.format(vec.load(f"x + {i}")), "(x[k] - m) - ls")

    return _kernel(function, name, size, prod(dims[:-1]), size, emit)


def _select(code: Code, row: Row, result: str, kind: str, absent: str, element: str = "x[k]") -> None:
    """``const float result``: the maximum or minimum of the row in lanes."""
    vec = row.vec
    code.add(f"float {result};", "{")
    code.depth += 1
    row.declare(code, absent)
    row.each(code, lambda a, index, lane: f"{a} = {vec(kind)}({a}, {vec.load(f'x + {index}')});")
    row.tail(code, absent, element, lambda a, address, lane: f"{a} = {vec(kind)}({a}, {vec.load(address)});")
    row.fold(code, "folded", f"ca1_{kind}_v1({{0}}, {{1}})")
    code.add(f"{result} = folded;")
    code.depth -= 1
    code.add("}")


def _through(code: Code, row: Row, vector: Value, scalar: str) -> None:
    """Write the row: ``vector(index)`` for whole vectors, ``scalar`` (of ``k``) for the rest."""
    vec = row.vec
    whole = row.size // vec.lanes * vec.lanes
    if whole:
        with code.block(f"for (int k = 0; k < {whole}; k += {vec.lanes})"):
            code.add(vec.store("out + k", vector("k")))
    if whole < row.size:
        code.add(f"for (int k = {whole}; k < {row.size}; k++) out[k] = {scalar};")


def layer_normalization(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Two passes over the row, one for the RMS, whose mean is 0; y = fma(d * r, scale, bias)."""
    op = function.ops[0]
    if op.kind not in ("layer_normalization", "rms_normalization") or not _plain(function):
        return None
    dims, axis = op.out.dims, op.int_("axis")
    size, vec, types = prod(dims[axis:]), Vec(isa), function.types()
    if any(types[p].count != size for p in op.operands[1:] if p):
        return None
    row = Row(vec, size)
    scale, bias = op.operands[1], op.operands[2] if len(op.operands) > 2 else ""

    def emit(code: Code) -> None:
        count = c_float(size)
        if op.kind == "layer_normalization":
            row.total(code, "sum", vec.add, lambda i: vec.load(f"x + {i}"), "x[k]")
            code.add(f"const float mean = sum / {count};", f"const {vec.type} mv = {vec.set1('mean')};")
        code.add(f"{vec.type} d;", "(void)d;" if not row.whole else "")

        def squares(a: str, value: str) -> str:
            return f"(d = {value}, {vec.fma('d', 'd', a)})"

        def minus_mean(value: str, mean: str) -> str:
            return f"{vec('sub')}({value}, {mean})" if op.kind == "layer_normalization" else value

        d = "(x[k] - mean)" if op.kind == "layer_normalization" else "x[k]"
        row.total(code, "sq", squares, lambda i: minus_mean(vec.load(f"x + {i}"), "mv"), d)
        code.add(
            f"const float var = sq / {count};",
            f"const float r = 1.0f / ca1_sqrt_v1(var + {c_float(op.float_('epsilon'))});",
            f"const {vec.type} rv = {vec.set1('r')};",
        )

        def vector(i: str) -> str:
            deviation = f"{vec('mul')}({minus_mean(vec.load(f'x + {i}'), 'mv')}, rv)"
            shift = vec.load(f"{bias} + {i}") if bias else vec.set1("0.0f")
            return vec.fma(deviation, vec.load(f"{scale} + {i}"), shift)

        _through(code, row, vector, f"ca1_fmaf({d} * r, {scale}[k], {f'{bias}[k]' if bias else '0.0f'})")

    return _kernel(function, name, size, prod(dims[:axis]), size, emit)


def reduction(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Sum, mean, maximum or minimum over trailing axes, where CA-1 says lanes."""
    op: Op = function.ops[0]
    if op.kind not in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min") or not _plain(function):
        return None
    dims: Sequence[int] = function.types()[op.operands[0]].dims
    axes = op.ints("axes")
    if not axes or not in_lanes(op, len(dims)):
        return None
    size, vec = prod(dims[a] for a in axes), Vec(isa)
    row = Row(vec, size)

    def emit(code: Code) -> None:
        if op.kind in ("reduce_max", "reduce_min"):
            absent = "-__builtin_inff()" if op.kind == "reduce_max" else "__builtin_inff()"
            _select(code, row, "total", op.kind.removeprefix("reduce_"), absent)
        else:
            row.total(code, "total", vec.add, lambda i: vec.load(f"x + {i}"), "x[k]")
        code.add(f"*out = total / {c_float(size)};" if op.kind == "reduce_mean" else "*out = total;")

    return _kernel(function, name, size, prod(dims) // max(1, size), 1, emit)
