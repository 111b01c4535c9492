"""The two other parsers of the exported text, one-operation models, and a way to run an exported module."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, linalg, math, tensor
from xdsl.parser import Parser

Array = npt.NDArray[Any]
OPT, RUNNER = (shutil.which(name) for name in ("mlir-opt-16", "mlir-cpu-runner-16"))
ABSENT = "mlir-opt-16 and mlir-cpu-runner-16 are not installed (Debian: apt-get install mlir-16-tools)"
TO_LLVM = (
    "builtin.module(func.func(empty-tensor-to-alloc-tensor),one-shot-bufferize{bufferize-function-boundaries "
    "allow-return-allocs function-boundary-type-conversion=identity-layout-map},func.func(convert-linalg-to-loops,"
    "lower-affine,convert-scf-to-cf),convert-math-to-llvm,convert-math-to-libm,expand-strided-metadata,lower-affine,"
    "convert-arith-to-llvm,convert-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
)
EMIT = """#include <stdint.h>
#include <stdio.h>
#include <string.h>
void cuvil_emit(float *base, float *data, int64_t offset, int64_t size, int64_t stride) {
    (void)base;
    for (int64_t i = 0; i < size; i++) printf("%.9g\\n", (double)data[offset + i * stride]);
    fflush(stdout);
}
struct any { int64_t rank; int64_t *descriptor; };
/* What lowered copies of parts call: element by element, sizes and strides as in MLIR's ranked descriptors. */
void memrefCopy(int64_t size, const struct any *from, const struct any *to) {
    int64_t rank = from->rank, at[8] = {0}, *f = from->descriptor, *t = to->descriptor;
    for (;;) {
        int64_t a = f[2], b = t[2];
        for (int64_t i = 0; i < rank; i++) a += at[i] * f[3 + rank + i], b += at[i] * t[3 + rank + i];
        memcpy((char *)t[1] + b * size, (char *)f[1] + a * size, (size_t)size);
        int64_t axis = rank - 1;
        while (axis >= 0 && ++at[axis] == f[3 + axis]) at[axis--] = 0;
        if (axis < 0) return;
    }
}
"""


def parse_with_xdsl(text: str) -> builtin.ModuleOp:
    """Parse and verify, knowing six dialects and nothing else."""
    context = Context()
    for dialect in (builtin.Builtin, func.Func, arith.Arith, linalg.Linalg, tensor.Tensor, math.Math):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    module.verify()
    return module


def mlir_opt(text: str, pipeline: str = "builtin.module()") -> str:
    """What mlir-opt-16 makes of ``text``; its complaint fails the test."""
    assert OPT is not None
    done = subprocess.run([OPT, f"--pass-pipeline={pipeline}"], input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


def tensor_type(dims: tuple[int, ...]) -> str:
    return f"tensor<{''.join(f'{d}x' for d in dims)}f32>"


def literal(array: Array) -> str:
    """``dense<...>`` with every float as its bits."""

    def nested(part: Array) -> str:
        return f"0x{int(part):08X}" if part.ndim == 0 else "[" + ", ".join(map(nested, part)) + "]"

    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32).reshape(array.shape)
    return f"dense<{nested(bits)}> : {tensor_type(array.shape)}"


def run_with_mlir(text: str, inputs: list[Array], out: tuple[int, ...], folder: Path) -> Array:
    """Lower to LLVM with mlir-opt-16 and run with mlir-cpu-runner-16; one float32 result of shape ``out``."""
    assert RUNNER is not None
    library = folder / "emit.so"
    if not library.exists():
        (folder / "emit.c").write_text(EMIT)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "emit.c"], check=True)
    types = ", ".join(tensor_type(a.shape) for a in inputs)
    result, size = tensor_type(out), int(np.prod(out))
    names = ", ".join(f"%a{i}" for i in range(len(inputs)))
    flat = f"tensor<{size}xf32>"
    if len(out) == 1:
        joint = "%r"
    else:
        how = "tensor.collapse_shape" if out else "tensor.expand_shape"
        joint, axes = "%f", [list(range(len(out)))] if out else []
    joined = "\n    ".join(f"%a{i} = arith.constant {literal(array)}" for i, array in enumerate(inputs))
    driver = f"""  func.func private @cuvil_emit({flat})
  func.func @main() {{
    {joined}
    %r = func.call @model({names}) : ({types}) -> {result}
    {"" if joint == "%r" else f"%f = {how} %r {axes} : {result} into {flat}"}
    func.call @cuvil_emit({joint}) : ({flat}) -> ()
    func.return
  }}
}}
"""
    whole = re.sub(r"}\n$", "", text.replace("func.func @main(", "func.func @model(")) + driver
    lowered = mlir_opt(whole, TO_LLVM)
    command = [RUNNER, "-e", "main", "-entry-point-result=void", f"-shared-libs={library}"]
    done = subprocess.run(command, input=lowered, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:2000]
    return np.array([float(line) for line in done.stdout.split()], dtype=np.float32).reshape(out)


def one_op(op: str, shapes: list[tuple[int, ...]], constants: list[Array] | None = None, **attrs: Any) -> bytes:
    """A model of one node: inputs ``x0``, ``x1``, ... of ``shapes`` (``(0,)``: left out), then constants."""
    names = [f"x{i}" if shape != (0,) else "" for i, shape in enumerate(shapes)]
    weights = [numpy_helper.from_array(np.asarray(c), f"c{i}") for i, c in enumerate(constants or [])]
    node = helper.make_node(op, [*names, *(w.name for w in weights)], ["y"], name=f"the {op}", **attrs)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True) if n]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", inputs, [output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


def weights(*shape: int, seed: int = 7) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) / 3).astype(np.float32)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


IMAGE = (1, 4, 7, 6)
CASES: dict[str, bytes] = {
    **{
        op.lower(): one_op(op, [(2, 3, 4)])
        for op in ("Relu Sigmoid Tanh Erf Exp Neg Abs Floor Ceil HardSwish Softplus LeakyRelu Elu HardSigmoid"
                   " Reciprocal").split()
    },
    "sqrt": one_op("Sqrt", [(5,)]),
    "log": one_op("Log", [(5,)]),
    **{op.lower(): one_op(op, [(2, 3, 4), (3, 1)]) for op in "Add Sub Mul Div Min Max".split()},
    "add two ways": one_op("Add", [(2, 1, 4), (3, 1)]),
    "mul scalar": one_op("Mul", [(2, 3)], [np.float32(2.5)]),
    "prelu": one_op("PRelu", [(2, 3, 4)], [weights(3, 1)]),
    "clip": one_op("Clip", [(2, 3)], [np.float32(-0.25), np.float32(0.5)]),
    "conv 1d": one_op("Conv", [(2, 3, 9)], [weights(5, 3, 4), weights(5)], pads=[2, 1], dilations=[2]),
    "conv 2d": one_op("Conv", [IMAGE], [weights(6, 4, 3, 2), weights(6)], pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv 3d": one_op("Conv", [(1, 2, 4, 5, 4)], [weights(3, 2, 2, 3, 2)], pads=[0, 1, 0, 1, 1, 0]),
    "conv grouped": one_op("Conv", [IMAGE], [weights(6, 2, 3, 3), weights(6)], group=2, pads=[1] * 4),
    "conv depthwise": one_op("Conv", [IMAGE], [weights(4, 1, 3, 3)], group=4, strides=[2, 2]),
    "conv_transpose": one_op("ConvTranspose", [IMAGE], [weights(4, 3, 3, 2), weights(3)], strides=[2, 3],
                             pads=[1, 0, 0, 1], output_padding=[1, 0]),
    "conv_transpose grouped": one_op("ConvTranspose", [IMAGE], [weights(4, 3, 2, 2)], group=2, dilations=[2, 1]),
    "conv_transpose wide pads": one_op("ConvTranspose", [IMAGE], [weights(4, 3, 2, 2)], pads=[2, 2, 1, 2]),
    "matmul": one_op("MatMul", [(5, 7), (7, 3)]),
    "matmul batch": one_op("MatMul", [(2, 1, 5, 7), (3, 7, 4)]),
    "matmul vector": one_op("MatMul", [(7,), (2, 7, 4)]),
    "matmul column": one_op("MatMul", [(2, 5, 7), (7,)]),
    "gemm": one_op("Gemm", [(5, 7)], [weights(7, 3), weights(3)]),
    "gemm transposed": one_op("Gemm", [(7, 5)], [weights(3, 7), weights(5, 1)], transA=1, transB=1, alpha=0.5,
                              beta=2.0),
    "max_pool": one_op("MaxPool", [IMAGE], kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2], ceil_mode=1),
    "average_pool": one_op("AveragePool", [IMAGE], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
    "average_pool all": one_op("AveragePool", [IMAGE], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1),
    "global_average_pool": one_op("GlobalAveragePool", [IMAGE]),
    "global_max_pool": one_op("GlobalMaxPool", [IMAGE]),
    "reduce_mean": one_op("ReduceMean", [(2, 3, 4)], [ints(0, 2)], keepdims=0),
    "reduce_sum": one_op("ReduceSum", [(2, 3, 4)], [ints(1)], keepdims=1),
    "reduce_max": one_op("ReduceMax", [(2, 3, 4)], [ints(2)], keepdims=0),
    "reduce_min all": one_op("ReduceMin", [(2, 3, 4)], [ints(0, 1, 2)], keepdims=0),
    "softmax": one_op("Softmax", [(2, 3, 4)], axis=1),
    "log_softmax": one_op("LogSoftmax", [(2, 5)], axis=-1),
    "batch_norm": one_op("BatchNormalization", [IMAGE], [weights(4), weights(4), weights(4), weights(4) ** 2 + 1]),
    "layer_norm": one_op("LayerNormalization", [(2, 3, 4)], [weights(3, 4), weights(3, 4)], axis=1),
    "instance_norm": one_op("InstanceNormalization", [IMAGE], [weights(4), weights(4)]),
    "resize nearest": one_op("Resize", [IMAGE, (0,), (0,)], [ints(1, 4, 5, 13)], mode="nearest"),
    "resize linear": one_op("Resize", [IMAGE, (0,), (0,)], [ints(1, 4, 10, 9)], mode="linear"),
    "transpose": one_op("Transpose", [(2, 3, 4)], perm=[1, 2, 0]),
    "reshape merge": one_op("Reshape", [(2, 3, 4)], [ints(6, 4)]),
    "reshape split": one_op("Reshape", [(6, 4)], [ints(2, 3, 1, 4)]),
    "reshape across": one_op("Reshape", [(3, 4)], [ints(2, 6)]),
    "reshape to scalar": one_op("Reshape", [(1, 1)], [np.zeros(0, np.int64)]),
    "expand": one_op("Expand", [(3, 1)], [ints(2, 3, 4)]),
    "concat": one_op("Concat", [(2, 3), (2, 1), (2, 4)], axis=1),
    "pad": one_op("Pad", [(2, 3)], [ints(1, 0, 0, 2), np.float32(1.5)]),
    "pad reflect": one_op("Pad", [(4, 3)], [ints(3, 1, 2, 2)], mode="reflect"),
    "pad edge": one_op("Pad", [(2, 3)], [ints(1, 4, 3, 0)], mode="edge"),
    "slice": one_op("Slice", [(5, 6)], [ints(1, 0), ints(5, 6), ints(0, 1), ints(2, 3)]),
    "slice backwards": one_op("Slice", [(5, 6)], [ints(4, 5), ints(-6, 0), ints(0, 1), ints(-1, -2)]),
}  # fmt: skip
"""What has a linalg form, each compared with onnx.reference where the tools are there."""
