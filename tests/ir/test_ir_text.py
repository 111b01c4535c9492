"""Text form: any module reads back equal, and any text is a module or one IRError."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.errors import IRError
from compiler_kernels.ir.graph import (
    DTYPE_BYTES,
    LEVELS,
    Attr,
    Graph,
    Module,
    Op,
    TensorType,
    Value,
    Weight,
    make_attrs,
)
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import complaints

ids = st.from_regex(r"[A-Za-z0-9_.]{1,8}", fullmatch=True)
words = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
symbols = st.from_regex(r"[A-Z_][A-Za-z0-9_.]{0,6}", fullmatch=True)
dims = st.one_of(st.integers(0, 2**40), symbols, st.just("?"))
layouts = st.sampled_from(["", "c16 1 1", "planar 0", "packed w23 1024"])
dtypes = st.sampled_from(sorted(DTYPE_BYTES))
tensor_types = st.builds(TensorType, st.lists(dims, max_size=5).map(tuple), dtypes, layouts)
texts = st.text(max_size=12)
numbers = st.floats(allow_nan=False)
attributes: st.SearchStrategy[Attr] = st.one_of(
    st.booleans(),
    st.integers(),
    numbers,
    texts,
    st.lists(st.integers(), max_size=4).map(tuple),
    st.lists(numbers, min_size=1, max_size=4).map(tuple),
    st.lists(texts, min_size=1, max_size=3).map(tuple),
)
attr_maps = st.dictionaries(words.filter(lambda w: w not in ("shape", "dtype", "into")), attributes, max_size=4).map(
    make_attrs
)
dialects = st.sampled_from(["op", "fused", "view", "call"])
names = st.builds(lambda d, w: f"{d}.{w}", dialects, words)
atoms = st.builds(
    Op,
    names,
    st.lists(st.one_of(ids, st.just("")), max_size=4).map(tuple),
    ids,
    st.one_of(st.none(), tensor_types),
    attr_maps,
    st.one_of(st.just(""), ids),
    st.just(()),
    texts,
    texts,
)
fused = st.builds(
    lambda op, body: Op(op.name, op.operands, op.result, op.type, op.attrs, op.into, body, op.node, op.tensor),
    atoms,
    st.lists(atoms, max_size=3).map(tuple),
)
allocs = st.builds(lambda r, t, a: Op("tensor.alloc", (), r, t, a), ids, tensor_types, attr_maps)
frees = st.builds(lambda r: Op("tensor.free", (r,)), ids)
statements = st.one_of(atoms, fused, allocs, frees)
weights = st.builds(Weight, ids, tensor_types, st.from_regex(r"sha3-512:[0-9a-f]{8}", fullmatch=True))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    outputs = tuple(draw(st.lists(ids, max_size=3)))
    # an empty name and the id itself print alike and read back as the id
    names = tuple(draw(st.one_of(st.just(o), st.text(min_size=1, max_size=6))) for o in outputs)
    inputs = [
        Value(i, draw(tensor_types), draw(st.one_of(st.just(i), st.text(min_size=1)))) for i in draw(st.lists(ids))
    ]
    ops = tuple(draw(st.lists(statements, max_size=5)))
    return Graph(draw(ids), tuple(inputs), tuple(draw(st.lists(weights, max_size=2))), ops, outputs, names)


metas = st.lists(st.tuples(symbols, texts), max_size=3).map(tuple)
modules = st.builds(Module, st.sampled_from(LEVELS), st.lists(graphs(), min_size=1, max_size=2).map(tuple), metas)


@settings(max_examples=100, deadline=None)
@given(modules)
def test_round_trip(module: Module) -> None:
    text = print_module(module)
    assert parse_module(text) == module
    assert print_module(parse_module(text)) == text
    list(complaints(module))  # whatever is wrong with it, the verifier only complains


ALPHABET = st.sampled_from(
    ["cuvil.ir", " ", "level=", "l0", "version=1", "\n", "meta", "graph", "@", "%", "x", "(", ")", "{", "}", "[", "]",
     "=", ":", ",", "?", '"', "\\", "1", "-", ".5", "nan", "return", "into", "none", "tensor.alloc", "#", "é", "\0"]
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.lists(ALPHABET, max_size=30).map("".join), st.booleans())
def test_arbitrary_text(text: str, with_header: bool) -> None:
    whole = ("cuvil.ir level=l0 version=1\ngraph @g() {\n" if with_header else "") + text
    try:
        module = parse_module(whole)
    except IRError as error:
        assert "line" in str(error) and "\n" not in str(error)
    else:
        assert parse_module(print_module(module)) == module


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "line 1, column 1: expected a graph, found end"),
        ("cuvil.ir level=l9 version=1", "line 1, column 16: expected one of l0, frozen, l1, l2, found 'l9'"),
        ("cuvil.ir level=l0 version=2", "expected version 1"),
        ("cuvil.ir level=l0 version=1\ngraph @g() {\n  %a ~", "line 3, column 6: unexpected character '~'"),
    ],
)
def test_error_positions(text: str, sentence: str) -> None:
    with pytest.raises(IRError) as caught:
        parse_module(text)
    assert sentence in str(caught.value)
