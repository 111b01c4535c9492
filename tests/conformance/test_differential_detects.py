"""The comparison itself: a peer with other values, other shapes or no result is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from differential import Draw, Values, compare, drawn, far, torch
from draw_windows import draw_conv


def one() -> Draw:
    ((_, draw),) = drawn("conv", draw_conv, range(1))
    return draw


@pytest.mark.skipif(torch is None, reason="torch is not installed (pip install 'cuvil[torch]')")
def test_a_peer_with_another_value_is_told_by_name() -> None:
    draw = one()
    honest = draw.torch
    assert honest is not None

    def shifted(values: Values) -> list[np.ndarray]:
        (y,) = honest(values) or ()
        y = y.copy()
        y.reshape(-1)[-1] += 0.5
        return [y]

    found = compare([("good", draw), ("bad", replace(draw, torch=shifted))])
    (line,) = found.lines
    assert line.startswith("bad Conv ")
    assert ": torch: y: largest difference " in line


def test_a_refused_model_and_one_no_peer_computes_are_told() -> None:
    draw = one()
    alone = replace(draw, torch=None, without={"onnxruntime": "not asked", "onnx.reference": "not asked"})
    refused = replace(draw, attributes={**draw.attributes, "auto_pad": "SIDEWAYS"})
    lines = compare([("refused", refused), ("alone", alone)]).lines
    assert [line.partition(" ")[0] for line in lines] == ["refused", "alone"]
    assert ": refused: " in lines[0]
    assert lines[1].endswith("no peer computes it")


def test_distance_is_relative_to_the_largest_magnitude() -> None:
    want = np.array([1000.0, 1.0], np.float32)
    assert far(want + np.float32(0.01), want, 2e-5) == ""
    assert far(want + np.float32(0.1), want, 2e-5).startswith("largest difference")
    assert far(want[:1], want, 1) == "shape [1], expected [2]"
    infinite = np.array([np.inf, np.nan], np.float32)
    assert far(infinite, infinite, 0) == ""
    assert far(-infinite, infinite, 1) == "other infinities or NaN"
    assert far(want, infinite, 1) == "other elements are finite"


def test_a_seed_stands_for_itself() -> None:
    first, again = drawn("conv", draw_conv, range(3))[2], drawn("conv", draw_conv, range(2, 3))[0]
    assert first[0] == again[0]
    assert first[1].model() == again[1].model()
