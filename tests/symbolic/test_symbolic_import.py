"""Symbolic imports against static ones: at any size within the bounds, binding gives what pinning gives.

Random graphs are compared with onnx.shape_inference too, and every refusal is checked by importing at the
sizes it names.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.bind import bind
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import Module, TensorType
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import Bound, symbols_of
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.proofs.access import prove_accesses

MODELS = Path(__file__).parents[3] / "shared" / "models"
Dims = list[int | str]


def model(nodes: list[onnx.NodeProto], dims: Dims, constants: dict[str, np.ndarray] | None = None) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return made.SerializeToString()


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def load(data: bytes, **bounds: Bound) -> Module:
    module = import_onnx(data, filename="m.onnx", bounds=bounds)[0]
    verify(module)
    assert parse_module(print_module(module)) == module
    return module


def same_as_pinned(data: bytes, module: Module, values: dict[str, int]) -> None:
    """Types, operations and attributes of the bound module are those of the static import at these sizes.

    Operations that do nothing at one size may be absent from the static import, so the modules are compared by their
    outputs and by every operation that both have under one source tensor.
    """
    bound = bind(module, values)
    verify(bound)
    pins = {v.name: v.type.dims for v in bound.main.inputs}
    static = import_onnx(data, filename="m.onnx", pins=pins)[0]
    types, others = bound.main.types(), static.main.types()
    assert [types[o] for o in bound.main.outputs] == [others[o] for o in static.main.outputs]
    found = {op.tensor: op for op in static.main.ops if op.tensor}
    for op in bound.main.ops:
        if op.tensor in found:
            other = found[op.tensor]
            assert (op.name, op.type, op.attrs) == (other.name, other.type, other.attrs)


# known models --------------------------------------------------------------------------------------------------------
def test_index_arithmetic_of_exporters() -> None:
    """What PyTorch writes for ``x.view(x.size(0), -1, 4)`` and ``interpolate(x, size=(h // 2, 2 * w))``."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "two"], ["h"], axis=0),
        helper.make_node("Div", ["h", "twice"], ["half"]),
        helper.make_node("Gather", ["shape", "three"], ["w"], axis=0),
        helper.make_node("Mul", ["w", "twice"], ["double"]),
        helper.make_node("Concat", ["half", "double"], ["wanted"], axis=0),
        helper.make_node("Shape", ["x"], ["front"], start=0, end=2),
        helper.make_node("Concat", ["front", "wanted"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["big"], mode="nearest"),
        helper.make_node("Slice", ["shape", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "minus", "four"], ["flat"], axis=0),
        helper.make_node("Reshape", ["big", "flat"], ["y"]),
    ]
    constants = {
        "two": ints(2), "three": ints(3), "twice": ints(2), "zero": ints(0), "one": ints(1), "minus": ints(-1),
        "four": ints(4),
    }  # fmt: skip
    data = model(nodes, ["b", 3, "h", "w"], constants)
    module = load(data, b=Bound(1, 8), h=Bound(4, 64, 4), w=Bound(2, 64, 2))
    assert [op.out.shape for op in module.main.ops] == [
        ("b", 3, "h // 2", "2 * w"),
        ("b", "3 * (h // 2) * (w // 2)", 4),
    ]
    assert dict(module.meta)["symbol.h"] == "4..64 step 4"
    for values in ({"b": 1, "h": 4, "w": 2}, {"b": 8, "h": 64, "w": 6}):
        same_as_pinned(data, module, values)
    with pytest.raises(UnsupportedError) as caught:
        load(data, b=Bound(1, 8), h=Bound(4, 64), w=Bound(3, 64))
    assert str(caught.value).startswith(
        "b = 1, h = 6, w = 3 breaks node 'Reshape_11' (Reshape, domain ai.onnx, opset 18): 54 is not a multiple of 4, "
        "so it cannot reshape [1, 3, 3, 6] to [1, -1, 4]"
    )
    assert caught.value.exit_code == 4


def test_refusals_name_the_smallest_size_and_the_node() -> None:
    data = model(
        [helper.make_node("Reshape", ["x", "to"], ["y"], name="/reshape")], ["batch", 32], {"to": ints(-1, 64)}
    )
    with pytest.raises(UnsupportedError) as caught:
        load(data, batch=Bound(1, 8))
    assert str(caught.value) == (
        "batch = 1 breaks node '/reshape' (Reshape, domain ai.onnx, opset 18): 32 is not a multiple of 64, so it "
        "cannot reshape [1, 32] to [-1, 64]; change the policy's shapes, or the model"
    )
    assert load(data, batch=Bound(2, 8, 2)).main.ops[0].out.shape == ("batch // 2", 64)
    data = model([helper.make_node("Add", ["x", "w"], ["y"])], ["batch"], {"w": np.zeros(5, np.float32)})
    with pytest.raises(UnsupportedError, match=r"batch = 2 breaks node 'Add_0' .* \[2\] and \[5\] do not broadcast"):
        load(data, batch=Bound(1, 8))
    data = model([helper.make_node("Squeeze", ["x"], ["y"])], ["batch", 3], {})
    with pytest.raises(
        UnsupportedError, match=r"^node 'Squeeze_0' .* whether batch == 1: true at batch = 1, not at batch = 2"
    ):
        load(data, batch=Bound(1, 8))
    assert load(data, batch=Bound(2, 8)).main.ops[0].out.shape == ("batch", 3)


def test_sizes_are_no_data() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["y"]),
    ]
    with pytest.raises(UnsupportedError, match=r"node 'Mul_2' .* computes on sizes that depend on batch"):
        load(model(nodes, ["batch"]), batch=Bound(1, 8))


def scaled(factor: float, op: str = "Mul", rounding: str = "Floor") -> bytes:
    """``Resize`` to sizes that were scaled in binary32, as exporters of TensorFlow and Paddle write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=2, end=3),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node(op, ["f", "factor"], ["g"], name="/scale"),
        helper.make_node(rounding, ["g"], ["r"]),
        helper.make_node("Cast", ["r"], ["i"], to=TensorProto.INT64),
        helper.make_node("Shape", ["x"], ["front"], start=0, end=2),
        helper.make_node("Concat", ["front", "i"], ["to"], axis=0),
        helper.make_node("Resize", ["x", "", "", "to"], ["y"], mode="linear"),
    ]
    return model(nodes, ["b", 3, "h"], {"factor": np.array([factor], np.float32)})


@pytest.mark.parametrize(
    ("factor", "op", "rounding", "size"),
    [
        (2.0, "Mul", "Floor", "2 * h"),
        (0.75, "Mul", "Floor", "3 * h // 4"),
        (0.75, "Mul", "Ceil", "-((-3 * h) // 4)"),
        (4.0, "Div", "Floor", "h // 4"),
        (1.5, "Add", "Floor", "h + 1"),
        (2.5, "Sub", "Ceil", "h - 2"),
    ],
)
def test_sizes_scaled_in_floating_point(factor: float, op: str, rounding: str, size: str) -> None:
    data = scaled(factor, op, rounding)
    module = load(data, b=Bound(1, 2), h=Bound(5, 500))
    assert str(parse_dim(str(module.main.ops[-1].out.shape[2]))) == str(parse_dim(size))
    for h in (5, 6, 7, 99, 500):
        same_as_pinned(data, module, {"b": 1, "h": h})


@pytest.mark.parametrize(("factor", "op"), [(0.1, "Mul"), (3.0, "Div"), (0.0, "Div"), (1e9, "Mul")])
def test_a_size_that_would_round_is_refused(factor: float, op: str) -> None:
    with pytest.raises(UnsupportedError, match=r"node '/scale' .* not exact in binary32"):
        load(scaled(factor, op), b=Bound(1, 2), h=Bound(5, 500))


def test_symbols_need_sizes_or_bounds() -> None:
    data = model([helper.make_node("Relu", ["x"], ["y"])], ["N", "?"])
    with pytest.raises(UnsupportedError, match=r"shapes\.x_1$"):
        load(data, N=Bound(1, 8))
    with pytest.raises(
        UsageError, match=r"bounds the symbol shapes\.M, but the symbols of the model's inputs are N, x_1"
    ):
        load(data, M=Bound(1, 8))
    module = load(data, N=Bound(1, 8), x_1=Bound(3, 3))
    assert module.main.inputs[0].type.shape == ("N", 3) and list(symbols_of(module.meta)) == ["N"]
    with pytest.raises(UsageError, match=r"sets the symbol 'N' to 9, but the policy's shapes\.N is 1\.\.8"):
        import_onnx(data, filename="m", pins={"x": (9, 3)}, bounds={"N": Bound(1, 8)})
    static = import_onnx(data, filename="m", pins={"x": (2, 3)}, bounds={"N": Bound(1, 8)})[0]
    assert static.main.inputs[0].type.is_static and symbols_of(static.meta) == {}


def test_a_dimension_that_is_an_expression() -> None:
    data = model([helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4], strides=[4])], ["b", 1, "8*h8"])
    module = load(data, b=Bound(1, 2), h8=Bound(1, 100))
    assert module.main.inputs[0].type.shape == ("b", 1, "8 * h8")
    assert module.main.ops[0].out.shape == ("b", 1, "2 * h8")
    same_as_pinned(data, module, {"b": 2, "h8": 7})


def test_binding_needs_every_size_within_its_bounds() -> None:
    module = load(model([helper.make_node("Relu", ["x"], ["y"])], ["b", "h"]), b=Bound(1, 8), h=Bound(4, 8, 4))
    for values, sentence in (
        ({"b": 1}, "no size is given for the symbol 'h'"),
        ({"b": 1, "h": 6}, r"h = 6 is outside 4\.\.8 step 4"),
        ({"b": 1, "h": 4, "w": 1}, "a size is given for 'w', but the model's symbols are b, h"),
    ):
        with pytest.raises(UsageError, match=sentence):
            bind(module, values)
    assert bind(module, {"b": 3, "h": 8}).main.ops[0].out.dims == (3, 8)


def test_the_last_step_of_a_sequence() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(2, 9, 4)).astype(np.float32), "r": rng.normal(size=(2, 9, 3)).astype(np.float32)}
    node = helper.make_node("GRU", ["x", "w", "r"], ["", "y"], hidden_size=3, direction="bidirectional")
    data = model([node], ["time", "batch", 4], weights)
    module = load(data, time=Bound(2, 50), batch=Bound(1, 4))
    starts = [op.attr("starts") for op in module.main.ops if op.kind == "slice"]
    assert starts == [("time - 1", "0", "0"), (0, 0, 0)]
    sliced = next(op for op in module.main.ops if op.kind == "slice")
    assert [str(s) for s in sliced.extents("starts")] == ["time - 1", "0", "0"]
    same_as_pinned(data, module, {"time": 17, "batch": 2})
    prove_accesses(module)


def test_fills_and_ranges_of_symbolic_length() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Concat", ["s", "three"], ["to"], axis=0),
        helper.make_node("ConstantOfShape", ["to"], ["zeros"]),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("Cast", ["r"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["f", "axis"], ["column"]),
        helper.make_node("Add", ["zeros", "column"], ["y"]),
    ]
    constants = {"three": ints(3), "axis": ints(1), "zero": np.int64(0).reshape(()), "one": np.int64(1).reshape(())}
    module = load(model(nodes, ["n"], constants), n=Bound(1, 6))
    assert module.main.types()[module.main.outputs[0]].shape == ("n", 3)
    assert [w.type.shape for w in module.main.weights if w.type.dtype == "int64"] == [(6,)]
    prove_accesses(module)


# random graphs -------------------------------------------------------------------------------------------------------
WEIGHTS = {
    "w3": np.ones((4, 4, 3, 3), np.float32), "w1": np.ones((4, 4, 1, 1), np.float32),
    "one": ints(1), "four": ints(4), "minus": ints(-1), "i2": ints(2), "i3": ints(3),
    "zero": ints(0), "pads": ints(0, 0, 1, 0, 0, 0, 2, 0), "last": ints(2**63 - 1), "back": ints(-3),
    "double": np.array([1, 1, 2, 2], np.float32), "half": np.array([1, 1, 0.5, 1], np.float32),
}  # fmt: skip


def conv(**attrs: object) -> tuple[str, list[str], dict[str, object]]:
    return "Conv", ["w3"], attrs


STEPS: list[tuple[str, list[str], dict[str, object]]] = [
    conv(pads=[1, 1, 1, 1]),
    conv(pads=[1, 1, 1, 1], strides=[2, 1]),
    conv(pads=[1, 0, 2, 2], dilations=[2, 1]),
    conv(auto_pad="SAME_UPPER"),
    ("ConvTranspose", ["w3"], {"strides": [2, 1], "pads": [1, 1, 1, 1], "output_padding": [1, 0]}),
    ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 1]}),
    ("AveragePool", [], {"kernel_shape": [3, 2], "strides": [2, 1], "ceil_mode": 1, "pads": [1, 0, 1, 0]}),
    ("Relu", [], {}),
    ("Transpose", [], {"perm": [0, 1, 3, 2]}),
    ("Pad", ["pads"], {"mode": "reflect"}),
    ("Resize", ["", "double"], {"mode": "nearest"}),
    ("Resize", ["", "half"], {"mode": "linear"}),
    ("Slice", ["one", "last", "i2"], {}),
    ("Slice", ["back", "last", "i2"], {}),
    ("Slice", ["last", "back", "i3", "minus"], {}),
    ("ReduceMean", ["i2"], {"keepdims": 1}),
    ("Softmax", [], {"axis": 3}),
]


@st.composite
def graphs(draw: st.DrawFn) -> bytes:
    """A chain of operations with skips: additions and concatenations of earlier values, reshapes by computed sizes."""
    nodes: list[onnx.NodeProto] = []
    values = ["x"]
    for n in range(draw(st.integers(1, 5))):
        choice = draw(st.integers(0, len(STEPS) + 2))
        out, last = f"v{n}", values[-1]
        if choice < len(STEPS):
            op, extra, attrs = STEPS[choice]
            nodes.append(helper.make_node(op, [last, *extra], [out], name=f"/{op}{n}", **attrs))
        elif choice == len(STEPS):
            nodes.append(helper.make_node("Add", [last, draw(st.sampled_from(values))], [out], name=f"/Add{n}"))
        elif choice == len(STEPS) + 1:
            other = draw(st.sampled_from(values))
            nodes.append(
                helper.make_node("Concat", [last, other], [out], name=f"/Concat{n}", axis=draw(st.integers(2, 3)))
            )
        else:
            nodes += [
                helper.make_node("Shape", [last], [f"s{n}"]),
                helper.make_node("Gather", [f"s{n}", "zero"], [f"b{n}"], axis=0),
                helper.make_node("Gather", [f"s{n}", "i2"], [f"h{n}"], axis=0),
                helper.make_node("Mul", [f"h{n}", "four"], [f"m{n}"]),
                helper.make_node("Concat", [f"b{n}", "minus", f"m{n}", "one"], [f"t{n}"], axis=0),
                helper.make_node("Reshape", [last, f"t{n}"], [f"r{n}"], name=f"/Reshape{n}"),
                helper.make_node("Concat", [f"b{n}", "four", f"h{n}", "minus"], [f"u{n}"], axis=0),
                helper.make_node("Reshape", [f"r{n}", f"u{n}"], [out], name=f"/Back{n}"),
            ]
        values.append(out)
    nodes.append(helper.make_node("Identity", [values[-1]], ["y"], name="/last"))
    return model(nodes, ["b", 4, "h", "w"], WEIGHTS)


BOUNDS = {"b": Bound(1, 3), "h": Bound(1, 40), "w": Bound(4, 64, 4)}


def at_sizes(data: bytes, values: dict[str, int]) -> bytes:
    proto = onnx.load_from_string(data)
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        if dim.dim_param:
            dim.dim_value = values[dim.dim_param]
    return proto.SerializeToString()


@given(graphs(), st.integers(1, 3), st.integers(1, 40), st.integers(1, 16))
@settings(max_examples=120, deadline=None)
def test_random_graphs(data: bytes, b: int, h: int, w: int) -> None:
    values = {"b": b, "h": h, "w": 4 * w}
    try:
        module = load(data, **BOUNDS)
    except CuvilError as error:
        assert isinstance(error, UnsupportedError), error
        breaks = re.match(r"([a-z =\d,]+) breaks node", str(error))
        if breaks:
            named = {k: int(v) for k, v in re.findall(r"(\w+) = (\d+)", breaks[1])}
            sizes = {**{k: v.lo for k, v in BOUNDS.items()}, **named}
            with pytest.raises(CuvilError):  # the static import breaks at the sizes that the refusal names
                import_onnx(at_sizes(data, sizes), filename="m.onnx")
        else:
            assert re.search(r"depends? on|bound it|not exact|must be one number|some sizes", str(error)), error
        return
    same_as_pinned(data, module, values)
    prove_accesses(module)
    prove_accesses(bind(module, values))
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(at_sizes(data, values)), data_prop=True)
    bound = bind(module, values)
    wanted = {i.name: i.type.tensor_type.shape.dim for i in (*inferred.graph.value_info, *inferred.graph.output)}
    for op in bound.main.ops:
        for dim, size in zip(wanted.get(op.tensor, []), op.out.dims, strict=False):
            assert not dim.HasField("dim_value") or dim.dim_value == size


# real models ---------------------------------------------------------------------------------------------------------
REAL = [
    ("brainmaze_seizure_cnn_bilstm", {"batch": Bound(1, 4), "time": Bound(200, 4000)}, {"batch": 3, "time": 611}),
    ("fundus_vessel_unet", {"N": Bound(1, 8), "H": Bound(32, 512, 32), "W": Bound(32, 512, 32)},
     {"N": 2, "H": 64, "W": 96}),
    ("brainchop_meshnet5_gwm", {s: Bound(16, 64) for s in "DHW"}, {"D": 17, "H": 20, "W": 64}),
    ("ppocr_cls_mobilenetv3", {"x_0": Bound(1, 8), "x_2": Bound(48, 48), "x_3": Bound(192, 192)}, {"x_0": 5}),
    ("ppocr_v4_rec_svtr", {"p2o.DynamicDimension.0": Bound(1, 4), "x_2": Bound(48, 48),
                           "p2o.DynamicDimension.1": Bound(32, 640)},
     {"p2o.DynamicDimension.0": 2, "p2o.DynamicDimension.1": 321}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bounds", "values"), REAL, ids=[r[0] for r in REAL])
def test_real_models(name: str, bounds: dict[str, Bound], values: dict[str, int]) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not here (shared/models is not part of the project)")
    data = path.read_bytes()
    module = load(data, **bounds)
    assert not module.main.types()[module.main.outputs[0]].is_static
    assert prove_accesses(module).undescribed == ()
    same_as_pinned(data, module, values)


def test_a_real_model_breaks_at_the_size_named() -> None:
    path = MODELS / "fundus_vessel_unet.onnx"
    if not path.exists():
        pytest.skip("fundus_vessel_unet.onnx is not here (shared/models is not part of the project)")
    with pytest.raises(
        UnsupportedError, match=r"^H = 34 breaks node '/Concat' .*\[1, 16, 16, 16\] and \[1, 16, 17, 16\]"
    ):
        load(path.read_bytes(), N=Bound(1, 8), H=Bound(32, 512), W=Bound(32, 512, 32))


def test_undeclared_symbols_fail_verification() -> None:
    module = load(model([helper.make_node("Relu", ["x"], ["y"])], ["b", "h"]), b=Bound(1, 8), h=Bound(1, 8))
    with pytest.raises(CuvilError, match="uses the symbol h, for which the module declares no bounds"):
        verify(replace(module, meta=tuple(m for m in module.meta if m[0] != "symbol.h")))
    with pytest.raises(CuvilError, match=r"has the size .*, which 64 bits do not compute"):
        big = TensorType(("b * b * h * h",))
        graph = replace(module.main, inputs=(replace(module.main.inputs[0], type=big),))
        verify(replace(module, graphs=(graph,), meta=(("symbol.b", "1..2147483647"), ("symbol.h", "1..9"))))
    with pytest.raises(CuvilError, match=r"'8\.\.1' is not a bound"):
        verify(replace(module, meta=(("symbol.h", "8..1"),)))
