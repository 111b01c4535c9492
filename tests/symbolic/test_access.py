"""No access leaves its tensor: descriptions against enumeration, and planted errors that must be found."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as cartesian

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.errors import IRError, UnsupportedError
from compiler_kernels.ir.dims import Size, evaluate
from compiler_kernels.ir.graph import Attr, Graph, Module, Op, TensorType, Value, make_attrs
from compiler_kernels.ir.ops import L0_OPS
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import Bound, Unproved, meta_of, scope
from compiler_kernels.ir.verify import verify
from compiler_kernels.proofs import reads
from compiler_kernels.proofs.access import extreme, prove_accesses
from compiler_kernels.proofs.reads import RESULT, Space, Touch, describe

META = tuple(meta_of({"b": Bound(1, 4), "h": Bound(8, 64, 8)}).items())
ONES = {"strides": (1, 1), "dilations": (1, 1)}


def one(kind: str, shapes: list[tuple[int | str, ...]], out: tuple[int | str, ...], **attrs: Attr) -> Module:
    inputs = tuple(Value(f"x{i}", TensorType(s)) for i, s in enumerate(shapes))
    op = Op(f"op.{kind}", tuple(v.id for v in inputs), "v0", TensorType(out), make_attrs(attrs), node="/n")
    return Module("l0", (Graph("g", inputs, (), (op,), ("v0",), ("y",)),), META)


CONV = one(
    "conv", [("b", 8, "h", "h"), (6, 4, 3, 3)], ("b", 6, "h // 2", "h // 2"),
    group=2, strides=(2, 2), dilations=(1, 1), pads=(1, 1, 1, 1),
)  # fmt: skip
TRANSPOSED = one(
    "conv_transpose", [("b", 8, "h", "h"), (8, 3, 3, 3)], ("b", 6, "2 * h", "2 * h"),
    group=2, strides=(2, 2), dilations=(1, 1), pads=(1, 1, 1, 1), output_padding=(1, 1),
)  # fmt: skip
POOL = one("max_pool", [("b", 3, "h", "h")], ("b", 3, "h // 2", "h // 2"), kernel=(2, 2), pads=(0,) * 4,
           strides=(2, 2), dilations=(1, 1), ceil_mode=False)  # fmt: skip
SLICE = one("slice", [("b", "h")], ("b", 4), starts=("0", "h - 4"), steps=(1, 1))
REFLECT = one("pad", [("b", "h")], ("b", "h + 14"), mode="reflect", pads=(0, 7, 0, 7), value=0.0)
CONCAT = one("concat", [("b", "h"), ("b", 3)], ("b", "h + 3"), axis=1)
RESHAPE = one("reshape", [("b", "h")], ("b", "h // 8", 8))
GRU = one("gru", [("h", "b", 5), (9, 5), (9, 3), (18,)], ("h", "b", 3), reverse=False, linear_before_reset=True)
SOUND = [CONV, TRANSPOSED, POOL, SLICE, REFLECT, CONCAT, RESHAPE, GRU]


@pytest.mark.parametrize("module", SOUND, ids=lambda m: m.main.ops[0].kind)
def test_sound_operations_are_proved(module: Module) -> None:
    verify(module)
    report = prove_accesses(module)
    assert report.operations == 1 and report.bounds >= 1 and report.undescribed == ()


def changed(module: Module, out: tuple[int | str, ...] | None = None, **attrs: Attr) -> Module:
    op = module.main.ops[0].with_attrs(**attrs)
    op = op if out is None else replace(op, type=TensorType(out))
    return replace(module, graphs=(replace(module.main, ops=(op,)),))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (changed(CONV, pads=(1, 1, 0, 0), strides=(2, 2), dilations=(2, 2)), "reads operand 0 outside axis 2"),
        (
            changed(CONV, out=("b", 6, "h // 2 + 1", "h // 2")),
            "reads operand 0 outside axis 2 .*: 9 against 8 at h = 8",
        ),
        (changed(CONV, group=3), "reads operand 0 outside axis 1"),
        (changed(TRANSPOSED, pads=(0, 1, 1, 1)), "counts elements: 17 against 16 at h = 8"),
        (changed(TRANSPOSED, out=("b", 6, "2 * h - 2", "2 * h")), "counts elements: 16 against 14 at h = 8"),
        (changed(POOL, kernel=(3, 2)), r"reads operand 0 outside axis 2 \(with its border\): 8 against 7 at h = 8"),
        (changed(SLICE, starts=("0", "h - 3")), "reads operand 0 outside axis 1: 8 against 7 at h = 8"),
        (changed(SLICE, starts=("0", "h - 9")), "reads operand 0 outside axis 1: 0 against -1 at h = 8"),
        (changed(REFLECT, out=("b", "h + 16"), pads=(0, 8, 0, 8)), "reads operand 0 outside axis 1: 8 against 7"),
        (changed(CONCAT, out=("b", "h + 2")), "outside axis 1|counts elements"),
        (changed(RESHAPE, out=("b", "h // 8", 9)), "counts elements: 8 against 9 at b = 1, h = 8"),
    ],
)
def test_an_attribute_or_a_size_that_is_off_is_found(module: Module, sentence: str) -> None:
    with pytest.raises(Unproved, match=sentence) as caught:
        prove_accesses(module)
    assert "node '/n'" in str(caught.value) and caught.value.exit_code == 4


@pytest.mark.parametrize("module", SOUND, ids=lambda m: m.main.ops[0].kind)
@pytest.mark.parametrize("shift", [-1, 1])
def test_an_index_that_is_off_by_one_is_found(module: Module, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every axis of every description in turn, shifted by one. A description in which an axis could be shifted without
    anyone noticing would prove nothing about that axis."""
    kind = module.main.ops[0].kind
    rule = reads.READS[kind]
    op, types = module.main.ops[0], [v.type for v in module.main.inputs]
    with scope({"b": Bound(1, 4), "h": Bound(8, 64, 8)}):
        space = describe(op, types)
    assert space is not None
    places = [(t, a) for t, touch in enumerate(space.touches) for a in range(len(touch.index))]
    found = 0
    for which, axis in places:

        def shifted(s: Space, which: int = which, axis: int = axis) -> None:
            rule(s)
            touch = s.touches[which]
            index = tuple(i + shift if a == axis else i for a, i in enumerate(touch.index))
            s.touches[which] = Touch(touch.operand, index, touch.before, touch.after)

        monkeypatch.setitem(reads.READS, kind, shifted)
        try:
            prove_accesses(module)
        except Unproved:
            found += 1
    # what has room to be shifted: a slice that does not begin at 0, a mirrored edge, a concatenated part, the last
    # position under a stride of 2, the rows that output_padding adds
    slack = {"slice": {-1: 1}, "pad": {-1: 2, 1: 2}, "concat": {-1: 1, 1: 1}, "conv": {1: 2}, "conv_transpose": {1: 2}}
    assert found == len(places) - slack.get(kind, {}).get(shift, 0)


def enumerated(space: Space) -> bool:
    """Whether all touches stay inside, by visiting every coordinate; for static spaces."""
    counts = {name: evaluate(count, {}) for name, count in space.counts.items()}
    for point in cartesian(*(range(c) for c in counts.values())):
        at = dict(zip(counts, point, strict=True))
        for touch in space.touches:
            shape = space.out if touch.operand == RESULT else space.shape(touch.operand)
            for axis, (index, extent) in enumerate(zip(touch.index, shape, strict=True)):
                low = -(touch.before[axis] if touch.before else 0)
                high = evaluate(extent, {}) - 1 + (touch.after[axis] if touch.after else 0)
                if not low <= evaluate(index, at) <= high:
                    return False
    return all(evaluate(a, {}) == evaluate(b, {}) for a, b in space.equalities)


@st.composite
def windows(draw: st.DrawFn) -> Module:
    x, k = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    attrs: dict[str, Attr] = {
        "strides": (draw(st.integers(1, 3)), 1),
        "dilations": (draw(st.integers(1, 2)), 1),
        "pads": (draw(st.integers(0, 2)), 0, draw(st.integers(0, 2)), 0),
    }
    out = draw(st.integers(1, 8))
    if draw(st.booleans()):
        return one("conv", [(1, 2, x, 2), (2, 1, k, 1)], (1, 2, out, 2), group=2, **attrs)
    return one("conv_transpose", [(1, 2, x, 2), (2, 1, k, 1)], (1, 2, out, 2), group=2, output_padding=(0, 0), **attrs)


@given(windows())
@settings(max_examples=150, deadline=None)
def test_the_proof_agrees_with_enumeration(module: Module) -> None:
    op, types = module.main.ops[0], [v.type for v in module.main.inputs]
    space = describe(op, types)
    assert space is not None
    try:
        prove_accesses(module)
        proved = True
    except Unproved:
        proved = False
    assert proved == enumerated(space)


def test_extremes_follow_the_sign_of_factors() -> None:
    symbols = {"h": Bound(2, 9)}
    space = Space(CONV.main.ops[0], [], ["h", 3])  # type: ignore[list-item]
    i, j = space.over("i", 5), space.over("j", 3)
    with scope(symbols) as prover:
        index: Size = 2 * i - 3 * j + 1
        assert (extreme(index, space.counts, prover, 1), extreme(index, space.counts, prover, -1)) == (9, -5)
        with pytest.raises(Unproved, match="multiplies two coordinates"):
            extreme(i * j, space.counts, prover, 1)
        with pytest.raises(Unproved, match="not affine"):
            extreme(i // 2, space.counts, prover, 1)


def test_every_operation_has_a_description_or_is_refused_with_symbols() -> None:
    undescribed = {k for k in L0_OPS if k not in reads.READS}
    for kind in undescribed:
        module = one(kind, [("b", "h")], ("b", "h"))
        with pytest.raises(UnsupportedError, match=rf"op\.{kind}.* has symbolic sizes"):
            prove_accesses(module)
    assert len(undescribed) < len(L0_OPS) // 2


L2 = """cuvil.ir level=l2 version=1
meta symbol.h = "8..64 step 8"
graph @main(%x: float32[1, h]) {
  %b0 = tensor.alloc shape=[1, h // 2] dtype=float32
  %v0 = call.k0(%x) into %b0 : float32[1, h // 2] @ "/n" "y"
  return %v0
}
graph @k0(%p0: float32[1, h]) {
  %t0 = op.slice(%p0) starts=["0", "h // 2"] steps=[1, 1] : float32[1, h // 2]
  return %t0 "y"
}
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("%p0: float32[1, h])", "%p0: float32[1, 2 * h])", "accesses were proved for"),
        ("graph @k0", "graph @k1", "calls a function that the module lacks"),
        ("steps=[1, 1] : float32[1, h // 2]", "steps=[1, 1] : float32[1, h // 4]", "its caller takes it as"),
    ],
)
def test_calls_pass_what_functions_were_proved_for(old: str, new: str, sentence: str) -> None:
    assert prove_accesses(parse_module(L2)).operations == 1
    assert L2.count(old) == 1
    with pytest.raises(IRError, match=sentence):
        prove_accesses(parse_module(L2.replace(old, new)))


def test_a_function_whose_index_leaves_the_parameter_is_found() -> None:
    with pytest.raises(Unproved, match=r"reads operand 0 outside axis 1: 8 against 7 at h = 8"):
        prove_accesses(parse_module(L2.replace('"h // 2"]', '"h // 2 + 1"]')))
