"""Converts a Keras model or a SavedModel with tf2onnx; a program of its own.

``python tensorflow_script.py ANSWER-FOLDER`` reads a request (JSON) on standard input. It imports nothing of Cuvil, so
that it runs in any interpreter that has tensorflow and tf2onnx.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

OPSET = 17


class Refused(Exception):
    """``kind`` is "usage" or "unsupported", as in ``converted.py``."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main() -> int:
    # Python puts the script's folder on the path: its modules are not meant for this interpreter
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]
    folder = Path(sys.argv[1])
    request = json.load(sys.stdin)
    try:
        model = convert(Path(request["path"]), request["shapes"])
    except Refused as error:
        (folder / "refusal.json").write_text(json.dumps({"kind": error.kind, "message": str(error)}))
        return 0
    facts = {"opset": OPSET, "exporter": versions("tensorflow", "tensorflow-cpu", "keras", "tf2onnx", "onnx")}
    (folder / "model.onnx").write_bytes(model)
    (folder / "facts.json").write_text(json.dumps(facts, sort_keys=True))
    return 0


def versions(*names: str) -> dict[str, str]:
    """Versions of those distributions that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def convert(path: Path, shapes: Mapping[str, list[Any]]) -> bytes:
    """ONNX bytes of the model in ``path``; ``Refused`` with a sentence otherwise."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    try:
        import tensorflow as tf
        import tf2onnx
    except ImportError as error:
        raise Refused(
            "usage",
            f"{error.name} is not installed in {Path(sys.executable).name}: run pip install 'cuvil[tensorflow]', "
            "or name an interpreter that has it in CUVIL_TF_PYTHON",
        ) from None
    function, specs, outputs = (saved_model if path.is_dir() else keras_model)(tf, path, shapes)
    try:
        model, _ = tf2onnx.convert.from_function(function, input_signature=specs, opset=OPSET)
    except Exception as error:  # tf2onnx raises whatever its handlers raise
        raise Refused("unsupported", f"{path.name}: tf2onnx cannot translate the model ({line(error)})") from error
    custom = sorted(
        {f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain not in ("", "ai.onnx")}
    )
    if custom:
        raise Refused("unsupported", f"{path.name}: the operator {custom[0]} has no translation to ONNX")
    rename_outputs(model.graph, outputs)
    rename_constants(model.graph)
    model.doc_string = model.graph.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
    return bytes(model.SerializeToString(deterministic=True))


def keras_model(tf: Any, path: Path, shapes: Mapping[str, list[Any]]) -> tuple[Any, list[Any], list[str]]:
    """The model's call as a function of its inputs, their signature, and the names of the outputs."""
    import keras

    try:
        model = keras.models.load_model(str(path), compile=False, safe_mode=True)
    except Exception as error:  # zip, HDF5, JSON and registry errors of many classes
        raise Refused(
            "usage", f"{path.name}: is not a model that keras {keras.__version__} can load ({line(error)})"
        ) from error
    if not getattr(model, "inputs", None):
        raise Refused(
            "unsupported", f"{path.name}: the model was never called, so its inputs are not known; call it once"
        )
    names = [clean(tensor.name) for tensor in model.inputs]
    specs = [spec(tf, name, t.shape, t.dtype, shapes) for name, t in zip(names, model.inputs)]  # noqa: B905
    check(path, names, shapes)
    outputs = [clean(name) for name in (getattr(model, "output_names", None) or [t.name for t in model.outputs])]

    def call(*tensors: Any) -> Any:
        found = model(tensors[0] if len(tensors) == 1 else list(tensors), training=False)
        return list(found.values()) if isinstance(found, dict) else found

    return tf.function(call), specs, outputs


def saved_model(tf: Any, path: Path, shapes: Mapping[str, list[Any]]) -> tuple[Any, list[Any], list[str]]:
    """The signature ``serving_default`` as a function, its inputs by name, and the names of its outputs."""
    try:
        loaded = tf.saved_model.load(str(path))
    except Exception as error:
        raise Refused("usage", f"{path.name}: is not a SavedModel that tensorflow can load ({line(error)})") from error
    signatures = loaded.signatures
    if not signatures:
        raise Refused("usage", f"{path.name}: has no signature; save it with signatures={{'serving_default': ...}}")
    signature = signatures["serving_default"] if "serving_default" in signatures else signatures[sorted(signatures)[0]]
    given = signature.structured_input_signature[1]
    names = sorted(given)
    check(path, names, shapes)
    specs = [spec(tf, name, given[name].shape, given[name].dtype.name, shapes) for name in names]
    outputs = sorted(signature.structured_outputs)

    def call(*tensors: Any) -> Any:
        found = signature(**dict(zip(names, tensors)))  # noqa: B905
        return [found[name] for name in outputs]

    call.loaded = loaded  # type: ignore[attr-defined]  # the signature holds its variables weakly
    return tf.function(call), specs, outputs


def check(path: Path, names: list[str], shapes: Mapping[str, list[Any]]) -> None:
    for name in shapes:
        if name not in names:
            raise Refused("usage", f"{path.name}: a shape is given for {name!r}, but the inputs are {', '.join(names)}")


def spec(tf: Any, name: str, shape: Any, dtype: str, shapes: Mapping[str, list[Any]]) -> Any:
    sizes = shapes.get(name, list(shape))
    return tf.TensorSpec([size if isinstance(size, int) else None for size in sizes], dtype, name=name)


def clean(name: str) -> str:
    return name.partition(":")[0].replace("/", "_")


def rename_outputs(graph: Any, names: list[str]) -> None:
    """Give the outputs the model's names where those are free; tf2onnx calls them Identity and the like."""
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {i.name for i in graph.input}
    for info, wanted in zip(graph.output, names):  # noqa: B905
        if wanted in taken:
            continue
        for node in graph.node:
            for field in (node.input, node.output):
                for place, old in enumerate(field):
                    if old == info.name:
                        field[place] = wanted
        info.name = wanted


def rename_constants(graph: Any) -> None:
    """Name initialisers after the node that reads them first, in that order.

    tf2onnx keeps one of several equal constants, and another one each time: its names are not the same twice.
    """
    names: dict[str, str] = {}
    known = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for place, old in enumerate(node.input):
            if old in known:
                node.input[place] = names.setdefault(old, f"{node.name}/constant{place}")
    kept = [known[old] for old in names]
    copies = [type(tensor).FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    for tensor, name in zip(copies, names.values()):  # noqa: B905
        tensor.name = name
        graph.initializer.append(tensor)


def line(error: BaseException) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]


if __name__ == "__main__":
    sys.exit(main())
