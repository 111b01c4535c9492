"""``torch.compile(model, backend="cuvil")``: every captured graph becomes a Cuvil engine, or is refused by name.

For inference. Weights are constants of the engine, as everywhere in Cuvil; a weight that was replaced or written to is
noticed and compiled again. One engine per combination of input shapes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._dynamo.utils import get_static_address_type

from compiler_kernels.doors.torch_door import export_program, first_line
from compiler_kernels.errors import CuvilError, RefusedError, UnsupportedError, UsageError
from cuvil.session import InferenceSession

_OPTIONS = frozenset({"fallback"})
_LIMIT = 8
"""Engines kept per graph; a graph that is called with more shapes compiles again."""


def cuvil_backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    fallback: bool = False,
) -> Callable[..., Any]:
    """The backend of the entry point ``cuvil`` in the group ``torch_dynamo_backends``.

    ``options={"fallback": True}`` hands a graph that cannot be compiled to eager execution, with a warning that names
    the reason; without it the reason is raised (``UnsupportedError``). Calls that would record gradients are refused
    with ``RefusedError`` in both cases.
    """
    given = dict(options or {})
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise UsageError(f'the backend "cuvil" has no option {unknown[0]!r}: it has {", ".join(sorted(_OPTIONS))}')
    if mode not in (None, "default"):
        raise UsageError(f'the backend "cuvil" has no mode {mode!r}: leave mode out')
    weights = {number for number, value in enumerate(example_inputs) if _is_weight(value)}
    return _Compiled(graph, weights, bool(given.get("fallback", fallback)))


@dataclass
class _Engine:
    """An engine for one combination of shapes: what it takes and what becomes of the graph's results."""

    session: InferenceSession
    inputs: list[tuple[str, int]]
    """Name in the engine and number among the graph's arguments."""
    outputs: list[tuple[str | None, Any]]
    """Name in the engine, or ``None`` and the constant."""


class _Compiled:
    """A captured graph, as a function of its arguments."""

    def __init__(self, graph: torch.fx.GraphModule, weights: set[int], fallback: bool) -> None:
        self.graph = graph
        self.weights = weights
        self.fallback = fallback
        self._engines: dict[Any, _Engine | None] = {}

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            raise RefusedError(
                'the backend "cuvil" computes no gradients, and an argument or weight requires one: call the model '
                "under torch.no_grad() or torch.inference_mode()"
            )
        key = tuple(self._key(number, value) for number, value in enumerate(args))
        if key not in self._engines:
            while len(self._engines) >= _LIMIT:
                del self._engines[next(iter(self._engines))]
            self._engines[key] = self._compile(args)
        engine = self._engines[key]
        if engine is None:
            return self.graph(*args)
        feeds = {name: args[number].detach().numpy() for name, number in engine.inputs}
        names = [name for name, _ in engine.outputs if name is not None]
        found = dict(zip(names, engine.session.run(names, feeds), strict=True)) if names else {}
        results = {name: torch.from_numpy(np.asarray(array)) for name, array in found.items()}
        return tuple(value if name is None else results[name] for name, value in engine.outputs)

    def _key(self, number: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        shape = (tuple(value.shape), value.dtype)
        if number not in self.weights:
            return shape
        return (*shape, value.data_ptr(), 0 if value.is_inference() else value._version)

    def _compile(self, args: tuple[Any, ...]) -> _Engine | None:
        try:
            return self._engine(args)
        except CuvilError as error:
            if not self.fallback:
                raise
            warnings.warn(f"a graph is computed by torch, not by Cuvil: {error}", UserWarning, stacklevel=3)
            return None

    def _engine(self, args: tuple[Any, ...]) -> _Engine:
        for value in args:
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                raise UnsupportedError(f"a tensor lies on {value.device}: engines compute on the processor")
            if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
                raise UnsupportedError("a tensor is bfloat16, which NumPy does not have: convert the model")
        free = [n for n, a in enumerate(args) if isinstance(a, torch.Tensor) and n not in self.weights]
        frozen = _Frozen(self.graph, args, free)
        program = _export(frozen, tuple(args[n].detach() for n in free))
        session = InferenceSession(export_program(program))
        inputs = list(zip([arg.name for arg in session.get_inputs()], free, strict=True))
        names = iter([arg.name for arg in session.get_outputs()])
        returned = frozen.returned.values
        outputs: list[tuple[str | None, Any]] = [
            (next(names), None) if isinstance(value, torch.Tensor) else (None, value) for value in returned
        ]
        return _Engine(session, inputs, outputs)


class _Returned:
    """What a graph returned when it was traced. torch.export puts lists and dicts of a module back as they were."""

    values: tuple[Any, ...] = ()


class _Frozen(torch.nn.Module):
    """The graph from tensors to tensors: weights and sizes are constants."""

    def __init__(self, graph: torch.fx.GraphModule, args: tuple[Any, ...], free: list[int]) -> None:
        super().__init__()
        self.graph = graph
        self.free = free
        self.fixed: dict[int, Any] = {}
        self.returned = _Returned()
        for number, value in enumerate(args):
            if number in free:
                continue
            if isinstance(value, torch.Tensor):
                self.register_buffer(f"w{number}", value.detach())
            else:
                self.fixed[number] = value

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = dict(zip(self.free, tensors, strict=True))
        count = len(given) + len(self.fixed) + len(self._buffers)
        order = range(count)
        results = self.graph(
            *(given[n] if n in given else self.fixed[n] if n in self.fixed else getattr(self, f"w{n}") for n in order)
        )
        # the exporter takes tensors only; sizes among the results are constants for one combination of shapes
        self.returned.values = tuple(results)
        return tuple(value for value in results if isinstance(value, torch.Tensor))


def _export(module: _Frozen, tensors: tuple[torch.Tensor, ...]) -> Any:
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, tensors, strict=False)
    except Exception as error:  # torch.export raises errors of many unrelated classes
        raise UnsupportedError(f"torch.export cannot capture the graph: {first_line(error)}") from error


def _is_weight(value: Any) -> bool:
    """Parameters and buffers of modules, which dynamo passes as arguments like everything else."""
    return isinstance(value, torch.nn.Parameter) or (
        isinstance(value, torch.Tensor) and get_static_address_type(value) is not None
    )
