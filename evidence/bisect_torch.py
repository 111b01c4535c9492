"""PyTorch as a system for ``bisect``: the L0 graph operation by operation with torch's own kernels, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.errors import UnsupportedError
from evidence.reference import RefGraph, RefNode

Array = npt.NDArray[Any]
Trace = dict[str, Array]


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UnsupportedError("torch is not installed: run pip install torch") from None
    return torch


class TorchGraph:
    """The graph as a callable on torch tensors, constants converted once; every operation with torch's own kernel."""

    def __init__(self, graph: RefGraph) -> None:
        self.torch = _torch()
        self.graph = graph
        self.constants = {key: self.torch.from_numpy(np.array(value)) for key, value in graph.weights.items()}

    def __call__(self, inputs: Mapping[str, Any], stop: bool = False) -> dict[str, Any]:
        """Tensors by value id. An operation without a form here is left out with all that needs it when ``stop``,
        else ``UnsupportedError``."""
        values = {**self.constants, **{t.id: inputs[t.name] for t in self.graph.inputs}}
        for node in self.graph.nodes:
            operation = OPERATIONS.get(node.op)
            if operation is None or any(name and name not in values for name in node.inputs):
                if stop:
                    continue
                raise UnsupportedError(f"node '{node.node}' ({node.op}) has no form in torch here")
            given = [values[name] if name else None for name in node.inputs]
            values[node.output] = operation(self.torch, node, *given).reshape(node.shape)
        return values


def outputs(graph: RefGraph, inputs: Mapping[str, Array]) -> Trace:
    """The graph's outputs by name; ``UnsupportedError`` when an operation has no form here."""
    values = _run(graph, inputs, stop=False)
    return {name: values[vid] for vid, name in graph.outputs}


def trace_torch(graph: RefGraph, inputs: Mapping[str, Array]) -> Trace:
    """Values by tensor name up to the first operation without a form here."""
    values = _run(graph, inputs, stop=True)
    return {n.tensor: values[n.output] for n in graph.nodes if n.tensor and n.output in values}


def _run(graph: RefGraph, inputs: Mapping[str, Array], stop: bool) -> Trace:
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        given = {name: torch.from_numpy(np.array(value)) for name, value in inputs.items()}
        with torch.inference_mode():
            values = TorchGraph(graph)(given, stop)
        return {key: np.asarray(value.contiguous().numpy()) for key, value in values.items()}
    finally:
        torch.set_num_threads(threads)


def _padding(pads: Sequence[int]) -> list[int]:
    """ONNX pads (begins, ends) in torch's order: last axis first, begin and end together."""
    rank = len(pads) // 2
    return [p for axis in reversed(range(rank)) for p in (pads[axis], pads[axis + rank])]


def _conv(torch: Any, node: RefNode, x: Any, w: Any, b: Any = None) -> Any:
    a, rank = node.attrs, w.ndim - 2
    function = getattr(torch.nn.functional, f"conv{rank}d")
    pads = a["pads"]
    if list(pads[:rank]) == list(pads[rank:]):
        return function(x, w, b, tuple(a["strides"]), tuple(pads[:rank]), tuple(a["dilations"]), a["group"])
    padded = torch.nn.functional.pad(x, _padding(pads))
    return function(padded, w, b, tuple(a["strides"]), 0, tuple(a["dilations"]), a["group"])


def _conv_transpose(torch: Any, node: RefNode, x: Any, w: Any, b: Any = None) -> Any:
    a, rank = node.attrs, w.ndim - 2
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    strides, dilations, pads = tuple(a["strides"]), tuple(a["dilations"]), a["pads"]
    extra = tuple(max(0, -pads[rank + i]) + a["output_padding"][i] for i in range(rank))
    whole = function(x, w, b, strides, 0, extra if any(extra) else 0, a["group"], dilations)
    index = [slice(None), slice(None)]
    index += [slice(pads[i], pads[i] + node.shape[2 + i]) for i in range(rank)]
    return whole[tuple(index)]


def _max_pool(torch: Any, node: RefNode, x: Any) -> Any:
    a, rank = node.attrs, x.ndim - 2
    extra = [
        (node.shape[2 + i] - 1) * a["strides"][i] + (a["kernel"][i] - 1) * a["dilations"][i] + 1 for i in range(rank)
    ]
    ends = [max(0, extra[i] - x.shape[2 + i] - a["pads"][i]) for i in range(rank)]
    padded = torch.nn.functional.pad(x, _padding([*a["pads"][:rank], *ends]), value=float("-inf"))
    function = getattr(torch.nn.functional, f"max_pool{rank}d")
    result = function(padded, tuple(a["kernel"]), tuple(a["strides"]), 0, tuple(a["dilations"]))
    return result[tuple(slice(0, s) for s in node.shape)]


def _gemm(torch: Any, node: RefNode, x: Any, w: Any, c: Any = None) -> Any:
    a = node.attrs
    x = x.t() if a["trans_a"] else x
    if c is not None and a["alpha"] == a["beta"] == 1.0 and c.ndim == 1:
        return torch.nn.functional.linear(x, w if a["trans_b"] else w.t(), c)
    product = torch.matmul(x, w.t() if a["trans_b"] else w) * a["alpha"]
    return product if c is None else product + a["beta"] * c


def _layer_norm(torch: Any, node: RefNode, x: Any, scale: Any, bias: Any = None) -> Any:
    shape = x.shape[node.attrs["axis"] :]
    return torch.nn.functional.layer_norm(x, shape, scale, bias, node.attrs["epsilon"])


def _slice(torch: Any, node: RefNode, x: Any) -> Any:
    for axis, (start, step) in enumerate(zip(node.attrs["starts"], node.attrs["steps"], strict=True)):
        index = torch.arange(node.shape[axis]) * step + start
        x = torch.index_select(x, axis, index)
    return x


def _reduce(kind: str) -> Callable[..., Any]:
    def apply(torch: Any, node: RefNode, x: Any) -> Any:
        return getattr(torch, kind)(x, dim=tuple(node.attrs["axes"]), keepdim=bool(node.attrs["keepdims"]))

    return apply


def _simple(name: str) -> Callable[..., Any]:
    return lambda torch, node, *given: getattr(torch, name)(*given)


_SIMPLE = {
    **{k: k for k in "relu sigmoid tanh erf exp log sqrt neg abs reciprocal floor ceil add sub mul div pow".split()},
    "matmul": "matmul",
    "min": "minimum",
    "max": "maximum",
}
OPERATIONS: dict[str, Callable[..., Any]] = {
    **{kind: _simple(name) for kind, name in _SIMPLE.items()},
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "gemm": _gemm,
    "layer_normalization": _layer_norm,
    "batch_normalization": lambda torch, n, x, s, b, m, v: torch.nn.functional.batch_norm(
        x, m, v, s, b, False, 0.0, n.attrs["epsilon"]
    ),
    "global_average_pool": lambda torch, n, x: x.mean(dim=tuple(range(2, x.ndim)), keepdim=True),
    "global_max_pool": lambda torch, n, x: x.amax(dim=tuple(range(2, x.ndim)), keepdim=True),
    "softmax": lambda torch, n, x: torch.softmax(x, n.attrs["axis"]),
    "log_softmax": lambda torch, n, x: torch.log_softmax(x, n.attrs["axis"]),
    "leaky_relu": lambda torch, n, x: torch.nn.functional.leaky_relu(x, n.attrs["alpha"]),
    "elu": lambda torch, n, x: torch.nn.functional.elu(x, n.attrs["alpha"]),
    "gelu": lambda torch, n, x: torch.nn.functional.gelu(x, approximate=n.attrs["approximate"]),
    "hard_swish": lambda torch, n, x: torch.nn.functional.hardswish(x),
    "softplus": lambda torch, n, x: torch.nn.functional.softplus(x),
    "clip": lambda torch, n, x: torch.clamp(x, n.attrs.get("lo"), n.attrs.get("hi")),
    "reduce_mean": _reduce("mean"),
    "reduce_sum": _reduce("sum"),
    "reduce_max": _reduce("amax"),
    "reduce_min": _reduce("amin"),
    "concat": lambda torch, n, *x: torch.cat(x, n.attrs["axis"]),
    "transpose": lambda torch, n, x: x.permute(*n.attrs["perm"]),
    "reshape": lambda torch, n, x: x.reshape(n.shape),
    "expand": lambda torch, n, x: x.expand(n.shape),
    "slice": _slice,
}
