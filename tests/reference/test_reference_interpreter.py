"""Reading and evaluating a whole graph: both arithmetics, what is kept, and every kind of refusal."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from evidence.reference import OPERATORS, ReferenceError, load_graph, run

X = np.array([[1.5, -2.0, np.float32(0.1)]], dtype=np.float32)


def document(**changes: Any) -> tuple[dict[str, Any], bytes]:
    """relu(gemm(x, w, b)) with two weights at aligned offsets."""
    w = np.arange(6, dtype=np.float32).reshape(3, 2) / np.float32(7)
    b = np.array([0.25, -9.0], dtype=np.float32)
    data = w.tobytes().ljust(64, b"\0") + b.tobytes()
    graph = {
        "format": "cuvil-graph/1",
        "name": "tiny",
        "inputs": [{"id": "v0", "name": "features", "shape": [1, 3], "dtype": "float32"}],
        "weights": [
            {"id": "w", "shape": [3, 2], "dtype": "float32", "offset": 0, "sha3_512": digest(w)},
            {"id": "b", "shape": [2], "dtype": "float32", "offset": 64, "sha3_512": digest(b)},
        ],
        "nodes": [
            {
                "op": "gemm",
                "inputs": ["v0", "w", "b"],
                "output": "v1",
                "shape": [1, 2],
                "dtype": "float32",
                "attrs": {},
            },
            {"op": "relu", "inputs": ["v1"], "output": "v2", "shape": [1, 2], "dtype": "float32", "attrs": {}},
        ],
        "outputs": [{"id": "v2", "name": "scores"}],
    }
    return {**graph, **changes}, data


def digest(array: np.ndarray) -> str:
    return hashlib.sha3_512(array.tobytes()).hexdigest()


def load(graph: Any, data: bytes) -> Any:
    return load_graph(json.dumps(graph).encode(), data)


def test_runs_in_both_arithmetics() -> None:
    graph = load(*document())
    exact = run(graph, {"features": X}, "float64", keep="all")
    assert exact["v1"].dtype == np.float64
    w = (np.arange(6, dtype=np.float32).reshape(3, 2) / np.float32(7)).astype(np.float64)
    np.testing.assert_array_equal(exact["v1"], X.astype(np.float64) @ w + np.array([0.25, -9.0]))
    canonical = run(graph, {"features": X}, keep="all")
    assert canonical["v1"].dtype == np.float32
    np.testing.assert_allclose(canonical["v1"], exact["v1"], rtol=1e-6)
    assert canonical["v2"][0, 1] == 0


def test_keep() -> None:
    graph = load(*document())
    assert set(run(graph, {"features": X})) == {"v2"}
    assert set(run(graph, {"features": X}, keep="all")) == {"v1", "v2"}


def test_an_output_may_also_be_an_operand_or_an_input() -> None:
    graph, data = document()
    graph["outputs"] = [{"id": i, "name": i} for i in ("v0", "v1", "v2", "w")]
    result = run(load(graph, data), {"features": X})
    assert result["v0"].tobytes() == X.tobytes()
    assert set(result) == {"v0", "v1", "v2", "w"}


def test_nan_is_canonical_wherever_it_leaves() -> None:
    graph, data = document()
    graph["outputs"] = [{"id": "v0", "name": "echo"}, {"id": "v2", "name": "scores"}]
    odd_nan = np.array([[0xFFC12345, 0, 0]], dtype=np.uint32).view(np.float32)
    result = run(load(graph, data), {"features": odd_nan}, keep="all")
    assert result["v0"].view(np.uint32)[0, 0] == 0x7FC00000
    assert (result["v2"].view(np.uint32) == 0x7FC00000).all()


def test_every_operation_of_the_table_is_defined() -> None:
    """docs/ir.md lists the operations; the reference has exactly those."""
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "ir.md").read_text(encoding="utf-8")
    table = text[text.index("| op | operands | attributes |") : text.index("## Text form")]
    rows = [line for line in table.splitlines()[2:] if line.startswith("| `")]
    named = {word for row in rows for word in row.split("|")[1].split("`")[1::2]}
    assert named == set(OPERATORS)


def changed(path: list[Any], value: Any) -> Any:
    graph, data = document()
    place: Any = graph
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return graph, data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "cuvil-graph/9", "cuvil-graph/9"),
        (["weights", 1, "offset"], 4096, "weight b"),
        (["weights", 1, "offset"], -4, "weight b"),
        (["weights", 0, "sha3_512"], "0" * 128, "weight w"),
        (["weights", 0, "dtype"], "nonsense", "cuvil-graph/1"),
        (["nodes"], [{"op": "relu"}], "missing"),
        (["inputs"], 5, "cuvil-graph/1"),
    ],
)
def test_a_broken_graph_is_refused(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(ReferenceError, match=message):
        load(*changed(path, value))


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b'{"format": "cuvil-graph/1"}'])
def test_what_is_not_a_graph_is_refused(raw: bytes) -> None:
    with pytest.raises(ReferenceError):
        load_graph(raw, b"")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["nodes", 1, "op"], "fancy_new_op", "fancy_new_op"),
        (["nodes", 1, "shape"], [2, 1], "shape"),
    ],
)
def test_a_graph_that_cannot_be_evaluated_is_refused(path: list[Any], value: Any, message: str) -> None:
    with pytest.raises(ReferenceError, match=message):
        run(load(*changed(path, value)), {"features": X})


def test_wrong_inputs_are_refused() -> None:
    graph = load(*document())
    with pytest.raises(ReferenceError, match="'features' is missing"):
        run(graph, {"v0": X})
    with pytest.raises(ReferenceError, match="float32"):
        run(graph, {"features": X.astype(np.float64)})
    with pytest.raises(ReferenceError, match=r"\[1, 3\]"):
        run(graph, {"features": X.T})
    with pytest.raises(ReferenceError, match="binary128"):
        run(graph, {"features": X}, "binary128")


def test_reference_error_is_a_value_error() -> None:
    assert issubclass(ReferenceError, ValueError)
