"""What a session tells about its model and takes as values, shaped like onnxruntime's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UnsupportedError
from cuvil.errors import InvalidArgument

if TYPE_CHECKING:
    from cuvil.session import InferenceSession

_ORT_NAMES = {"float32": "float", "float64": "double"}


def type_name(dtype: str) -> str:
    """onnxruntime's name of a tensor type, for example ``tensor(float)``, from NumPy's or ONNX's element type."""
    return f"tensor({_ORT_NAMES.get(dtype, dtype)})"


@dataclass(frozen=True)
class NodeArg:
    """An input or output of the model.

    ``shape`` holds sizes, the names of symbolic dimensions as strings, and ``None`` where the model gives neither;
    ``type`` is onnxruntime's name, such as ``tensor(float)`` or ``tensor(int64)``.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def describe(self) -> str:
        """Type and shape for a sentence: ``tensor(float) (N, 1, 28, 28)``."""
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.type} ({dims})"


@dataclass(frozen=True)
class ModelMetadata:
    """What the model file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]


class OrtValue:
    """A tensor in this process's memory; ``numpy`` gives it without a copy."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, array: NDArray[Any], device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        _cpu_only(device_type)
        return cls(np.asarray(array))

    def numpy(self) -> NDArray[Any]:
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        return type_name(str(self._array.dtype))

    def device_name(self) -> str:
        return "cpu"

    def is_tensor(self) -> bool:
        return True

    def has_value(self) -> bool:
        return True


class IOBinding:
    """Inputs and outputs bound before a run. Everything lies in main memory; binding saves no copy here."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, NDArray[Any]] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, array: NDArray[Any]) -> None:
        self._inputs[name] = np.asarray(array)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        self._inputs[name] = value.numpy()

    def bind_input(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("an input is not bound by its address: use bind_cpu_input with a NumPy array")

    def bind_output(self, name: str, device_type: str = "cpu", *args: Any, **kwargs: Any) -> None:
        _cpu_only(device_type)
        if args or kwargs.get("buffer_ptr") is not None:
            raise UnsupportedError("an output is not bound by its address: use bind_ortvalue_output, or no buffer")
        self._outputs[name] = None

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """The result is written into ``value``'s array; shape and type must be those of the result."""
        self._outputs[name] = value

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for."""

    def get_outputs(self) -> list[OrtValue]:
        """Results of the last run, in the order in which the outputs were bound."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[NDArray[Any]]:
        return [value.numpy() for value in self._results]

    def run(self) -> None:
        """One inference; called by ``InferenceSession.run_with_iobinding``."""
        names: Sequence[str] = list(self._outputs)
        if not names:
            raise InvalidArgument("no output is bound: call bind_output with the name of one before the run")
        self._results = []
        for name, found in zip(names, self._session.run(names, self._inputs), strict=True):
            target = self._outputs[name]
            if target is None:
                target = OrtValue(found)
            else:
                array = target.numpy()
                if array.shape != found.shape or array.dtype != found.dtype:
                    raise InvalidArgument(
                        f"the value bound to the output {name!r} is {array.dtype} {array.shape} where the result is "
                        f"{found.dtype} {found.shape}: bind one of that type and shape"
                    )
                array[...] = found
            self._results.append(target)


def _cpu_only(device_type: str) -> None:
    if device_type != "cpu":
        raise UnsupportedError(f"there is no device {device_type!r}: engines of a session compute on 'cpu'")
