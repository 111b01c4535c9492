"""LSTM, GRU and RNN: one L0 operation per direction and state, joined as ONNX lays its outputs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.halves import widened
from compiler_kernels.importers.node import f32
from compiler_kernels.importers.sequence_ends import Ends, sequence_ends
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.recurrent_functions import BY_ONNX, DEFAULTS, PARAMETERS, Function, attributes
from compiler_kernels.ir.shapes_recurrent import GATES

DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a node says about all its directions. ``batch_first``: attribute ``layout`` 1. ``functions``: attributes
    that say each direction's activations."""

    kind: str
    reverse: tuple[bool, ...]
    hidden: int
    batch_first: bool
    attrs: dict[str, Attr]
    functions: tuple[dict[str, Attr], ...]


def recurrent(ctx: Context) -> None:
    """Outputs Y (T, D, B, H), Y_h and, of an LSTM, Y_c (D, B, H); batch first with ``layout`` 1.

    Sequence lengths change no recurrence: one that runs forward goes on over the steps behind the end, which are then
    set to zero; one in reverse runs forward over the steps of each sequence in reverse order.
    """
    layer = _layer(ctx)
    x = ctx.tensor(0)
    if x.rank != 3:
        ctx.at.invalid(f"has an input of shape {list(x.shape)} where rank 3 is needed")
    if layer.batch_first:
        x = ctx.transpose(x, (1, 0, 2))
    time, batch = x.shape[:2]
    ends = sequence_ends(ctx, 4, time, batch)
    parts = [_operands(ctx, layer, d, batch) for d in range(len(layer.reverse))]
    states: dict[str, list[Tensor]] = {}

    def sequences(state: str) -> list[Tensor]:
        if state not in states:
            states[state] = [_run(ctx, layer, x, part, state, d, ends) for d, part in enumerate(parts)]
        return states[state]

    if ctx.used(0):
        whole = [ctx.reshape(s, (time, 1, batch, layer.hidden)) for s in sequences("h")]
        y = whole[0] if len(whole) == 1 else ctx.emit("concat", whole, {"axis": 1})
        ctx.bind(ctx.transpose(y, (2, 0, 1, 3)) if layer.batch_first else y)
    for index, state in ((1, "h"), (2, "c")):
        if ctx.used(index):
            ctx.bind(_last(ctx, layer, sequences(state), ends), index)


def _layer(ctx: Context) -> _Layer:
    node, kind = ctx.at, ctx.at.op.lower()
    direction = node.str_("direction", "forward")
    if direction not in DIRECTIONS:
        node.invalid(f"has direction {direction!r}; ONNX defines {', '.join(DIRECTIONS)}")
    reverse = DIRECTIONS[direction]
    if len(ctx.tensor(2).shape) != 3:
        node.invalid(f"has recurrence weights of shape {list(ctx.tensor(2).shape)} where rank 3 is needed")
    hidden = node.int_("hidden_size", ctx.tensor(2).shape[2])
    attrs: dict[str, Attr] = {}
    if "clip" in node.attrs:
        attrs["clip"] = node.float_("clip", 0.0)
    if kind == "lstm":
        attrs["input_forget"] = bool(node.int_("input_forget", 0))
    if kind == "gru":
        attrs["linear_before_reset"] = bool(node.int_("linear_before_reset", 0))
    for index, what, size in ((1, "weights", hidden * GATES[kind]), (2, "recurrence weights", hidden * GATES[kind])):
        shape = ctx.tensor(index).shape
        if len(shape) != 3 or shape[:2] != (len(reverse), size):
            node.invalid(f"has {what} of shape {list(shape)} for {len(reverse)} directions and hidden size {hidden}")
    return _Layer(kind, reverse, hidden, bool(node.int_("layout", 0)), attrs, _activations(ctx, kind, len(reverse)))


def _activations(ctx: Context, kind: str, directions: int) -> tuple[dict[str, Attr], ...]:
    """Per direction. alphas and betas are consumed in order by the functions that have such a parameter."""
    node, names = ctx.at, list(DEFAULTS[kind]) * directions
    given = node.attr("activations")
    if isinstance(given, list | tuple) and given:
        said = [a.decode("utf-8", "replace") if isinstance(a, bytes) else str(a) for a in given]
        unknown = [n for n in said if n.lower() not in BY_ONNX]
        if unknown or len(said) != len(names):
            node.invalid(f"has the activations {said}; it needs {len(names)} of {', '.join(BY_ONNX)}")
        names = [BY_ONNX[n.lower()] for n in said]
    alphas, betas = (_numbers(ctx, key) for key in ("activation_alpha", "activation_beta"))
    found = []
    for name in names:
        alpha, beta = (
            0.0 if default is None else rest.pop(0) if rest else f32(default)
            for default, rest in zip(PARAMETERS[name], (alphas, betas), strict=True)
        )
        found.append(Function(name, alpha, beta))
    count = len(DEFAULTS[kind])
    return tuple(attributes(tuple(found[d * count : (d + 1) * count]), kind) for d in range(directions))


def _numbers(ctx: Context, key: str) -> list[float]:
    found = ctx.at.attr(key)
    if found is None:
        return []
    if not isinstance(found, list | tuple) or not all(isinstance(v, int | float) for v in found):
        ctx.at.invalid(f"has an attribute {key} that is not a list of numbers")
    return [f32(v) for v in found]


def _operands(ctx: Context, layer: _Layer, direction: int, batch: int) -> list[Tensor | None]:
    """w, r, b, h0, c0, p of one direction."""
    found: list[Tensor | None] = [_cut(ctx, ctx.tensor(1), direction), _cut(ctx, ctx.tensor(2), direction)]
    indices = {"lstm": (3, 5, 6, 7), "gru": (3, 5), "rnn": (3, 5)}[layer.kind]
    for index in indices:
        tensor = ctx.optional(index)
        if tensor is not None and index in (5, 6) and layer.batch_first:
            tensor = ctx.transpose(_moved(tensor), (1, 0, 2)) if tensor.const is None else _moved(tensor)
        found.append(None if tensor is None else _cut(ctx, tensor, direction))
    return found


def _moved(tensor: Tensor) -> Tensor:
    return tensor if tensor.const is None else constant(tensor.const.swapaxes(0, 1), tensor.name)


def _cut(ctx: Context, tensor: Tensor, direction: int) -> Tensor:
    """``tensor[direction]``."""
    if tensor.rank < 2 or direction >= tensor.shape[0]:
        ctx.at.invalid(f"has an operand of shape {list(tensor.shape)} for direction {direction}")
    if tensor.const is not None:
        return constant(tensor.const[direction], tensor.name)
    rest = tensor.shape[1:]
    part = ctx.slice(tensor, (direction, *[0] * len(rest)), (1,) * tensor.rank, (1, *rest))
    return ctx.reshape(part, rest)


def _run(
    ctx: Context,
    layer: _Layer,
    x: Tensor,
    part: Sequence[Tensor | None],
    state: str,
    direction: int,
    ends: Ends | None,
) -> Tensor:
    """The states of one direction at the steps of x, (T, B, H); zero behind the end of a sequence."""
    reverse = layer.reverse[direction]
    attrs: dict[str, Attr] = {**layer.attrs, **layer.functions[direction], "reverse": reverse and ends is None}
    if layer.kind == "lstm":
        attrs["state"] = state
    if ends is None:
        return ctx.emit(layer.kind, [x, *part], attrs)
    if not reverse:
        return ends.cut(ctx, ctx.emit(layer.kind, [x, *part], attrs))
    return ends.cut(ctx, ends.mirrored(ctx, ctx.emit(layer.kind, [ends.mirrored(ctx, x), *part], attrs)))


def _last(ctx: Context, layer: _Layer, sequences: Sequence[Tensor], ends: Ends | None) -> Tensor:
    """The state after the last step each direction takes, (D, B, H)."""
    rows = []
    for reverse, sequence in zip(layer.reverse, sequences, strict=True):
        time, batch, hidden = sequence.shape
        if ends is not None and not reverse:
            rows.append(ends.last(ctx, sequence))
        else:
            rows.append(ctx.slice(sequence, (0 if reverse else time - 1, 0, 0), (1, 1, 1), (1, batch, hidden)))
    joined = rows[0] if len(rows) == 1 else ctx.emit("concat", rows, {"axis": 0})
    return ctx.transpose(joined, (1, 0, 2)) if layer.batch_first else joined


IMPORTERS: dict[str, Callable[[Context], None]] = dict.fromkeys(("LSTM", "GRU", "RNN"), widened(recurrent))
