"""The text of Triton kernels, executed in NumPy: every bit of the scalar section's kernels. Needs no Triton."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "cuda"))

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy_triton import special_values
from onnx_builder import Builder
from test_cuda_conv import conv_model
from triton_models import DIRECT, check_text, planned

from compiler_kernels.compile import freeze_model, generate_frozen
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.policy import load_policy
from compiler_kernels.stages import backend
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.targets.triton.emit import triton_kernels
from compiler_kernels.toolchain import triton
from compiler_kernels.toolchain.engines import build_engine
from evidence import equivalence
from evidence.sbom import linked


@pytest.mark.parametrize(
    ("model", "kernels"),
    [
        (conv_model(1, 32, 48, (9, 7), (3, 3), residual=False), 3),
        (conv_model(2, 16, 24, (7, 7), (3, 3), strides=[2, 2], dilations=[2, 1]), 3),
        (conv_model(1, 16, 16, (5, 6), (3, 3), residual=True), 3),
        (conv_model(1, 16, 16, (8, 8), (5, 5)), 3),  # leaves are parts of a kernel
        (conv_model(1, 20, 20, (6, 6), (1, 1)), 3),  # the last channel block is not full
        (conv_model(1, 3, 20, (11, 9), (7, 7), first=True, strides=[2, 2]), 2),
        (conv_model(1, 1, 4, (8, 8), (3, 3), first=True), 2),  # one leaf, shorter than a dot
        (conv_model(1, 16, 32, (30,), (3,)), 3),
        (conv_model(1, 16, 16, (3, 4, 5), (3, 3, 3)), 3),
        (conv_model(1, 32, 32, (6, 6), (3, 3), group=2), 3),
        (conv_model(1, 24, 24, (9, 9), (3, 3), group=24), 3),
        (conv_model(1, 160, 16, (4, 4), (3, 3)), 3),  # more leaves than a node of the tree has
    ],
)  # fmt: skip
def test_convolutions(model, kernels):
    assert len(check_text(model, DIRECT)) == kernels


def any_convolution(data) -> bytes:
    rank = data.draw(st.integers(1, 3))
    sizes = {1: 40, 2: 9, 3: 5}[rank]
    size = [data.draw(st.integers(1, sizes)) for _ in range(rank)]
    kernel = [data.draw(st.integers(1, {1: 9, 2: 5, 3: 3}[rank])) for _ in range(rank)]
    strides, dilations = ([data.draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    depthwise = data.draw(st.booleans())
    channels = data.draw(st.sampled_from([1, 3, 8, 15, 16, 17, 24, 32, 48, 72]))
    first = not depthwise and channels < 16 and data.draw(st.booleans())
    outputs = channels if depthwise else data.draw(st.sampled_from([1, 8, 16, 20, 33]))
    return conv_model(
        data.draw(st.integers(1, 2)), channels, outputs, size, kernel, relu=data.draw(st.booleans()), first=first,
        strides=strides, dilations=dilations, group=channels if depthwise else 1,
        pads=[k * d // 2 for k, d in zip(kernel, dilations, strict=True)] * 2,
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_convolutions_of_any_shape(data):
    assert check_text(any_convolution(data), DIRECT)


def _products() -> bytes:
    b = Builder(seed=5)
    x = b.input(1, 40, 80)
    b.output(b.op("MatMul", x, b.constant(80, 24)))
    wide = b.op("Add", b.op("MatMul", x, b.constant(80, 40)), b.constant(40))
    b.output(b.op("Mul", wide, b.constant(1)))
    a, c = b.input(2, 3, 10, 32), b.input(2, 3, 10, 32)
    scores = b.op("MatMul", a, b.op("Transpose", c, perm=[0, 1, 3, 2]))
    b.output(b.op("Div", scores, b.constant(1, values=[8.0])))
    row = b.input(2, 600)
    b.output(b.op("Gemm", row, b.constant(7, 600), b.constant(7), transB=1, alpha=0.5, beta=2.0))
    b.output(b.op("Relu", b.op("Gemm", row, b.constant(600, 5))))
    few = b.input(4, 9)
    b.output(b.op("MatMul", few, b.constant(9, 3)))
    return b.model()


def _small_products() -> bytes:
    """Axes of one element, which have no steps."""
    b = Builder(seed=6)
    b.output(b.op("MatMul", b.input(1, 1), b.constant(1, 1)))
    b.output(b.op("Sub", b.op("MatMul", b.input(1, 3), b.constant(3, 1)), b.constant(1)))
    b.output(b.op("MatMul", b.input(2, 1, 20), b.op("Transpose", b.input(1, 20), perm=[1, 0])))
    b.output(b.op("Add", b.op("MatMul", b.input(5, 1), b.constant(1, 7)), b.input(5, 1)))
    b.output(b.op("MatMul", b.input(17), b.constant(17, 3)))
    b.output(b.op("MatMul", b.input(3, 17), b.constant(17)))
    return b.model()


@pytest.mark.parametrize("special", [False, True])
def test_products_with_axes_of_one_element(special):
    assert len(check_text(_small_products(), special=special)) == 6


def test_products():
    assert len(check_text(_products(), special=True)) == 6


def any_product(data) -> bytes:
    b = Builder(seed=data.draw(st.integers(0, 99)))
    rows, columns = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    depth = data.draw(st.one_of(st.integers(1, 80), st.sampled_from([128, 512, 513, 700, 1100])))
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    x = b.input(*lead, rows, depth)
    if data.draw(st.booleans()):
        w = b.constant(depth, columns)
    else:
        w = b.op("Transpose", b.input(columns, depth), perm=[1, 0])
    y = b.op("MatMul", x, w)
    if data.draw(st.booleans()):
        y = b.op("Sub", y, b.constant(columns) if data.draw(st.booleans()) else b.input(rows, 1))
    if lead == [] and data.draw(st.booleans()):
        y = b.op("Gemm", y, b.constant(columns, 5), b.constant(rows, 5), alpha=1.5, beta=0.5)
    b.output(y)
    return b.model()


@pytest.mark.slow
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_products_of_any_shape(data):
    assert check_text(any_product(data), special=data.draw(st.booleans()))


def test_an_equivalence_report_says_that_triton_kernels_were_not_executed():
    target = resolve_target("cuda-sm_90")
    grade = equivalence.grade_of(target, ("/usr/bin/env",), ["k1", "k2"])
    assert "no GPU ran them; 2 Triton kernels were compiled and inspected, not executed" in grade
    assert "Triton" not in equivalence.grade_of(target, ("/usr/bin/env",))


def test_the_bill_of_materials_names_both_compilers():
    compiler = {"name": "nvcc", "version": "13.0.88", "sha256": "0" * 64, "programs_sha256": {"ptxas": "2" * 64}}
    report = {"cuda": {"compiler": compiler, "triton": {"name": "triton", "version": "3.6.0", "sha256": "1" * 64}}}
    assert [p.purl for p in linked.device_compiler(report)][-1] == "pkg:pypi/triton@3.6.0"
    assert len(linked.device_compiler({"cuda": {"compiler": compiler}})) == 1


UNARY = (
    "Relu Neg Abs Sqrt Reciprocal Floor Ceil Exp Log Erf Tanh Sigmoid Softplus HardSwish Elu LeakyRelu HardSigmoid"
).split()


def _elementwise() -> bytes:
    """Every elementwise operation on a blocked value, which a depthwise 1x1 convolution copies."""
    b = Builder()
    ones = b.constant(16, 1, 1, 1, values=np.ones((16, 1, 1, 1)))
    c, d = (b.op("Conv", b.input(1, 16, 8, 4), ones, group=16, kernel_shape=[1, 1]) for _ in range(2))
    for kind in UNARY:
        b.output(b.op(kind, c, **({"alpha": 0.3} if kind in ("Elu", "LeakyRelu") else {})))
    for approximate in ("none", "tanh"):
        b.output(b.op("Gelu", c, approximate=approximate))
    for kind in ("Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu"):
        b.output(b.op(kind, c, d))
    b.output(b.op("Clip", c, b.constant(values=-0.5), b.constant(values=6.0)))
    b.output(b.op("Mul", b.op("Sigmoid", c), b.op("Add", d, b.constant(1, 16, 1, 1))))
    for value in (c, d):
        b.output(value)
    return b.model(opset=20)


def test_elementwise_operations():
    names = check_text(
        _elementwise(),
        inputs=[special_values().reshape(1, 16, 8, 4), special_values()[::-1].copy().reshape(1, 16, 8, 4)],
    )
    missing = [k for k in UNARY if not any(k.lower() in n.replace("_", "") for n in names)]
    assert not missing and len(names) > len(UNARY) + 9


def test_a_subnormal_constant_has_no_form():
    """Triton takes such a literal for binary64."""
    b = Builder()
    ones = b.constant(16, 1, 1, 1, values=np.ones((16, 1, 1, 1)))
    c = b.op("Conv", b.input(1, 16, 4, 4), ones, group=16, kernel_shape=[1, 1])
    b.output(b.op("LeakyRelu", c, alpha=1e-40))
    b.output(c)
    launches, _ = planned(b.model())
    kinds = {launch.function.ops[0].kind: launch.kernel.triton is not None for launch in launches}
    assert kinds["leaky_relu"] is False and kinds["conv"] is True


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("acc = tl.zeros", "acc = 1e-7 + tl.zeros"),
        ("total = total + acc", "total = acc + total * 1.0000001"),
        ("(i % 8)", "(7 - i % 8)"),
        (" + bias", ""),
        ("(eh < 1) |", "(eh < 0) |"),
    ],
)
def test_the_comparison_finds_a_changed_text(right, wrong):
    model = conv_model(1, 16, 16, (6, 6), (3, 3))
    assert right in planned(model, DIRECT)[1]
    with pytest.raises(AssertionError, match=r"differ|outside of the buffer"):
        check_text(model, DIRECT, change=lambda text: text.replace(right, wrong))


POLICY = b"version: 1\nmodel: {name: m, version: '1'}\ngpu: {kernels: triton}\n"


def _generated(policy: bytes, model: bytes = b"", target: str = "cuda-sm_90") -> dict[str, bytes]:
    chosen = load_policy(policy, "policy.yaml")
    return generate_frozen(freeze_model(model or _products(), policy=chosen), resolve_target(target))


def test_the_policy_chooses_the_generator_and_every_launch_shows_it():
    files = _generated(POLICY)
    names = triton_kernels(files["kernels_triton.py"].decode())
    steps = files["engine.c"].decode().partition("cuvil_steps[] = {")[2].partition("};\n")[0]
    assert len(names) == steps.count("cuvil_triton_") == 6
    assert "kernels_triton.py: SHA3-512" in files["engine.c"].decode()
    plain = _generated(POLICY.replace(b"triton", b"cuda"))
    assert "kernels_triton.py" not in plain and "triton" not in plain["engine.c"].decode()


def test_the_compiler_configuration_names_triton(monkeypatch):
    chosen = load_policy(POLICY, "policy.yaml").canonical_json()
    before = backend.config_digest(chosen, b"{}", "cuda-sm_90")
    cpu = backend.config_digest(chosen, b"{}", "x86_64-linux-musl")
    monkeypatch.setattr(triton, "VERSION", "9.9.9")
    assert backend.config_digest(chosen, b"{}", "cuda-sm_90") != before
    assert backend.config_digest(chosen, b"{}", "x86_64-linux-musl") == cpu


@pytest.mark.parametrize(
    ("version", "error", "sentence"),
    [
        ("", UnsupportedError, r"is triton, which is not installed: run pip install 'cuvil\[triton\]'"),
        ("3.1.0", UsageError, r"Triton 3.1.0 is installed, and engines are compiled by Triton 3.6.0"),
    ],
)  # fmt: skip
def test_without_the_pinned_triton_a_build_is_refused(monkeypatch, version, error, sentence):
    monkeypatch.setattr(triton, "installed_version", lambda: version)
    with pytest.raises(error, match=sentence):
        build_engine(_generated(POLICY), resolve_target("cuda-sm_90"))
