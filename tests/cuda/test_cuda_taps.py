"""Winograd kernels that transform taps: the bits of transformed weights, for any shape, tile and number."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from emulation import engine_outputs, random_input, run_module
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from needs import needs_nvcc
from test_cuda_conv import conv_model, force, lowered_in_form, winograd_family

from compiler_kernels.arithmetic.winograd import transformed_weights
from compiler_kernels.compile import compile_model, freeze_model, generate_frozen
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import verify
from compiler_kernels.stage import Artifact
from compiler_kernels.stages.order import COMPILE_STAGES
from compiler_kernels.targets.cuda import taps
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.families import winograd_tiles
from compiler_kernels.targets.cuda.families.winograd_tiles import Tile
from compiler_kernels.targets.cuda.gpu import SM_80, SM_90
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.plan import plan
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import nvcc
from compiler_kernels.toolchain.emulator import Emulator, emulated_driver
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources


def layouts(module: Module) -> list[str]:
    return [w.type.layout.split(" ")[1] for w in module.main.weights if w.type.layout]


def check(model: bytes, leaf: int, monkeypatch: pytest.MonkeyPatch, gpu=SM_90, seed: int = 1) -> Module:
    """With taps, emulated, the output of the scalar section with transformed weights."""
    monkeypatch.setattr(taps, "SMALLEST", 0)
    frozen, module, store = lowered_in_form(model, leaf)
    changed = taps.with_taps(module, store, frozen.main, store, gpu)
    verify(changed)
    assert taps.TAPS in layouts(changed) and not any(name.startswith("w23") for name in layouts(changed))
    inputs = [random_input(v.type, seed + n) for n, v in enumerate(module.main.inputs)]
    wanted = run_module(module, store, inputs, emit=emit_fallback)
    got = run_module(changed, store, inputs, gpu)
    for name, value in wanted.items():
        assert np.array_equal(value.view(np.uint32), got[name].view(np.uint32)), name
    return changed


CASES: dict[str, tuple[bytes, int]] = {
    "odd ends, residual": (conv_model(1, 64, 64, (5, 7), (3, 3), residual=True), 32),
    "batch, channels not full": (conv_model(2, 20, 17, (6, 4), (3, 3), pads=[2, 0, 0, 2]), 16),
    "two nodes": (conv_model(1, 264, 32, (4, 4), (3, 3)), 16),
    "two whole nodes": (conv_model(1, 256, 16, (3, 5), (3, 3)), 16),
    "last leaf not full": (conv_model(1, 72, 40, (3, 9), (3, 3)), 32),
}
TILES = [
    ("two nodes", Tile(1, 4, 3, 8, 1, 4, buffers=2)),
    ("two nodes", Tile(2, 2, 1, 4, 1, 2)),
    ("two whole nodes", Tile(2, 2, 2, 4, 1, 2, buffers=2)),
    ("odd ends, residual", Tile(4, 1, 1, 8, 2, 2)),
    ("odd ends, residual", Tile(4, 1, 1, 4, 1, 1, buffers=2)),
    ("odd ends, residual", Tile(1, 2, 1, 4, 1, 1)),
    ("last leaf not full", Tile(2, 1, 1, 8, 1, 2, buffers=2)),
    ("last leaf not full", Tile(1, 1, 1, 4, 1, 2)),
]


@pytest.mark.parametrize("case", CASES)
def test_bits(case, monkeypatch):
    check(*CASES[case], monkeypatch)


def test_bits_on_sm_80(monkeypatch):
    check(*CASES["odd ends, residual"], monkeypatch, SM_80)


@pytest.mark.parametrize(("case", "tile"), TILES, ids=str)
def test_tile_and_split_change_no_bit(case, tile, monkeypatch):
    used = force(monkeypatch, winograd_family, winograd_tiles, tile)
    check(*CASES[case], monkeypatch)
    assert any(shape.taps for shape in used)


# Of every part of a block: all sixteen values of U, or its columns, of 32 groups of nine taps per warp.
KERNEL = """
extern "C" __global__ void NAME(const float *p0, float *y)
{
    float g[9];
    const int t = blockIdx.x * 32 + threadIdx.x;
    for (int k = 0; k < 9; k++) g[k] = p0[t * 9 + k];
    for (int part = 0; part < 4 / NB; part++) {
        float u[4 * NB];
        cuvil_transform_taps<NB, 1>(g, part, u);
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < NB; b++) y[t * 16 + a * 4 + part * NB + b] = u[a * NB + b];
    }
}
"""


def transformed(g: np.ndarray) -> dict[int, np.ndarray]:
    """U of groups of nine taps [count, 9] as the kernels compute it, by columns of a block: [count, 16]."""
    count = -(-len(g) // 32) * 32
    x = np.zeros((count, 9), np.float32)
    x[: len(g)] = g
    found = {}
    for columns in (1, 2, 4):
        name = f"transform{columns}"
        # the word by which the header is included
        text = "/* cuvil_winograd< */" + KERNEL.replace("NAME", name).replace("NB", str(columns))
        kernel = CudaKernel(name, text, (count // 32, 1, 1), 32)
        y = np.full((count, 16), np.nan, np.float32)
        Emulator([kernel]).launch(name, [x.ctypes.data, y.ctypes.data])
        found[columns] = y[: len(g)]
    return found


def same_bits(g: np.ndarray) -> None:
    wanted = transformed_weights("W23/32", g.reshape(-1, 1, 3, 3))[:, :, 0, 0].T
    for columns, u in transformed(g).items():
        assert np.array_equal(u.view(np.uint32), np.ascontiguousarray(wanted).view(np.uint32)), columns


def test_u_of_taps_of_every_size():
    """One magnitude, all magnitudes (so that binary64 rounds too), subnormal, huge, zeros of both signs."""
    rng = np.random.default_rng(11)
    count = 4000
    normal = rng.standard_normal((count, 9)).astype(np.float32)
    exponents = rng.integers(-149, 126, (count, 9))
    mixed = np.ldexp(normal, exponents).astype(np.float32)
    near = np.ldexp(normal, rng.integers(-40, 1, (count, 9))).astype(np.float32)
    small = rng.integers(-(2**24), 2**24, (count, 9)).astype(np.int32)
    tiny = (np.abs(small).astype(np.uint32) | (small < 0).astype(np.uint32) << 31).view(np.float32)
    huge = np.ldexp(normal, 124).astype(np.float32)
    zeros = np.where(rng.random((count, 9)) < 0.7, np.copysign(np.float32(0), normal), mixed).astype(np.float32)
    halves = np.ldexp(
        rng.integers(-3, 4, (count, 9)).astype(np.float32), rng.choice([-149, -148, -127, -126, 0], (count, 9))
    )
    every = np.concatenate([normal, mixed, near, tiny, huge, zeros, halves.astype(np.float32)])
    finite = np.isfinite(transformed_weights("W23/32", every.reshape(-1, 1, 3, 3))).all(axis=(0, 2, 3))
    assert finite.sum() > 0.9 * len(every)
    same_bits(every[finite])


def test_a_shape_decides_and_the_file_is_smaller():
    model = conv_model(1, 128, 128, (6, 6), (3, 3))
    frozen, module, store = lowered_in_form(model, 32)
    changed = taps.with_taps(module, store, frozen.main, store, SM_90)
    (before,) = [w for w in module.main.weights if w.type.layout.startswith("packed w23")]
    (after,) = [w for w in changed.main.weights if w.type.layout.startswith(f"packed {taps.TAPS}")]
    assert (before.type.nbytes, after.type.nbytes) == (128 * 128 * 64, 128 * 128 * 36)
    small, lowered, constants = lowered_in_form(conv_model(1, 64, 64, (6, 6), (3, 3)), 32)
    assert taps.with_taps(lowered, constants, small.main, constants, SM_90) is lowered, "little to save"


def test_a_layer_keeps_taps_by_its_share_of_the_constants():
    """Neither where it has little of the engine's constants nor where many pixels make the transform frequent."""
    modules = (lowered_in_form(conv_model(1, 256, 256, (n, n), (3, 3)), 32)[1] for n in (14, 96))
    (layer,), (large,) = ([g for g in m.graphs[1:] if taps.may_take_taps(g)] for m in modules)
    weights = 256 * 256 * 64
    assert taps.prefers_taps(layer, SM_90, 3 * weights)
    assert not taps.prefers_taps(layer, SM_90, 18 * weights), "layer 3 of ResNet-18"
    assert not taps.prefers_taps(large, SM_90, 3 * weights)


def test_constants_that_are_not_the_transform_stay():
    """Taps of another constant are never taken for those of this one."""
    frozen, module, store = lowered_in_form(conv_model(1, 128, 128, (6, 6), (3, 3)), 32)
    other, _, constants = lowered_in_form(conv_model(1, 128, 128, (6, 6), (3, 3), residual=True), 32)
    weight = next(w for w in other.main.weights if w.type.dims == (128, 128, 3, 3))
    changed = np.array(constants.get(weight))
    changed[5, 6, 1, 1] = np.nextafter(changed[5, 6, 1, 1], np.float32(9))
    moved = replace(weight, ref=constants.add(changed))
    weights = tuple(moved if w.id == weight.id else w for w in other.main.weights)
    assert taps.with_taps(module, store, replace(other.main, weights=weights), constants, SM_90) is module
    assert taps.with_taps(module, store, replace(frozen.main, weights=()), store, SM_90) is module


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_shapes(data):
    draw = data.draw
    channels, outputs = draw(st.sampled_from([16, 24, 48, 80])), draw(st.sampled_from([5, 16, 48]))
    size = [draw(st.integers(3, 9)) for _ in range(2)]
    model = conv_model(draw(st.integers(1, 3)), channels, outputs, size, (3, 3), pads=[draw(st.integers(0, 2))] * 4)
    with pytest.MonkeyPatch.context() as patch:
        check(model, draw(st.sampled_from([16, 32])), patch)


@needs_nvcc
def test_binary64_of_the_compiled_kernel():
    """The gate passes; of binary64 there are sums, differences, the exact factor and the one rounding, all .rn."""
    frozen, module, store = lowered_in_form(conv_model(1, 128, 128, (6, 6), (3, 3)), 32)
    launches = plan(taps.with_taps(module, store, frozen.main, store, SM_90), SM_90)
    text = unit_text([launch.kernel for launch in launches if "cuvil_winograd<" in launch.kernel.text])
    _, report = nvcc.compile_cuda({**runtime_sources(), **cuda_sources(), "kernels.cu": text.encode()}, SM_90)
    counts = report["ptx_instructions"]
    assert isinstance(counts, dict)
    assert {n for n in counts if ".f64" in n} == {"add.rn.f64", "sub.rn.f64", "mul.rn.f64", "cvt.rn.f32.f64"}


@pytest.mark.parametrize("target", ["cuda-sm_90", "x86_64-linux-musl"])
def test_the_stages_keep_taps_for_a_gpu_only(target):
    """What a GPU engine is compiled from holds taps, and its memory report counts them; frozen graph and L2 do not
    depend on the target."""
    policy = b"version: 1\nmodel: {name: net, version: '1'}\n"
    made = {
        "model.onnx": Artifact("model.onnx", conv_model(1, 128, 128, (6, 6), (3, 3))),
        "policy.yaml": Artifact("policy.yaml", policy),
    }
    config = {"model_filename": "m.onnx", "policy_filename": "p.yaml", "input_shapes": {}, "conversion": None}
    config |= {"target": target}
    for stage in COMPILE_STAGES[:-1]:
        made |= {f"{stage.name}/{a.name}": a for a in stage.execute(made, config).artifacts}
    of_l2, of_engine = (len(made[n].data) for n in ("ir_l2/weights.bin", "generated_source/engine_weights.bin"))
    assert "W23/32" in made["frozen_graph/frozen_graph.txt"].text and " w23_32 " in made["ir_l2/ir_l2.txt"].text
    assert of_l2 - of_engine == (128 * 128 * 28 if target.startswith("cuda") else 0)
    assert json.loads(made["generated_source/memory.json"].data)["weights_bytes"] == of_engine


@needs_nvcc
def test_an_engine_with_taps_gives_the_bits_of_the_cpu_engine(tmp_path):
    """As delivered, on the emulated driver: host program, offsets and constants included."""
    model = conv_model(1, 128, 128, (6, 6), (3, 3), residual=True)
    files = generate_frozen(freeze_model(model), resolve_target("cuda-sm_90"))
    assert b"TAPS = 1" in files["kernels.cu"]
    engine = compile_model(model, target="cuda-sm_90", kind="bin", output=tmp_path / "engine.bin")
    x = np.random.default_rng(3).standard_normal((1, 128, 6, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "driver").mkdir()
    words = [*emulated_driver(files["kernels.cu"], "sm_90", tmp_path / "driver"), engine, "--input", tmp_path / "x.npy"]
    words += ["--output-dir", tmp_path / "out"]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    wanted = engine_outputs(model, {"x": x})["y"]
    assert np.load(tmp_path / "out" / "y.npy").tobytes() == wanted.tobytes()
