"""Reading a policy, and comparing it with the model it is meant for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.extents import model_outputs
from compiler_kernels.ir.graph import Module, TensorType
from compiler_kernels.ir.text import format_type
from compiler_kernels.policy.logic import check_names, resolve, tensors_of
from compiler_kernels.policy.logic_order import LogicError
from compiler_kernels.policy.schema import Policy, contradictions
from compiler_kernels.policy.tensors import TensorGuard
from compiler_kernels.policy.yaml_text import Document, Path, read_yaml

_MESSAGES = {
    "missing": "is missing",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of names to settings",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "finite_number": "must be a finite number",
    "too_short": "must not be empty",
    "string_unicode": "must be valid Unicode text",
}


class PolicyMisfit(UsageError):
    """A field of the policy that does not fit the model: the field is known, its place in the user's file is not."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"the policy's {'.'.join(map(str, path))} {why}")
        self.path, self.why = path, why

    def placed(self, text: str | bytes, filename: str) -> UsageError:
        """The same error with line and column in ``text``, which is the policy that :func:`load_policy` has read."""
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return read_yaml(decoded, filename).error(self.path, self.why)


def load_policy(text: str | bytes, filename: str) -> Policy:
    """Read a YAML policy. ``UsageError``, ``file:line:column: field ...``, for the first thing that is wrong."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{filename} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    document = read_yaml(text, filename)
    if not isinstance(document.data, dict):
        raise document.error((), "must be a mapping with the keys " + ", ".join(Policy.model_fields))
    try:
        policy = Policy.model_validate(document.data)
    except ValidationError as error:
        raise _explain(error, document) from None
    try:
        check_names(policy)
    except LogicError as error:
        raise document.error(error.path, str(error)) from None
    for field, why in contradictions(policy):
        raise document.error(("recertification", field), why)
    return policy


def _explain(error: ValidationError, document: Document) -> UsageError:
    """The error that comes first in the text; unknown keys before missing ones, since a typo causes both."""
    found = sorted(
        error.errors(include_url=False), key=lambda e: (e["type"] != "extra_forbidden", e["type"] == "missing")
    )
    first = found[0]
    path: Path = tuple(first["loc"])
    if first["type"] == "extra_forbidden":
        known = _keys_at(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f"did you mean {near[0]}?" if near else "the known keys are " + ", ".join(known)
        return document.error(path, f"is not a known key; {hint}", at_key=True)
    if path and path[-1] == "[key]":
        given = first.get("ctx", {})
        said = str(given.get("error", "")) or _lower(str(first["msg"]))
        if str(given.get("pattern", "")).startswith("^[A-Za-z_][A-Za-z0-9_]*"):
            said = "is no name: letters, digits and _, not beginning with a digit"
        return document.error(path[:-1], said, at_key=True)
    reason = str(first["ctx"].get("error", "")) if first["type"] == "value_error" else ""
    said = _MESSAGES.get(first["type"]) or reason or _lower(str(first["msg"]))
    return document.error(path, said, at_key=False)


def _lower(message: str) -> str:
    """Pydantic's sentence as a continuation: ``Input should be ...`` becomes ``should be ...``."""
    message = message.removeprefix("Input ").removeprefix("Value ")
    message = message.replace("should", "must")
    return message[:1].lower() + message[1:]


def _keys_at(path: Path) -> list[str]:
    """Known keys of the section at ``path``."""
    current: Any = Policy
    for part in path:
        if _is_section(current):
            current = current.model_fields[str(part)].annotation
        elif get_origin(current) is dict:
            current = get_args(current)[1]
        if get_origin(current) is UnionType:
            current = next(kind for kind in get_args(current) if kind is not NoneType)
    return list(current.model_fields) if _is_section(current) else []


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def merge_pins(policy: Policy, flags: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes of ``--input-shape`` and of the policy together; ``UsageError`` when they disagree."""
    pins = dict(policy.input_shapes())
    for name, shape in flags.items():
        if pins.setdefault(name, shape) != shape:
            raise UsageError(
                f"--input-shape gives {name!r} the shape {list(shape)}, but the policy's inputs.{name}.shape is "
                f"{list(pins[name])}; remove one of them"
            )
    return pins


def check_against(policy: Policy, module: Module) -> None:
    """Every tensor the policy names exists in the model with the shape and type stated; ``UsageError`` otherwise."""
    graph = module.main
    types = graph.types()
    inputs = {v.name or v.id: v.type for v in graph.inputs}
    outputs = {name: types[value] for name, value, _ in model_outputs(graph)}
    _check("inputs", policy.inputs, inputs)
    _check("outputs", policy.outputs, outputs)
    try:
        resolve(policy, *tensors_of(module))
    except LogicError as error:
        raise PolicyMisfit(error.path, str(error)) from None
    section = policy.recertification
    if section is not None and section.score not in outputs:
        raise PolicyMisfit(("recertification", "score"), f"is no output of the model: they are {_listed(outputs)}")


def _check(section: str, guards: Mapping[str, TensorGuard], present: Mapping[str, TensorType]) -> None:
    for name, guard in guards.items():
        if name not in present:
            raise UsageError(
                f"the policy names {section}.{name}, but the model's {section} are {_listed(present)}; correct the name"
            )
        found = present[name]
        if guard.shape is not None and guard.shape != found.shape:
            raise UsageError(
                f"the policy's {section}.{name}.shape is {list(guard.shape)}, but the model gives {format_type(found)}"
            )
        if guard.dtype is not None and guard.dtype != found.dtype:
            raise UsageError(
                f"the policy's {section}.{name}.dtype is {guard.dtype}, but the model gives {format_type(found)}"
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def policy_from_json(data: bytes) -> Policy:
    """Read the canonical form a stage wrote. ``UsageError`` when it is not that form (damage or a hand edit)."""
    remedy = "policy.json is not the canonical form of a policy: build again from the YAML file"
    try:
        policy = Policy.model_validate_json(data)
    except ValidationError as error:
        raise UsageError(remedy) from error
    if policy.canonical_json() != data:
        raise UsageError(remedy)
    return policy
