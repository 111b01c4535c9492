"""If, Loop and Scan as dataflow: bodies are imported in place, run-time decisions become selections.

Every operation is pure and cannot fail, so computing both branches of an If and selecting gives the branch's bits; a
later pass skips what the selection will not read (passes/skip_unselected.py). A loop is unrolled up to its bound; its
iterations share their kernels, because equal statements become one L2 function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.folding import to_array
from compiler_kernels.importers.inline import import_body, subgraph_nodes

MOST_ITERATIONS = 4096
MOST_OPERATIONS = 200_000


def _body(ctx: Context, key: str) -> onnx.GraphProto:
    for attr in ctx.at.proto.attribute:
        if attr.name == key and attr.HasField("g"):
            graph: onnx.GraphProto = attr.g
            return graph
    ctx.at.invalid(f"lacks its graph {key}")


def _run(ctx: Context, graph: onnx.GraphProto, inputs: Sequence[Tensor], label: str) -> list[Tensor]:
    bindings = {i.name: t for i, t in zip(graph.input, inputs, strict=True)}
    bindings |= {t.name: constant(to_array(t), t.name) for t in graph.initializer}
    names = [o.name for o in graph.output]
    if len(ctx.ops) > MOST_OPERATIONS:
        ctx.at.unsupported(f"unrolls to more than {MOST_OPERATIONS} operations")
    return import_body(ctx, subgraph_nodes(ctx, graph), bindings, names, f"{ctx.at.name}/{label}/")


def _truth(ctx: Context, tensor: Tensor, what: str) -> Tensor:
    """``tensor`` as a bool scalar."""
    if tensor.type.dtype != "bool" or (tensor.type.is_static and tensor.type.count != 1):
        ctx.at.invalid(f"has {what} that is not one bool")
    return ctx.reshape(tensor, ())


def _known(tensor: Tensor) -> bool | None:
    return None if tensor.const is None else bool(np.asarray(tensor.const).reshape(-1)[0])


def _select(ctx: Context, condition: Tensor, yes: Tensor, no: Tensor, what: str) -> Tensor:
    if yes is no or (yes.id and yes.id == no.id):
        return yes
    if yes.type.dtype != no.type.dtype or yes.shape != no.shape:
        ctx.at.unsupported(
            f"gives {what} as {yes.type.dtype}{list(yes.shape)} or as {no.type.dtype}{list(no.shape)}, depending on a "
            "run-time value; only one type and shape is compiled"
        )
    return ctx.emit("where", [condition, yes, no])


def if_(ctx: Context) -> None:
    """A constant condition chooses while importing; else both branches are computed and one is selected."""
    condition = _truth(ctx, ctx.tensor(0), "a condition")
    known = _known(condition)
    if known is not None:
        branch = "then_branch" if known else "else_branch"
        for index, tensor in enumerate(_run(ctx, _body(ctx, branch), (), branch)):
            ctx.bind(tensor, index)
        return
    then, then_error = _attempt(ctx, "then_branch")
    other, other_error = _attempt(ctx, "else_branch")
    if then is None or other is None:
        taken, problem = (other, then_error) if then is None else (then, other_error)
        assert problem is not None
        if taken is None:
            raise problem
        _only(ctx, condition, taken, then is not None, problem)
        return
    if len(then) != len(other):
        ctx.at.invalid(f"has branches with {len(then)} and {len(other)} outputs")
    for index, (yes, no) in enumerate(zip(then, other, strict=True)):
        if ctx.used(index):
            ctx.bind(_select(ctx, condition, yes, no, f"output {index}"), index)


def _attempt(ctx: Context, branch: str) -> tuple[list[Tensor] | None, UsageError | UnsupportedError | None]:
    """A branch, or why it cannot be compiled for these shapes (a branch for another input size, say)."""
    begun = len(ctx.ops)
    try:
        return _run(ctx, _body(ctx, branch), (), branch), None
    except (UsageError, UnsupportedError) as error:
        del ctx.ops[begun:]
        return None, error


def _only(
    ctx: Context, condition: Tensor, taken: Sequence[Tensor], value: bool, problem: UsageError | UnsupportedError
) -> None:
    """Compile the one branch that can be; the engine refuses a run whose condition chooses the other."""
    branch = "else" if value else "then"
    message = (
        f"node {ctx.at.name!r} (If) chooses its {branch} branch, which is not compiled for these shapes: {problem}"
    )
    flag = ctx.reshape(ctx.cast(condition, "int64"), (1,))
    for index, tensor in enumerate(taken):
        if ctx.used(index):
            ctx.bind(ctx.emit("checked", [tensor, flag], {"expected": (int(value),), "message": message}), index)


def loop(ctx: Context) -> None:
    """Unrolled: a constant trip count, one that a policy's range bounds, or one that the declared scan outputs fix."""
    body = _body(ctx, "body")
    carried = [ctx.tensor(i) for i in range(2, len(ctx.at.inputs))]
    count = len(carried)
    limit = ctx.optional(0)
    active = _truth(ctx, ctx.tensor(1), "a condition") if ctx.at.has_input(1) else constant(np.array(True))
    if len(body.input) != 2 + count or len(body.output) < 1 + count:
        ctx.at.invalid(
            f"carries {count} values, but its body has {len(body.input)} inputs and {len(body.output)} outputs"
        )
    rows: list[list[Tensor]] = [[] for _ in body.output[1 + count :]]
    bound, exact = _trip_bound(ctx, limit, count, bool(rows))
    runs = constant(np.array(True))  # whether every iteration so far was to run
    for step in range(bound):
        going = active if exact else _and(ctx, active, _below(ctx, step, limit))
        if _known(going) is False:
            break
        index = constant(np.array(step, np.int64), index_like=True)
        results = _run(ctx, body, [index, constant(np.array(True)), *carried], str(step))
        selecting = _known(going) is None and not exact
        if rows and selecting:
            ctx.at.unsupported("stacks an output for each iteration, and their number is only known at run time")
        carried = [
            _select(ctx, going, new, old, f"its carried value {i}") if selecting else new
            for i, (new, old) in enumerate(zip(results[1 : 1 + count], carried, strict=True))
        ]
        for row, value in zip(rows, results[1 + count :], strict=True):
            row.append(value)
        runs = going
        active = _and(ctx, going, _truth(ctx, results[0], "a body condition"))
    done = [*carried, *(_stack(ctx, row, 0, body, 1 + count + i) for i, row in enumerate(rows))]
    if exact:
        done = _exactly(ctx, done, limit, runs, active, bound)
    for output, tensor in enumerate(done):
        if ctx.used(output):
            ctx.bind(tensor, output)


def _below(ctx: Context, step: int, limit: Tensor | None) -> Tensor:
    """Whether the trip count lets iteration ``step`` run."""
    if limit is None or limit.const is not None:
        return constant(np.array(True))
    return ctx.emit("less", [constant(np.array(step, np.int64)), ctx.cast(ctx.reshape(limit, ()), "int64")])


def _exactly(
    ctx: Context, results: list[Tensor], limit: Tensor | None, runs: Tensor, active: Tensor, bound: int
) -> list[Tensor]:
    """The engine refuses a run with another number of iterations than the declared output shape has rows: all of them
    must run, and then the trip count must be reached or the condition be false."""
    reached = constant(np.array(False))
    if limit is not None and limit.const is not None:
        reached = constant(np.array(int(np.asarray(limit.const).reshape(-1)[0]) == bound))
    elif limit is not None:
        reached = ctx.emit(
            "equal", [ctx.cast(ctx.reshape(limit, ()), "int64"), constant(np.array(bound, dtype=np.int64))]
        )
    stops = reached
    if not _known(reached):
        ended = ctx.emit("logical_not", [active]) if active.const is None else constant(~np.asarray(active.const))
        stops = ended if _known(reached) is False else ctx.emit("logical_or", [reached, ended])
    fits = _and(ctx, runs, stops)
    if _known(fits):
        return results
    message = (
        f"node {ctx.at.name!r} (Loop) is compiled for exactly {bound} iterations, as its declared output shape says"
    )
    return [ctx.emit("checked", [t, ctx.reshape(fits, (1,))], {"expected": (1,), "message": message}) for t in results]


def _and(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    for known, other in ((_known(a), b), (_known(b), a)):
        if known is not None:
            return other if known else constant(np.array(False))
    return ctx.emit("logical_and", [a, b])


def _trip_bound(ctx: Context, limit: Tensor | None, carried: int, stacks: bool) -> tuple[int, bool]:
    """Most iterations, and whether exactly so many are compiled because a declared output shape says so."""
    bound: int | None = None
    if limit is not None and limit.const is not None:
        bound = max(0, int(np.asarray(limit.const).reshape(-1)[0]))
    declared = [ctx.declared(i) for i in range(carried, len(ctx.at.outputs))]
    sizes = {t.shape[0] for t in declared if t is not None and t.shape and isinstance(t.shape[0], int)}
    runtime = bound is None or not (ctx.at.has_input(1) is False or _known(ctx.tensor(1)))
    if stacks and runtime and len(sizes) == 1:
        return int(next(iter(sizes))), True
    if bound is None and limit is not None:
        high = ctx.highest.get(limit.id)
        bound = None if high is None else max(0, int(high))
    if bound is None:
        ctx.at.unsupported(
            "runs a number of iterations that only a run-time value decides; give the input that is its trip count a "
            "range in the policy (inputs.NAME.range: [0, MOST]) or make it a constant"
        )
    if bound > MOST_ITERATIONS:
        ctx.at.unsupported(f"runs up to {bound} iterations; at most {MOST_ITERATIONS} are unrolled")
    return bound, False


def _stack(ctx: Context, rows: Sequence[Tensor], axis: int, body: onnx.GraphProto, position: int) -> Tensor:
    """Rows along a new axis."""
    if not rows:
        ctx.at.unsupported(f"stacks nothing into its output {body.output[position].name!r}: it runs no iteration")
    if len({(r.type.dtype, r.shape) for r in rows}) > 1:
        ctx.at.unsupported("stacks values of different shapes")
    axis = axis + rows[0].rank + 1 if axis < 0 else axis
    if all(r.const is not None for r in rows):
        return constant(np.stack([np.asarray(r.const) for r in rows], axis))
    wide = [ctx.reshape(r, (*r.shape[:axis], 1, *r.shape[axis:])) for r in rows]
    return wide[0] if len(wide) == 1 else ctx.emit("concat", wide, {"axis": axis})


def scan(ctx: Context) -> None:
    """Opset 9 on: unrolled over the scanned axis, whose length is static."""
    if ctx.at.version < 9:
        _scan8(ctx)
        return
    body, scanned = _body(ctx, "body"), ctx.at.int_("num_scan_inputs", 1)
    if not 1 <= scanned <= len(ctx.at.inputs):
        ctx.at.invalid(f"scans {scanned} inputs of {len(ctx.at.inputs)}")
    states = [ctx.tensor(i) for i in range(len(ctx.at.inputs) - scanned)]
    sequences = [ctx.tensor(i) for i in range(len(states), len(ctx.at.inputs))]
    outputs = len(body.output) - len(states)
    axes = ctx.at.ints("scan_input_axes", [0] * scanned, scanned)
    reverse = ctx.at.ints("scan_input_directions", [0] * scanned, scanned)
    out_axes = ctx.at.ints("scan_output_axes", [0] * outputs, outputs)
    out_reverse = ctx.at.ints("scan_output_directions", [0] * outputs, outputs)
    states, rows = _scanned(ctx, body, states, sequences, axes, reverse)
    stacked = [
        _stack(ctx, row[::-1] if back else row, axis, body, len(states) + i)
        for i, (row, axis, back) in enumerate(zip(rows, out_axes, out_reverse, strict=True))
    ]
    for index, tensor in enumerate([*states, *stacked]):
        if ctx.used(index):
            ctx.bind(tensor, index)


def _scanned(
    ctx: Context,
    body: onnx.GraphProto,
    states: list[Tensor],
    sequences: Sequence[Tensor],
    axes: Sequence[int],
    reverse: Sequence[int],
    label: str = "",
) -> tuple[list[Tensor], list[list[Tensor]]]:
    places = [a + t.rank if a < 0 else a for a, t in zip(axes, sequences, strict=True)]
    if len(body.input) != len(states) + len(sequences):
        ctx.at.invalid(f"feeds {len(states) + len(sequences)} values to a body with {len(body.input)} inputs")
    if any(not 0 <= a < t.rank for a, t in zip(places, sequences, strict=True)):
        ctx.at.invalid(f"scans along axes {list(axes)}, which its inputs do not have")
    lengths = {t.shape[a] for a, t in zip(places, sequences, strict=True)}
    if len(lengths) != 1:
        ctx.at.invalid(f"scans inputs of different lengths {sorted(lengths)}")
    length, rows = lengths.pop(), [[] for _ in body.output[len(states) :]]  # type: tuple[int, list[list[Tensor]]]
    if length > MOST_ITERATIONS:
        ctx.at.unsupported(f"scans {length} steps; at most {MOST_ITERATIONS} are unrolled")
    for step in range(length):
        parts = [
            _part(ctx, t, a, length - 1 - step if back else step)
            for t, a, back in zip(sequences, places, reverse, strict=True)
        ]
        results = _run(ctx, body, [*states, *parts], f"{label}{step}")
        for old, new in zip(states, results, strict=False):
            if (old.type.dtype, old.shape) != (new.type.dtype, new.shape):
                ctx.at.unsupported(f"changes a state from shape {list(old.shape)} to {list(new.shape)}")
        states = results[: len(states)]
        for row, value in zip(rows, results[len(states) :], strict=True):
            row.append(value)
    return states, rows


def _part(ctx: Context, x: Tensor, axis: int, index: int) -> Tensor:
    """``x`` at ``index`` of ``axis``, without that axis."""
    if x.const is not None:
        return constant(np.take(x.const, index, axis))
    starts, sizes = [0] * x.rank, list(x.shape)
    starts[axis], sizes[axis] = index, 1
    part = ctx.slice(x, starts, [1] * x.rank, sizes)
    return ctx.reshape(part, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _scan8(ctx: Context) -> None:
    """Opset 8: a batch axis comes first, then the scanned axis; sequence lengths are optional."""
    if ctx.at.has_input(0):
        ctx.at.unsupported("has sequence lengths, which are not compiled; convert the model to opset 9 or later")
    body, scanned = _body(ctx, "body"), ctx.at.int_("num_scan_inputs", 1)
    given = [ctx.tensor(i) for i in range(1, len(ctx.at.inputs))]
    if not 1 <= scanned <= len(given):
        ctx.at.invalid(f"scans {scanned} inputs of {len(given)}")
    states, sequences = given[: len(given) - scanned], given[len(given) - scanned :]
    reverse = ctx.at.ints("directions", [0] * scanned, scanned)
    batches = given[0].shape[0]
    ends: list[list[Tensor]] = []
    for batch in range(batches):
        ours = [_part(ctx, t, 0, batch) for t in states]
        parts = [_part(ctx, t, 0, batch) for t in sequences]
        last, rows = _scanned(ctx, body, ours, parts, [0] * scanned, reverse, f"{batch}/")
        ends.append([*last, *(_stack(ctx, row, 0, body, len(last) + i) for i, row in enumerate(rows))])
    for index, columns in enumerate(zip(*ends, strict=True)):
        if ctx.used(index):
            ctx.bind(_stack(ctx, columns, 0, body, index), index)


IMPORTERS: dict[str, Callable[[Context], None]] = {"If": if_, "Loop": loop, "Scan": scan}
