"""Sequences, optionals and strings: refused by name, but for what an optional means where it holds a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from compiler_kernels.importers.context import Context, constant

_SEQUENCES: Final = (
    "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
    "SequenceMap SplitToSequence".split()
)
_STRINGS: Final = "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer".split()


def _refused(what: str) -> Callable[[Context], None]:
    def refuse(ctx: Context) -> None:
        ctx.at.unsupported(f"works on {what}, which engines have no values for; export the model with tensors")

    return refuse


def has_element(ctx: Context) -> None:
    """A tensor is there; an input that is left out is not."""
    ctx.bind(constant(np.array(ctx.at.has_input(0))))


def get_element(ctx: Context) -> None:
    ctx.bind(ctx.tensor(0))


IMPORTERS: Final[dict[str, Callable[[Context], None]]] = {
    **dict.fromkeys(_SEQUENCES, _refused("sequences")),
    **dict.fromkeys(_STRINGS, _refused("strings")),
    "Optional": _refused("optionals"),
    "OptionalHasElement": has_element,
    "OptionalGetElement": get_element,
}
