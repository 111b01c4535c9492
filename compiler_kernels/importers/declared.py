"""Shapes that a model declares, carried backwards through operators that keep the shape of their first input.

A run-time input such as axes is determined by the declared shape of its node's result; where the model declares only
what a chain of elementwise operators makes of that result, the shape is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import onnx

from compiler_kernels.importers.node import Node
from compiler_kernels.importers.signature import declared_type
from compiler_kernels.ir.graph import TensorType

KEEPING: Final = frozenset(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh CumSum Dropout Elu Erf Exp "
    "Floor Gelu HardSigmoid HardSwish Hardmax Identity IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax "
    "LpNormalization Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign "
    "Sqrt Swish Tan Tanh ThresholdedRelu Trilu".split()
)
"""Operators whose result has the shape of their first input."""


def stated_types(graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Types of outputs and inner values as the model declares them, by name."""
    found = {info.name: declared_type(info) for info in (*graph.value_info, *graph.output)}
    return {name: ttype for name, ttype in found.items() if ttype is not None}


def carried_back(nodes: Sequence[Node], stated: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """``stated`` and what follows from it for inputs of ``KEEPING``; those have an unknown element type (empty)."""
    known = dict(stated)
    for node in reversed(nodes):
        if node.op not in KEEPING or node.proto.domain not in ("", "ai.onnx") or not node.inputs or not node.outputs:
            continue
        result = known.get(node.outputs[0])
        if result is not None and node.inputs[0] not in known:
            known[node.inputs[0]] = replace(result, dtype="")
    return known
