"""Vector kernels of integer sums: the reference's bits on every instruction set, and onnxruntime's values."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from integer_models import Drawn, draw

from compiler_kernels.targets.isa import AVX2, AVX512, NEON, SCALAR, Isa
from compiler_kernels.targets.registry import resolve_target, runner
from evidence.conformance.build import build
from evidence.conformance.cases import Case
from evidence.conformance.compare import bit_difference
from evidence.conformance.execute import execute
from evidence.conformance.prepare import Prepared, prepare

CPU = {
    AVX2.name: "avx2",
    AVX512.name: "avx512bw",
}


def supported(isa: Isa) -> bool:
    """Whether this machine runs, or emulates, programs of ``isa``."""
    if isa is NEON:
        return runner(resolve_target("aarch64-linux-musl")) is not None
    if isa is SCALAR:
        return os.uname().machine == "x86_64"
    file = Path("/proc/cpuinfo")
    return file.is_file() and CPU[isa.name] in file.read_text().split()


def compiled(drawn: list[Drawn], isa: Isa) -> list[Prepared]:
    found = []
    for n, one in enumerate(drawn):
        case = Case(f"m{n}", one.op, one.model, one.inputs, {})
        made = prepare(case, one.model.SerializeToString(), one.inputs, isa)
        assert isinstance(made, Prepared), made
        found.append(made)
    return found


def check(seeds: range, isa: Isa) -> None:
    """Bits of the reference; onnxruntime, whose requantisation multiplies by sx * sw / sy, differs by one step."""
    drawn = [draw(seed) for seed in seeds]
    tests = compiled(drawn, isa)
    assert any(f"ca1_madd_v{isa.lanes}(" in test.engine.text for test in tests), "no model has the integer kernel"
    assert any("*taps = " in test.engine.text for test in tests), "no model has the kernel of groups"
    target = resolve_target("aarch64-linux-musl" if isa is NEON else "x86_64-linux-musl")
    with tempfile.TemporaryDirectory() as root:
        for built in build(tests, target, isa, Path(root)):
            assert built.program is not None, built.message
            for test, got in zip(built.tests, execute(built.program, built.tests, runner(target) or ()), strict=True):
                one = drawn[int(test.case.name[1:])]
                assert isinstance(got, dict), got
                assert not isinstance(test.reference, str), test.reference
                said = bit_difference("y", got["y"], test.reference["y"])
                assert not said, f"{one.op} {test.case.name}: {said}"
                session = onnxruntime.InferenceSession(
                    one.model.SerializeToString(), providers=["CPUExecutionProvider"]
                )
                wanted = session.run(None, one.inputs)[0].astype(np.float64)
                step = 0.2 if one.op == "Conv" else 1.0
                assert np.abs(got["y"].astype(np.float64) - wanted).max() <= step * 1.001


@pytest.mark.parametrize("isa", [SCALAR, AVX2, AVX512, NEON], ids=lambda isa: isa.name)
def test_integer_kernels(isa: Isa) -> None:
    if not supported(isa):
        pytest.skip(f"nothing here runs {isa.name}")
    check(range(12), isa)


@pytest.mark.slow
@pytest.mark.parametrize("isa", [SCALAR, AVX2, AVX512, NEON], ids=lambda isa: isa.name)
def test_many_integer_kernels(isa: Isa) -> None:
    if not supported(isa):
        pytest.skip(f"nothing here runs {isa.name}")
    check(range(12, 160), isa)
