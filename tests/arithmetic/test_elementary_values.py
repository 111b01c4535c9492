"""Special cases of the elementary functions, max, min and relu, pow against binary64, and the software fma."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from elementary_programs import X86_V3, Apply, Build, apply, bits, build, floats, needs_v3, output

__all__ = ["apply", "build"]  # fixtures
INF, NAN = np.inf, np.nan
ALL_WIDTHS = [1, pytest.param(8, marks=needs_v3)]


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("exp", [INF, -INF, 0.0, -0.0, NAN], [INF, 0.0, 1.0, 1.0, NAN]),
        ("exp", floats(0x42B17217, 0x42B17218, 0xC2CFF1B4, 0xC2CFF1B5), floats(0x7F7FFF84, 0x7F800000, 1, 0)),
        ("log", [INF, 0.0, -0.0, -1.0, -INF, 1.0, NAN], [INF, -INF, -INF, NAN, NAN, 0.0, NAN]),
        ("erf", [INF, -INF, 0.0, -0.0, 4.0, NAN], [1.0, -1.0, 0.0, -0.0, 1.0, NAN]),
        ("tanh", [INF, -INF, 0.0, -0.0, 1e-45, NAN], [1.0, -1.0, 0.0, -0.0, 1e-45, NAN]),
        ("sigmoid", [INF, -INF, 0.0, -0.0, -100.0, NAN], [1.0, 0.0, 0.5, 0.5, 3.8e-44, NAN]),
        ("sqrt", [INF, 0.0, -0.0, -1.0, NAN], [INF, 0.0, -0.0, NAN, NAN]),
        ("reciprocal", [INF, -INF, 0.0, -0.0, NAN], [0.0, -0.0, INF, -INF, NAN]),
        ("relu", [INF, -INF, 0.0, -0.0, -1e-45, 1e-45, NAN], [INF, 0.0, 0.0, 0.0, 0.0, 1e-45, NAN]),
        ("softplus", [INF, -INF, 89.0, -80.0, NAN], [INF, 0.0, 89.0, 1.8048513e-35, NAN]),
        ("gelu", [INF, -INF, -0.0, NAN], [INF, NAN, -0.0, NAN]),
        ("hard_swish", [3.0, -3.0, INF, -INF, NAN], [3.0, -0.0, INF, NAN, NAN]),
        ("maxn", [NAN, 0.0, -0.0, -1.0], [NAN, 0.0, -0.0, -0.0]),  # second operand -0
        ("minn", [NAN, 6.0, 7.0, -INF], [NAN, 6.0, 6.0, -INF]),  # second operand 6
    ],
)
@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_special_values(apply: Apply, name: str, x: npt.ArrayLike, expected: npt.ArrayLike, width: int) -> None:
    assert bits(apply(name, x, width=width)).tolist() == bits(expected).tolist()


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_max_and_min_propagate_nan_and_keep_the_first_of_two_equals(apply: Apply, width: int) -> None:
    x = np.array([0.0, -0.0, NAN, 1.0, NAN, 2.0, -INF], np.float32)
    y = np.array([-0.0, 0.0, 1.0, NAN, NAN, 3.0, INF], np.float32)
    assert bits(apply("max", x, y, width=width)).tolist() == bits([0.0, -0.0, NAN, NAN, NAN, 3.0, INF]).tolist()
    assert bits(apply("min", x, y, width=width)).tolist() == bits([0.0, -0.0, NAN, NAN, NAN, 2.0, -INF]).tolist()


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_elu_follows_its_onnx_body(apply: Apply, width: int) -> None:
    x = np.linspace(-20, 5, 4001, dtype=np.float32)
    alpha = np.float32(1.7)
    body = np.where(x < 0, alpha * (apply("exp", x) - np.float32(1)), x)
    assert np.array_equal(bits(apply("elu", x, alpha, width=width)), bits(body))


def test_gelu_follows_its_onnx_body(apply: Apply) -> None:
    x = np.linspace(-9, 9, 8001, dtype=np.float32)
    half, one = np.float32(0.5), np.float32(1)
    exact = (half * x) * (one + apply("erf", x / np.sqrt(np.float32(2))))
    assert np.array_equal(bits(apply("gelu", x)), bits(exact))
    cube = apply("pow", x, 3.0)
    inner = np.sqrt(np.float32(0.63661975)) * (x + np.float32(0.044715) * cube)
    assert np.array_equal(bits(apply("gelu_tanh", x)), bits((half * x) * (one + apply("tanh", inner))))


def test_pow_special_cases_are_those_of_c99(apply: Apply) -> None:
    """NumPy's binary64 power follows C99 F.9.4.4; these operands give results that binary32 holds exactly."""
    magnitudes = [0.0, 1.0, 2.0, 0.5, 4.0, 5.0, 16777215.0, 16777216.0, INF]
    values = np.array([*magnitudes, *(-m for m in magnitudes), NAN], np.float32)
    x, y = np.meshgrid(values, values)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert np.array_equal(bits(apply("pow", x, y)), bits(expected).reshape(x.shape))


def test_pow_is_correctly_rounded_but_for_near_ties(apply: Apply) -> None:
    generator = np.random.default_rng(20261130)
    x = np.exp(generator.uniform(-20, 20, 1 << 20)).astype(np.float32)
    y = (generator.uniform(-150, 130, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    near_one = (1 + generator.uniform(-1e-3, 1e-3, x.size)).astype(np.float32)
    for base, power in ((x, y), (near_one, generator.uniform(-8e4, 8e4, x.size).astype(np.float32))):
        power = np.where((power == 2) | (power == 3), np.float32(2.5), power)
        with np.errstate(all="ignore"):
            exact = np.power(base.astype(np.float64), power.astype(np.float64))
            rounded = exact.astype(np.float32)
        got = apply("pow", base, power)
        finite = np.isfinite(rounded) & np.isfinite(got)
        assert np.array_equal(got[~finite], rounded[~finite])
        unit = np.ldexp(1.0, np.maximum(np.frexp(exact[finite])[1] - 1, -126) - 23)
        error = np.abs(got[finite].astype(np.float64) - exact[finite]) / unit
        assert 0.49 < error.max() <= 0.501
        assert np.count_nonzero((got > 0) & (got < 2.0**-126)) > 0 or base is near_one


@needs_v3
@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_software_fma_equals_hardware_fma(build: Build, count: int) -> None:
    """``count`` triples per class; the last column counts where a naive version, rounding twice, would differ."""
    lines = [line.split() for line in output(build("elementary_fma.c", *X86_V3), count).splitlines()]
    rows = {name: [int(v) for v in values] for name, *values in lines[:-1]}
    assert list(rows) == ["patterns", "close", "subnormal", "halfway", "overflow", "special"]
    assert all(row[0] == 0 for row in rows.values())
    assert rows["subnormal"][1] > count // 10
    assert rows["overflow"][2] > count // 10
    assert rows["special"][2] > count // 10
    assert rows["halfway"][3] > count // 10
    assert lines[-1] == ["pinned", "0x00400001", "0x00400001", "0x00400000"]


def test_fma_is_fused_and_mul_add_is_not(apply: Apply) -> None:
    x = np.float32(1 + 2**-12)
    assert apply("mul_sub", x, x, x * x)[()] == 0.0
    assert apply("fma", x, x, -(x * x))[()] == 2.0**-24
