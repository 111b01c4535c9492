"""Activations of the recurrent operators: names, parameters, defaults, and how an operation says them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compiler_kernels.errors import IRError
from compiler_kernels.ir.graph import Attr, Op
from compiler_kernels.ir.shapes import Site


@dataclass(frozen=True, slots=True)
class Function:
    """One activation. ``alpha`` and ``beta`` are binary32 numbers, 0 where the function has no such parameter."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "lstm": ("sigmoid", "tanh", "tanh"),
    "gru": ("sigmoid", "tanh"),
    "rnn": ("tanh",),
}
"""ONNX's functions f, g and h of each operator, for the gates, the candidate and (lstm) the cell state."""

PARAMETERS: Final[Mapping[str, tuple[float | None, float | None]]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leaky_relu": (0.01, None),
    "thresholded_relu": (1.0, None),
    "scaled_tanh": (1.0, 1.0),
    "hard_sigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}
"""Defaults of alpha and beta, ``None`` where a function takes none."""

IN_VECTORS: Final = frozenset(PARAMETERS) - {"thresholded_relu"}
"""Functions with a form in vectors; a thresholded Relu would need a select that no other kernel needs."""

BY_ONNX: Final[Mapping[str, str]] = {name.replace("_", ""): name for name in PARAMETERS}
"""ONNX's names in lower case, as its operators compare them."""


def functions(op: Op) -> tuple[Function, ...]:
    """f, g and h of an ``lstm``, ``gru`` or ``rnn``, or of its ``<kind>_steps``."""
    names = DEFAULTS[op.kind.removesuffix("_steps")]
    if not op.has("activations"):
        return tuple(map(Function, names))
    return tuple(map(Function, op.str_("activations").split(), op.floats("alphas"), op.floats("betas")))


def attributes(chosen: tuple[Function, ...], kind: str) -> dict[str, Attr]:
    """Attributes that say ``chosen``: none for the default functions of ``kind``."""
    if chosen == tuple(map(Function, DEFAULTS[kind])):
        return {}
    return {
        "activations": " ".join(f.name for f in chosen),
        "alphas": tuple(f.alpha for f in chosen),
        "betas": tuple(f.beta for f in chosen),
    }


def check(site: Site) -> None:
    """``IRError`` where the three attributes do not name as many known functions as the operation has."""
    given = [key for key in ("activations", "alphas", "betas") if key in site.attrs]
    if not given:
        return
    if len(given) != 3:
        raise IRError(f"{site.kind}: activations, alphas and betas belong together; it has only {', '.join(given)}")
    names, count = site.str_("activations").split(), len(DEFAULTS[site.kind])
    unknown = [n for n in names if n not in PARAMETERS]
    parameters = [site.attrs[key] for key in ("alphas", "betas")]
    if unknown or len(names) != count or any(not isinstance(p, tuple) or len(p) != count for p in parameters):
        raise IRError(f"{site.kind}: activations {names} are not {count} of {', '.join(PARAMETERS)} with parameters")
