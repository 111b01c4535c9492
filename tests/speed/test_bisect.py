"""bisect: the first node that differs, how much, and why."""

import json

import numpy as np
import onnx
import pytest
import small_models
from onnx import TensorProto, helper

from compiler_kernels.compile import native_target
from compiler_kernels.errors import UsageError
from compiler_kernels.targets.registry import runs_natively
from evidence.bisect import bisect, report
from evidence.bisect_explain import element_terms, explain
from evidence.bisect_systems import subject, system
from evidence.reference import RefNode, run

pytestmark = pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")


@pytest.mark.parametrize(("name", "at"), [("cuvil", 48), ("reference", 0), ("reference", 48), ("reference", 96)])
def test_one_bit_of_one_weight_in_a_hundred_nodes(name, at):
    result = bisect(name, name, small_models.long_chain(100), model_b=small_models.long_chain(100, changed=at))
    found = result.difference
    assert result.nodes == result.compared == 100
    assert (found.node, found.op, found.tensor, found.number) == (f"conv{at}", "conv", f"t{at}", at)
    assert "operand 1, a constant of shape [8, 8, 3, 3], has 1 other value(s), the first at [3, 2, 1, 1]" in found.why
    assert found.index[1] == 3 and 0 < found.count <= 36 and found.absolute > 0 and found.ulp > 0
    assert json.loads(json.dumps(result.to_json()))["difference"]["node"] == f"conv{at}"
    assert f"'conv{at}' (conv)" in "\n".join(report(result))


def test_an_attribute_that_differs_is_named():
    changed = onnx.load_from_string(small_models.long_chain(12))
    node = next(n for n in changed.graph.node if n.name == "relu7")
    node.attribute[0].f = 0.125
    result = bisect("reference", "reference", small_models.long_chain(12), model_b=changed.SerializeToString())
    assert result.difference.node == "relu7" and "other attributes" in result.difference.why


@pytest.mark.parametrize("other", ["reference", "cuvil@scalar", "cuvil@threads=2", "cuvil@aarch64-linux-musl"])
def test_engines_have_equal_bits_at_every_tensor(other):
    try:
        result = bisect("cuvil", other, small_models.long_chain(70))
    except Exception as error:
        if "cannot run here" in str(error):
            pytest.skip(str(error))
        raise
    assert result.difference is None and not result.outputs_differ and result.compared == 70
    assert report(result)[-1] == "every tensor and every output has the same bits"


def test_exposed_and_plain_engines_agree():
    s = subject(small_models.residual())
    x = {"x": np.random.default_rng(4).standard_normal((1, 3, 12, 12)).astype(np.float32)}
    cuvil = system("cuvil")
    assert cuvil.trace(s, x)["p"].tobytes() == cuvil.plain(s, x)["p"].tobytes()
    assert set(cuvil.trace(s, x)) == {"c1", "r1", "c2", "a2", "r2", "c3", "s3", "cat", "m", "g", "f", "z", "p"}


def _all_tensors_close(name):
    s = subject(small_models.residual())
    x = {"x": np.random.default_rng(4).standard_normal((1, 3, 12, 12)).astype(np.float32)}
    exact = system("float64").trace(s, x)
    found = system(name).trace(s, x)
    assert set(found) == set(exact)
    for tensor, value in found.items():
        assert np.allclose(value, exact[tensor], rtol=1e-4, atol=1e-5), tensor


def test_onnxruntime_and_the_order_of_its_sums():
    pytest.importorskip("onnxruntime")
    _all_tensors_close("onnxruntime")
    result = bisect("cuvil", "onnxruntime@opt=off", small_models.residual())
    found = result.difference
    assert found.op == "conv" and "order of a sum of" in found.why and found.absolute < 1e-5
    assert set(found.rms_error) == {"cuvil", "onnxruntime@opt=off"} and max(found.rms_error.values()) < 1e-6
    assert bisect("onnxruntime", "onnxruntime", small_models.residual()).difference is None


def test_torch():
    pytest.importorskip("torch")
    _all_tensors_close("torch")
    result = bisect("torch", "reference", small_models.moves())
    assert result.difference.op in ("layer_normalization", "matmul", "softmax", "tanh") and result.difference.why


def _resize(mode):
    node = helper.make_node(
        "Resize", ["x", "", "scales"], ["y"], "up", mode="linear", coordinate_transformation_mode=mode
    )
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 10, 10])],
        [onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], "<f4"), "scales")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_resize_that_follows_another_coordinate_mode():
    s, other = subject(_resize("half_pixel")), subject(_resize("align_corners"))
    x = np.random.default_rng(5).standard_normal((1, 2, 5, 5)).astype(np.float32)
    (node,) = s.source.nodes
    a = run(s.source, {"x": x}, keep="all")[node.output]
    b = run(other.source, {"x": x}, keep="all")[other.source.nodes[0].output]
    why = explain(node, [x], [0], {"one": a, "two": b})
    assert "one computes half_pixel" in why and "two computes align_corners" in why


def _conv():
    attrs = {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 2]}
    rng = np.random.default_rng(6)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 6, 7, 8), (4, 3, 3, 3), (4,)))
    return RefNode("conv", ("x", "w", "b"), "y", (2, 4, 4, 8), "float32", attrs), [x, w, b]


def test_terms_of_an_element_are_those_of_the_convolution():
    from evidence.reference.arithmetic import ARITHMETICS
    from evidence.reference.interpreter import evaluate

    node, operands = _conv()
    exact = evaluate(ARITHMETICS["float64"], node, [v.astype(np.float64) for v in operands]).reshape(-1)
    for at in range(0, exact.size, 7):
        x, w, bias = element_terms(node, operands, at)
        assert np.sum(x.astype(np.float64) * w) + bias == pytest.approx(exact[at], rel=1e-12, abs=1e-12)


def test_explanations_name_contraction_and_refuse_what_rounding_cannot_do():
    node, operands = _conv()
    chains = {}
    for name, fused in (("fused", True), ("separate", False)):
        values = []
        for at in range(int(np.prod(node.shape))):
            x, w, bias = element_terms(node, operands, at)
            total = np.float32(0)
            for p, q in zip(x, w, strict=True):
                # the product of two binary32 numbers is exact in binary64; one addition in binary64 rounds once more
                total = np.float32(np.longdouble(p) * q + total) if fused else np.float32(total + np.float32(p * q))
            values.append(np.float32(total + np.float32(bias)))
        chains[name] = np.array(values, np.float32).reshape(node.shape)
    wrong = np.flatnonzero(chains["fused"].view(np.uint32) != chains["separate"].view(np.uint32))
    why = explain(node, operands, [int(i) for i in wrong[:6]], chains)
    assert "fused is one chain with fused multiply-add, bias last" in why
    assert "separate is one chain of separate products and additions, bias last" in why
    far = {"fused": chains["fused"], "shifted": chains["fused"] + np.float32(0.1)}
    assert "larger than any order" in explain(node, operands, [0], far)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mxnet", "no system 'mxnet'"),
        ("cuvil@sse", "after cuvil@ stands one of"),
        ("cuvil@threads=x", "give a number of threads"),
        ("onnxruntime@fast", "threads=N or opt=off"),
    ],
)
def test_unknown_systems(name, words):
    with pytest.raises(UsageError, match=words):
        system(name)


def test_models_without_a_common_tensor():
    with pytest.raises(UsageError, match="no tensor of the same name"):
        bisect("reference", "reference", small_models.residual(), model_b=_renamed(small_models.residual()))


def _renamed(data):
    model = onnx.load_from_string(data)
    for node in model.graph.node:
        node.input[:] = [f"{n}_" if n in _made(model) and not n.endswith("_") else n for n in node.input]
    made = _made(model)
    for node in model.graph.node:
        node.output[:] = [f"{n}_" for n in node.output]
    for output in model.graph.output:
        output.name = f"{output.name}_" if output.name in made else output.name
    del model.graph.value_info[:]
    return model.SerializeToString()


def _made(model):
    return {n for node in model.graph.node for n in node.output}
