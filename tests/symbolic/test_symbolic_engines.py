"""One engine for every declared size: the bits of the static engine at that size and of the reference; refusals."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

from compiler_kernels.compile import Frozen, compile_model, freeze_model
from compiler_kernels.engine import Engine, load_engine
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import Policy, load_policy
from evidence.reference import ReferenceError, RefGraph, load_graph, run

Array = npt.NDArray[Any]

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 2, height, 12] image) => (float[batch, 2, height, 12] mask, float[batch, r] pooled)
<float[6, 2, 3, 3] w1, float[6] b1, float[8, 6, 3, 3] w2, float[8, 4, 2, 2] wt, float[2, 6, 1, 1] w3, float[8, 5] g> {
  a0 = Conv <pads = [1, 1, 1, 1]> (image, w1, b1)
  a = Relu (a0)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
  c = Conv <pads = [1, 1, 1, 1]> (p, w2)
  u = ConvTranspose <strides = [2, 2]> (c, wt)
  s = Softmax <axis = 2> (u)
  two = Constant <value = int64[4] {0, 0, 0, 0}> ()
  starts = Constant <value = int64[1] {0}> ()
  ends = Constant <value = int64[1] {2}> ()
  one = Constant <value = int64[1] {1}> ()
  part = Slice (a, starts, ends, one)
  joined = Concat <axis = 1> (part, s)
  m = Conv (joined, w3)
  mask = Sigmoid (m)
  mean = GlobalAveragePool (c)
  flat = Flatten (mean)
  pooled = MatMul (flat, g)
}"""

TOKENS = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, time, 8] x) => (float[batch, time, 8] y, float[batch, time, 8] z, float[batch, 8] last)
<float[8] scale, float[8] bias, float[8, 8] q, float[1, 16, 8] w, float[1, 16, 8] r> {
  n = LayerNormalization (x, scale, bias)
  k = MatMul (n, q)
  t = Transpose <perm = [0, 2, 1]> (k)
  scores = MatMul (n, t)
  p = Softmax <axis = -1> (scores)
  y = MatMul (p, k)
  d = ReduceMean <axes = [1], keepdims = 1> (y)
  z0 = Sub (y, d)
  z = Erf (z0)
  last = ReduceMax <axes = [1], keepdims = 0> (z)
}"""


def model(text: str, seed: int = 3) -> bytes:
    """A model in ONNX's text form; declared but undefined constants get random values."""
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for info in list(proto.graph.value_info):
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        values = (rng.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, info.name))
    del proto.graph.value_info[:]
    return bytes(proto.SerializeToString())


def policy(shapes: str) -> Policy:
    return load_policy(f'version: 1\nmodel: {{name: net, version: "1"}}\nshapes: {{{shapes}}}\n'.encode(), "p.yaml")


def reference(frozen: Frozen, sizes: Mapping[str, int]) -> RefGraph:
    data = neutral_json(frozen.module.main, symbols_of(frozen.module.meta))
    return load_graph(data, pack(frozen.module.main, frozen.store), sizes)


def check(data: bytes, chosen: Policy, name: str, shapes: Mapping[tuple[int, ...], Mapping[str, int]]) -> Engine:
    engine = load_engine(compile_model(data, policy=chosen))
    frozen = freeze_model(data, policy=chosen)
    for seed, (shape, sizes) in enumerate(shapes.items()):
        x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
        got = engine.run({name: x})
        graph = reference(frozen, sizes)
        bits = run(graph, {name: x}, "ca1")
        for value_id, output in graph.outputs:
            assert got[output].shape == bits[value_id].shape
            assert got[output].tobytes() == bits[value_id].tobytes(), (output, shape)
    return engine


def test_a_convolutional_net_takes_every_size_and_refuses_others() -> None:
    chosen = policy("batch: [1, 3], height: {min: 4, max: 20, multiple: 2}")
    data = model(NET)
    shapes = {(b, 2, h, 12): {"batch": b, "height": h} for b, h in ((1, 4), (2, 10), (3, 20), (1, 18), (3, 4))}
    engine = check(data, chosen, "image", shapes)
    for shape, words in (
        ((1, 2, 5, 12), "height, which must be a multiple of 2 from 4 to 20"),
        ((1, 2, 2, 12), "height, which must be a multiple of 2 from 4 to 20"),
        ((4, 2, 4, 12), "at most"),
        ((1, 2, 4, 11), "axis 3 of input 'image' must be 12"),
        ((2, 4, 12), "at most"),
    ):
        with pytest.raises(UsageError, match=words):
            engine.run({"image": np.zeros(shape, np.float32)})
    # An engine that has refused a size takes the next one as if nothing had been.
    x = np.ones((2, 2, 6, 12), np.float32)
    direct = chosen.numerics.model_copy(update={"winograd": "forbid"})  # symbolic engines have no transforms
    plain = Policy(version=1, model=chosen.model, numerics=direct)
    static = load_engine(compile_model(data, input_shapes={"image": (2, 2, 6, 12)}, policy=plain))
    for name, value in static.run({"image": x}).items():
        assert engine.run({"image": x})[name].tobytes() == value.tobytes()


def test_sums_over_a_symbolic_axis_change_their_leaves_with_the_size() -> None:
    chosen = policy("batch: [1, 2], time: [1, 150]")
    sizes = (1, 7, 15, 16, 17, 64, 65, 150)
    check(model(TOKENS), chosen, "x", {(1 + t % 2, t, 8): {"batch": 1 + t % 2, "time": t} for t in sizes})


def test_the_program_reads_sizes_from_its_files_and_says_what_it_takes(tmp_path: Path) -> None:
    chosen = policy("batch: [1, 3], height: {min: 4, max: 20, multiple: 2}")
    engine = compile_model(model(NET), policy=chosen, kind="bin", output=tmp_path / "engine")
    x = np.random.default_rng(0).standard_normal((2, 2, 8, 12)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [str(engine), "--input", str(tmp_path / "x.npy"), "--output-dir", str(tmp_path / "out")]
    for threads in ("1", "2"):
        done = subprocess.run([*command, "--threads", threads], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        got = np.load(tmp_path / "out" / "mask.npy")
        graph = reference(freeze_model(model(NET), policy=chosen), {"batch": 2, "height": 8})
        assert got.tobytes() == run(graph, {"image": x}, "ca1")[graph.outputs[0][0]].tobytes()
    np.save(tmp_path / "x.npy", x[:, :, :7])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "multiple of 2 from 4 to 20" in done.stderr and "Traceback" not in done.stderr
    said = subprocess.run([str(engine), "--version"], capture_output=True, text=True, check=True).stdout
    assert "at most (3, 2, 20, 12) = (batch, 2, height, 12)" in said
    assert "height from 4 to 20, a multiple of 2" in said
    told = json.loads(subprocess.run([str(engine), "--version", "--json"], capture_output=True, check=True).stdout)
    assert told["symbols"]["height"] == {"min": 4, "max": 20, "multiple": 2}
    assert told["inputs"][0]["axes"] == ["batch", 2, "height", 12] and told["outputs"][1]["axes"] == ["batch", 5]


def test_the_reference_takes_only_declared_sizes() -> None:
    chosen = policy("batch: [1, 3], height: {min: 4, max: 20, multiple: 2}")
    frozen = freeze_model(model(NET), policy=chosen)
    with pytest.raises(ReferenceError, match="'height' is 5"):
        reference(frozen, {"batch": 1, "height": 5})


def test_a_size_that_breaks_a_node_is_refused_with_the_smallest_one() -> None:
    with pytest.raises(UnsupportedError, match="height = 5 breaks node"):
        freeze_model(model(NET), policy=policy("batch: [1, 3], height: [4, 20]"))


COUNTED = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 1, n] x) => (int64[3, k] places, float[batch, 1, m] pooled, float[batch, 1, p] padded) {
  places = NonZero (x)
  pooled = AveragePool <kernel_shape = [2], strides = [2], ceil_mode = 1> (x)
  pads = Constant <value = int64[6] {0, 0, 1, 0, 0, 1}> ()
  padded = Pad <mode = "reflect"> (x, pads)
}"""


def test_sizes_that_the_data_decides_beside_symbols() -> None:
    engine = load_engine(compile_model(model(COUNTED), policy=policy("batch: [1, 3], n: [2, 9]")))
    assert engine.outputs[0].shape == (3, 27) and engine.outputs[0].axes == (3, "batch * n")
    for batch, n in ((1, 2), (3, 9), (2, 5)):
        x = (np.random.default_rng(n).random((batch, 1, n)) > 0.5).astype(np.float32)
        got = engine.run({"x": x})
        np.testing.assert_array_equal(got["places"], np.array(np.nonzero(x)))
        assert got["pooled"].shape == (batch, 1, -(-n // 2))
        np.testing.assert_array_equal(got["padded"], np.pad(x, ((0, 0), (0, 0), (1, 1)), mode="reflect"))


@pytest.mark.parametrize(
    ("text", "bounds", "words"),
    [
        (
            "(float[1, n, 4] b, float[1, 1, n] s) => (int64[k, 3] y) { m = Constant <value = int64[1] {9}> () "
            "y = NonMaxSuppression (b, s, m) }",
            "n: [4, 8]",
            "node 'NonMaxSuppression",
        ),
        (
            "(float[t, 2, n] x, float[1, 3, n] w, float[1, 3, 3] r) => (float[t, 1, 2, 3] y) "
            "{ y, h = RNN <hidden_size = 3> (x, w, r) }",
            "t: [1, 4], n: [1, 30]",
            "operator rnn .*has no kernel for the shapes",
        ),
    ],
    ids=["count", "recurrent width"],
)
def test_what_a_kernel_needs_as_a_number_is_refused_by_name(text: str, bounds: str, words: str) -> None:
    whole = f'<ir_version: 8, opset_import: ["" : 17]> net {text}'
    with pytest.raises(UnsupportedError, match=words):
        compile_model(model(whole), policy=policy(bounds))
