"""One ONNX node with typed attribute access, and the errors that name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np
import onnx

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.ir.dtypes import BY_ONNX

HARMLESS: Final = frozenset(
    {
        "momentum", "ratio", "seed",  # training only
        "storage_order",  # order of the indices of MaxPool, which are refused
        "num_outputs",  # Split: always the number of outputs
        "saturate", "round_mode",  # casts to 8-bit floats, which are refused
        "cubic_coeff_a",  # cubic is refused
        "pads",  # read unless auto_pad, which excludes them
        "keep_aspect_ratio_policy",  # read where sizes are given
        "noop_with_empty_axes",  # read where there are no axes
        "keepdims",  # read unless nothing is reduced
    }
)  # fmt: skip
"""Attributes an importer may leave unread."""


def f32(value: float) -> float:
    """``value`` rounded to binary32: ONNX's float attributes and their defaults are binary32 numbers."""
    return float(np.float32(value))


@dataclass(frozen=True)
class Node:
    """``version`` is the opset of the node's domain; ``name`` the node's own name or ``<op_type>_<index>``."""

    proto: onnx.NodeProto
    name: str
    version: int
    attrs: dict[str, object] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def attr(self, key: str, default: object = None) -> object:
        """Attribute ``key``, remembered as taken into account."""
        self.seen.add(key)
        return self.attrs.get(key, default)

    def unread(self) -> list[str]:
        """Attributes that no importer looked at and that could change the result."""
        return sorted(set(self.attrs) - self.seen - HARMLESS)

    @property
    def op(self) -> str:
        return str(self.proto.op_type)

    @property
    def inputs(self) -> list[str]:
        return list(self.proto.input)

    @property
    def outputs(self) -> list[str]:
        return list(self.proto.output)

    def has_input(self, index: int) -> bool:
        return index < len(self.proto.input) and bool(self.proto.input[index])

    @property
    def where(self) -> str:
        words = [w if w.isprintable() else repr(w) for w in (self.op, self.proto.domain or "ai.onnx")]
        return f"node {self.name!r} ({words[0]}, domain {words[1]}, opset {self.version})"

    def unsupported(self, why: str) -> NoReturn:
        """Raise ``UnsupportedError`` naming node, operator, domain and opset."""
        raise UnsupportedError(f"{self.where} {why}")

    def invalid(self, why: str) -> NoReturn:
        """Raise ``UsageError``: the model contradicts the ONNX specification."""
        raise UsageError(f"{self.where} {why}")

    def int_(self, key: str, default: int) -> int:
        value = self.attr(key, default)
        if not isinstance(value, int):
            self.invalid(f"has an attribute {key} that is not an integer")
        return value

    def flag(self, key: str, default: int) -> bool:
        """An integer that ONNX defines for 0 and 1 only: runtimes disagree on what any other means."""
        value = self.int_(key, default)
        if value not in (0, 1):
            self.invalid(f"has {key} {value}, where ONNX defines 0 and 1")
        return bool(value)

    def float_(self, key: str, default: float) -> float:
        value = self.attr(key, default)
        if not isinstance(value, int | float):
            self.invalid(f"has an attribute {key} that is not a number")
        return f32(value)

    def str_(self, key: str, default: str) -> str:
        value = self.attr(key, default)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if not isinstance(value, str):
            self.invalid(f"has an attribute {key} that is not a string")
        return value

    def ints(self, key: str, default: Sequence[int] | None = None, length: int | None = None) -> tuple[int, ...]:
        """Integer list ``key``; ``length`` entries where given; an absent one without default is invalid."""
        value = self.attr(key, default)
        if value is None:
            self.invalid(f"lacks the attribute {key}")
        if not isinstance(value, list | tuple) or not all(isinstance(v, int) for v in value):
            self.invalid(f"has an attribute {key} that is not a list of integers")
        found = tuple(int(v) for v in value)
        if length is not None and len(found) != length:
            self.invalid(f"has {len(found)} values in {key} where {length} are needed")
        return found

    def dtype(self, key: str) -> str:
        """Element type attribute ``key`` by name; empty where it is absent or 0."""
        code = self.int_(key, 0)
        if code and code not in BY_ONNX:
            self.unsupported(f"has {key} {code}, an ONNX element type that is not compiled")
        return BY_ONNX[code].name if code else ""

    def optional_ints(self, key: str) -> tuple[int, ...] | None:
        return self.ints(key) if key in self.attrs else None

    def floats(self, key: str) -> tuple[float, ...]:
        value = self.attr(key, [])
        if not isinstance(value, list | tuple) or not all(isinstance(v, int | float) for v in value):
            self.invalid(f"has an attribute {key} that is not a list of numbers")
        return tuple(f32(v) for v in value)


def make_node(proto: onnx.NodeProto, index: int, version: int) -> Node:
    """Wrap ``proto``; subgraphs stay out of ``attrs``. ``UsageError`` for a reference to a parameter of a function: the
    expansion of functions leaves none."""
    attrs: dict[str, object] = {}
    for attr in proto.attribute:
        if attr.ref_attr_name:
            name = proto.name or f"{proto.op_type}_{index}"
            raise UsageError(
                f"node {name!r} ({proto.op_type}) takes its attribute {attr.name!r} from {attr.ref_attr_name!r}, a "
                "parameter of a function, but stands in none"
            )
        if attr.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            attrs[attr.name] = onnx.helper.get_attribute_value(attr)
    return Node(proto, proto.name or f"{proto.op_type}_{index}", version, attrs)
