"""The arena of GPU engines: inputs, outputs, workspace and the holes of concatenations; bits, verifier and report."""

from __future__ import annotations

import json
from dataclasses import replace

import emulation
import numpy as np
import onnx_builder
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cells import planned_offsets, sees_what_it_should

from compiler_kernels.compile import freeze_model
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.stretches import stretches
from compiler_kernels.ir.verify import complaints, verify
from compiler_kernels.ir.verify_memory import lifetimes
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import Numerics
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.c.program import Identity
from compiler_kernels.targets.cuda.arena import homes
from compiler_kernels.targets.cuda.bands import THRIFT, Thrift, bandable, borders
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.program import generate_cuda
from compiler_kernels.targets.cuda.schedule import Arrangement, arranged
from compiler_kernels.toolchain.emulator import Emulator
from cuvil_assets.memory_picture import draw_memory


class Net(onnx_builder.Builder):
    """Convolutions of one image, levels down and up, with skip connections."""

    def conv(self, x: str, channels: int, out: int, kernel: int = 3) -> str:
        weight = self.constant(out, channels, kernel, kernel)
        return self.op("Relu", self.op("Conv", x, weight, self.constant(out), pads=[kernel // 2] * 4))

    def down(self, x: str) -> str:
        return self.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])

    def up(self, x: str, channels: int) -> str:
        return self.op("ConvTranspose", x, self.constant(channels, channels, 2, 2), strides=[2, 2])


def unet(size: int = 16, channels: int = 16, levels: int = 2) -> bytes:
    """A U-Net of so many levels below the first."""
    net = Net()
    x, width, skips = net.input(1, 1, size, size), 1, []
    for _ in range(levels):
        x, width = net.conv(net.conv(x, width, channels), channels, channels), channels
        skips.append(x)
        x = net.down(x)
    x = net.conv(x, width, width)
    for skip in reversed(skips):
        x = net.conv(net.op("Concat", skip, net.up(x, width), axis=1), 2 * width, width)
    net.output(net.op("Sigmoid", net.conv(x, width, 1, 1)))
    return net.model()


def random_net(seed: int) -> bytes:
    """Convolutions, pools, sums and concatenations, some nested, of one image; one to three outputs."""
    rng, net = np.random.default_rng(seed), Net(seed)
    values = [(net.input(1, 16, 8, 8), 16, 8)]
    for _ in range(int(rng.integers(4, 12))):
        x, channels, size = values[-1 if rng.random() < 0.6 else int(rng.integers(len(values)))]
        kind = rng.choice(["conv", "conv", "down", "up", "concat", "concat", "add"])
        same = [v for v in values if v[2] == size and v[0] != x]
        if kind == "conv":
            out = int(rng.choice([16, 32]))
            values.append((net.conv(x, channels, out, int(rng.choice([1, 3]))), out, size))
        elif kind == "down" and size > 2:
            values.append((net.down(x), channels, size // 2))
        elif kind == "up" and size < 16:
            values.append((net.up(x, channels), channels, size * 2))
        elif kind == "concat" and same:
            other = same[int(rng.integers(len(same)))]
            values.append((net.op("Concat", x, other[0], axis=1), channels + other[1], size))
        elif kind == "add" and any(v[1] == channels for v in same):
            other = next(v for v in reversed(same) if v[1] == channels)
            values.append((net.op("Add", x, other[0]), channels, size))
    for value in dict.fromkeys([values[-1][0], *(values[int(rng.integers(len(values)))][0] for _ in range(2))]):
        net.output(net.op("Relu", value))
    return net.model()


ALWAYS = Thrift(64, 0.0)
"""Bands wherever they make the arena smaller."""
FORCED = Thrift(-(1 << 40), 0.0)
"""Bands wherever a kernel knows them."""
DIRECT = Numerics(winograd="forbid")


def _banded(module: Module) -> list[tuple[int, ...]]:
    """The rows of every function that computes a band."""
    return [f.ops[0].ints("rows") for f in module.graphs[1:] if f.ops[0].has("rows")]


def _compared(
    model: bytes, seeds: tuple[int, ...] = (1, 2), thrift: Thrift = THRIFT, numerics: Numerics | None = None
) -> Arrangement:
    """Emulates the launches on an arena full of NaN against the engine of this machine."""
    module, store = emulation.lowered(model, numerics=numerics)
    arrangement = arranged(module, SM_90, "g", thrift=thrift)
    inputs = [emulation.random_input(v.type, n) for n, v in enumerate(module.main.inputs)]
    options = {}
    if numerics is not None:
        options["policy"] = freeze_model(model).policy.model_copy(update={"numerics": numerics})
    named = {v.name: x for v, x in zip(module.main.inputs, inputs, strict=True)}
    wanted = emulation.engine_outputs(model, named, **options)
    emulator = Emulator([launch.kernel for launch in arrangement.launches])
    for seed in seeds:
        found = emulation.run_launches(arrangement.module, store, arrangement.launches, emulator, inputs, seed)
        for name, value in wanted.items():
            assert found[name].tobytes() == value.tobytes(), (name, seed)
    return arrangement


def test_a_unet_in_its_arena_gives_the_engine_s_bits():
    memory = _compared(unet()).memory
    shown = {b["node"] for b in memory["buffers"]}
    assert any(node.startswith("input ") for node in shown) and any(node.startswith("output ") for node in shown)
    assert sum("parts" in b for b in memory["buffers"]) == 2
    assert memory["arena_bytes"] < sum(b["bytes"] for b in memory["buffers"]) / 2


def test_a_workspace_lies_among_the_values():
    """A deep convolution on few pixels is split among blocks that meet in memory."""
    net = Net()
    x = net.input(1, 16, 8, 8)
    y = net.conv(net.conv(net.conv(x, 16, 256, 1), 256, 256), 256, 256)
    net.output(net.conv(y, 256, 16, 1))
    memory = _compared(net.model(), (1,)).memory
    work = [b for b in memory["buffers"] if b["node"].startswith("workspace of ")]
    assert work and all(b["begin"] == b["end"] for b in work)
    assert memory["arena_bytes"] < sum(b["bytes"] for b in memory["buffers"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_random_nets_in_their_arena_give_the_engine_s_bits(seed):
    _compared(random_net(seed), thrift=ALWAYS if seed % 2 else THRIFT)


@pytest.mark.parametrize("numerics", [None, DIRECT], ids=["winograd", "direct"])
def test_a_unet_in_bands_of_rows_gives_the_engine_s_bits(numerics):
    """The result of the last level lies over rows of the joined value that are no longer needed."""
    model = unet(20, levels=1)
    whole, banded = (_compared(model, (1, 2), thrift, numerics) for thrift in (THRIFT, ALWAYS))
    assert not _banded(whole.module) and _banded(banded.module)
    assert banded.memory["arena_bytes"] < whole.memory["arena_bytes"]
    assert len(banded.launches) > len(whole.launches)
    main, offsets = banded.module.main, planned_offsets(banded.module.main)
    where, rooms = homes(main), stretches(main)

    def bytes_of(place):
        return range(offsets[place.buffer] + place.start, offsets[place.buffer] + place.start + place.size)

    calls = [op for op in main.ops if op.has("after")]
    pairs = [(bytes_of(where[op.operands[0]]), bytes_of(rooms[op.into])) for op in calls]
    assert any(x.start < y.stop and y.start < x.stop for x, y in pairs)


@pytest.mark.parametrize("numerics", [None, DIRECT], ids=["winograd", "direct"])
def test_bands_of_odd_images_with_strides_and_wide_kernels(numerics):
    """Heights that bands do not divide, a last band with a row that is half a tile, kernels of 5 rows, steps of 2."""
    net = Net()
    x = net.conv(net.input(1, 16, 13, 11), 16, 64)
    y = net.op("Conv", x, net.constant(12, 64, 3, 3), net.constant(12), pads=[1] * 4)
    net.output(net.op("Sigmoid", y))
    z = net.op("Conv", x, net.constant(16, 64, 5, 5), pads=[2, 1, 1, 2], strides=[2, 1])
    net.output(net.conv(net.op("Tanh", z), 16, 16))
    rows = _banded(_compared(net.model(), (1, 2), FORCED, numerics).module)
    assert len(rows) > 5 and all(first % 2 == 0 for first, _ in rows) and any(last == 13 for _, last in rows)


def test_what_may_be_computed_in_bands():
    assert borders(13, 4) == [0, 2, 6, 8, 13] and borders(256, 2) == [0, 128, 256]
    module, _ = emulation.lowered(unet())
    able = {f.name for f in module.graphs[1:] if bandable(f)}
    assert able and all("conv" in name and "transpose" not in name for name in able)


def test_bands_that_are_not_all_rows_or_lost_some_are_refused():
    module, _ = emulation.lowered(unet(20, levels=1))
    changed = arranged(module, SM_90, "g", thrift=ALWAYS).module
    last = next(op for op in changed.main.ops if op.has("after"))
    (name, *_) = last.attr("after")

    def said(change, functions=lambda f: f):
        graphs = [replace(changed.main, ops=tuple(change(op) for op in changed.main.ops))]
        return next(complaints(replace(changed, graphs=(*graphs, *map(functions, changed.graphs[1:])))), "")

    def shorter(f):
        if f.name != next(op for op in changed.main.ops if op.result == name).kind:
            return f
        first, end = f.ops[0].ints("rows")
        return replace(f, ops=(f.ops[0].with_attrs(rows=(first, end - 2)), *f.ops[1:]))

    assert said(lambda op: op) == ""
    assert "are not its rows" in said(lambda op: op, shorter)
    assert "are not its rows" in said(lambda op: op.with_attrs(after=()) if op is last else op)

    def of_two_images(op):
        return replace(op, type=replace(op.out, shape=(2, *op.out.shape[1:]))) if op is last else op

    graph = replace(changed.main, ops=tuple(of_two_images(op) for op in changed.main.ops))
    found = lifetimes(replace(changed, graphs=(graph, *changed.graphs[1:])), graph)
    assert any("are not one stretch" in line for line in found)
    other = next(op.result for op in changed.main.ops if op.name.startswith("call."))
    assert "which is no band of it" in said(lambda op: op.with_attrs(after=(other,)) if op is last else op)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 200), st.booleans())
def test_the_verifier_knows_a_right_arena_from_a_wrong_one(seed, which, where, banded):
    """As planned, with and without bands, and with one buffer, input, output or workspace moved anywhere."""
    module, _ = emulation.lowered(random_net(seed))
    changed = arranged(module, SM_90, "g", thrift=ALWAYS if banded else THRIFT).module
    functions = {f.name: f for f in changed.graphs[1:]}
    verify(changed)
    main, offsets = changed.main, planned_offsets(changed.main)
    assert sees_what_it_should(main, offsets, functions)
    names = sorted(offsets)
    moved = names[which % len(names)]
    size = next(op.out.nbytes for op in main.ops if op.result == moved)
    offset = where * (int(dict(changed.meta)["arena_bytes"]) - size) // (200 * 64) * 64
    ops = tuple(op.with_attrs(offset=offset) if op.result == moved else op for op in main.ops)
    found = list(complaints(replace(changed, graphs=(replace(main, ops=ops), *changed.graphs[1:]))))
    assert (not found) == sees_what_it_should(main, offsets | {moved: offset}, functions), found


def test_buffers_beyond_the_arena_and_places_of_no_input_are_refused():
    module, _ = emulation.lowered(unet())
    changed = arranged(module, SM_90, "g").module

    def said(**attrs):
        ops = tuple(op.with_attrs(**attrs) if op.has("input") else op for op in changed.main.ops)
        return next(complaints(replace(changed, graphs=(replace(changed.main, ops=ops), *changed.graphs[1:]))))

    assert "ends beyond the arena" in said(offset=int(dict(changed.meta)["arena_bytes"]))
    assert "no place for input 1" in said(input=1)


def test_inputs_share_no_bytes_and_are_there_before_the_first_call():
    """And no buffer begins off a multiple of 64, lacks a place, or is the workspace of the call that writes it."""
    net = Net()
    x, other = net.input(1, 16, 8, 8), net.input(1, 16, 8, 8)
    deep = net.conv(net.conv(net.conv(x, 16, 256, 1), 256, 256), 256, 16)
    net.output(net.op("Add", deep, other))
    module, _ = emulation.lowered(net.model())
    changed = arranged(module, SM_90, "g").module
    first, second = (op for op in changed.main.ops if op.has("input"))
    works = [op for op in changed.main.ops if op.has("workspace")]

    def said(ops):
        return "\n".join(complaints(replace(changed, graphs=(replace(changed.main, ops=ops), *changed.graphs[1:]))))

    def with_second(op):
        return tuple(op if o is second else o for o in changed.main.ops)

    assert works and said(changed.main.ops) == ""
    assert f"overwritten by input %{changed.main.inputs[1].id}" in said(
        with_second(second.with_attrs(offset=first.int_("offset")))
    )
    assert "has a second place" in said(with_second(second.with_attrs(input=0)))
    others = tuple(op for op in changed.main.ops if op is not second)
    call = next(n for n, op in enumerate(others) if op.name.startswith("call."))
    assert "after a call" in said((*others[: call + 1], second, *others[call + 1 :]))
    assert "no multiple of 64" in said(with_second(second.with_attrs(offset=second.int_("offset") + 4)))
    assert "no multiple of 64" in said(with_second(second.with_attrs(offset=-64)))
    bare = tuple((k, v) for k, v in second.attrs if k != "offset")
    assert "has no place in the arena" in said(with_second(replace(second, attrs=bare)))
    own = tuple(op.with_attrs(workspace=op.into) if op is works[0] else op for op in changed.main.ops)
    assert f"%{works[0].result} shares bytes with its workspace" in said(own)


def test_the_report_is_of_the_memory_the_engine_has():
    frozen = freeze_model(unet())
    module = lower_to_l2(frozen.module, frozen.store)
    program = generate_cuda(module, frozen.store, Identity("m", "1", "", "", "cuda-sm_90"), SM_90)
    memory = program.memory
    weights = len(pack(module.main, frozen.store))
    assert weights + memory["arena_bytes"] <= memory["device_bytes"] <= weights + memory["arena_bytes"] + 1024
    assert f"{memory['device_bytes']}ul" in program.source
    assert max(b["offset"] + b["bytes"] for b in memory["buffers"]) == memory["arena_bytes"]
    assert all(0 <= b["begin"] <= b["end"] < memory["statements"] for b in memory["buffers"])
    rest = {"weights_bytes": weights, "live_unpadded_bytes": 0}
    traffic = dict.fromkeys(("bytes_read", "bytes_written"), 0)
    rest["traffic"] = {"before_fusion": traffic, "after_fusion": traffic}
    assert b"on the GPU" in draw_memory(json.loads(json.dumps({**memory, **rest})))
