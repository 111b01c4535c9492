"""torch.export programs and modules to ONNX bytes that are the same every time.

``torch.onnx.export(dynamo=True)`` does the translation, without its optimiser: that one folds BatchNorm into
convolutions, and a change of rounding belongs to the passes before the freeze, where it is measured and recorded. Only
its constants are folded. Then everything that depends on the machine goes (stack traces, paths, documentation).
"""

from __future__ import annotations

import ast
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import onnx

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.stage import Json

OPSET = 20
"""The opset that is asked of the exporter; fixed, so that a newer exporter does not silently choose another."""

_SCOPES = "pkg.torch.onnx.name_scopes"


def export_module(
    module: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> bytes:
    """ONNX bytes of a ``torch.nn.Module`` in evaluation mode, called with ``args`` and ``kwargs``.

    ``dynamic_shapes`` is torch.export's: it names the dimensions that stay symbolic. The module's own mode (training or
    not) is put back. ``UnsupportedError`` when torch.export or the exporter cannot, with their reason.
    """
    torch = _torch()
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(
                module,
                tuple(args),
                dict(kwargs or {}),
                dynamic_shapes=dynamic_shapes,
                # "height must be even" is for the importer to find, for the sizes that are compiled
                prefer_deferred_runtime_asserts_over_guards=dynamic_shapes is not None,
            )
    except Exception as error:  # torch.export raises errors of many unrelated classes
        raise UnsupportedError(f"torch.export cannot capture {type(module).__name__}: {first_line(error)}") from error
    finally:
        for part, training in modes:
            part.training = training
    return export_program(program, dynamic_shapes)


def export_program(program: Any, dynamic_shapes: Any = None) -> bytes:
    """ONNX bytes of a ``torch.export.ExportedProgram``; ``dynamic_shapes`` only gives symbolic dimensions their names.

    ``UnsupportedError`` for an operator without translation, and for a program that changes inputs or buffers in place.
    """
    torch = _torch()
    _check_no_state(program)
    from onnxscript import optimizer

    try:
        with _quiet(), torch.no_grad():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                dynamic_shapes=dynamic_shapes,
                optimize=False,
                opset_version=OPSET,
                verbose=False,
            )
            optimizer.fold_constants(exported.model)
            optimizer.remove_unused_nodes(exported.model)
            model = exported.model_proto
    except Exception as error:  # the exporter wraps whatever went wrong in classes of its own
        raise UnsupportedError(f"torch.onnx.export cannot translate the program: {_cause(error)}") from error
    return canonical(model)


def _check_no_state(program: Any) -> None:
    """Refuse what changes an input or a buffer in place; on intermediate values that is harmless."""
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    if any(schema is not None and schema.is_mutable for schema in schemas):
        with _quiet():
            program = program.run_decompositions({})  # only makes the program functional, which tells the two apart
    signature = program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise UnsupportedError(
            f"the program changes {changed[0]!r} in place, and an engine keeps no state between inferences: return the "
            "new value instead"
        )


def canonical(model: onnx.ModelProto) -> bytes:
    """The model without stack traces, paths and documentation, its nodes named after the modules they come from."""
    _name_nodes(model.graph)
    _strip(model)
    return bytes(model.SerializeToString(deterministic=True))


def exporter_facts() -> dict[str, Json]:
    """Versions of everything that takes part in an export."""
    names = ("torch", "onnxscript", "onnx", "onnx-ir")
    return {"opset": OPSET, "exporter": {name: version(name) for name in names}}


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")[:300]


_REMEDIES = {
    "aten._transformer_encoder_layer_fwd": "; call torch.backends.mha.set_fastpath_enabled(False) before",
    "aten._native_multi_head_attention": "; call torch.backends.mha.set_fastpath_enabled(False) before",
}


def _cause(error: BaseException) -> str:
    """The innermost reason: the exporter's outer texts are pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    operator = re.search(r"No ONNX function found for <OpOverload\(op='([^']+)', overload='([^']+)'", str(error))
    if operator is None:
        return first_line(error)
    name, overload = operator.groups()
    return f"the operator {name}.{overload} has no translation to ONNX{_REMEDIES.get(name, '')}"


def _torch() -> Any:
    try:
        import onnxscript  # noqa: F401
        import torch
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed: run pip install 'cuvil[torch]'") from None
    return torch


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about itself (absent torchvision, its own deprecated calls)."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _name_nodes(graph: onnx.GraphProto) -> None:
    """``/features/0/Conv`` instead of ``node_Conv_8``, so that a node is found in the user's network."""
    used: set[str] = set()
    for node in graph.node:
        entry = next((item.value for item in node.metadata_props if item.key == _SCOPES), "[]")
        scopes: list[str] = ast.literal_eval(entry)
        # the first scope is the network, the last the operation; scopes between are dotted paths of modules
        inside = scopes[-2].replace(".", "/") if len(scopes) > 2 else ""
        base = f"/{inside}/{node.op_type}" if inside else f"/{node.op_type}"
        name, number = base, 0
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        node.name = name


def _strip(message: Any) -> None:
    """Clear ``doc_string`` and ``metadata_props`` in ``message`` and everything inside it."""
    for field, value in message.ListFields():
        if field.name in ("doc_string", "metadata_props"):
            message.ClearField(field.name)
        elif field.message_type is not None and field.message_type.name != "TensorProto":
            for item in value if hasattr(value, "append") or hasattr(value, "add") else (value,):
                _strip(item)
        elif field.message_type is not None:
            for item in value if hasattr(value, "add") else (value,):
                item.ClearField("doc_string")
                item.ClearField("metadata_props")
