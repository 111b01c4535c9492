"""If, Loop and Scan: the same outputs as onnxruntime, and the reference's bits, whichever way the decisions go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

from compiler_kernels.compile import compile_model, freeze_model
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import IRError, RefusedError, UnsupportedError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import Policy, load_policy
from compiler_kernels.stages.backend import lower_to_l2
from evidence.reference import load_graph, run

onnxruntime = pytest.importorskip("onnxruntime")
Array = npt.NDArray[Any]
F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
Info = onnx.ValueInfoProto


def info(name: str, kind: int, shape: Sequence[int | str] | None) -> Info:
    return helper.make_tensor_value_info(name, kind, shape)


def body(text: str) -> onnx.GraphProto:
    return onnx.parser.parse_graph(text)


def model(text: str) -> bytes:
    """A model in ONNX's own text form."""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def policy(ranges: Mapping[str, tuple[int, int]]) -> Policy:
    lines = [f"  {name}: {{range: [{low}, {high}]}}\n" for name, (low, high) in ranges.items()]
    return load_policy(f'version: 1\nmodel: {{name: net, version: "1"}}\ninputs:\n{"".join(lines)}'.encode(), "p.yaml")


def check(data: bytes, feeds: Sequence[Mapping[str, Array]], chosen: Policy | None = None) -> None:
    """Engine against onnxruntime at tolerance and against the reference bit by bit."""
    engine = load_engine(compile_model(data, policy=chosen))
    frozen = freeze_model(data, policy=chosen)
    graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for feed in feeds:
        got = engine.run(dict(feed))
        wanted = dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feed)), strict=True))
        bits = run(graph, dict(feed), "ca1")
        for value_id, name in graph.outputs:
            np.testing.assert_allclose(got[name], wanted[name], rtol=1e-5, atol=1e-6)
            assert got[name].tobytes() == bits[value_id].tobytes(), name


IF = """<ir_version: 8, opset_import: ["" : 17]>
net (bool c, float[2, 3] x) => (float[2, 3] y, float[3] z) {
  s = Sigmoid (x)
  y, z = If (c) <
    then_branch = yes () => (float[2, 3] yy, float[3] yz) {
      e = Exp (x)
      yy = Add (e, s)
      axes = Constant <value = int64[1] {0}> ()
      yz = ReduceSum <keepdims = 0> (e, axes)
    },
    else_branch = no () => (float[2, 3] ny, float[3] nz) {
      ny = Identity (x)
      nz = Constant <value = float[3] {1., 2., 3.}> ()
    }>
}"""


def test_both_branches_of_an_if_and_only_the_chosen_one_runs() -> None:
    data = model(IF)
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    check(data, [{"c": np.array(c), "x": x} for c in (True, False)])
    frozen = freeze_model(data)
    module = lower_to_l2(frozen.module, frozen.store)
    skipped = [op for op in module.main.ops if op.has("when")]
    assert {op.node.split("/")[1] for op in skipped if "/" in op.node} == {"then_branch"}
    ops = tuple(op.with_attrs(when=("x",)) if op in skipped else op for op in module.main.ops)
    with pytest.raises(IRError, match="not one bool"):
        verify(replace(module, graphs=(replace(module.main, ops=ops), *module.graphs[1:])))


LOOP = """<ir_version: 8, opset_import: ["" : 17]>
net (int64 n, float[4] x) => (float[4] y) {
  t = Constant <value = bool {1}> ()
  y = Loop (n, t, x) <body = step (int64 i, bool c, float[4] a) => (bool cc, float[4] b) {
    k = Constant <value = float {1.5}> ()
    half = Constant <value = float {0.25}> ()
    p = Mul (a, k)
    f = Cast <to = 1> (i)
    q = Sub (p, f)
    b = Mul (q, half)
    m = ReduceMax <keepdims = 0> (b)
    limit = Constant <value = float {-1.0}> ()
    cc = Greater (m, limit)
  }>
}"""


def test_a_loop_bounded_by_the_policy_stops_at_its_count_and_at_its_condition() -> None:
    x = np.array([3.0, -2.0, 0.5, 7.0], dtype=np.float32)
    feeds = [{"n": np.array(n, np.int64), "x": s * x} for n in (0, 1, 2, 5, 9) for s in (np.float32(1), np.float32(-8))]
    check(model(LOOP), feeds, policy({"n": (0, 9)}))


def test_a_loop_without_a_bound_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"range in the policy"):
        freeze_model(model(LOOP))


def test_a_trip_count_above_the_bound_is_refused_at_run_time() -> None:
    engine = load_engine(compile_model(model(LOOP), policy=policy({"n": (0, 3)})))
    with pytest.raises(RefusedError, match="'n' is refused"):
        engine.run({"n": np.array(4, np.int64), "x": np.zeros(4, np.float32)})


SCAN = """<ir_version: 8, opset_import: ["" : 17]>
net (float[2] start, float[3, 5] x) => (float[2] last, float[5, 2] all) {
  last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_directions = [1],
    body = step (float[2] s, float[3] v) => (float[2] t, float[2] o) {
      axes = Constant <value = int64[1] {0}> ()
      m = ReduceMean <axes = [0], keepdims = 1> (v)
      t = Add (s, m)
      o = Tanh (t)
    }> (start, x)
}"""


def test_scan_along_another_axis_and_backwards() -> None:
    x = np.random.default_rng(3).standard_normal((3, 5)).astype(np.float32)
    check(model(SCAN), [{"start": np.array([1.0, -1.0], np.float32), "x": x}])


NESTED = """<ir_version: 8, opset_import: ["" : 17]>
net (bool a, bool b, float[3] x) => (float[3] y) {
  y = If (a) <
    then_branch = outer () => (float[3] o) {
      e = Exp (x)
      o = If (b) <then_branch = in1 () => (float[3] p) { p = Tanh (e) },
                  else_branch = in2 () => (float[3] q) { l = Log (e)  q = Neg (l) }>
    },
    else_branch = other () => (float[3] r) { r = Abs (x) }>
}"""


def test_nested_decisions() -> None:
    x = np.array([-1.5, 0.25, 2.0], dtype=np.float32)
    feeds = [{"a": np.array(a), "b": np.array(b), "x": x} for a in (True, False) for b in (True, False)]
    check(model(NESTED), feeds)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside this checkout")
def test_a_loop_of_convolutions_with_a_run_time_count() -> None:
    data = (SHARED / "synthetic_loop_if.onnx").read_bytes()
    shaped = onnx.load_model_from_string(data)
    for axis, size in ((2, 12), (3, 20)):
        shaped.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = size
    x = np.random.default_rng(1).standard_normal((1, 1, 12, 20)).astype(np.float32)
    feeds = [{"x": x * s, "n": np.array(n, np.int64)} for n in (0, 3, 5) for s in (np.float32(1e-3), np.float32(1))]
    check(bytes(shaped.SerializeToString()), feeds, policy({"n": (0, 5)}))
