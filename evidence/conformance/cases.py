"""The node tests of the onnx package: collecting, freezing, feeding."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from compiler_kernels.errors import UsageError
from evidence.conformance.steering import freeze_inputs, steering_inputs

Array = npt.NDArray[Any]
MODES: Final = ("as-is", "frozen")
LIST_FILE: Final = Path(__file__).resolve().parents[1] / "data" / "onnx_node_tests.txt"
DENOMINATORS: Final[Mapping[str, str]] = {"t": "target", "o": "onnxruntime"}
"""Marks of the list file and the names of what they count towards."""


@dataclass(frozen=True)
class Case:
    """One test. Values are arrays, or whatever else the test has (lists for sequences, ``None``), by tensor name.

    ``steering`` names the inputs that the mode "frozen" makes constants.
    """

    name: str
    op: str
    model: onnx.ModelProto
    inputs: Mapping[str, object]
    expected: Mapping[str, object]
    rtol: float = 1e-3
    atol: float = 1e-7
    steering: frozenset[str] = frozenset()

    def variant(self, mode: str) -> tuple[bytes, dict[str, object]]:
        """The serialised model of ``mode`` and the inputs it takes at run time; ``UsageError`` for an unknown mode."""
        if mode not in MODES:
            raise UsageError(f"there is no mode {mode!r}; choose one of {', '.join(MODES)}")
        constants = {
            name: numpy_helper.from_array(value, name)
            for name, value in self.inputs.items()
            if mode == "frozen" and name in self.steering and isinstance(value, np.ndarray)
        }
        model = freeze_inputs(self.model, constants) if constants else self.model
        return bytes(model.SerializeToString()), {n: v for n, v in self.inputs.items() if n not in constants}


@dataclass(frozen=True)
class Listed:
    """One line of the committed list: the operator (that of the body for ``_expanded``) and what the name counts in."""

    name: str
    op: str
    counts_in: frozenset[str]


@lru_cache(maxsize=1)
def listed() -> Mapping[str, Listed]:
    """The committed list by name, in the order of the suite."""
    found = {}
    for line in LIST_FILE.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, op, marks = line.split()
            found[name] = Listed(name, op, frozenset(DENOMINATORS[m] for m in marks if m != "-"))
    return found


def denominator(kind: str) -> frozenset[str]:
    """The names counted in ``target`` (769) or ``onnxruntime`` (1,593)."""
    return frozenset(n for n, row in listed().items() if kind in row.counts_in)


@lru_cache(maxsize=1)
def onnx_node_cases() -> Mapping[str, Case]:
    """Every node test of the installed onnx package, by name.

    Takes some seconds: the package computes inputs and expected values, each export from the seed 0.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        state = np.random.get_state()
        tests = collect_testcases(None)
        np.random.set_state(state)
    found: dict[str, Any] = {}
    for test in tests:
        found.setdefault(test.name, test)
    return {name: _case(test, found) for name, test in found.items()}


def _case(test: Any, tests: Mapping[str, Any]) -> Case:
    """An expanded test freezes the inputs that its plain test freezes, whatever nodes read them in the body."""
    plain = tests.get(test.name.partition("_expanded")[0], test)
    graph = test.model.graph
    inputs, expected = test.data_sets[0]
    row = listed().get(test.name)
    return Case(
        test.name,
        row.op if row else (plain.model.graph.node[0].op_type if plain.model.graph.node else ""),
        test.model,
        {info.name: as_value(v) for info, v in zip(graph.input, inputs, strict=True)},
        {info.name: as_value(v) for info, v in zip(graph.output, expected, strict=True)},
        test.rtol,
        test.atol,
        steering_inputs(plain.model.graph.node) | steering_inputs(graph.node),
    )


def as_value(value: object) -> object:
    """Arrays for arrays, scalars and tensors; anything else as it is."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return value


def select(names: Iterable[str], pattern: str = "", op: str = "") -> list[str]:
    """Those of ``names`` that match the shell-style ``pattern`` (or contain it, if it has no wildcard) and ``op``.

    Several operators may be given, separated by commas. ``UsageError`` when nothing is left.
    """
    from fnmatch import fnmatchcase

    ops = {o.strip().lower() for o in op.split(",") if o.strip()}
    wild = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    rows = listed()
    chosen = [n for n in names if fnmatchcase(n, wild) and (not ops or rows[n].op.lower() in ops)]
    if not chosen:
        said = " and ".join(s for s in (pattern and f"--only {pattern}", op and f"--op {op}") if s)
        raise UsageError(
            f"{said or 'the selection'}: no node test matches; names look like test_conv_with_strides_padding"
        )
    return chosen
