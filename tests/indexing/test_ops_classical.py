"""ai.onnx.ml: trees in all modes and forms, linear models, encoders, scalers against onnxruntime and the reference."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from index_models import Array, draw, failures, judged, model_of

from compiler_kernels.compile import compile_model
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from evidence.conformance.cases import Case

ML = "ai.onnx.ml"
FORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FOREST = Path(__file__).parents[3] / "shared" / "models" / "breast_cancer_rf_onnxml.onnx"


def forest(rng: np.random.Generator, trees: int, features: int, targets: int, modes: tuple[str, ...] = MODES) -> Any:
    """Attributes of random full trees of depth 1 to 3 with leaves of one or more entries under the prefix ``@``."""
    keys = "treeids nodeids featureids modes values truenodeids falsenodeids missing_value_tracks_true".split()
    columns: dict[str, list[Any]] = {f"nodes_{key}": [] for key in keys}
    leaves: dict[str, list[Any]] = {f"@_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}

    def add(*values: Any) -> None:
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)

    for tree in range(trees):
        depth = int(rng.integers(1, 4))
        for n in range(2 ** (depth + 1) - 1):
            mode = str(rng.choice(modes)) if n < 2**depth - 1 else "LEAF"
            split = float(rng.integers(-2, 3)) / 2
            branch = (2 * n + 1, 2 * n + 2) if mode != "LEAF" else (0, 0)
            add(tree, n, int(rng.integers(features)), mode, split, *branch, int(rng.integers(2)))
            if mode == "LEAF":
                for target in rng.permutation(targets)[: rng.integers(1, targets + 1)]:
                    row = (tree, n, int(target), float(np.float32(rng.uniform(0.01, 0.3))))
                    for column, value in zip(leaves.values(), row, strict=True):
                        column.append(value)
    return columns | leaves


def named(attributes: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {key.replace("@", prefix): value for key, value in attributes.items()}


def _features(rng: np.random.Generator, dtype: str = "float32") -> Array:
    x = rng.integers(-3, 4, (9, 5)).astype(dtype) / (2 if dtype.startswith("float") else 1)
    if dtype.startswith("float"):
        x[rng.random(x.shape) < 0.15] = np.nan
    return x.astype(dtype)


def regressors(rng: np.random.Generator) -> Iterator[Case]:
    for n, aggregate in enumerate(("SUM", "AVERAGE", "MIN", "MAX")):
        attributes = named(forest(rng, 4, 5, 3), "target")
        base = {"base_values": [0.5, -1.0, 0.25]} if n % 2 else {}
        for dtype in ("float32", "float64"):
            yield judged(
                "TreeEnsembleRegressor", {"x": _features(rng, dtype)}, domain=ML, label=aggregate,
                aggregate_function=aggregate, n_targets=3, **attributes, **base,
            )  # fmt: skip
    for form in FORMS:
        attributes = named(forest(rng, 2, 5, 2), "target")
        yield judged(
            "TreeEnsembleRegressor", {"x": _features(rng)}, domain=ML, label=form, rtol=1e-3, n_targets=2,
            post_transform=form, **attributes,
        )  # fmt: skip
        weights = rng.uniform(0.05, 0.2, 10).astype(np.float32).tolist()
        yield judged(
            "LinearRegressor", {"x": abs(draw(rng, (4, 5), "float32")) / 4}, domain=ML, label=form, rtol=1e-3,
            coefficients=weights, intercepts=[0.1, 0.2], targets=2, post_transform=form,
        )  # fmt: skip


def classifiers(rng: np.random.Generator) -> Iterator[Case]:
    types = dict(zip(FORMS, ("float32", "float64", "int64", "int32", "float32"), strict=True))
    for form in FORMS:
        attributes = named(forest(rng, 3, 5, 3), "class")
        base = {"base_values": [0.1, 0.2, 0.0]} if form != "PROBIT" else {}
        yield judged(
            "TreeEnsembleClassifier", {"x": _features(rng, types[form])}, ("l", "z"), domain=ML, label=form, rtol=1e-3,
            classlabels_int64s=[7, -2, 30], post_transform=form, **attributes, **base,
        )  # fmt: skip
        yield judged(
            "LinearClassifier", {"x": abs(draw(rng, (4, 3), "float32")) / 4}, ("l", "z"), domain=ML, label=form,
            rtol=1e-3, coefficients=[0.1, 0.2, 0.3, 0.3, 0.1, 0.2], intercepts=[0.1, 0.0], classlabels_ints=[5, 9],
            post_transform=form,
        )  # fmt: skip
        if form == "PROBIT":
            continue
        yield judged(
            "LinearClassifier", {"x": draw(rng, (6, 3), "float32")}, ("l", "z"), domain=ML, label=form,
            coefficients=[0.5, -0.25, 1.0], intercepts=[0.125], classlabels_ints=[5, 9], post_transform=form,
        )  # fmt: skip
        for which, shift in ((0, 0.0), (0, 0.15), (1, 0.0), (1, 0.15)):
            attributes = named(forest(rng, 3, 5, 1), "class")
            attributes["class_ids"] = [which] * len(attributes["class_ids"])
            attributes["class_weights"] = [float(np.float32(w - shift)) for w in attributes["class_weights"]]
            base = {"base_values": [0.125]} if shift and not which else {}
            yield judged(
                "TreeEnsembleClassifier", {"x": _features(rng)}, ("l", "z"), domain=ML, label=f"{form}{which}{shift}",
                classlabels_int64s=[4, 8], post_transform=form, **attributes, **base,
            )  # fmt: skip


def ensembles(rng: np.random.Generator) -> Iterator[Case]:
    """TreeEnsemble of version 5: set membership, missing values, a tree of one leaf, both types, all aggregates."""
    for n, dtype in enumerate(("float32", "float64", "float32", "float64")):
        kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

        def tensor(values: list[float], kind: int = kind) -> onnx.TensorProto:
            return onnx.helper.make_tensor("t", kind, [len(values)], values)

        x = _features(rng, dtype)
        modes, splits = [0, 6, 4, 6, 2], [0.5, 0.0, -0.5, 0.0, 0.0]
        yield judged(
            "TreeEnsemble", {"x": x}, domain=ML, label=str(n), expected=[_expected(x, n)], rtol=1e-6 if n % 2 else 1e-5,
            tree_roots=[0, 3, 4], nodes_featureids=[0, 1, 2, 3, 4],
            nodes_modes=onnx.helper.make_tensor("m", onnx.TensorProto.UINT8, [5], modes), nodes_splits=tensor(splits),
            nodes_truenodeids=[1, 0, 2, 4, 6], nodes_trueleafs=[0, 1, 1, 1, 1], nodes_falsenodeids=[2, 1, 3, 5, 6],
            nodes_falseleafs=[0, 1, 1, 1, 1], nodes_missing_value_tracks_true=[0, 1, 0, 1, 0],
            membership_values=tensor([1.0, -1.0, np.nan, 0.0, 0.5, 1.5, np.nan]),
            leaf_targetids=[0, 1, 0, 1, 0, 1, 0], leaf_weights=tensor([0.1, 0.2, 0.3, 0.4, -0.5, 0.6, 0.7]),
            n_targets=2, aggregate_function=n,
        )  # fmt: skip


def _expected(x: Array, how: int) -> Array:
    """The three trees of ``ensembles`` written out."""
    weights = np.array([0.1, 0.2, 0.3, 0.4, -0.5, 0.6, 0.7], x.dtype).astype(np.float64)
    found = []
    for row in x:
        first = (row[1] in (1.0, -1.0) or np.isnan(row[1])) if row[0] <= 0.5 else None
        one = (0 if first else 1) if first is not None else (2 if row[2] == -0.5 else 3)
        two = 4 if row[3] in (0.0, 0.5, 1.5) or np.isnan(row[3]) else 5
        per: list[list[float]] = [[], []]
        for leaf in (one, two, 6):
            per[leaf % 2].append(weights[leaf])
        functions = (lambda v: sum(v) / 3, sum, lambda v: min(v, default=0.0), lambda v: max(v, default=0.0))
        found.append([functions[how](v) for v in per])
    return np.array(found).astype(x.dtype)


def encoders(rng: np.random.Generator) -> Iterator[Case]:
    x = draw(rng, (4, 3), "float32")
    for norm in ("MAX", "L1", "L2"):
        rows = np.concatenate([x, np.zeros((1, 3), np.float32)])
        yield judged("Normalizer", {"x": rows}, domain=ML, norm=norm)
        yield judged("Normalizer", {"x": rows.astype(np.int64)}, domain=ML, norm=norm)
    for dtype in ("float32", "float64", "int64", "int32"):
        y = draw(rng, (4, 3), dtype)
        yield judged("Scaler", {"x": y}, domain=ML, offset=[1.0, 0.5, -1.0], scale=[2.0, 0.25, 3.0])
        yield judged("Scaler", {"x": y}, domain=ML, offset=[1.5], scale=[-2.0])
        yield judged("Binarizer", {"x": y}, domain=ML, threshold=1.0, expected=[(y > 1).astype(dtype)])
    gaps = np.where(x > 1, np.nan, x).astype(np.float32)
    yield judged("Imputer", {"x": gaps}, domain=ML, imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=np.nan)
    yield judged("Imputer", {"x": x}, domain=ML, imputed_value_floats=[7.0], replaced_value_float=1.0)
    whole = draw(rng, (4, 3), "int64")
    yield judged("Imputer", {"x": whole}, domain=ML, imputed_value_int64s=[7, 8, 9], replaced_value_int64=-1)
    for dtype in ("int64", "float32"):
        yield judged("OneHotEncoder", {"x": draw(rng, (2, 3), dtype)}, domain=ML, cats_int64s=[-2, 0, 2, 3])
    inside = abs(draw(rng, (2, 3), "int64"))
    yield judged("OneHotEncoder", {"x": inside}, domain=ML, cats_int64s=[0, 1, 2, 3], zeros=0)
    tables = [
        ("int64", {"keys_int64s": [-1, 0, 2], "values_int64s": [5, 6, 7], "default_int64": 9}),
        ("int64", {"keys_int64s": [-1, 0, 2], "values_floats": [5.5, 6.5, 7.5]}),
        ("float32", {"keys_floats": [-1.0, 0.0, 3.0], "values_int64s": [5, 6, 7]}),
        ("float32", {"keys_floats": [np.nan, 0.0, 3.0], "values_floats": [5.0, 6.0, 7.0], "default_float": -9.0}),
    ]
    for dtype, table in tables:
        y = gaps if "nan" in str(table) else draw(rng, (4, 3), dtype)
        yield judged("LabelEncoder", {"x": y}, domain=ML, **table)


@pytest.mark.parametrize("family", [regressors, classifiers, ensembles, encoders])
def test_against_onnxruntime_and_the_reference(family: object) -> None:
    assert callable(family)
    assert failures(list(family(np.random.default_rng(23)))) == []


def test_a_real_forest_equals_onnxruntime(tmp_path: Path) -> None:
    if not FOREST.exists():
        pytest.skip(f"the random forest {FOREST.name} lies beside the project and is not here")
    data = FOREST.read_bytes()
    engine = load_engine(compile_model(data, input_shapes={"X": (200, 30)}, output=tmp_path / "forest.so"))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    x = rng.random((200, 30)) ** rng.uniform(0.5, 4, (200, 1)) * [
        28,
        39,
        188,
        2501,
        *[0.3] * 6,
        3,
        5,
        22,
        543,
        *[0.1] * 6,
        36,
        50,
        251,
        4254,
        *[1] * 6,
    ]
    x = x.astype(np.float32)
    found = engine.run({"X": x})
    label, probabilities = session.run(None, {"X": x})
    np.testing.assert_array_equal(found["label"], label)
    np.testing.assert_allclose(found["probabilities"], probabilities, atol=1e-6)
    exact = _exact(onnx.load_from_string(data), x)
    ours = abs(found["probabilities"][:, 1] - exact).max()
    assert ours <= abs(probabilities[:, 1] - exact).max() and ours < 1e-7
    assert 20 < label.sum() < 180


def _exact(model: onnx.ModelProto, x: Array) -> Array:
    """The score of the second class in binary64: sums of 25 leaves, walked without tables."""
    a = {p.name: onnx.helper.get_attribute_value(p) for p in model.graph.node[0].attribute}
    names = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
    place = {name: n for n, name in enumerate(names)}
    leaf = dict(zip(zip(a["class_treeids"], a["class_nodeids"], strict=True), a["class_weights"], strict=True))
    total = np.zeros(len(x))
    for i, row in enumerate(x):
        for tree in dict.fromkeys(a["nodes_treeids"]):
            n = place[(tree, 0)]
            while a["nodes_modes"][n] != b"LEAF":
                holds = row[a["nodes_featureids"][n]] <= np.float32(a["nodes_values"][n])
                n = place[(tree, a["nodes_truenodeids" if holds else "nodes_falsenodeids"][n])]
            total[i] += float(np.float32(leaf[names[n]]))
    return total


def _refusal(op: str, x: Array, names: tuple[str, ...], **attributes: Any) -> bytes:
    outputs = {n: np.zeros((len(x), 2), np.float32) for n in names}
    return bytes(model_of(op, {"x": x}, outputs, attributes, domain=ML, sizes="open").SerializeToString())


def _stump(true: int, false: int) -> dict[str, Any]:
    """A branch and a leaf."""
    names = {"treeids": [0, 0], "nodeids": [0, 1], "featureids": [0, 0], "modes": ["BRANCH_LT", "LEAF"]}
    ends = {"values": [0.5, 0.0], "truenodeids": [true, 0], "falsenodeids": [false, 0]}
    nodes = {f"nodes_{key}": value for key, value in (names | ends).items()}
    leaf = {"target_treeids": [0], "target_nodeids": [1], "target_ids": [0], "target_weights": [1.0]}
    return {**nodes, **leaf, "nodes_missing_value_tracks_true": [0, 0]}


def test_broken_trees_and_strings_are_refused_by_name() -> None:
    x = np.zeros((2, 5), np.float32)
    good = named(forest(np.random.default_rng(0), 1, 5, 1), "target")
    for change, kind, words in (
        (
            {"nodes_truenodeids": [0] * len(good["nodes_nodeids"])},
            UsageError,
            "nodes of tree 0 that no branch leads to, where a tree has one",
        ),
        ({"nodes_featureids": [5] * len(good["nodes_nodeids"])}, UsageError, "compares feature 5 of an input with 5"),
        (_stump(1, 99), UsageError, "leads to node 99 of tree 0"),
        (_stump(1, 1), UsageError, r"the tree node \(0, 1\) from two places"),
        (_stump(1, 0), UsageError, "0 nodes of tree 0 that no branch leads to"),
        ({"target_ids": [3] * len(good["target_ids"])}, UsageError, "a target outside the 1"),
        ({"nodes_values": [1.0]}, UsageError, "1 values for"),
        ({"aggregate_function": "MEDIAN"}, UsageError, "aggregate_function 'median'"),
    ):
        with pytest.raises(kind, match=words):
            import_onnx(_refusal("TreeEnsembleRegressor", x, ("y",), **(good | change)), filename="m.onnx")
    labelled = named(forest(np.random.default_rng(0), 1, 5, 2), "class")
    words = {"classlabels_strings": ["a", "b"]}
    with pytest.raises(UnsupportedError, match=r"string labels|both have weights"):
        import_onnx(_refusal("TreeEnsembleClassifier", x, ("l", "z"), **labelled, **words), filename="m.onnx")
    import_onnx(_refusal("TreeEnsembleClassifier", x, ("_l", "z"), **labelled, **words), filename="m.onnx")
