"""Decisions for all sizes: proofs, smallest counterexamples, simplification under declared bounds."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import Size, evaluate, maximum, minimum, symbol
from compiler_kernels.ir.symbols import (
    Bound,
    Unproved,
    at_least,
    divides,
    equal,
    interval,
    magnitude,
    meta_of,
    parse_bound,
    proved_equal,
    scope,
    simplified,
    symbols_of,
)

B, H, W = symbol("batch"), symbol("height"), symbol("width")
BOUNDS = {"batch": Bound(1, 8), "height": Bound(32, 512, 32), "width": Bound(1, 100_000)}


def test_a_step_makes_halving_and_doubling_the_same() -> None:
    with scope(BOUNDS):
        assert str(simplified(2 * (H // 2))) == "height"
        assert str(simplified(3 * ((H // 2 - 1) // 2 + 1))) == "3 * (height // 4)"
        assert str(simplified((H - 1) // 2 + 1)) == "height // 2"
        assert str(simplified(H // 64)) == "height // 64"
        assert str(simplified(maximum(H - 40, B - 8))) == "max(batch - 8, height - 40)"
        assert str(simplified(maximum(H, B))) == "height"
        assert proved_equal(16 * (H // 16), H)
        assert not proved_equal(64 * (H // 64), H)
        assert divides(32, B * H)
    assert not proved_equal(2 * (H // 2), H)


def test_decisions_name_the_smallest_counterexample() -> None:
    with scope(BOUNDS):
        assert equal(B + 1, B) is False
        assert at_least(H, 32) is True and at_least(B, 9) is False
        with pytest.raises(Unproved, match=r"^batch = 1: 32 is not a multiple of 64$") as caught:
            divides(64, 32 * B)
        assert caught.value.values == {"batch": 1}
        with pytest.raises(Unproved, match=r"^batch = 3: 2 is not 3$"):
            _ = minimum(B, 2) == B
        with pytest.raises(Unproved, match=r"^batch = 1, height = 64: "):
            equal(H * B, 32 * B)
        with pytest.raises(Unproved, match=r"^width = 99000: 98999 is not 99000$"):
            _ = minimum(W, 98_999) == W
        with pytest.raises(Unproved, match="batch must be one number here"):
            range(B)  # type: ignore[arg-type]


def test_the_solver_is_asked_where_there_are_too_many_sizes() -> None:
    with scope({"width": Bound(1, 100_000), "height": Bound(1, 100_000)}):
        # not equal in form; needs arithmetic of quotients
        assert equal((W + 7) // 8 * 8 + 8, ((W + 15) // 8) * 8)
        assert at_least(W, 3 * (W // 3))
        assert proved_equal(minimum(W, H) + maximum(W, H), W + H)
        with pytest.raises(Unproved, match=r"^width = 3: 3 is not less than 3$"):
            _ = W // 3 + 2 < 3


def test_what_the_solver_does_not_know_is_refused() -> None:
    """Fermat's cubic: true, but not for Z3 within its limit, and there are too many sizes to try."""
    a, b, c = (symbol(n) for n in "abc")
    with scope({n: Bound(1, 100_000) for n in "abc"}):
        assert not proved_equal(minimum(a * a * a + b * b * b - c * c * c, 0), a * a * a + b * b * b - c * c * c)
        with pytest.raises(Unproved, match="could not be proved for all sizes") as caught:
            equal(a * a * a + b * b * b, c * c * c)
        assert caught.value.values == {} and caught.value.exit_code == 4


def test_an_undecided_truth_value_is_refused() -> None:
    with scope(BOUNDS):
        assert bool(B)
        with pytest.raises(Unproved):
            bool(B - 1)


def test_the_static_path_does_not_load_the_solver() -> None:
    code = (
        "import sys, compiler_kernels.importers.onnx_importer, compiler_kernels.ir.verify\n"
        "assert 'z3' not in sys.modules and 'compiler_kernels.proofs.smt' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


sizes = st.recursive(
    st.one_of(st.integers(-9, 9), st.sampled_from([B, H, W])),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(minimum, inner, inner),
        st.builds(lambda a, n: a // n, inner, st.integers(1, 70)),
    ),
    max_leaves=6,
)
values = st.fixed_dictionaries(
    {"batch": st.integers(1, 8), "height": st.integers(1, 16).map(lambda n: 32 * n), "width": st.integers(1, 100_000)}
)


@given(sizes, values)
@settings(max_examples=300, deadline=None)
def test_simplified_sizes_and_intervals_are_true(size: Size, at: dict[str, int]) -> None:
    with scope(BOUNDS):
        shown = simplified(size)
        assert evaluate(shown, at) == evaluate(size, at)
        assert str(simplified(shown)) == str(shown)
    low, high = interval(size, BOUNDS)
    assert low <= evaluate(size, at) <= high
    assert abs(evaluate(size, at)) <= magnitude(size, BOUNDS)


def test_intervals_see_what_terms_share() -> None:
    assert interval(8 * B * H - 4 * B, {"batch": Bound(1, 3), "height": Bound(1, 40)})[0] == 4
    assert interval(H * H - H, {"height": Bound(1, 40)})[0] == 0


def test_bounds_as_text() -> None:
    assert symbols_of(tuple(meta_of(BOUNDS).items())) == dict(sorted(BOUNDS.items()))
    assert meta_of(BOUNDS)["symbol.height"] == "32..512 step 32"
    for text in ("1..", "8..1", "0..4", "1..8 step 3", "x"):
        with pytest.raises(IRError, match="not a bound"):
            parse_bound(text)
