"""Fit the polynomial coefficients of Canonical Arithmetic 1's elementary functions.

Run ``python benchmarks/fit_elementary.py``: it prints every coefficient as an exact hexadecimal float with its bits, in
the order of docs/arithmetic-elementary.md, and the largest approximation error of the rounded polynomial (before any
evaluation rounding). Needs mpmath. The method is the Remez exchange on a dense grid (Remez 1934), with the coefficients
rounded to binary32 one at a time for the lowest degrees, the remaining ones fitted again after each rounding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp  # type: ignore[import-untyped]

Fn = Callable[[mp.mpf], mp.mpf]
GRID = 400
REFIT = 3  # beyond this degree the rounding of a coefficient moves the polynomial by less than 2^-31


@dataclass(frozen=True)
class Problem:
    """Minimise ``max |weight(x) * (sum c[j] * basis(x, j) - target(x))|`` over ``count`` coefficients on [lo, hi]."""

    name: str
    count: int
    lo: mp.mpf
    hi: mp.mpf
    basis: Callable[[mp.mpf, int], mp.mpf]
    target: Fn
    weight: Fn


def to_binary32(value: mp.mpf) -> float:
    """Nearest binary32 value (coefficients lie far from a tie and far from the subnormal range)."""
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def _grid(problem: Problem) -> list[mp.mpf]:
    """Chebyshev points: dense towards the ends, where the extrema of the error crowd."""
    mid, half = (problem.lo + problem.hi) / 2, (problem.hi - problem.lo) / 2
    return [mid - half * mp.cos(mp.pi * i / GRID) for i in range(GRID + 1)]


def remez(problem: Problem, fixed: list[float]) -> list[mp.mpf]:
    """Best free coefficients given the first ``len(fixed)`` ones. The basis must satisfy the Haar condition."""
    xs = _grid(problem)
    first, free = len(fixed), problem.count - len(fixed)
    rows = [[problem.weight(x) * problem.basis(x, j) for j in range(problem.count)] for x in xs]
    rhs = [
        problem.weight(x) * problem.target(x) - mp.fsum(c * r for c, r in zip(fixed, row, strict=False))
        for x, row in zip(xs, rows, strict=True)
    ]
    picks = [round((len(xs) - 1) * (1 - mp.cos(mp.pi * i / free)) / 2) for i in range(free + 1)]
    solution: list[mp.mpf] = []
    for _ in range(60):
        system = mp.matrix(free + 1, free + 1)
        right = mp.matrix(free + 1, 1)
        for i, p in enumerate(picks):
            for j in range(free):
                system[i, j] = rows[p][first + j]
            system[i, free] = (-1) ** i
            right[i] = rhs[p]
        answer = mp.lu_solve(system, right)
        solution = [answer[j] for j in range(free)]
        errors = [
            mp.fsum(c * row[first + j] for j, c in enumerate(solution)) - b for row, b in zip(rows, rhs, strict=True)
        ]
        chosen = _alternation(errors, free + 1)
        if chosen is None or chosen == picks:
            break
        picks = chosen
    return solution


def _alternation(errors: list[mp.mpf], wanted: int) -> list[int] | None:
    """Indices of ``wanted`` alternating extrema of the error, or None when the error has fewer."""
    peaks: list[int] = []
    for i, e in enumerate(errors):
        if not peaks or (errors[peaks[-1]] > 0) != (e > 0):
            peaks.append(i)
        elif abs(e) > abs(errors[peaks[-1]]):
            peaks[-1] = i
    while len(peaks) > wanted:
        peaks.pop(0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1)
    return peaks if len(peaks) == wanted else None


def fit(problem: Problem) -> tuple[list[float], mp.mpf]:
    """Coefficients as binary32 values, lowest degree first, and the largest weighted error of that polynomial."""
    done: list[float] = []
    for _ in range(REFIT):
        done.append(to_binary32(remez(problem, done)[0]))
    done += [to_binary32(c) for c in remez(problem, done)]
    worst = max(
        abs(problem.weight(x) * (mp.fsum(c * problem.basis(x, j) for j, c in enumerate(done)) - problem.target(x)))
        for x in _grid(problem)
    )
    return done, worst


def problems() -> list[Problem]:
    """The five polynomials of the text; every domain is a little wider than what the reduction can produce.

    Weights turn the polynomial's error into the relative error of the function; where that weight vanishes at zero it
    is kept above a small positive value, because the exchange needs a basis without a common zero.
    """
    third, half_ln2 = mp.mpf("0.33334"), mp.mpf("0.3467")
    erf_split, tanh_split = mp.mpf("0.8204"), mp.mpf("0.6251")
    tiny = mp.mpf("1e-30")

    def floor(value: mp.mpf, at_least: str) -> mp.mpf:
        return max(abs(value), mp.mpf(at_least))

    def apart(x: mp.mpf) -> mp.mpf:
        """x, moved off a removable singularity at zero (40 further digits are carried)."""
        return x if abs(x) > tiny else tiny

    return [
        # exp(r) = 1 + r + r^2 C(r)
        Problem(
            "exp", 5, -half_ln2, half_ln2, lambda r, j: r**j, _exp_tail, lambda r: floor(r * r, "0.01") * mp.exp(-r)
        ),
        # log(1 + f) = f + f^2 C(f)
        Problem(
            "log",
            9,
            -third,
            third,
            lambda f, j: f**j,
            _log_tail,
            lambda f: floor(apart(f) ** 2 / mp.log1p(apart(f)), "0.02"),
        ),
        # erf(x) = x + x C(x^2)
        Problem(
            "erf-small",
            6,
            mp.mpf(0),
            erf_split,
            lambda x, j: x ** (2 * j),
            lambda x: mp.erf(apart(x)) / apart(x) - 1,
            lambda x: apart(x) / mp.erf(apart(x)),
        ),
        # -log(1 - erf(t)) = t + t C(t)
        Problem(
            "erf-large",
            7,
            erf_split - mp.mpf("0.0002"),
            mp.mpf(4),
            lambda t, j: t**j,
            lambda t: -mp.log(mp.erfc(t)) / t - 1,
            lambda t: t * mp.erfc(t) / mp.erf(t),
        ),
        # tanh(x) = x + x x^2 C(x^2)
        Problem(
            "tanh-small",
            5,
            mp.mpf(0),
            tanh_split,
            lambda x, j: x ** (2 * j),
            _tanh_tail,
            lambda x: floor(x * x, "0.02"),
        ),
    ]


def _exp_tail(r: mp.mpf) -> mp.mpf:
    return mp.fsum(r**k / mp.factorial(k + 2) for k in range(24))


def _log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f) / (f * f) if abs(f) > mp.mpf("1e-10") else -mp.mpf(1) / 2 + f / 3


def _tanh_tail(x: mp.mpf) -> mp.mpf:
    return (mp.tanh(x) - x) / x**3 if abs(x) > mp.mpf("1e-8") else -mp.mpf(1) / 3 + 2 * x * x / 15


def main() -> None:
    mp.mp.dps = 60
    for problem in problems():
        coefficients, worst = fit(problem)
        print(f"{problem.name}: largest weighted error {mp.nstr(worst, 3)} = 2^{mp.nstr(mp.log(worst, 2), 4)}")
        for j, c in enumerate(coefficients):
            bits = struct.unpack("<I", struct.pack("<f", c))[0]
            print(f"  c{j} = {c.hex()}  0x{bits:08x}")


if __name__ == "__main__":
    main()
