"""docs/arithmetic-binary64.md: the C header has the reference's bits, and both keep the stated error bounds."""

from __future__ import annotations

import ctypes
import platform
import re
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from elementary_programs import ROOT, Build, build

from evidence.reference import binary64
from evidence.reference.further import random_words

__all__ = ["build"]  # fixture
TEXT = (ROOT / "docs" / "arithmetic-binary64.md").read_text(encoding="utf-8")
NAMES = "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid".split()
ODD = "sin tan asin atan sinh tanh asinh atanh erf".split()
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, -5e-324, 1.5, -1.5, 6, 709.5, 710.4, 711, -745.2, -746, 2, 3,
     0.5, -0.5, 1.7976931348623157e308, 2.2250738585072014e-308, 0.7853981633974483, 0.7853981633974484, 22,
     1 + 2.0**-52,
     6381956970095103.0 * 2.0**797]
)  # fmt: skip
"""The last is the binary64 number nearest to a multiple of pi / 2 in relative terms."""
Doubles = np.ndarray[tuple[int], np.dtype[np.float64]]
Call = Callable[..., Doubles]


@pytest.fixture(scope="session")
def call(build: Build) -> Call:
    library = ctypes.CDLL(str(build("binary64_apply.c", "-shared", "-fPIC", *_cpu())))

    def run(name: str, *operands: Doubles) -> Doubles:
        arrays = [np.ascontiguousarray(o, dtype=np.float64) for o in operands]
        y = np.empty_like(arrays[0])
        pointers = [a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in (*arrays, y)]
        getattr(library, f"apply_{name}")(*pointers, len(y))
        return y

    return run


def _cpu() -> list[str]:
    return ["-mcpu=x86_64_v3"] if platform.machine() == "x86_64" else []


def same(a: Doubles, b: Doubles) -> np.ndarray:
    return (a.view(np.int64) == b.view(np.int64)) | (np.isnan(a) & np.isnan(b))


def samples(name: str, count: int, seed: int) -> Doubles:
    """Operands of the function's domain: uniform, spread over exponents, near where accuracy is lost."""
    rng = np.random.default_rng(seed)

    def spread(low: float, high: float) -> Doubles:
        return np.exp2(rng.uniform(low, high, count)) * rng.choice([-1.0, 1.0], count)

    unit = [rng.uniform(-1, 1, count), spread(-60, 0), 1 - np.abs(spread(-50, 0)), np.abs(spread(-50, 0)) - 1]
    turns = [rng.uniform(-10, 10, count), spread(-30, 1023), np.arange(1, count) * (np.pi / 2)]
    wide = [rng.uniform(-3, 3, count), spread(-60, 9.4), rng.uniform(-20, 20, count)]
    return np.concatenate(
        {
            "exp": [rng.uniform(-745, 709, count), spread(-60, 9)],
            "log": [np.abs(spread(-1074, 1023)), rng.uniform(0.5, 2, count), 1 + spread(-50, -1)],
            "sin": turns,
            "cos": turns,
            "tan": turns,
            "asin": unit,
            "acos": unit,
            "atanh": unit,
            "acosh": [1 + np.abs(spread(-50, 30)), np.abs(spread(0, 1000)), rng.uniform(1, 4, count)],
            "asinh": [rng.uniform(-3, 3, count), spread(-60, 1000)],
            "erf": [rng.uniform(-6, 6, count), spread(-60, 2.6), rng.uniform(0, 1.6, count)],
        }.get(name, wide)
    )


def error(y: float, exact: mpmath.mpf) -> float:
    """|y - exact| in units of the last place of the exact value."""
    if exact == 0:
        return 0.0 if y == 0 else float("inf")
    exponent = max(int(mpmath.frexp(exact)[1]) - 1, -1022)
    return float(abs(mpmath.mpf(y) - exact) / mpmath.mpf(2) ** (exponent - 52))


def bounds() -> dict[str, float]:
    """The table of section 9 of the text."""
    rows = [line.strip("|").split("|") for line in TEXT.split("## 9.")[1].splitlines() if line.startswith("|")]
    return {name.strip(): float(v) for cell, v in zip(rows[0], rows[2], strict=True) for name in cell.split(",")}


def exact(name: str, x: float) -> mpmath.mpf:
    mpmath.mp.prec = 1400 if name in ("sin", "cos", "tan") and abs(x) > 1e15 else 220
    if name == "sigmoid":
        return 1 / (1 + mpmath.exp(-mpmath.mpf(x)))
    return getattr(mpmath, name)(mpmath.mpf(x))


def worst(name: str, count: int, seed: int) -> tuple[float, float]:
    x = samples(name, count, seed)
    with np.errstate(all="ignore"):
        y = getattr(binary64, name)(x)
    found = (0.0, 0.0)
    for operand, value in zip(x.tolist(), y.tolist(), strict=True):
        if np.isinf(value):
            assert abs(exact(name, operand)) >= mpmath.mpf(2) ** 1024 * (1 - mpmath.mpf(2) ** -54) or abs(operand) == 1
        else:
            found = max(found, (error(value, exact(name, operand)), operand))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_error_is_within_the_bound_of_the_text(name: str) -> None:
    found = worst(name, 120, 1)
    assert found[0] < bounds()[name], found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_error_on_more_operands(name: str) -> None:
    found = worst(name, 3000, 2)
    assert found[0] < bounds()[name], found


def powers(count: int, seed: int) -> tuple[Doubles, Doubles]:
    rng = np.random.default_rng(seed)
    x = [np.exp2(rng.uniform(-3, 3, count)), np.exp2(rng.uniform(-1000, 1000, count)), 1 + 2.0**-15 * rng.random(count)]
    y = [rng.uniform(-200, 200, count), rng.uniform(-1, 1, count), rng.uniform(-1e6, 1e6, count)]
    return np.concatenate(x), np.concatenate(y)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_error_of_pow(count: int) -> None:
    x, y = powers(count, 3)
    mpmath.mp.prec = 250
    with np.errstate(all="ignore"):
        results = binary64.pow(x, y)
    for base, exponent, value in zip(x.tolist(), y.tolist(), results.tolist(), strict=True):
        power = mpmath.power(mpmath.mpf(base), mpmath.mpf(exponent))
        if np.isinf(value):
            assert power >= mpmath.mpf(2) ** 1024 * (1 - mpmath.mpf(2) ** -54)
        else:
            assert error(value, power) < bounds()["pow"], (base, exponent)


@pytest.mark.parametrize("name", NAMES)
def test_the_header_has_the_bits_of_the_reference(call: Call, name: str) -> None:
    rng = np.random.default_rng(4)
    patterns = rng.integers(0, 2**63, 3000, dtype=np.uint64).view(np.float64) * rng.choice([-1.0, 1.0], 3000)
    x = np.concatenate([SPECIAL, -SPECIAL, patterns, samples(name, 400, 5)])
    with np.errstate(all="ignore"):
        expected = getattr(binary64, name)(x)
    wrong = np.flatnonzero(~same(call(name, x), expected))
    assert wrong.size == 0, x[wrong[:3]]
    if name in ODD:
        assert same(call(name, -x), -call(name, x)).all()


def test_pow_has_the_bits_of_the_reference(call: Call) -> None:
    x, y = powers(1000, 6)
    special = np.concatenate([SPECIAL, -SPECIAL])
    rng = np.random.default_rng(7)
    patterns = rng.integers(0, 2**64, (2, 4000), dtype=np.uint64).view(np.float64)
    a = np.concatenate([np.repeat(special, special.size), x, -x, patterns[0]])
    b = np.concatenate([np.tile(special, special.size), y, np.round(y), patterns[1]])
    with np.errstate(all="ignore"):
        expected, plain = binary64.pow(a, b), np.power(a, b)
    wrong = np.flatnonzero(~same(call("pow", a, b), expected))
    assert wrong.size == 0, (a[wrong[:3]], b[wrong[:3]])
    ordinary = np.isfinite(plain)
    np.testing.assert_allclose(expected[ordinary], plain[ordinary], rtol=1e-15, atol=5e-324)
    assert same(np.where(ordinary, 0.0, expected), np.where(ordinary, 0.0, plain)).all()


def test_remainders_are_exact(call: Call) -> None:
    rng = np.random.default_rng(8)
    x = np.concatenate([SPECIAL.repeat(SPECIAL.size), rng.integers(0, 2**64, 5000, dtype=np.uint64).view(np.float64)])
    y = np.concatenate([np.tile(SPECIAL, SPECIAL.size), x[-5000:] * np.exp2(rng.uniform(-200, 3, 5000))])
    with np.errstate(all="ignore"):
        assert same(call("fmod", x, y), np.fmod(x, y)).all()
        expected = np.mod(x, y)
    found = call("mod", x, y)
    finite = np.isfinite(x) & np.isfinite(y) & (y != 0)
    assert same(found[finite], np.where(expected == 0, np.copysign(0.0, y), expected)[finite]).all()
    infinite = np.isfinite(x) & np.isinf(y) & (x != 0)
    assert same(found[infinite], np.where((x < 0) == (y < 0), x, y)[infinite]).all()


def test_round_is_to_even(call: Call) -> None:
    x = np.concatenate([SPECIAL, np.arange(-9, 9) / 2, 2.0**51 + np.arange(4) / 2, -(2.0**52) - np.arange(3)])
    assert same(call("round", x), np.rint(x)).all()


@pytest.mark.parametrize(
    ("seed", "index", "words"),
    [
        (0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ],
)
def test_random_words_are_philox(seed: int, index: int, words: tuple[int, ...]) -> None:
    """The first known answer of Random123's kat_vectors, philox 4x32 10 rounds: counter and key zero."""
    assert tuple(random_words(seed, 0, index + 1)[index].tolist()) == words


@pytest.mark.slow
@pytest.mark.parametrize("name", "sin cos tan asin acos atan sinh cosh asinh acosh atanh".split())
def test_every_seventh_binary32_operand(build: Build, name: str) -> None:
    """Against glibc's binary64 functions, whose own error is far below what is asked here."""
    if platform.machine() != "x86_64":
        pytest.skip("built with gcc for x86-64")
    library = ctypes.CDLL(
        str(build("binary64_apply.c", "-DAGAINST_LIBM", "-shared", "-fPIC", "-march=x86-64-v3", compiler="gcc"))
    )
    function = getattr(library, f"worst_{name}")
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_uint, ctypes.c_uint, ctypes.c_ulong, ctypes.POINTER(ctypes.c_uint)]
    where = ctypes.c_uint(0)
    assert function(3, 7, (1 << 32) // 7, ctypes.byref(where)) < 0.5 + 2.0**-24, hex(where.value)


def test_the_text_names_the_constants_of_the_code() -> None:
    runtime = ROOT / "compiler_kernels" / "runtime"
    header = "".join((runtime / name).read_text(encoding="utf-8") for name in ("ca1_double.h", "ca1_circular.h"))
    constants = re.findall(r"0x1\.[0-9a-f]+p[+-]\d+|0x[0-9A-F]{16}", TEXT)
    assert constants
    assert all(value in header for value in constants)
