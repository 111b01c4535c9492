"""No false alarm: ONNX node tests through lockstep engines, on their inputs and on NaN, infinities and subnormals."""

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safety_case as case

from compiler_kernels import load_engine
from compiler_kernels.errors import CuvilError
from compiler_kernels.targets.registry import runner

SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-40)


def node_tests(seed: int) -> list[Any]:
    """ONNX's node tests in a random order."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(load_model_tests(kind="node"))
    random.Random(seed).shuffle(found)
    return found


def spoiled(array: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    """``array`` with a fifth of its values replaced by special ones, where it holds floating-point numbers."""
    if array.dtype.kind != "f" or not array.size:
        return array
    rng = np.random.default_rng(seed)
    found = array.copy()
    places = rng.choice(found.size, max(1, found.size // 5), replace=False)
    found.reshape(-1)[places] = rng.choice(np.array(SPECIAL, found.dtype), places.size)
    return found


@pytest.mark.slow
@pytest.mark.skipif(runner(case.X86) != (), reason="no x86-64 engine runs natively here")
def test_no_alarm_on_node_tests(tmp_path: Path) -> None:
    compiled = 0
    for item in node_tests(1):
        if compiled == 40:
            break
        names = [value.name for value in item.model.graph.input]
        values = dict(zip(names, map(np.asarray, item.data_sets[0][0]), strict=False))
        path = tmp_path / f"{item.name}.so"
        try:
            case.build(item.model.SerializeToString(), path, kind="so")
            engine = load_engine(path)
            given = {tensor.name: values[tensor.name] for tensor in engine.inputs}
            engine.set_inputs(given)
        except CuvilError:
            continue  # an operator, type or shape that is refused: no matter of lockstep
        for seed in range(3):
            engine.set_inputs({name: spoiled(value, seed) if seed else value for name, value in given.items()})
            engine.infer()
            assert engine.mismatch == "", item.name
        compiled += 1
    assert compiled == 40
