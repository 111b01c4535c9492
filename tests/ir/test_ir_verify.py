"""Every rule of the verifier: a module that keeps it, and one that breaks exactly it."""

from __future__ import annotations

import pytest

from compiler_kernels.errors import IRError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import complaints, verify

REF = "sha3-512:" + "ab" * 64
T = "float32[2, 3]"

L0 = f"""cuvil.ir level=l0 version=1
graph @g(%x: {T}) {{
  %w0 = weight ref="{REF}" : float32[3]
  %v0 = op.add(%x, %w0) : {T} @ "n" "t"
  %v1 = op.leaky_relu(%v0) alpha=0.5 : {T}
  return %v1 "y"
}}
"""

L1 = f"""cuvil.ir level=l1 version=1
graph @g(%x: {T}) {{
  %b0 = tensor.alloc offset=0 shape=[2, 3] dtype=float32
  %v0 = fused.neg_relu(%x) into %b0 : {T} {{
    %t = op.neg(%x) : {T}
    %v0 = op.relu(%t) : {T}
  }}
  %v1 = op.exp(%v0) into %b0 in_place=true : {T}
  %v2 = view.reshape(%v1) : float32[6]
  %b1 = tensor.alloc offset=64 shape=[6] dtype=float32
  %v3 = op.copy(%v2) into %b1 : float32[6]
  tensor.free(%b0)
  %b2 = tensor.alloc output="y" position=0 shape=[6] dtype=float32
  %v4 = op.relu(%v3) into %b2 : float32[6]
  tensor.free(%b1)
  return %v4 "y"
}}
"""

L2 = f"""cuvil.ir level=l2 version=1
graph @g(%x: {T}) {{
  %b0 = tensor.alloc offset=0 shape=[2, 3] dtype=float32
  %b1 = tensor.alloc offset=64 shape=[2, 3] dtype=float32
  %v0 = call.k0(%x) into %b0 : {T}
  %v1 = call.k0(%v0) into %b1 : {T}
  %v2 = call.k1(%v0, %v1) into %b0 in_place=true : {T}
  return %v2 "y"
}}
graph @k0(%p0: {T}) {{
  %t0 = op.relu(%p0) : {T}
  return %t0 "y"
}}
graph @k1(%p0: {T}, %p1: {T}) {{
  %t0 = op.add(%p0, %p1) : {T}
  return %t0 "y"
}}
"""


@pytest.mark.parametrize("text", [L0, L0.replace("level=l0", "level=frozen"), L1, L2])
def test_sound_modules(text: str) -> None:
    module = parse_module(text)
    verify(module)
    assert print_module(module) == text


BROKEN = [
    (L0, "%v1 = op.leaky", "%v0 = op.leaky", "%v0 is defined twice"),
    (L0, "%w0 = weight", "%x = weight", "%x is defined twice"),
    (L0, "(%x, %w0)", "(%x, %v1)", "op.add uses %v1 before its definition"),
    (L0, "return %v1", "return %v9", "%v9 is returned but not defined"),
    (L0, 'return %v1 "y"', "return", "the graph returns nothing"),
    (L0, REF, "sha256:00", "weight %w0 has the malformed reference 'sha256:00'"),
    (L0, ": float32[3]", ": float32[N]", "weight %w0 has the type float32['N']"),
    (L0, "%x: float32[2, 3]", "%x: float32[2, 3 | c16]", "%x has the layout 'c16', which level l0"),
    (L1, "%x: float32[2, 3]", "%x: float32[2, 3 | c16 1]", "%x: 'c16 1' is not a layout of a tensor of rank 2"),
    (L1, "%x: float32[2, 3]", "%x: float99[2, 3]", "%x has the unknown element type float99"),
    (L0, ": float32[3]", ": float32[4]", "%v0: add: shapes [2, 3] and [4] do not broadcast"),
    (L0, "alpha=0.5", "alpha=nan", "%v1: leaky_relu: attribute alpha is NaN"),
    (L0, "alpha=0.5", "", "%v1: leaky_relu: attribute alpha is missing"),
    (
        L0,
        f"alpha=0.5 : {T}",
        "alpha=0.5 : float32[6]",
        "%v1: leaky_relu: the result is float32[2, 3], not the stated float32[6]",
    ),
    (L0, f"(%x, %w0) : {T}", "(%x, %w0)", "op.add has no result or no type"),
    (L0, "op.add(%x, %w0)", "op.copy(%x)", "op.copy does not belong to this level"),
    (L0, "op.add(%x, %w0)", "op.add(%x, %w0) into %x", "op.add has a buffer or a body"),
    (L0, f"(%x: {T})", "(%x: int64[2, 3])", "%v0: add: operand 1 is float32 where the others are int64"),
    (L1, "  tensor.free(%b0)\n", "", "%b0 is never freed"),
    (L1, "  tensor.free(%b1)\n", "  tensor.free(%b1)\n  tensor.free(%b0)\n", "%b0 is freed twice"),
    (L1, "  tensor.free(%b1)\n", "  tensor.free(%b1)\n  tensor.free(%b2)\n", "the returned %v4 was freed"),
    (L1, "op.copy(%v2)", "op.copy(%v0)", "op.copy must have 1 operands, no attributes and the type of the first"),
    (L1, "view.reshape(%v1)", "view.reshape(%v0)", "view.reshape reads %v0 after it was overwritten by %v1"),
    (L1, "op.relu(%v3) into %b2", "op.relu(%v2) into %b2", "op.relu reads %v2 after it was freed"),
    (L1, "op.exp(%v0) into %b0", "op.exp(%x) into %b0", "%v1 is marked in_place, but no operand lives in %b0"),
    (L1, "op.exp(%v0) into %b0 in_place=true", "op.exp(%v0)", "%v1 is written into %, which no tensor.alloc defines"),
    (L1, "offset=0 shape=[2, 3]", "offset=0 shape=[2, 2]", "%v0 does not fit its buffer %b0"),
    (L1, "%t = op.neg(%x)", "%t = op.neg(%b0)", "op.neg in the body of fused.neg_relu reads %b0"),
    (L1, "%v0 = op.relu(%t)", "%u = op.relu(%t)", "the last operation of fused.neg_relu does not define %v0"),
    (L1, "fused.neg_relu(%x)", "fused.neg_relu(%x, %b0)", "fused.neg_relu does not use its operand %b0"),
    (L1, "op.copy(%v2)", "call.k0(%v2)", "call.k0 does not belong to level l1"),
    (L2, "call.k1(%v0, %v1)", "call.k1(%v0)", "call.k1 for %v2 passes 1 operands that do not match its parameters"),
    (L2, "call.k1(", "call.k2(", "call.k2 calls a function that does not exist"),
    (L2, "offset=64", "offset=20", "call.k1 reads %v0 after it was overwritten by %v1"),
    (L2, 'return %v2 "y"', 'return %v0 "y"', "the returned %v0 was overwritten by %v2"),
    (L2, "graph @k1", "graph @k0", "graph @k0 is defined twice"),
]


@pytest.mark.parametrize(("text", "old", "new", "sentence"), BROKEN)
def test_broken_modules(text: str, old: str, new: str, sentence: str) -> None:
    assert old in text
    module = parse_module(text.replace(old, new, 1))
    found = list(complaints(module))
    assert any(sentence in c for c in found), found
    with pytest.raises(IRError):
        verify(module)
