"""What is timed: a model file with the inputs to feed it and, for networks written in torch, the network itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.compile import Frozen
from compiler_kernels.errors import UsageError
from evidence.test_inputs import tensor

Array = NDArray[np.float32]
Inputs = Mapping[str, Array]
"""Arrays by the model's input names, in the model's order."""
SEED: Final = 20260601


@dataclass(frozen=True)
class Network:
    """An ONNX file under a short ``name``.

    ``example`` makes input number N of a model of one input; without it inputs are roughly normal, from a fixed seed.
    ``module`` builds the torch network the file was exported from; without it torch runs the operations of the file.
    ``pins`` are the shapes of inputs whose model leaves them open.
    """

    name: str
    path: Path
    example: Callable[[int], Array] | None = None
    module: Callable[[], Any] | None = None
    pins: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def inputs(self, frozen: Frozen, count: int) -> list[Inputs]:
        """``count`` sets of inputs, float32 in the model's shapes."""
        shapes = {value.name or value.id: value.type.dims for value in frozen.module.main.inputs}
        if self.example is not None:
            (name,) = shapes
            return [{name: self.example(number)} for number in range(count)]
        return [
            {name: tensor(shape, None, [SEED, number, place]) for place, (name, shape) in enumerate(shapes.items())}
            for number in range(count)
        ]


def networks(files: Sequence[Path], pins: Mapping[str, tuple[int, ...]] | None = None) -> list[Network]:
    """ONNX files as networks named after them; ``UsageError`` when one does not exist or two have one name."""
    found: dict[str, Network] = {}
    for path in files:
        if not path.is_file():
            raise UsageError(f"{path}: no such file; give an ONNX model")
        if path.stem in found:
            raise UsageError(f"{path}: a second model named {path.stem!r}; rename one of the two files")
        found[path.stem] = Network(path.stem, path, pins=pins or {})
    return list(found.values())
