"""Functions of NumPy arrays as graphs: equal to executing them, side effects listed, the data's decisions refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuvil
from compiler_kernels.doors import convert
from compiler_kernels.doors.python_door import convert_function
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.stage import sha3_512_hex
from cuvil_assets.builder import build
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions
from cuvil_assets.records import BuildRecords
from cuvil_assets.store import ActionCache

FILE = Path(__file__).with_name("functions_file.py")


def executed() -> ModuleType:
    spec = importlib.util.spec_from_file_location("functions_file", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def peer_results(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    """What onnxruntime makes of the graph: it takes every element type, and no compile time."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    return list(runtime.InferenceSession(model).run(None, feeds))


def flat(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple) else [result]


def close(found: list[Any], expected: Any) -> None:
    wanted = [np.asarray(v) for v in flat(expected)]
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


CASES: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    ("normalise", {"image": (5, 6, 3)}),
    ("window", {"image": (1, 4, 5)}),
    ("standardise", {"image": (2, 4, 5)}),
    ("softmax", {"logits": (3, 7)}),
    ("postprocess", {"logits": (2, 2, 4, 5)}),
    ("pyramid", {"image": (6, 7)}),
    ("edges", {"image": (4, 5)}),
    ("accumulate", {"image": (3, 3)}),
]


@pytest.mark.parametrize(("name", "shapes"), CASES, ids=[name for name, _ in CASES])
def test_the_graph_computes_what_executing_the_function_computes(
    name: str, shapes: dict[str, tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # executing writes a file; converting does not
    converted = convert(f"{FILE}:{name}", shapes)
    assert not list(tmp_path.iterdir())
    rng = np.random.default_rng(1)
    feeds = {}
    for info in onnx.load_model_from_string(converted.model).graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        values = rng.integers(0, 256, shapes[info.name]) if dtype == np.uint8 else rng.normal(0, 100, shapes[info.name])
        feeds[info.name] = values.astype(dtype)
    expected = getattr(executed(), name)(**{key: value.copy() for key, value in feeds.items()})
    close(peer_results(converted.model, feeds), expected)
    assert convert(f"{FILE}:{name}", shapes).model == converted.model


def test_engines_of_functions() -> None:
    module = executed()
    x = np.random.default_rng(2).normal(size=(2, 2, 4, 5)).astype(np.float32)
    session = cuvil.InferenceSession(convert(f"{FILE}:postprocess", {"logits": x.shape}).model)
    assert [o.name for o in session.get_outputs()] == ["prob", "mask", "area"]
    close(session.run(None, {"logits": x}), module.postprocess(x))
    session = cuvil.InferenceSession(convert(f"{FILE}:standardise", {"image": (2, 4, 5)}).model)
    close(session.run(None, {"image": x[0]}), module.standardise(x[0]))


def test_side_effects_are_left_out_and_listed() -> None:
    facts = convert(f"{FILE}:normalise", {"image": (5, 6, 3)}).facts
    removed = facts["removed"]
    assert isinstance(removed, list)
    said = {item["what"] for item in removed if isinstance(item, dict)}
    assert said == {
        "assignment to the global CALLS",
        'print("shape", image.shape)',
        "branch that only writes: if x.mean() > 0.9",
        'logger.info("took %f", time.time() - start)',
    }
    lines = FILE.read_text().splitlines()
    for item in removed:
        assert isinstance(item, dict) and isinstance(item["line"], int)
        assert any(word in lines[item["line"] - 1] for word in ("CALLS = 1", "print", "if x.mean", "logger.info"))
    window = convert(f"{FILE}:window", {"image": (1, 4, 5)}).facts["removed"]
    assert isinstance(window, list) and len(window) == 2 and 'Path("log.txt").open("w")' in str(window)
    assert convert(f"{FILE}:softmax", {"logits": (2, 2)}).facts["removed"] == []


REFUSED = [
    ("bright", r"line \d+, column 8: `x\.mean\(\) > 0` makes control flow depend on the data; use np\.where"),
    ("counts", r"`image\.sum\(\) > 1` is a while loop; use for over a range"),
    ("remembers", r"`CALLS` is state that lives between calls; pass it as a parameter"),
    ("clocked", r"returns a value of time\.time\(\) \(line \d+\)|nothing that depends on its arrays"),
    ("masked", r"indexes with an array computed from the data; use np\.where"),
    ("writes_part", r"changes part of an array; build it with np\.where"),
    ("aliased", r"changes an array in place that 'y' sees too; write x = x"),
    ("aliased_constant", r"changes an array in place that 'first' sees too; write total = total"),
    ("chained", r"makes a chain of comparisons depend on the data; use \(a < b\) & \(b < c\)"),
    ("scalar", r"takes values out of the graph with float\(\)"),
    ("random", r"numpy\.random\.rand\(\)|nothing that depends on its arrays"),
    ("foreign", r"is not in the subset|is a call of something"),
    ("either", r"makes a choice depend on the data; use np\.where"),
    ("asserts", r"makes an assertion depend on the data; guard the input in the policy"),
    ("endless", r"calls itself without end"),
]


@pytest.mark.parametrize(("name", "sentence"), REFUSED, ids=[name for name, _ in REFUSED])
def test_what_the_data_decides_is_refused_with_place_and_remedy(name: str, sentence: str) -> None:
    with pytest.raises(UnsupportedError, match=sentence) as caught:
        convert(f"{FILE}:{name}", {"image": (4, 4)})
    text = str(caught.value)
    assert text.startswith("functions_file.py") and "\n" not in text


def test_the_place_is_that_of_the_condition() -> None:
    line = next(n for n, text in enumerate(FILE.read_text().splitlines(), 1) if text == "    if x.mean() > 0:")
    with pytest.raises(UnsupportedError, match=rf"^functions_file\.py, line {line}, column 8: "):
        convert(f"{FILE}:bright", {"image": (4, 4)})


def test_what_does_not_fit_gets_a_sentence() -> None:
    with pytest.raises(UsageError, match="the shape of 'image' is not known; add --input-shape image=SIZE"):
        convert(f"{FILE}:window", {})
    with pytest.raises(UsageError, match="a shape is given for 'picture', but window takes image, level, width"):
        convert(f"{FILE}:window", {"picture": (1,)})
    with pytest.raises(UsageError, match=r"`image \+ np\.zeros\(3\)` is refused by NumPy for these shapes .*broadcast"):
        convert(f"{FILE}:mismatched", {"image": (4, 4)})
    with pytest.raises(UsageError, match="does not hold for the given shapes"):
        convert(f"{FILE}:constant_assert", {"image": (4, 4)})
    convert(f"{FILE}:constant_assert", {"image": (5, 4)})


def test_nothing_of_the_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "trap.py"
    path.write_text(
        "import numpy as np\n"
        f"open({str(tmp_path / 'made')!r}, 'w').write('x')\n"
        "raise RuntimeError('executed')\n"
        "def double(x):\n    __import__('os').system('touch made')\n    return x * 2\n"
        "def triple(x):\n    return x * 3\n"
    )
    close(peer_results(convert(f"{path}:triple", {"x": (2,)}).model, {"x": np.ones(2, "f4")}), np.full(2, 3, "f4"))
    with pytest.raises(UnsupportedError, match="not in the subset"):
        convert(f"{path}:double", {"x": (2,)})
    with pytest.raises(UsageError, match=r"trap\.py: defines no 'tripel'; it defines .*triple"):
        convert(f"{path}:tripel", {"x": (2,)})
    assert not (tmp_path / "made").exists() and not Path("made").exists()


def test_a_build_from_a_function_records_what_was_removed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\nmodel: {name: pre, version: '1'}\n")
    options = BuildOptions(
        Path(f"{FILE}:window"), tmp_path / "policy.yaml", "x86_64-linux-musl", tmp_path / "e.bin",
        {"image": (1, 1, 28, 28)}, equivalence_inputs=1,
    )  # fmt: skip
    outcome = build(options)
    assert outcome.facts["equivalence"] == "passed"
    record = BuildRecords(Home(home), ActionCache(Home(home).store), str(outcome.facts["build"])).read("source_model")
    conversion = record.result.facts["conversion"]
    assert isinstance(conversion, dict) and conversion["door"] == "python"
    assert conversion["source_sha3_512"] == sha3_512_hex(FILE.read_bytes())
    assert "log.txt" in json.dumps(conversion["removed"])


LEAVES = ["x", "y", "x[0]", "y.T.T", "2", "0.5", "-1.5", "C", "x[:, ::-1]", "np.float32(3)", "y[..., 1:2]", "C[1]"]
UNARY = ["(-{})", "np.exp(np.minimum({}, 3))", "np.abs({})", "np.tanh({})", "np.floor({})", "np.round({})",
         "np.mean({}, axis=-1, keepdims=True)", "np.sum({}, axis=0)", "np.max({})", "np.sqrt(np.abs({}))",
         "np.square({})", "np.std({})", "np.clip({}, -1, 2)", "np.flip({})", "helper({})"]  # fmt: skip
BINARY = ["({} + {})", "({} - {})", "({} * {})", "({} / (np.abs({}) + 1))", "np.maximum({}, {})", "np.minimum({}, {})",
          "np.where({} > 0, {}, 1)", "np.where({} <= {}, 1, 2)", "np.where(({} > 0) & ({} < 1), x, 0)"]  # fmt: skip
expressions = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.tuples(st.sampled_from(UNARY), inner).map(lambda t: t[0].format(t[1]))
        | st.tuples(st.sampled_from(BINARY), inner, inner).map(lambda t: t[0].format(t[1], t[2]))
    ),
    max_leaves=8,
)


def compare(expression: str) -> None:
    source = (
        "import numpy as np\nC = np.array([[0.25], [1.0], [-2.0]], np.float32)\n"
        "def helper(a, k=2):\n    b = a * k\n    b = b + 1\n    return b\n"
        f"def f(x, y):\n    a = {expression}\n    return np.asarray(a + 0 * x[0, 0])\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, "f.py", "exec"), names)
    rng = np.random.default_rng(3)
    feeds = {name: rng.normal(0, 2, (3, 4)).astype(np.float32) for name in "xy"}
    with np.errstate(all="ignore"):
        try:
            expected = names["f"](**{k: v.copy() for k, v in feeds.items()})
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            with pytest.raises((UsageError, UnsupportedError)) as caught:
                convert_function(source.encode(), "f.py", "f", {"x": (3, 4), "y": (3, 4)})
            assert "line 8" in str(caught.value), error
            return
    found = peer_results(convert_function(source.encode(), "f.py", "f", {"x": (3, 4), "y": (3, 4)}).model, feeds)
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(expected).max())))
    assert found[0].dtype == expected.dtype and found[0].shape == expected.shape


@settings(max_examples=60, deadline=None)
@given(expressions)
def test_random_expressions_are_numpys(expression: str) -> None:
    compare(expression)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(expressions)
def test_many_random_expressions_are_numpys(expression: str) -> None:
    compare(expression)
