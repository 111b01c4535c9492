"""Matrix products of every form and awkward size: bits of all instruction sets against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_bits import WAYS, compiled, differing, model, tensors
from onnx import helper
from vector_targets import Way

from evidence.vector_engines import Compiled

SIZES = [(1, 1, 1), (1, 7, 5), (1, 600, 130), (2, 64, 33), (3, 65, 16), (5, 3, 100), (15, 130, 47), (29, 72, 32),
         (14, 8, 64), (31, 577, 17)]  # fmt: skip


def _net(name: str, op: str, a: Any, b: Any, c: Any = None, constant: bool = True, **attrs: Any) -> Compiled:
    operands = {"a": a, "b": b} | ({} if c is None else {"c": c})
    fixed = {k: v for k, v in operands.items() if k != "a"} if constant else {}
    given = {k: v for k, v in operands.items() if k not in fixed}
    node = helper.make_node(op, list(operands), ["y"], **attrs)
    return compiled(name, model([node], given, fixed, ["y"]), given)


def products() -> Iterator[Compiled]:
    for seed, (m, k, n) in enumerate(SIZES):
        a, b = tensors(seed, (m, k), special=seed % 3 == 2), tensors(seed + 50, (k, n))
        yield _net(f"matmul_{m}x{k}x{n}", "MatMul", a, b)
        yield _net(f"matmul_dynamic_{m}x{k}x{n}", "MatMul", a, tensors(seed + 50, (k, n), True), constant=False)
    a, b, c = tensors(1, (23, 70)), tensors(2, (70, 37)), tensors(3, (37,))
    yield _net("gemm", "Gemm", a, b, c)
    yield _net("gemm_alpha_beta", "Gemm", a, b, c, alpha=0.3, beta=1.7)
    yield _net("gemm_beta0", "Gemm", a, b, c, beta=0.0)
    yield _net("gemm_trans_b", "Gemm", a, np.ascontiguousarray(b.T), c, transB=1)
    yield _net("gemm_trans_a", "Gemm", np.ascontiguousarray(a.T), b, tensors(4, (23, 1)), transA=1)
    yield _net("gemm_trans_both_dynamic", "Gemm", np.ascontiguousarray(a.T), np.ascontiguousarray(b.T),
               tensors(4, (23, 37)), constant=False, transA=1, transB=1, alpha=-2.0, beta=0.5)  # fmt: skip
    yield _net("matmul_batch_constant", "MatMul", tensors(5, (2, 3, 5, 20)), tensors(6, (20, 18)))
    yield _net("matmul_batch_constants", "MatMul", tensors(5, (2, 3, 5, 20)), tensors(6, (3, 20, 18)))
    yield _net("matmul_batch_broadcast", "MatMul", tensors(5, (2, 1, 5, 20)), tensors(6, (3, 20, 16)), constant=False)
    yield _net("matmul_row", "MatMul", tensors(7, (90,)), tensors(8, (2, 90, 33)), constant=False)
    yield _net("matmul_column", "MatMul", tensors(7, (3, 4, 90)), tensors(8, (90,)))
    yield _net("matmul_dot", "MatMul", tensors(7, (90,)), tensors(8, (90,)), constant=False)


def with_chains() -> Iterator[Compiled]:
    x, w, b = tensors(1, (2, 17, 40)), tensors(2, (40, 50)), tensors(3, (50,))
    add = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["b", "t"], ["u"])]
    for op in ("Relu", "Sigmoid", "Tanh", "Exp", "Softplus", "Floor"):
        nodes = [*add, helper.make_node(op, ["u"], ["y"])]
        yield compiled(op, model(nodes, {"x": x}, {"w": w, "b": b}, ["y"]), {"x": x})
    r = tensors(4, (2, 17, 50), special=True)
    nodes = [*add, helper.make_node("Add", ["r", "u"], ["y"])]
    yield compiled("residual", model(nodes, {"x": x, "r": r}, {"w": w, "b": b}, ["y"]), {"x": x, "r": r})
    column = tensors(5, (17, 1))
    nodes = [*add, helper.make_node("Mul", ["u", "r"], ["y"])]
    yield compiled("column", model(nodes, {"x": x, "r": column}, {"w": w, "b": b}, ["y"]), {"x": x, "r": column})
    norm = {k: tensors(n, (17,)) for n, k in enumerate("gdm", 6)} | {"v": np.abs(tensors(9, (17,)))}
    nodes = [*add, helper.make_node("BatchNormalization", ["u", *norm], ["y"])]
    yield compiled("channels", model(nodes, {"x": x}, {"w": w, "b": b} | norm, ["y"]), {"x": x})
    wide = tensors(10, (2, 17, 3, 40))
    nodes = [add[0], helper.make_node("BatchNormalization", ["t", *norm], ["y"])]
    yield compiled("channels_4d", model(nodes, {"x": wide}, {"w": w} | norm, ["y"]), {"x": wide})
    constants = {"w": w, "b": b, "c": np.float32(1.4142135), "one": np.float32(1), "half": np.float32(0.5)}
    gelu = [
        helper.make_node("Div", ["u", "c"], ["g0"]), helper.make_node("Erf", ["g0"], ["g1"]),
        helper.make_node("Add", ["g1", "one"], ["g2"]), helper.make_node("Mul", ["u", "g2"], ["g3"]),
        helper.make_node("Mul", ["g3", "half"], ["y"]),
    ]  # fmt: skip
    constants = {k: np.asarray(v, dtype=np.float32) for k, v in constants.items()}
    yield compiled("erf_gelu", model([*add, *gelu], {"x": x}, constants, ["y"]), {"x": x})


def attention() -> Iterator[Compiled]:
    """Queries, keys and values cut from one product, with transposes on both sides of the attention's products."""
    for tokens, heads, width in ((19, 3, 16), (33, 2, 20), (16, 1, 64)):
        d = heads * width
        x, w, p = tensors(1, (1, tokens, d)), tensors(2, (d, 3 * d)), tensors(3, (d, d))
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["qkv"]), helper.make_node("Reshape", ["qkv", "s5"], ["r"]),
            helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 3, 1, 4]),
            *(helper.make_node("Gather", ["t", f"i{n}"], [f"p{n}"], axis=0) for n in range(3)),
            helper.make_node("Mul", ["p0", "scale"], ["q"]),
            helper.make_node("Transpose", ["p1"], ["k"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", "k"], ["qk"]), helper.make_node("Softmax", ["qk"], ["a"], axis=-1),
            helper.make_node("MatMul", ["a", "p2"], ["o"]),
            helper.make_node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", ["ot", "s3"], ["or"]), helper.make_node("MatMul", ["or", "p"], ["pp"]),
            helper.make_node("Add", ["x", "pp"], ["y"]),
        ]  # fmt: skip
        constants: dict[str, Any] = {f"i{n}": np.array(n) for n in range(3)}
        constants |= {"s5": np.array([1, tokens, 3, heads, width]), "s3": np.array([1, tokens, d])}
        constants |= {"w": w, "p": p, "scale": np.array(width**-0.5, dtype=np.float32)}
        yield compiled(f"attention_{tokens}_{heads}x{width}", model(nodes, {"x": x}, constants, ["y"]), {"x": x})


def decomposed_block() -> Compiled:
    """What older exporters write: a class token expanded and joined, a layer normalisation of single operations, a
    split of one product into queries, keys and values, and the class token taken out by Gather."""
    d, tokens = 24, 9
    n = helper.make_node
    nodes = [
        n("Expand", ["cls", "one_one_d"], ["token"]), n("Concat", ["token", "x"], ["s"], axis=1),
        n("Add", ["s", "pos"], ["a"]),
        n("ReduceMean", ["a"], ["m"], axes=[-1]), n("Sub", ["a", "m"], ["c"]), n("Pow", ["c", "two"], ["c2"]),
        n("ReduceMean", ["c2"], ["v"], axes=[-1]), n("Add", ["v", "eps"], ["ve"]), n("Sqrt", ["ve"], ["sd"]),
        n("Div", ["c", "sd"], ["u"]), n("Mul", ["u", "g"], ["ug"]), n("Add", ["ug", "b"], ["ln"]),
        n("MatMul", ["ln", "w"], ["qkv"]), n("Split", ["qkv"], ["q", "k", "vv"], axis=-1),
        *(n("Reshape", [i, "heads"], [f"{i}r"]) for i in ("q", "k", "vv")),
        n("Transpose", ["qr"], ["qt"], perm=[0, 2, 1, 3]), n("Transpose", ["kr"], ["kt"], perm=[0, 2, 3, 1]),
        n("Transpose", ["vvr"], ["vt"], perm=[0, 2, 1, 3]),
        n("MatMul", ["qt", "kt"], ["qk"]), n("Mul", ["qk", "scale"], ["qs"]), n("Softmax", ["qs"], ["att"], axis=-1),
        n("MatMul", ["att", "vt"], ["o"]), n("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        n("Reshape", ["ot", "flat"], ["of"]), n("Add", ["a", "of"], ["r"]),
        n("Gather", ["r", "zero"], ["first"], axis=1),
        n("Gemm", ["first", "head", "hb"], ["y"], transB=1),
    ]  # fmt: skip
    constants: dict[str, Any] = {
        "cls": tensors(2, (1, 1, d)), "one_one_d": np.array([1, 1, d]), "pos": tensors(3, (1, tokens + 1, d)),
        "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "g": tensors(4, (d,)), "b": tensors(5, (d,)),
        "w": tensors(6, (d, 3 * d)), "heads": np.array([1, tokens + 1, 3, 8]), "scale": np.array(0.35, np.float32),
        "flat": np.array([1, tokens + 1, d]), "zero": np.array(0), "head": tensors(7, (10, d)), "hb": tensors(8, (10,)),
    }  # fmt: skip
    given = {"x": tensors(1, (1, tokens, d))}
    return compiled("decomposed_block", model(nodes, given, constants, ["y"], 14), given)


@lru_cache
def nets() -> tuple[Compiled, ...]:
    return (*products(), *with_chains(), *attention(), decomposed_block())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits_of_products(way: Way, tmp_path: Path) -> None:
    assert differing(nets(), way, tmp_path) == {}


def test_no_move_is_left_in_attention() -> None:
    """Slices and transposes around the two products are read and written through."""
    net = next(n for n in nets() if n.name == "attention_19_3x16")
    for function in net.module.graphs[1:]:
        kinds = [op.kind for op in function.ops]
        assert set(kinds) - {"transpose", "slice", "reshape"}, kinds
    assert sum(op.name.startswith("call.") for op in net.module.main.ops) <= 7
