"""The memory report against numbers worked out by hand, and its picture."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from memory_cells import planned_offsets, sees_what_it_should
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.compile import Frozen, freeze_model
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import complaints
from compiler_kernels.passes.infra import run_passes
from compiler_kernels.passes.memory import PlanMemory, aligned
from compiler_kernels.passes.memory_report import memory_report, total_bytes, traffic
from compiler_kernels.stages.backend import L1_PASSES, L2_PASSES
from cuvil_assets.memory_picture import draw_memory, size


def model(nodes: list[onnx.NodeProto], shape: list[int], **weights: np.ndarray[Any, Any]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(onnx.shape_inference.infer_shapes(built).SerializeToString())


def report_of(data: bytes) -> tuple[Frozen, Module, dict[str, Any]]:
    frozen = freeze_model(data)
    l1, _ = run_passes(frozen.module, frozen.store, L1_PASSES)
    _, notes = run_passes(l1, frozen.store, (PlanMemory(),))
    return frozen, l1, memory_report(notes[0], frozen.module, l1)


def chain() -> bytes:
    """x (1, 32, 10, 10) -> conv 3x3 -> relu -> conv 3x3 -> y, 32 channels each: no padded channels, a halo of 1."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "b"], ["y"], "second", pads=[1] * 4),
    ]
    return model(nodes, [1, 32, 10, 10], a=rng.standard_normal((32, 32, 3, 3)), b=rng.standard_normal((32, 32, 3, 3)))


def test_traffic_before_fusion_by_hand() -> None:
    frozen, _, report = report_of(chain())
    image, kernel = 32 * 100 * 4, 32 * 32 * 9 * 4
    before = report["traffic"]["before_fusion"]
    assert before["statements"] == 3
    assert before["bytes_read"] == before["bytes_written"] == 3 * image
    weights = sum(w.type.nbytes for w in frozen.module.main.weights)
    assert before["weight_bytes_read"] == weights >= 2 * kernel


def test_fusion_saves_a_read_and_a_write() -> None:
    """The relu's own traffic disappears; what remains is at most padded, and relayouts are statements of their own."""
    _, l1, report = report_of(chain())
    after = report["traffic"]["after_fusion"]
    relayouts = sum(op.kind == "relayout" for op in l1.main.ops)
    assert after["statements"] == 2 + relayouts
    padded = 32 * 12 * 12 * 4
    assert after["bytes_written"] <= (2 + relayouts) * padded


def test_totals_by_hand() -> None:
    _, _, report = report_of(chain())
    image = 32 * 100 * 4
    assert (report["input_bytes"], report["output_bytes"]) == (image, image)
    # the blocked input and the first result are alive together, each with 44 positions of halo; nothing else is larger
    assert report["live_unpadded_bytes"] == 2 * image
    assert report["lower_bound_bytes"] == 2 * 32 * 12 * 12 * 4 == report["arena_bytes"]
    assert {b["node"] for b in report["buffers"]} >= {"first + relu"}
    whole = {**report, "scratch_bytes_per_thread": 1000}
    assert total_bytes(whole, 3) - total_bytes(whole, 1) == 2000
    assert total_bytes(whole) == report["weights_bytes"] + report["arena_bytes"] + 2 * image + 1000


def test_a_slice_reads_what_it_returns_and_a_reshape_nothing() -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value_ints=[0]),
        helper.make_node("Constant", [], ["e"], value_ints=[2]),
        helper.make_node("Constant", [], ["shape"], value_ints=[2, 5]),
        helper.make_node("Slice", ["x", "s", "e"], ["t"], "slice"),
        helper.make_node("Reshape", ["t", "shape"], ["u"], "reshape"),
        helper.make_node("Tanh", ["u"], ["y"], "tanh"),
    ]
    frozen = freeze_model(model(nodes, [100, 5]))
    assert traffic(frozen.module.main) == {
        "statements": 2,
        "bytes_read": 80,
        "bytes_written": 80,
        "weight_bytes_read": 0,
    }


def test_the_picture_shows_every_buffer_in_its_place() -> None:
    _, _, report = report_of(chain())
    report["scratch_bytes_per_thread"] = 64
    report["buffers"][0]["node"] = 'a<b & "c"'
    data = draw_memory(report)
    assert data == draw_memory(report)
    root = ElementTree.fromstring(data)
    space = "{http://www.w3.org/2000/svg}"
    groups = root.findall(f"{space}g")
    assert len(groups) == len(report["buffers"])
    titles = [group.findtext(f"{space}title") or "" for group in groups]
    assert any(title.startswith('a<b & "c": ') for title in titles)
    # two buffers that live at the same time never cover the same bytes, so their rectangles do not overlap
    boxes = [tuple(float(g.find(f"{space}rect").get(k)) for k in ("x", "y", "width", "height")) for g in groups]  # type: ignore[union-attr, arg-type]
    for number, (x, y, w, h) in enumerate(boxes):
        assert x >= 90 and x + w <= 1080.1 and y >= 55.9 and y + h <= 476.1
        for u, v, p, q in boxes[:number]:
            assert x + w <= u + 0.2 or u + p <= x + 0.2 or y + h <= v + 0.2 or v + q <= y + 0.2


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (16_850_000, "16.9 MB")])
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


def skip_connection() -> bytes:
    """x -> a 32 channels -> pooled, through a deep level, and up again -> joined with a: 64 channels -> y."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "wa"], ["a"], "a", pads=[1] * 4),
        helper.make_node("MaxPool", ["a"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "wd"], ["d"], "deep", pads=[1] * 4),
        helper.make_node("Conv", ["d", "wd"], ["e"], "deeper", pads=[1] * 4),
        helper.make_node("ConvTranspose", ["e", "wu"], ["u"], "up", strides=[2, 2]),
        helper.make_node("Concat", ["a", "u"], ["j"], "join", axis=1),
        helper.make_node("Conv", ["j", "wy"], ["y"], "last", pads=[1] * 4),
    ]
    shapes = {"wa": (32, 16, 3, 3), "wd": (32, 32, 3, 3), "wu": (32, 32, 2, 2), "wy": (16, 64, 3, 3)}
    return model(nodes, [1, 16, 16, 16], **{name: rng.standard_normal(shape) for name, shape in shapes.items()})


def test_what_a_concatenation_does_not_hold_yet_is_free_for_others() -> None:
    """The deep values lie where the second part of the skip connection will come to lie; the picture shows it."""
    _, _, report = report_of(skip_connection())
    half = 32 * 18 * 18 * 4
    (whole,) = (b for b in report["buffers"] if "parts" in b)
    first, second = whole["parts"]
    assert (first["first"], first["bytes"], second["first"], second["bytes"]) == (0, half, half, half)
    assert first["begin"] < second["begin"] < second["end"] == first["end"] == whole["end"]
    deep = [b for b in report["buffers"] if first["begin"] < b["begin"] and b["end"] < second["begin"]]
    assert any(half <= b["offset"] - whole["offset"] < 2 * half for b in deep)
    # alive at the end: both parts and the value before the result is put in plain order
    assert report["arena_bytes"] == report["lower_bound_bytes"] == 2 * half + 16 * 16 * 16 * 4
    assert report["live_unpadded_bytes"] == (2 * 32 + 16) * 256 * 4
    root = ElementTree.fromstring(draw_memory({**report, "scratch_bytes_per_thread": 0}))
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == len(report["buffers"]) + 1


def test_a_buffer_put_over_what_is_alive_is_found_and_a_hole_is_accepted() -> None:
    """Every buffer at every place: the verifier's word against what the statements would read."""
    frozen = freeze_model(skip_connection())
    module, _ = run_passes(frozen.module, frozen.store, (*L1_PASSES, *L2_PASSES))
    main, arena = module.main, int(dict(module.meta)["arena_bytes"])
    allocs = [op for op in main.ops if op.name == "tensor.alloc" and op.has("offset")]
    plan = planned_offsets(main)
    verdicts = []
    for op in allocs:
        for offset in range(0, arena - aligned(op.out.nbytes) + 1, 64 * 97):
            offsets = plan | {op.result: offset}
            ops = tuple(o.with_attrs(offset=offset) if o is op else o for o in main.ops)
            found = list(complaints(replace(module, graphs=(replace(main, ops=ops), *module.graphs[1:]))))
            assert (not found) == sees_what_it_should(main, offsets), (op.result, offset, found)
            verdicts.append(not found)
    assert sum(verdicts) > len(allocs) and verdicts.count(False) > 20
