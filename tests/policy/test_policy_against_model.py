"""A policy and the model it is meant for."""

from __future__ import annotations

import pytest

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.policy import Policy, check_against, load_policy, merge_pins

MODULE = parse_module(
    """cuvil.ir level=l0 version=1
graph @g(%image: float32[1, 1, 4, 4], %in_0: float32[2] "in:0") {
  %v0 = op.relu(%image) : float32[1, 1, 4, 4]
  %v1 = op.exp(%in_0) : float32[2]
  return %v0 "mask", %v1 "out:1"
}
"""
)


def policy(text: str) -> Policy:
    return load_policy('version: 1\nmodel: {name: m, version: "1"}\n' + text, "p.yaml")


def test_matching_policy() -> None:
    check_against(policy("inputs: {'in:0': {shape: [2]}, image: {}}\noutputs: {'out:1': {dtype: float32}}"), MODULE)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("inputs: {imag: {}}", "names inputs.imag, but the model's inputs are image, in:0; correct the name"),
        ("outputs: {image: {}}", "names outputs.image, but the model's outputs are mask, out:1; correct the name"),
        ("inputs: {in_0: {}}", "names inputs.in_0, but the model's inputs are image, in:0"),
        (
            "inputs: {image: {shape: [1, 1, 4, 5]}}",
            r"inputs.image.shape is \[1, 1, 4, 5\], but the model gives float32",
        ),
        ("outputs: {mask: {shape: [4]}}", r"outputs.mask.shape is \[4\], but the model gives float32\[1, 1, 4, 4\]"),
    ],
)
def test_contradictions(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_against(policy(text), MODULE)


def test_pins_of_flag_and_policy() -> None:
    p = policy("inputs: {image: {shape: [1, 1, 4, 4]}, other: {finite: true}}")
    assert merge_pins(p, {"other": (3,), "image": (1, 1, 4, 4)}) == {"image": (1, 1, 4, 4), "other": (3,)}
    with pytest.raises(UsageError, match=r"--input-shape gives 'image' the shape \[2\], but the policy's inputs.image"):
        merge_pins(p, {"image": (2,)})
