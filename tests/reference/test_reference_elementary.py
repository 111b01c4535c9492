"""The elementary functions against the check values of the text and against exact mathematics."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest

from evidence.reference import elementary
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode
from evidence.reference.interpreter import evaluate

TEXT = (Path(__file__).parents[2] / "docs" / "arithmetic-elementary.md").read_text(encoding="utf-8")


def check_rows(first_heading: str) -> list[list[str]]:
    """Body rows of the check-value table of section 10 whose header starts with ``first_heading``."""
    lines = TEXT[TEXT.index("## 10. Check values") :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def from_words(words: list[str]) -> np.ndarray:
    return np.array([int(w, 16) for w in words], dtype=np.uint32).view(np.float32)


def apply(op: str, *operands: np.ndarray, **attrs: object) -> np.ndarray:
    return evaluate(ARITHMETICS["ca1"], RefNode(op, (), "y", operands[0].shape, "float32", attrs), list(operands))


COLUMNS = [
    ("exp", {}), ("log", {}), ("erf", {}), ("tanh", {}), ("sigmoid", {}), ("softplus", {}), ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
]  # fmt: skip


@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_check_values_of_the_text(column: int) -> None:
    rows = check_rows("x | exp")
    assert len(rows) >= 10
    op, attrs = COLUMNS[column]
    got = apply(op, from_words([row[0] for row in rows]), **attrs)
    assert [f"0x{int(w):08x}" for w in got.view(np.uint32)] == [row[1 + column] for row in rows]


def test_check_values_of_pow() -> None:
    rows = check_rows("x | y")
    x, y, expected = (from_words([row[i] for row in rows]) for i in range(3))
    assert apply("pow", x, y).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("name", "low", "high", "bound"),
    [
        ("exp", -103, 88, 0.9),
        ("log", 0, 1e30, 0.95),
        ("erf", -5, 5, 1.05),
        ("tanh", -12, 12, 1.4),
        ("sigmoid", -100, 100, 2.4),
    ],
)
def test_error_stays_below_the_stated_bound(name: str, low: float, high: float, bound: float) -> None:
    rng = np.random.default_rng(1)
    uniform = rng.uniform(low, high, 150)
    near_zero = np.sign(high - 1e-9) * np.exp(rng.uniform(-90, 0, 50))
    x = np.concatenate([uniform, near_zero]).astype(np.float32)
    exact = {"sigmoid": lambda v: 1 / (1 + mpmath.exp(-v))}.get(name) or getattr(mpmath, name)
    with mpmath.workprec(200):
        for value, got in zip(x, getattr(elementary, name)(x), strict=True):
            true = exact(mpmath.mpf(float(value)))
            unit = mpmath.mpf(2) ** (max(int(mpmath.floor(mpmath.log(abs(true) or 2.0**-200, 2))), -126) - 23)
            assert abs(mpmath.mpf(float(got)) - true) <= bound * unit, (name, value)


def test_pow_special_cases_follow_c99() -> None:
    """Every pair of special operands against the C library's pow in binary64 (F.9.4.4 leaves no choice for these)."""
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -2, 3, -3, 0.5, -0.5, 2.5], dtype=np.float32)
    x, y = (v.reshape(-1) for v in np.meshgrid(special, special))
    got = apply("pow", x, y)
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    exact = ~(np.isin(np.abs(x), [2, 3, 0.5, 2.5]) & np.isin(np.abs(y), [0.5, 2.5]))
    same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
    assert same[exact].all()
    np.testing.assert_allclose(got, expected, rtol=1e-6)
