"""Sizes as C: what a compiler makes of ``c_text`` gives the numbers that ``evaluate`` gives."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from compiler_kernels.ir.dims import Expr, Size, evaluate, floordiv, maximum, minimum, symbol
from compiler_kernels.ir.dims_text import C_HELPERS, c_text
from compiler_kernels.toolchain.zig import zig_cache, zig_executable

NAMES = {"batch": "n[0]", "height": "n[1]", "w.1": "n[2]"}


def some_size(rng: random.Random, depth: int) -> Size:
    if depth == 0:
        return rng.choice([symbol(rng.choice(list(NAMES))), rng.randint(-9, 9)])
    a, b = some_size(rng, depth - 1), some_size(rng, depth - 1)
    choice = rng.randrange(7)
    if choice == 5:
        return floordiv(a, rng.choice([-7, -2, 2, 3, 64]))
    if choice == 6:
        return floordiv(a, symbol(rng.choice(list(NAMES))))
    return [a + b, a - b, a * b, minimum(a, b), maximum(a, b)][choice]


def test_c_computes_the_same_numbers(tmp_path: Path) -> None:
    rng = random.Random(7)
    sizes = [s for s in (some_size(rng, 3) for _ in range(150)) if isinstance(s, Expr)]
    points = [{name: rng.choice([1, 2, 7, 64, 100_000]) for name in NAMES} for _ in range(8)]
    rows = ", ".join("{" + ", ".join(f"{p[n]}LL" for n in NAMES) + "}" for p in points)
    lines = "\n".join(f'  printf("%lld\\n", {c_text(s, NAMES)});' for s in sizes)
    source = tmp_path / "sizes.c"
    source.write_text(
        f"#include <stdio.h>\n{C_HELPERS}static const long long points[][3] = {{{rows}}};\n"
        f"int main(void)\n{{\n for (int i = 0; i < {len(points)}; i++) {{\n  const long long *n = points[i];\n{lines}\n"
        " }\n return 0;\n}\n"
    )
    cache = zig_cache()
    environment = {"PATH": os.defpath, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(tmp_path / "zig")}
    words = [
        str(zig_executable()),
        "cc",
        "-O1",
        "-Wall",
        "-Werror",
        "-fsanitize=undefined",
        "-fsanitize-trap=undefined",
    ]
    subprocess.run([*words, str(source), "-o", str(tmp_path / "sizes")], env=environment, check=True)
    printed = subprocess.run([str(tmp_path / "sizes")], check=True, capture_output=True, text=True).stdout.split()
    wanted = [evaluate(s, p) for p in points for s in sizes]
    assert max(abs(w) for w in wanted) < 2**63
    assert [int(p) for p in printed] == wanted


def test_a_symbol_without_a_name_in_c() -> None:
    with pytest.raises(KeyError, match="height"):
        c_text(symbol("height") // 2, {"batch": "b"})
