"""Random operators with a recorded seed, Dropout, EyeLike: numbers, seeds, refusals."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from elementwise_models import FLOATS, Array, case_of, dtype_of, failures, numbers
from onnx import TensorProto, helper

from compiler_kernels.compile import freeze_model
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.policy import load_policy
from evidence.conformance.cases import Case
from evidence.reference import load_graph, run

M0, M1, W0, W1, MASK = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 in Python's integers."""
    c, (k0, k1) = counter, key
    for _ in range(10):
        p, q = M0 * c[0], M1 * c[2]
        c = (q >> 32) ^ c[1] ^ k0, q & MASK, (p >> 32) ^ c[3] ^ k1, p & MASK
        k0, k1 = (k0 + W0) & MASK, (k1 + W1) & MASK
    return c


def test_philox_has_the_published_answers() -> None:
    """kat_vectors of Random123, philox 4x32 10."""
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((MASK,) * 4, (MASK, MASK)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert philox(*pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def units(count: int, seed: float, word: int = 0, stream: int = 0, key: int | None = None) -> Array:
    """Numbers of 24 bits in [0, 1) as docs/arithmetic.md, section 18, defines them."""
    number = int(np.array(seed, dtype=np.float32).view(np.uint32)) if key is None else key
    words = [philox((i, 0, stream, 0), (number & MASK, number >> 32))[word] for i in range(count)]
    return (np.array(words) >> 8) * 2.0**-24


def test_numbers_of_a_seed() -> None:
    """Exact where the text's formula is exact; to a tolerance where it has functions."""
    u = units(40, 3.0).astype(np.float32)
    spread = np.float32(2.5) - np.float32(-1.0)
    cases: list[Case] = [
        case_of("RandomUniform", {}, u, opset=22, rtol=0.0, shape=[40], seed=3.0),
        case_of("RandomUniform", {}, u * spread + np.float32(-1), opset=22, rtol=0.0, shape=[40], seed=3.0, low=-1.0,
                high=2.5),
    ]  # fmt: skip
    v, w = (units(40, 3.0) + 2.0**-24), units(40, 3.0, word=1)
    normal = 0.5 + 2.0 * np.sqrt(-2 * np.log(v)) * np.cos(2 * math.pi * w)
    for dtype in ("float32", "float16"):
        want = normal.astype(dtype)
        code = helper.np_dtype_to_tensor_dtype(dtype_of(dtype))
        rtol = 2.0**-9 if dtype == "float16" else 1e-5
        cases.append(case_of("RandomNormal", {}, want, opset=22, rtol=rtol, atol=1e-5, shape=[40], seed=3.0, mean=0.5,
                             scale=2.0, dtype=code))  # fmt: skip
    for op in ("RandomUniformLike", "RandomNormalLike"):
        like = numbers(np.random.default_rng(0), (40,), "float32")
        cases.append(case_of(op, {"x": like}, u if "Uniform" in op else ((normal - 0.5) / 2).astype(np.float32),
                             opset=22, rtol=1e-5, atol=1e-5, seed=3.0))  # fmt: skip
    p = np.linspace(0, 1, 40, dtype=np.float32)
    cases.append(case_of("Bernoulli", {"x": p}, (u < p).astype(np.float32), opset=22, seed=3.0))
    logits = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.0001, 0.4999]], dtype=np.float32))
    draws = units(20, 3.0).reshape(2, 10)
    running = np.cumsum(np.exp(logits.astype(np.float64)), axis=1)
    places = (running[:, None, :] > draws[:, :, None] * running[:, None, -1:]).argmax(axis=2)
    for code, kind in ((6, np.int32), (7, np.int64)):
        cases.append(
            case_of("Multinomial", {"x": logits}, places.astype(kind), opset=22, seed=3.0, sample_size=10, dtype=code)
        )
    assert failures(cases) == []


def test_distributions() -> None:
    """Mean, deviation and independence of what the reference draws, at ten deviations of the estimate."""
    count = 20_000
    for dtype in FLOATS:
        code = helper.np_dtype_to_tensor_dtype(dtype_of(dtype))
        shape = {"shape": [count], "seed": 1.0, "dtype": code}
        x = values(random_model([helper.make_node("RandomNormal", [], ["y"], **shape)], code))["y"]
        assert abs(x.mean()) < 10 / math.sqrt(count) and abs(x.std() - 1) < 10 / math.sqrt(2 * count)
        assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 10 / math.sqrt(count)


def random_model(nodes: list[onnx.NodeProto], code: int = TensorProto.FLOAT) -> bytes:
    names = [n.output[0] for n in nodes]
    graph = helper.make_graph(nodes, "g", [], [helper.make_tensor_value_info(n, code, None) for n in names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()


def evaluated(module: Module, store: WeightStore) -> dict[str, Array]:
    graph = load_graph(neutral_json(module.main), pack(module.main, store))
    found = run(graph, {})
    return {
        name: found[i].astype(np.float64) if found[i].dtype.kind == "f" else from_words(found[i])
        for i, name in graph.outputs
    }


def from_words(x: Array) -> Array:
    return x.view(dtype_of("bfloat16")).astype(np.float64)


def values(model: bytes, seed: int | None = None) -> dict[str, Array]:
    module, store = import_onnx(model, filename="m.onnx", random_seed=seed)
    assert parse_module(print_module(module)) == module
    return evaluated(module, store)


def three() -> bytes:
    plain = [helper.make_node("RandomUniform", [], [n], shape=[50], name=n) for n in ("a", "b")]
    return random_model([*plain, helper.make_node("RandomUniform", [], ["c"], shape=[50], seed=9.0)])


def test_seed_of_the_policy() -> None:
    """Nodes without a seed draw from streams of their own; a node's own seed does not depend on the policy."""
    first, again, other = values(three(), 5), values(three(), 5), values(three(), 6)
    assert (first["a"] == units(50, 0, stream=1, key=5)).all()
    assert (first["b"] == units(50, 0, stream=2, key=5)).all()
    assert (first["c"] == units(50, 9.0)).all()
    assert all((first[n] == again[n]).all() for n in first)
    assert (first["a"] != other["a"]).any() and (first["c"] == other["c"]).all()


def test_policy_carries_the_seed() -> None:
    text = 'version: 1\nmodel: {name: m, version: "1"}\nrandom_seed: '
    policy = load_policy(f"{text}4503599627370497\n", "policy.yaml")
    frozen = freeze_model(three(), policy=policy)
    assert (evaluated(frozen.module, frozen.store)["a"] == units(50, 0, stream=1, key=4503599627370497)).all()
    with pytest.raises(UsageError, match="random_seed"):
        load_policy(f"{text}-1\n", "policy.yaml")


def test_no_seed_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match="without a seed; set its attribute seed, or random_seed in the policy"):
        import_onnx(three(), filename="m.onnx")


def dropout(opset: int, x: Array, mask: Array, **kwargs: object) -> Case:
    fixed = kwargs.pop("fixed", {})
    assert isinstance(fixed, dict)
    inputs = ["x", *fixed]
    node = helper.make_node("Dropout", inputs, ["y", "mask"], **kwargs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for n, v in (("y", x), ("mask", mask))],
        [onnx.numpy_helper.from_array(v, n) for n, v in fixed.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return Case(f"dropout_{opset}", "Dropout", model, {"x": x}, {"y": x, "mask": mask}, rtol=0.0, atol=0.0)


def test_dropout_of_inference_and_identity_matrices() -> None:
    x = numbers(np.random.default_rng(2), (3, 4), "float32")
    ones = np.ones((3, 4), dtype=bool)
    no_ratio = {"ratio": np.array(0.0, np.float32), "training": np.array(True)}
    cases = [
        dropout(7, x, ones.astype(np.float32), ratio=0.3),
        dropout(10, x, ones, ratio=0.3),
        dropout(13, x, ones),
        dropout(22, x, ones, fixed=no_ratio),
        dropout(22, x, ones, fixed={**no_ratio, "training": np.array(False)}),
    ]
    for dtype in ("float64", "int32", "bool", "bfloat16"):
        code = helper.np_dtype_to_tensor_dtype(dtype_of(dtype))
        want = np.eye(3, 4, k=1).astype(dtype_of(dtype))
        cases.append(case_of("EyeLike", {"x": x}, want, opset=22, k=1, dtype=code))
    cases.append(case_of("EyeLike", {"x": x}, np.eye(3, 4, dtype=np.float32), opset=9))
    assert failures(cases) == []


def test_training_is_refused() -> None:
    x = np.ones(4, np.float32)
    training = {"ratio": np.array(0.5, np.float32), "training": np.array(True)}
    case = dropout(13, x, np.ones(4, dtype=bool), fixed=training)
    with pytest.raises(UnsupportedError, match="training mode"):
        import_onnx(case.model.SerializeToString(), filename="m.onnx")
