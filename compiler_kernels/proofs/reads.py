"""Which elements each operation touches: index expressions per axis, written from ONNX's definitions.

Nothing here is shared with the generators or the shape rules. Coordinates of the result are variables ``@i0``, ``@i1``,
...; sums run over variables of their own. Windows are described on the input widened by its border (``before``,
``after``): a position in the border is never read, a position outside it means that the result has too many windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from compiler_kernels.ir.dims import Size, product, symbol
from compiler_kernels.ir.graph import Op, TensorType
from compiler_kernels.ir.shapes_recurrent import GATES, STEPS

RESULT: Final = -1
Sizes = Sequence[Size]


@dataclass(frozen=True, slots=True)
class Touch:
    """Element ``index`` of ``operand`` (``RESULT``: of the result), one expression per axis."""

    operand: int
    index: tuple[Size, ...]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


@dataclass
class Space:
    """One operation: shapes of its operands and result, the variables introduced so far, and what is touched."""

    op: Op
    shapes: list[Sizes | None]
    out: Sizes
    counts: dict[str, Size] = field(default_factory=dict)  # variable -> number of its values, from 0 on
    touches: list[Touch] = field(default_factory=list)
    equalities: list[tuple[Size, Size]] = field(default_factory=list)

    def over(self, name: str, count: Size) -> Size:
        """A variable of ``count`` values (0 where there is only one)."""
        if isinstance(count, int) and count == 1:
            return 0
        self.counts[f"@{name}"] = count
        return symbol(f"@{name}")

    def i(self, axis: int) -> Size:
        """Coordinate ``axis`` of the result."""
        return self.over(f"i{axis}", self.out[axis])

    def shape(self, operand: int) -> Sizes:
        found = self.shapes[operand]
        assert found is not None
        return found

    def has(self, operand: int) -> bool:
        return operand < len(self.shapes) and self.shapes[operand] is not None

    def touch(self, operand: int, index: Sizes, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        self.touches.append(Touch(operand, tuple(index), tuple(before), tuple(after)))

    def broadcast(self, operand: int, coordinates: Sizes) -> None:
        """NumPy broadcasting: aligned at the last axis, an axis of size 1 is read at 0."""
        shape = self.shape(operand)
        aligned = list(coordinates)[len(coordinates) - len(shape) :]
        self.touch(operand, [0 if isinstance(d, int) and d == 1 else c for d, c in zip(shape, aligned, strict=True)])


def _coordinates(s: Space) -> list[Size]:
    return [s.i(a) for a in range(len(s.out))]


def elementwise(s: Space) -> None:
    for operand in range(len(s.shapes)):
        if s.has(operand):
            s.broadcast(operand, _coordinates(s))


def whole(s: Space) -> None:
    """Every element of every operand; indices found at run time are checked by the engine, not here."""
    for operand in range(len(s.shapes)):
        if s.has(operand):
            s.touch(operand, [s.over(f"x{operand}.{a}", d) for a, d in enumerate(s.shape(operand))])


def _window(s: Space, kernel: Sizes, channel: Size) -> None:
    """Windows over the spatial axes of operand 0. With ``ceil_mode`` the last may overhang by less than a stride."""
    op, n = s.op, len(kernel)
    strides, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    slack = [st - 1 if op.has("ceil_mode") and op.attr("ceil_mode") else 0 for st in strides]
    taps = [s.over(f"k{a}", kernel[a]) for a in range(n)]
    index = [s.i(a + 2) * strides[a] + taps[a] * dilations[a] - pads[a] for a in range(n)]
    after = [pads[n + a] + slack[a] for a in range(n)]
    s.touch(0, [s.i(0), channel, *index], [0, 0, *pads[:n]], [0, 0, *after])


def _grouped(s: Space, inner: Size) -> Size:
    """Input channel: group times channels of a group, plus channel in the group."""
    group = s.op.int_("group") if s.op.has("group") else 1
    return s.over("g", group) * inner + s.over("c", inner)


def conv(s: Space) -> None:
    w = s.shape(1)
    _window(s, w[2:], _grouped(s, w[1]))
    s.touch(1, [s.i(1), s.over("c", w[1]), *(s.over(f"k{a}", k) for a, k in enumerate(w[2:]))])
    if s.has(2) and s.op.kind == "conv":
        s.touch(2, [s.i(1)])


def conv_transpose(s: Space) -> None:
    """From input to result: element j and tap k reach j * stride + k * dilation - pad; pads are cut off."""
    op, x, w = s.op, s.shape(0), s.shape(1)
    n, group = len(w) - 2, s.op.int_("group")
    strides, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    cells = [s.over(f"j{a}", x[a + 2]) for a in range(n)]
    taps = [s.over(f"k{a}", w[a + 2]) for a in range(n)]
    inner = x[1] // group
    g, c, m = s.over("g", group), s.over("c", inner), s.over("m", w[1])
    batch = s.over("b", x[0])
    s.touch(0, [batch, g * inner + c, *cells])
    s.touch(1, [g * inner + c, m, *taps])
    reached = [cells[a] * strides[a] + taps[a] * dilations[a] - pads[a] for a in range(n)]
    s.touch(RESULT, [batch, g * w[1] + m, *reached], [0, 0, *pads[:n]], [0, 0, *pads[n:]])
    for a, extra in enumerate(op.ints("output_padding")):
        full = strides[a] * (x[a + 2] - 1) + (w[a + 2] - 1) * dilations[a] + 1 + extra
        s.equalities.append((full - pads[a] - pads[n + a], s.out[a + 2]))
    if s.has(2):
        s.touch(2, [s.i(1)])


def pool(s: Space) -> None:
    _window(s, s.op.ints("kernel"), s.i(1))


def global_pool(s: Space) -> None:
    s.touch(0, [s.i(0), s.i(1), *(s.over(f"k{a}", d) for a, d in enumerate(s.shape(0)[2:]))])


def gemm(s: Space) -> None:
    a, b = s.shape(0), s.shape(1)
    flip_a, flip_b = bool(s.op.attr("trans_a")), bool(s.op.attr("trans_b"))
    k = s.over("k", a[0] if flip_a else a[1])
    s.equalities.append((a[0] if flip_a else a[1], b[1] if flip_b else b[0]))
    s.touch(0, [k, s.i(0)] if flip_a else [s.i(0), k])
    s.touch(1, [s.i(1), k] if flip_b else [k, s.i(1)])
    if s.has(2):
        s.broadcast(2, _coordinates(s))


def matmul(s: Space) -> None:
    a, b = s.shape(0), s.shape(1)
    k = s.over("k", a[-1])
    s.equalities.append((a[-1], b[-2] if len(b) > 1 else b[0]))
    outer = len(s.out) - (len(a) > 1) - (len(b) > 1)
    batch = [s.i(n) for n in range(outer)]
    row = [s.i(outer)] if len(a) > 1 else []
    column = [s.i(len(s.out) - 1)] if len(b) > 1 else []
    s.broadcast(0, [*batch, *row, k])
    s.broadcast(1, [*batch, k, *column] if len(b) > 1 else [k])


def along_axis(s: Space) -> None:
    """The whole line along ``axis`` for each element of the result."""
    x, axis = s.shape(0), s.op.int_("axis")
    dropped = len(s.out) < len(x)
    index: list[Size] = []
    for a, size in enumerate(x):
        index.append(s.over("k", size) if a == axis else s.i(a - (dropped and a > axis)))
    s.touch(0, index)


def reduction(s: Space) -> None:
    x, axes, keep = s.shape(0), s.op.ints("axes"), bool(s.op.attr("keepdims"))
    rest = iter(range(len(s.out)) if not keep else [a for a in range(len(x)) if a not in axes])
    s.touch(0, [s.over(f"k{a}", d) if a in axes else s.i(next(rest)) for a, d in enumerate(x)])


def per_channel(s: Space) -> None:
    """Statistics over anything of one sample; parameters by channel."""
    x = s.shape(0)
    s.touch(0, [s.i(0), *(s.over(f"k{a}", d) for a, d in enumerate(x[1:]))])
    s.touch(RESULT, [s.over(f"y{a}", d) for a, d in enumerate(x)])
    for operand in range(1, len(s.shapes)):
        if s.has(operand):
            s.touch(operand, [s.i(1)])


def affine(s: Space) -> None:
    """x, and a factor and a summand per channel."""
    s.touch(0, _coordinates(s))
    s.touch(1, [s.i(1)])
    s.touch(2, [s.i(1)])


def layer_normalization(s: Space) -> None:
    axis, x = s.op.int_("axis"), s.shape(0)
    s.touch(0, [*(s.i(a) for a in range(axis)), *(s.over(f"k{a}", d) for a, d in enumerate(x[axis:]))])
    for operand in range(1, len(s.shapes)):
        if s.has(operand):
            s.touch(operand, [s.i(a) for a in range(axis, len(x))])


def concat(s: Space) -> None:
    """Each operand is copied to the result from where the one before ends; together they fill it."""
    axis = s.op.int_("axis")
    start: Size = 0
    for operand in range(len(s.shapes)):
        cells = [s.over(f"x{operand}.{a}", d) for a, d in enumerate(s.shape(operand))]
        s.touch(operand, cells)
        s.touch(RESULT, [start + c if a == axis else c for a, c in enumerate(cells)])
        start = start + s.shape(operand)[axis]
    s.equalities.append((start, s.out[axis]))


def pad(s: Space) -> None:
    """The operand lands in the result behind the first pads; mirrored positions lie inside the operand."""
    x, pads, mode = s.shape(0), s.op.ints("pads"), s.op.str_("mode")
    n = len(x)
    cells = [s.over(f"x{a}", d) for a, d in enumerate(x)]
    s.touch(RESULT, [c + pads[a] for a, c in enumerate(cells)])
    for a, size in enumerate(x):
        s.equalities.append((pads[a] + size + pads[n + a], s.out[a]))
        for side, width in (("b", pads[a]), ("e", pads[n + a])):
            if not width or mode == "constant":
                continue
            t = s.over(f"{side}{a}", width)
            mirrored = width - t if side == "b" else size - 2 - t
            at: Size = mirrored if mode == "reflect" else 0 if side == "b" or mode == "wrap" else size - 1
            s.touch(0, [at if other == a else c for other, c in enumerate(cells)])


def slice_(s: Space) -> None:
    starts, steps = s.op.extents("starts"), s.op.ints("steps")
    s.touch(0, [b + s.i(a) * step for a, (b, step) in enumerate(zip(starts, steps, strict=True))])


def transpose(s: Space) -> None:
    index: list[Size] = [0] * len(s.out)
    for n, axis in enumerate(s.op.ints("perm")):
        index[axis] = s.i(n)
    s.touch(0, index)


def reshape(s: Space) -> None:
    """Row-major order stays, so equal numbers of elements are all there is to it."""
    s.equalities.append((product(s.shape(0)), product(s.out)))


def expand(s: Space) -> None:
    s.broadcast(0, _coordinates(s))


def recurrent(s: Space) -> None:
    """x (T, B, I), w (G·H, I), r (G·H, H), [b (2·G·H)], [h0 (B, H)], [c0 (B, H)], [p (3·H)]."""
    gates, x = GATES[s.op.kind], s.shape(0)
    hidden = s.out[2]
    t, b, h, i = s.i(0), s.i(1), s.i(2), s.over("x", x[2])
    row = s.over("gate", gates) * hidden + h
    indices: list[Sizes] = [[t, b, i], [row, i], [row, s.over("h", hidden)]]
    indices += [[s.over("half", 2) * (gates * hidden) + row], [b, h], [b, h], [s.over("peep", 3) * hidden + h]]
    for operand, index in enumerate(indices):
        if s.has(operand):
            s.touch(operand, index)


def steps(s: Space) -> None:
    """The recurrence alone: g (T, B, G·H), r (H, G·H), b (G·H), [rb (H)], [h0 (B, H)], [c0 (B, H)], [p (3·H)]."""
    gates, hidden = GATES[STEPS[s.op.kind]], s.out[2]
    t, b, h = s.i(0), s.i(1), s.i(2)
    row = s.over("gate", gates) * hidden + h
    indices: list[Sizes] = [[t, b, row], [s.over("h", hidden), row], [row], [h], [b, h], [b, h]]
    indices.append([s.over("peep", 3) * hidden + h])
    for operand, index in enumerate(indices):
        if s.has(operand):
            s.touch(operand, index)


def gather(s: Space) -> None:
    """The position along ``axis`` is a run-time value that the engine checks."""
    x, axis, depth = s.shape(0), s.op.int_("axis"), len(s.shape(1))
    s.touch(1, [s.i(axis + n) for n in range(depth)])
    found = s.over("found", x[axis])
    s.touch(0, [*(s.i(a) for a in range(axis)), found, *(s.i(a + depth - 1) for a in range(axis + 1, len(x)))])


def gather_elements(s: Space) -> None:
    axis = s.op.int_("axis")
    s.touch(1, _coordinates(s))
    s.touch(0, [s.over("found", s.shape(0)[axis]) if a == axis else c for a, c in enumerate(_coordinates(s))])


def _table() -> dict[str, Callable[[Space], None]]:
    rows: dict[str, Callable[[Space], None]] = {
        "conv": conv,
        "conv_integer": conv,
        "conv_transpose": conv_transpose,
        "global_average_pool": global_pool,
        "global_max_pool": global_pool,
        "gemm": gemm,
        "matmul": matmul,
        "matmul_integer": matmul,
        "layer_normalization": layer_normalization,
        "rms_normalization": layer_normalization,
        "affine": affine,
        "resize": whole,  # positions are cut to the input when the tables are made
        "concat": concat,
        "pad": pad,
        "slice": slice_,
        "transpose": transpose,
        "reshape": reshape,
        "expand": expand,
        "gather": gather,
        "gather_elements": gather_elements,
    }
    groups: Mapping[str, Callable[[Space], None]] = {
        "sigmoid tanh erf exp log hard_swish softplus leaky_relu elu hard_sigmoid relu neg abs sqrt reciprocal"
        " floor ceil add sub mul div min max pow prelu gelu clip cast where equal less less_or_equal greater"
        " greater_or_equal logical_and logical_or logical_xor logical_not quantize dequantize sin cos tan asin acos"
        " atan sinh cosh asinh acosh atanh round sign mod is_nan is_inf bit_and bit_or bit_xor bit_not shift_left"
        " shift_right copy relayout": elementwise,
        "max_pool average_pool max_pool_indices": pool,
        "softmax log_softmax hardmax arg_max arg_min cum_sum cum_prod": along_axis,
        "batch_normalization instance_normalization group_normalization": per_channel,
        "reduce_mean reduce_sum reduce_max reduce_min reduce_prod": reduction,
        "lstm gru rnn": recurrent,
        "lstm_steps gru_steps rnn_steps": steps,
        "checked by_axes gather_nd scatter_elements scatter_nd tensor_scatter topk_indices nonzero count_nonzero"
        " grid_sample roi_align max_roi_pool deform_sample resize_by"
        " sort_rows compact non_max_suppression slice_at pad_by range col2im tree_ensemble multinomial": whole,
    }
    for kinds, rule in groups.items():
        rows.update(dict.fromkeys(kinds.split(), rule))
    return rows


READS: Final[dict[str, Callable[[Space], None]]] = _table()
"""Operation kind -> description. A kind that is missing is not proved (``access.py`` reports it)."""


def describe(op: Op, operands: Sequence[TensorType | None]) -> Space | None:
    """What ``op`` touches; ``None`` for a kind without description."""
    rule = READS.get(op.kind)
    if rule is None:
        return None
    space = Space(op, [None if t is None else t.extents for t in operands], op.out.extents)
    rule(space)
    return space
