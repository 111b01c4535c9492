"""onnxruntime as a peer: values of every tensor of the source model, where the package is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def peer_version() -> str | None:
    """Version of the installed onnxruntime, ``None`` without it."""
    try:
        return version("onnxruntime")
    except PackageNotFoundError:
        return None


class OnnxRuntimePeer:
    """Two sessions of one model on one thread: as users run it, and with every tensor exposed."""

    def __init__(self, model: bytes) -> None:
        import onnx
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._plain = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        proto = onnx.load_from_string(model)
        self.outputs = [o.name for o in proto.graph.output]
        known = set(self.outputs)
        for node in proto.graph.node:
            for name in node.output:
                if name and name not in known:
                    known.add(name)
                    proto.graph.output.append(onnx.ValueInfoProto(name=name))
        self._names = [o.name for o in proto.graph.output]
        self._open = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Values by tensor name; the model's outputs come from the session users would run."""
        values = dict(zip(self._names, self._open.run(None, dict(inputs)), strict=True))
        values.update(zip(self.outputs, self._plain.run(self.outputs, dict(inputs)), strict=True))
        return {name: np.asarray(value) for name, value in values.items()}
