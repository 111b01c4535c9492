"""Triton kernels compiled for a named chip without a GPU: what stands in their PTX. None is executed here."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from needs import needs_nvcc

sys.path.insert(0, str(Path(__file__).parent.parent / "cuda"))

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx_builder import Builder
from test_cuda_conv import conv_model
from test_triton_text import POLICY, _elementwise, _generated, _products, _small_products, any_convolution, any_product
from triton_models import DIRECT, planned

from benchmarks import gpu_triton
from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90
from compiler_kernels.targets.cuda.ptx_gate import gate
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import triton
from compiler_kernels.toolchain.engines import build_engine
from compiler_kernels.toolchain.triton import compile_triton, placed

pytestmark = pytest.mark.skipif(
    triton.installed_version() != triton.VERSION, reason=f"needs Triton {triton.VERSION}: pip install 'cuvil[triton]'"
)


def _compiled(model, gpu=SM_90):
    _, text = planned(model, DIRECT)
    return text, compile_triton(text.encode(), gpu)


def _function(ptx: str, name: str) -> str:
    return ptx.partition(f".entry {name}(")[2].partition("\n.visible")[0]


def _chains(links: list[tuple[str, str]]) -> list[int]:
    """Lengths of the chains of (result, addend); the last result of one may be the register that begins it again."""
    following = {addend: result for result, addend in links}
    starts = set(following) - set(following.values())
    lengths = []
    while following:
        at = starts.pop() if starts else next(iter(following))
        length = 0
        while at in following:
            at = following.pop(at)
            length += 1
        lengths.append(length)
    return lengths


def test_a_convolution_is_chains_of_fma_and_the_additions_of_the_tree_and_of_the_bias():
    """160 channels 3x3: 20 leaves of 72, two levels of the tree."""
    text, made = _compiled(conv_model(1, 160, 16, (4, 4), (3, 3), relu=False))
    kernels = made.facts["kernels"]
    name = next(n for n in kernels if re.search(r"_k2_conv", n))
    high, wide = map(int, re.search(rf"def {name}\(.*?tl.zeros\(\((\d+), (\d+)\)", text, re.DOTALL).groups())
    each = high * wide // kernels[name]["threads"]
    # per result: a chain of 72 products and 8 of zeros, one addition for each level and one for the bias
    assert kernels[name]["ptx_instructions"] == {"fma.rn.f32": 80 * each, "add.rn.f32": 3 * each}
    found = re.findall(r"fma\.rn\.f32\s+(%\w+), %\w+, %\w+, (%\w+|0f00000000);", _function(made.text, name))
    assert [c for _, c in found].count("0f00000000") == each  # every chain begins from +0
    links = [(d, f"{c} {n}" if c.startswith("0f") else c) for n, (d, c) in enumerate(found)]
    assert max(Counter(c for _, c in links).values()) == max(Counter(d for d, _ in links).values()) == 1
    assert _chains(links) == [80] * each


def test_a_bias_does_not_begin_the_chain_of_a_single_leaf():
    """The pass triton-combine would make ``dot(a, b, bias)`` of ``dot(a, b, 0) + bias``."""
    model = conv_model(1, 16, 16, (8, 8), (1, 1), relu=False)
    text, made = _compiled(model)
    kernels = made.facts["kernels"]
    assert all("add.rn.f32" in k["ptx_instructions"] for k in kernels.values())
    trapped = compile_triton(text.replace(", max_num_imprecise_acc=1", "").encode(), SM_90).facts["kernels"]
    assert any("add.rn.f32" not in k["ptx_instructions"] for k in trapped.values())


@pytest.mark.parametrize("gpu", [SM_80, SM_90])
@pytest.mark.parametrize("model", [_products, _elementwise, _small_products])
def test_every_kernel_compiles_and_passes_the_gate(model, gpu):
    _, made = _compiled(model(), gpu)
    report = gate(made.text)
    assert not report.violations
    assert "fma.rn.f32" in report.counts and (model is _small_products or "div.rn.f32" in report.counts)
    assert not re.search(r"\.extern|_\$_str", made.text)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from([any_convolution, any_product]), st.sampled_from([SM_80, SM_90]))
def test_kernels_of_any_shape_compile_and_pass_the_gate(data, model, gpu):
    _, made = _compiled(model(data), gpu)
    assert not gate(made.text).violations


@pytest.mark.slow
@needs_nvcc
def test_the_comparison_on_a_device_runs_in_emulation(tmp_path):
    """With scalar code in the place of Triton's kernels: the program works, and says that it emulated."""
    assert gpu_triton.main(["mlp", "--emulate", "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["emulated"] and found["left_out"] == [] and len(found["nets"]["mlp"]["launches"]) == 5


def test_the_gate_refuses_what_triton_makes_of_a_sum_with_the_default_precision():
    text, _ = _compiled(_products())
    made = compile_triton(text.replace('input_precision="ieee", ', "").encode(), SM_90)
    assert any("matrix instruction" in v for v in gate(made.text).violations)


def test_the_same_text_gives_the_same_ptx_in_another_folder():
    _, first = _compiled(conv_model(1, 16, 16, (6, 6), (3, 3)))
    _, second = _compiled(conv_model(1, 16, 16, (6, 6), (3, 3)))
    assert first == second and "/tmp" not in first.text


@pytest.mark.parametrize(
    ("facts", "ptx"),
    [
        ({"shared": 16, "scratch": 64}, ".visible .entry k("),
        ({"shared": 64 * 1024, "scratch": 0}, ".visible .entry k("),
        ({"shared": 0, "scratch": 0}, ".visible .entry k(\n.visible .entry l("),
        ({"shared": 0, "scratch": 0}, ".visible .entry k(\n mov.b32 %r1, _$_str;"),
    ],
)
def test_a_kernel_that_the_host_library_could_not_launch_is_a_defect(facts, ptx):
    with pytest.raises(CuvilError, match="a defect of Cuvil"):
        placed("k", ptx, facts)


@needs_nvcc
@pytest.mark.parametrize("chip", ["sm_90", "sm_80"])
def test_an_engine_holds_both_generators_kernels_in_one_image(chip):
    b = Builder()
    b.output(b.op("Softmax", b.op("MatMul", b.input(8, 70), b.constant(70, 24)), axis=-1))
    target = resolve_target(f"cuda-{chip}")
    files = _generated(POLICY, b.model(), target.triple)
    built, again = (build_engine(files, target) for _ in range(2))
    assert built.images == again.images and built.data == again.data
    report = built.report["cuda"]
    assert report["triton"]["version"] == triton.VERSION and report["compiler"]["name"] == "nvcc"
    for name in report["triton"]["kernels"]:
        assert name.encode() in built.images["kernels.cubin"]
        assert chip == "sm_90" or name.encode() in built.images["kernels.ptx"]
