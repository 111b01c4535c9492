"""GPU engines with open sizes, emulated with their own host program: the CPU engine's bits at every size."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from needs import needs_nvcc, no_gpu
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.ir.graph import Graph, Op, TensorType, Value, make_attrs
from compiler_kernels.ir.symbols import Bound, scope
from compiler_kernels.policy import load_policy
from compiler_kernels.targets.cuda.open_batch import at_most
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain.emulator import emulated_driver

CPU, GPU = "x86_64-linux-musl", "cuda-sm_90"
pytestmark = [needs_nvcc, no_gpu]


def network(*sizes: int | str) -> bytes:
    """Convolutions, norms, pools and products on x[sizes]."""
    rng, n = np.random.default_rng(0), helper.make_node
    shapes = {"w": (20, 3, 3, 3), "b": (20,), "w2": (20, 1, 3, 3), "g": (20, 5), "c": (5,)}
    arrays = {k: rng.standard_normal(s) for k, s in shapes.items()} | {k: rng.uniform(0.5, 2, 20) for k in "sdmv"}
    nodes = [
        n("Conv", ["x", "w", "b"], ["a"], pads=[1] * 4), n("BatchNormalization", ["a", *"sdmv"], ["bn"]),
        n("Conv", ["bn", "w2"], ["dw"], group=20, pads=[1] * 4, strides=[2, 2]),
        n("MaxPool", ["dw"], ["mp"], kernel_shape=[2, 2], strides=[2, 2]), n("Sigmoid", ["mp"], ["sg"]),
        n("Mul", ["mp", "sg"], ["sw"]), n("GlobalAveragePool", ["sw"], ["ga"]), n("Flatten", ["ga"], ["fl"]),
        n("Gemm", ["fl", "g", "c"], ["lo"]), n("Softmax", ["lo"], ["p"], axis=1), n("Softmax", ["lo"], ["q"], axis=0),
        n("Transpose", ["sw"], ["map"], perm=[0, 2, 3, 1]),
    ]  # fmt: skip
    values = [
        helper.make_tensor_value_info(v, TensorProto.FLOAT, s)
        for v, s in (("x", sizes), *((o, None) for o in ("p", "q", "map")))
    ]
    constants = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in arrays.items()]
    graph = helper.make_graph(nodes, "open", values[:1], values[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize(
    ("sizes", "bounds", "given"),
    [
        (("N", 3, 16, 20), "{N: [1, 4]}", [(1, 3, 16, 20), (3, 3, 16, 20), (4, 3, 16, 20)]),
        pytest.param(
            ("N", 3, "H", "W"),
            "{N: [1, 2], H: [8, 20], W: [8, 20]}",
            [(1, 3, 8, 9), (2, 3, 20, 20), (2, 3, 17, 11)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_bits_at_every_size(sizes, bounds, given, tmp_path):
    text = f"version: 1\nmodel: {{name: open, version: '1'}}\nshapes: {bounds}\n"
    policy, model = load_policy(text.encode(), "policy.yaml"), network(*sizes)
    files = generate_frozen(freeze_model(model, policy=policy), resolve_target(GPU))
    emulated = emulated_driver(files["kernels.cu"], "sm_90", tmp_path)
    for target in (CPU, GPU):
        compile_model(model, target=target, kind="bin", output=tmp_path / f"{target}.bin", policy=policy)
    for number, shape in enumerate(given):
        np.save(tmp_path / "x.npy", np.random.default_rng(number).standard_normal(shape).astype(np.float32))
        found = []
        for words in ((), emulated):
            engine = tmp_path / f"{GPU if words else CPU}.bin"
            command = [*words, engine, "--input", tmp_path / "x.npy", "--output-dir", tmp_path / "out", "--json"]
            done = subprocess.run([str(w) for w in command], capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr
            found.append({o["name"]: (o["shape"], o["sha3_512"]) for o in json.loads(done.stdout)["outputs"]})
        assert found[0] == found[1] and found[0]["p"][0] == [shape[0], 5]


def function(kind: str, out: tuple[int | str, ...], *operands: tuple[int | str, ...], **attrs) -> Graph:
    values = tuple(Value(f"p{n}", TensorType(shape, "float32")) for n, shape in enumerate(operands))
    op = Op(f"op.{kind}", tuple(v.id for v in values), "t0", TensorType(out, "float32"), make_attrs(attrs))
    return Graph("f", values, (), (op,), ("t0",))


MIXED = {
    "softmax over rows": function("softmax", ("N", 5), ("N", 5), axis=0),
    "a product over rows": function("matmul", (4, 5), (4, "N"), ("N", 5)),
    "rows of the other operand": function("gemm", ("N", 5), (4, "N"), (4, 5), trans_a=True, trans_b=False),
    "a sum over rows": function("reduce_sum", (5,), ("N", 5), axes=(0,), keepdims=False),
    "rows moved": function("transpose", (5, "N"), ("N", 5), perm=(1, 0)),
    "joined rows": function("concat", ("2*N", 5), ("N", 5), ("N", 5), axis=0),
    "two open sizes": function("relu", ("N", "M"), ("N", "M")),
    "no open size": function("relu", (4, 5), (4, 5)),
    "picked rows": function("gather", ("N", 5), ("N", 5), ("N",), axis=0),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED)
def test_what_mixes_rows_stays_open(what):
    with scope({"N": Bound(1, 7), "M": Bound(1, 3)}):
        assert at_most(MIXED[what]) is None


def test_rows_that_stay_apart_are_computed_at_the_most():
    with scope({"N": Bound(1, 7)}):
        found = at_most(function("matmul", ("N", 3, 5), ("N", 3, 4), ("N", 4, 5)))
    assert found is not None and found.ops[0].out.shape == (7, 3, 5) and found.inputs[1].type.shape == (7, 4, 5)
