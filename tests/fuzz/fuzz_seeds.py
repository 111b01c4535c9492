"""Valid models to mutate: small networks built here, ONNX's node tests, pieces of real models, what the doors write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from fuzz_mutate import Seed
from fuzz_structure import typed
from onnx import TensorProto, helper, numpy_helper

MODELS = Path(__file__).resolve().parents[3] / "shared" / "models"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, Sequence[int | str]]],
    outputs: Iterable[str],
    constants: dict[str, np.ndarray],
    opset: int,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model.graph.output.extend(typed(model, list(outputs)))
    return bytes(model.SerializeToString())


def _nodes(text: str, **attributes: dict[str, object]) -> list[onnx.NodeProto]:
    """One line per node: ``outputs = Op inputs``, ``-`` for an absent input; attributes by first output."""
    made = []
    for line in text.strip().splitlines():
        left, right = line.split("=")
        op, *inputs = right.split()
        outputs = left.split()
        words = ["" if i == "-" else i for i in inputs]
        made.append(helper.make_node(op, words, outputs, name=f"n_{outputs[0]}", **attributes.get(outputs[0], {})))
    return made


def small_networks() -> list[Seed]:
    """A residual block, a U-Net, attention, a recurrent network, a quantised one, indexing, sizes, control flow."""
    rng = np.random.default_rng(5)

    def w(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    def i(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    image: dict[str, tuple[int, Sequence[int | str]]] = {"x": (FLOAT, (1, 3, 8, 8))}
    residual = _model(
        _nodes(
            """
            c = Conv x w1 b1
            n = BatchNormalization c b1 b1 b1 v
            r = Relu n
            d = Conv r w2
            s = Conv x w3
            a = Add d s
            m = MaxPool a
            g = GlobalAveragePool m
            f = Flatten g
            l = Gemm f w4 b2
            y = Softmax l
            """,
            c={"pads": [1] * 4, "strides": [2, 2]}, d={"pads": [1] * 4, "group": 2}, s={"strides": [2, 2]},
            m={"kernel_shape": [2, 2], "strides": [2, 2]}, l={"transB": 1},
        ),
        image, ["y"],
        {"w1": w(4, 3, 3, 3), "b1": w(4), "v": w(4) ** 2 + 1, "w2": w(4, 2, 3, 3), "w3": w(4, 3, 1, 1), "w4": w(5, 4),
         "b2": w(5)},
        17,
    )  # fmt: skip
    unet = _model(
        _nodes(
            """
            c = Conv x w1
            p = AveragePool c
            d = Conv p w2
            e = Elu d
            t = ConvTranspose e w3
            q = Resize e - scales
            k = Concat t q c
            i = InstanceNormalization k one zero
            h = Conv i w4
            g = Gelu h
            z = Pad g pads
            y = Sigmoid z
            """,
            c={"auto_pad": "SAME_UPPER"}, p={"kernel_shape": [2, 2], "strides": [2, 2]}, d={"pads": [1] * 4},
            t={"strides": [2, 2]}, q={"mode": "linear"}, k={"axis": 1}, h={"dilations": [2, 2], "pads": [2] * 4},
            z={"mode": "edge"},
        ),
        image, ["y"],
        {"w1": w(4, 3, 3, 3), "w2": w(4, 4, 3, 3), "w3": w(4, 2, 2, 2), "w4": w(2, 10, 3, 3),
         "one": np.ones(10, np.float32), "zero": np.zeros(10, np.float32),
         "scales": np.array([1, 1, 2, 2], np.float32), "pads": i(0, 0, 1, 0, 0, 0, 0, 1)},
        20,
    )  # fmt: skip
    attention = _model(
        _nodes(
            """
            n = LayerNormalization x one zero
            q = MatMul n w1
            k = MatMul n w2
            kt = Transpose k
            s = MatMul q kt
            d = Div s c
            p = Softmax d
            v = MatMul n w3
            a = MatMul p v
            r = Add a x
            u = Einsum r w1
            m = ReduceMean r ax
            e = Expand m shape
            o = Mul u e
            t i = TopK o k3
            y = Clip t lo hi
            z = ArgMax o
            """,
            kt={"perm": [0, 2, 1]}, u={"equation": "bij,jk->bik"}, m={"keepdims": 1}, z={"axis": 2}, p={"axis": -1},
        ),
        {"x": (FLOAT, (2, 4, 6))}, ["y", "i", "z"],
        {"one": np.ones(6, np.float32), "zero": w(6), "w1": w(6, 6), "w2": w(6, 6), "w3": w(6, 6),
         "c": np.array(2.5, np.float32),
         "ax": i(1), "shape": i(2, 4, 6), "k3": i(3), "lo": np.array(-1, np.float32), "hi": np.array(1, np.float32)},
        18,
    )  # fmt: skip
    recurrent = _model(
        _nodes(
            """
            h hn cn = LSTM x w r b - h0
            t = Transpose h
            q = Reshape t shape
            g gn = GRU q w2 r2
            z = Squeeze gn ax
            y = Tanh z
            """,
            h={"hidden_size": 3, "direction": "bidirectional"}, t={"perm": [0, 2, 1, 3]}, g={"hidden_size": 2},
        ),
        {"x": (FLOAT, (5, 1, 4)), "h0": (FLOAT, (2, 1, 3))}, ["y", "hn", "cn"],
        {"w": w(2, 12, 4), "r": w(2, 12, 3), "b": w(2, 24), "shape": i(5, 1, 6), "w2": w(1, 6, 6),
         "r2": w(1, 6, 2), "ax": i(0)},
        14,
    )  # fmt: skip
    quantised = _model(
        _nodes(
            """
            q = QuantizeLinear x s z
            d = DequantizeLinear q s z
            wd = DequantizeLinear w s zi
            c = Conv d wd
            r = Relu c
            q2 = QuantizeLinear r s z
            d2 = DequantizeLinear q2 s z
            u uz us = X x
            """.replace("u uz us = X x", "u us uz = DynamicQuantizeLinear d2"),
        ),
        image, ["d2", "u", "us"],
        {"s": np.array(0.05, np.float32), "z": np.array(128, np.uint8), "zi": np.array(0, np.int8),
         "w": rng.integers(-50, 50, (2, 3, 3, 3)).astype(np.int8)},
        13,
    )  # fmt: skip
    indexing = _model(
        _nodes(
            """
            g = Gather x idx
            s = Slice g st en ax
            e = ScatterElements x i2 up
            h = OneHot idx dep val
            k = Cast idx
            w = Where b x e
            n = NonZero x
            c = CumSum x axis
            p p2 = Split x sizes
            t = Tile p two
            l = Less x e
            d = Mod k three
            m = Concat p p2
            o = GatherND x idx2
            """,
            k={"to": FLOAT}, e={"axis": 1, "reduction": "add"}, g={"axis": 1}, m={"axis": -1}, p={"axis": 1},
            d={"fmod": 1},
        ),
        {"x": (FLOAT, (3, 4)), "idx": (INT64, (2,)), "b": (TensorProto.BOOL, (3, 1))},
        ["s", "e", "h", "w", "n", "c", "t", "l", "d", "m", "o"],
        {"st": i(0), "en": i(2), "ax": i(0), "i2": np.array([[0, 1], [3, 2], [1, 1]]), "up": w(3, 2),
         "dep": np.array(4),
         "val": np.array([0, 1], np.float32), "axis": np.array(1), "sizes": i(1, 3), "two": i(1, 2),
         "three": np.array(3, np.float32), "idx2": np.array([[0, 1], [2, 3]])},
        18,
    )  # fmt: skip
    sizes = _model(
        _nodes(
            """
            s = Shape x
            n = Gather s zero
            nu = Unsqueeze n ax
            f = Concat nu m1
            r = Reshape x f
            a = MatMul r w
            c = ConstantOfShape s
            d = Add c x
            e = ReduceSum d ax
            q = Range zero n one
            """,
            f={"axis": 0},
        ),
        {"x": (FLOAT, ("N", 3, 2))}, ["a", "e", "q"],
        {"zero": np.array(0), "one": np.array(1), "ax": i(0), "m1": i(-1), "w": w(6, 2)}, 17,
    )  # fmt: skip
    return [
        Seed("residual", residual), Seed("unet", unet), Seed("attention", attention), Seed("recurrent", recurrent),
        Seed("quantised", quantised), Seed("indexing", indexing), Seed("sizes", sizes, {"x": (2, 3, 2)}),
        Seed("sizes symbolic", sizes, {}, {"N": (1, 5)}),
    ]  # fmt: skip


def node_tests() -> list[Seed]:
    """ONNX's node tests in both modes, those whose inputs are tensors."""
    from evidence.conformance import MODES, onnx_node_cases

    found = {}
    for case in onnx_node_cases().values():
        if len(case.model.SerializeToString()) > 20_000:
            continue
        for mode in MODES:
            data, inputs = case.variant(mode)
            pins = {}
            for info in case.model.graph.input:
                value = inputs.get(info.name)
                dims = info.type.tensor_type.shape.dim
                if isinstance(value, np.ndarray) and not all(d.HasField("dim_value") for d in dims):
                    pins[info.name] = tuple(value.shape)
            found[data] = Seed(f"{case.name} ({mode})", data, pins)
    return list(found.values())


def pieces(folder: Path = MODELS, length: int = 12, largest: int = 60_000) -> list[Seed]:
    """Runs of ``length`` nodes of the real models, as models of their own, where their weights are small."""
    return [p for path in sorted(folder.glob("*.onnx")) for p in _pieces(path, length, largest)]


def _pieces(path: Path, length: int, largest: int) -> Iterator[Seed]:
    model = onnx.load_model(path)
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = 16
    try:
        known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception:  # a model whose sizes do not follow from 16 everywhere
        return
    infos = {i.name: i for i in (*known.input, *known.value_info, *known.output)}
    weights = {t.name: t for t in model.graph.initializer}
    for begin in range(0, len(model.graph.node), length):
        nodes = model.graph.node[begin : begin + length]
        if any(a.HasField("g") for n in nodes for a in n.attribute):
            continue
        made = {o for n in nodes for o in n.output}
        read = dict.fromkeys(i for n in nodes for i in n.input if i and i not in made)
        outer = [n for n in read if n not in weights]
        if any(n not in infos or _elements(infos[n]) > 20_000 for n in outer):
            continue
        used = {i for n in nodes for i in n.input}
        outputs = [o for o in made if o and o not in used] or [nodes[-1].output[0]]
        graph = helper.make_graph(
            nodes,
            "piece",
            [infos[n] for n in outer],
            [infos.get(o, helper.make_tensor_value_info(o, FLOAT, None)) for o in outputs],
            [weights[n] for n in read if n in weights],
        )
        data = helper.make_model(graph, opset_imports=model.opset_import, ir_version=8).SerializeToString()
        if outer and len(data) <= largest:
            yield Seed(f"{path.stem}[{begin}]", bytes(data))


def _elements(info: onnx.ValueInfoProto) -> float:
    dims = info.type.tensor_type.shape.dim
    if not info.type.tensor_type.HasField("shape") or any(d.dim_value < 1 for d in dims):
        return float("inf")
    return float(np.prod([float(d.dim_value) for d in dims]))


def door_models() -> list[Seed]:
    """What the doors for PyTorch and Python functions write."""
    from compiler_kernels.doors.entry import convert

    folder = Path(__file__).resolve().parents[1] / "doors"
    wanted = {
        "nets.py:UNet": {"image": (1, 1, 8, 8)},
        "nets.py:Encoder": {"tokens": (1, 4, 16), "gate": (1, 16)},
    }
    return [Seed(s, convert(f"{folder}/{s}", shapes).model) for s, shapes in wanted.items()]


def real_models() -> list[Seed]:
    """The smallest whole ones."""
    pins = {
        "synthetic_loop_if": {"x": (1, 1, 8, 8)}, "brainchop_meshnet5_gwm": {"t1": (1, 1, 4, 4, 4)},
        "breast_cancer_rf_onnxml": {"X": (1, 30)}, "cxr_pneumonia_cnn_qdq_int8": {"image": (1, 1, 28, 28)},
    }  # fmt: skip
    paths = {name: MODELS / f"{name}.onnx" for name in pins}
    return [Seed(n, p.read_bytes(), pins[n]) for n, p in paths.items() if p.is_file()]
