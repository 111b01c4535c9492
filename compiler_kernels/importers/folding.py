"""Evaluation at import time: index arithmetic, and float constants that are only moved, never recomputed.

Float arithmetic on constants stays in the graph for the numerics passes, which record its error. The exception is
arithmetic on sizes (values derived from Shape or Size), where only correctly rounded operations are evaluated, so that
the result does not depend on the machine.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from compiler_kernels.errors import UsageError
from compiler_kernels.importers.context import Array, Context, Tensor, constant
from compiler_kernels.importers.symbolic import fold_sizes, shape_of

LIMIT: Final = 1 << 28
"""Largest constant, in elements, that folding may create."""

MOVES: Final = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile Gather GatherElements GatherND"
    " ScatterND ScatterElements ConstantOfShape Where Cast CastLike Trilu EyeLike DepthToSpace SpaceToDepth".split()
)
EXACT: Final = frozenset(
    "Add Sub Mul Div Sqrt Floor Ceil Round Neg Abs Min Max Mod ReduceMax ReduceMin Equal Less LessOrEqual Greater "
    "GreaterOrEqual IsInf IsNaN".split()
)
"""Correctly rounded in IEEE 754, or exact, so any machine gives the same value."""
RANDOM: Final = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial".split())
_GROWS: Final = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}


def constant_node(ctx: Context) -> Tensor:
    """The value of a Constant node in any of its forms."""
    for key, value in ctx.at.attrs.items():
        if key == "value" and isinstance(value, onnx.TensorProto):
            return constant(to_array(value), ctx.at.outputs[0])
        if key in ("value_float", "value_floats"):
            return constant(np.array(value, dtype=np.float32), ctx.at.outputs[0])
        if key in ("value_int", "value_ints"):
            return constant(np.array(value, dtype=np.int64), ctx.at.outputs[0])
    ctx.at.unsupported("holds a string or sparse constant")


def to_array(proto: onnx.TensorProto) -> Array:
    """NumPy array of an inline tensor; ``UsageError`` naming it where its data contradict its type or shape."""
    try:
        return np.asarray(onnx.numpy_helper.to_array(proto))
    except Exception as error:  # the onnx package raises several types
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"the constant {proto.name!r} is corrupt ({first}); export the model again") from None


def fold(ctx: Context) -> bool:
    """Evaluate the current node if it belongs to import time, bind its outputs, and say whether it did."""
    op = ctx.at.op
    if op == "Constant":
        ctx.bind(constant_node(ctx))
        return True
    if op in ("Shape", "Size") and ctx.tensor(0).count is not None:
        return False
    if op in ("Shape", "Size"):
        ctx.bind(_sizes(ctx))
        return True
    inputs = [ctx.tensor(i) for i in range(len(ctx.at.inputs)) if ctx.at.has_input(i)]
    if any(t.sym is not None for t in inputs):
        return fold_sizes(ctx)
    if any(t.const is None for t in inputs) or op in RANDOM or (not inputs and op != "Range"):
        return False
    if op in ("Squeeze", "Unsqueeze") and ctx.at.version < 13:
        return False  # axes are an attribute, which onnx.reference mishandles; their importer reshapes constants
    index_like = any(t.index_like for t in inputs)
    if op not in MOVES and not (index_like and op in EXACT) and any(_inexact(t) for t in inputs):
        return False
    if ctx.at.proto.domain not in ("", "ai.onnx") or any(a.HasField("g") for a in ctx.at.proto.attribute):
        return False
    results = _evaluate(ctx)
    if op not in MOVES and not index_like and any(r.dtype.kind == "f" for r in results):
        return False
    for index, array in enumerate(results):
        ctx.bind(constant(array, index_like=index_like), index)
    return True


def _inexact(t: Tensor) -> bool:
    return t.const is not None and t.const.dtype.kind not in "iub"


def _sizes(ctx: Context) -> Tensor:
    shape = ctx.tensor(0).shape
    if not ctx.tensor(0).type.is_static:
        return shape_of(ctx)
    if ctx.at.op == "Size":
        return constant(np.array(np.prod(shape, dtype=np.int64), dtype=np.int64), index_like=True)
    picked = shape[ctx.at.int_("start", 0) : ctx.at.int_("end", len(shape))]
    return constant(np.array(picked, dtype=np.int64), index_like=True)


def _evaluate(ctx: Context) -> list[Array]:
    """Run the node in onnx.reference at its own opset; any failure is the model's, named in one sentence."""
    node = ctx.at
    if node.op in _GROWS:
        size = ctx.const_ints(_GROWS[node.op], "its shape")
        first = ctx.tensor(0).const
        base = float(first.size) if node.op == "Tile" and first is not None else 1.0
        if base * float(np.prod([float(s) for s in size])) > LIMIT:
            node.unsupported(f"creates a constant of more than {LIMIT} elements")
    feeds = {name: ctx.tensors[name].const for name in node.inputs if name}
    if node.op == "Range" and all(v is not None and v.size == 1 for v in feeds.values()):
        start, stop, step = (float(np.asarray(feeds[n]).reshape(-1)[0]) for n in node.inputs)
        if step == 0 or (stop - start) / step > LIMIT:
            node.unsupported(f"creates a range of more than {LIMIT} elements")
    try:
        with np.errstate(all="ignore"):
            runner = ReferenceEvaluator(node.proto, opsets={"": node.version})
            results = [np.asarray(r) for r in runner.run(None, feeds)]
    except Exception as error:  # the reference evaluator raises what it pleases
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        node.invalid(f"cannot be evaluated on its constant inputs: {first_line}")
    return results
