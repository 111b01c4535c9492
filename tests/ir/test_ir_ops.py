"""The operation table: what the documentation lists, inference, and refusals in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler_kernels.errors import IRError
from compiler_kernels.ir.graph import Attr, TensorType
from compiler_kernels.ir.ops import KINDS, L0_OPS, infer

DOC = Path(__file__).parents[2] / "docs" / "ir.md"


def documented() -> set[str]:
    """Operation names in the first column of the L0 table of docs/ir.md."""
    section = DOC.read_text(encoding="utf-8").split("## Operations (L0)")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_table_and_documentation_list_the_same_operations() -> None:
    assert documented() == set(L0_OPS)
    assert all(kind.rstrip("?") in KINDS for spec in L0_OPS.values() for kind in spec.attrs.values())


def types(*shapes: tuple[int, ...] | None) -> list[TensorType | None]:
    return [None if s is None else TensorType(s) for s in shapes]


WINDOW: dict[str, Attr] = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1)}


def test_inferred_shapes() -> None:
    conv = infer("conv", types((2, 4, 9, 8), (6, 2, 3, 2), (6,)), {**WINDOW, "group": 2})
    assert conv.shape == (2, 6, 5, 7)
    pooled: dict[str, Attr] = {"kernel": (3, 3), "strides": (2, 2), "dilations": (1, 1), "pads": (1, 1, 1, 1)}
    assert infer("max_pool", types((1, 1, 4, 5)), {**pooled, "ceil_mode": True}).shape == (1, 1, 3, 3)
    assert infer("max_pool", types((1, 1, 4, 5)), {**pooled, "ceil_mode": False}).shape == (1, 1, 2, 3)
    assert infer("matmul", types((3, 1, 2, 5), (4, 5, 6)), {}).shape == (3, 4, 2, 6)
    assert infer("matmul", types((5,), (5,)), {}).shape == ()
    assert infer("reduce_sum", types((2, 3, 4)), {"axes": (0, 2), "keepdims": False}).shape == (3,)
    with_steps: dict[str, Attr] = {"starts": (5, 0), "steps": (-2, 1)}
    assert infer("slice", types((6, 3)), with_steps, TensorType((3, 3))).shape == (3, 3)


RESIZE: dict[str, Attr] = {
    "mode": "linear",
    "coordinate_mode": "half_pixel",
    "nearest_mode": "floor",
    "scales": (1.0, 2.5),
    "roi": (),
    "extrapolation_value": 0.0,
    "exclude_outside": False,
}


@pytest.mark.parametrize(
    ("kind", "shapes", "attrs", "declared", "sentence"),
    [
        ("nonsense", [(1,)], {}, None, "nonsense is not an L0 operation"),
        ("relu", [(1,), (1,)], {}, None, "relu: 2 operands where 1 to 1 are allowed"),
        ("relu", [(1,)], {"alpha": 1.0}, None, "relu: unknown attribute alpha"),
        ("leaky_relu", [(1,)], {}, None, "leaky_relu: attribute alpha is missing"),
        ("leaky_relu", [(1,)], {"alpha": 1}, None, "leaky_relu: attribute alpha must be float, not 1"),
        ("leaky_relu", [(1,)], {"alpha": float("nan")}, None, "leaky_relu: attribute alpha is NaN"),
        ("softmax", [(1,)], {"axis": True}, None, "softmax: attribute axis must be int, not True"),
        ("softmax", [(1,)], {"axis": -1}, None, "softmax: axis -1 is outside a tensor of rank 1"),
        ("add", [(2,), None], {}, None, "add: operand 1 is absent"),
        ("add", [(2,), ("?",)], {}, None, "add: operand 1 has the shape ['?']; give the anonymous dimension a name"),
        ("add", [(2,), (3,)], {}, None, "add: shapes [2] and [3] do not broadcast"),
        ("add", [(2,), (1,)], {}, (3,), "add: the result is float32[2], not the stated float32[3]"),
        ("reshape", [(2, 3)], {}, None, "reshape: needs a result type"),
        ("reshape", [(2, 3)], {}, (5,), "reshape: [2, 3] has 6 elements, [5] has 5"),
        ("expand", [(2, 3)], {}, (2, 4), "expand: shapes [2, 3] and [2, 4] do not broadcast"),
        ("slice", [(4,)], {"starts": (2,), "steps": (1,)}, (3,), "slice: start 2, step 1, 3 elements leave axis 0"),
        ("resize", [(2, 4)], RESIZE, (2, 9), "resize: scale 2.5 does not turn 4 into 9 along axis 1"),
        (
            "resize",
            [(2, 4)],
            {**RESIZE, "mode": "cubic"},
            (2, 10),
            "resize: cubic_coefficient belongs to mode cubic",
        ),
        ("concat", [(2, 3), (2, 3, 1)], {"axis": 0}, None, "concat: shapes [2, 3] and [2, 3, 1] differ outside axis 0"),
    ],
)
def test_refusals(
    kind: str,
    shapes: list[tuple[int, ...] | None],
    attrs: dict[str, Attr],
    declared: tuple[int, ...] | None,
    sentence: str,
) -> None:
    with pytest.raises(IRError) as caught:
        infer(kind, types(*shapes), attrs, None if declared is None else TensorType(declared))
    assert str(caught.value).startswith(sentence)
