"""``cuvil bisect``: the first node at which two systems differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import UsageError
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.inputs import MODEL_LIMIT, read_file
from evidence.bisect import bisect, report
from evidence.bisect_systems import Subject, subject

Array = npt.NDArray[Any]


def run(
    a: str,
    b: str,
    model: Path,
    other: Path | None,
    inputs: list[str],
    shapes: Mapping[str, tuple[int, ...]],
    json: bool,
) -> int:
    """Compare and print; the exit code is 1 when a tensor or an output differs. Raises ``CuvilError``."""
    first = read_file(model, "model", "give an ONNX file", MODEL_LIMIT)
    second = None if other is None else read_file(other, "model", "give an ONNX file", MODEL_LIMIT)
    given = read_inputs(inputs, subject(first, shapes)) if inputs else None
    result = bisect(a, b, first, model_b=second, input_shapes=shapes, inputs=given)
    if json:
        print_json(result.to_json())
    else:
        print("\n".join(report(result)))
    return 1 if result.difference is not None or result.outputs_differ else 0


def read_inputs(texts: list[str], model: Subject) -> dict[str, Array]:
    """``[NAME=]FILE.npy`` to arrays by input name; ``UsageError`` for a bad file, name, type or shape."""
    found: dict[str, Array] = {}
    names = list(model.shapes)
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or name not in names:
            if len(names) != 1:
                raise UsageError(f"--input {text}: does not say which input it is; write NAME=FILE with one of {names}")
            name, file = names[0], text
        if name in found:
            raise UsageError(f"--input gives {name!r} twice; give it once")
        try:
            value = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(
                f"--input {file}: cannot be read as a .npy file ({error}); write it with numpy.save"
            ) from None
        if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.shape != model.shapes[name]:
            shape = list(getattr(value, "shape", ()))
            raise UsageError(
                f"--input {file}: holds {getattr(value, 'dtype', 'no array')} {shape}, and the input {name!r} is "
                f"float32 {list(model.shapes[name])}; convert it"
            )
        found[name] = value
    for name in names:
        if name not in found:
            raise UsageError(f"--input: {name!r} is missing; give every input, or none")
    return found
