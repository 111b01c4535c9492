"""Result types of the recurrent operations: one direction each, the states of all time steps in the order of x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from compiler_kernels.errors import IRError
from compiler_kernels.ir import recurrent_functions
from compiler_kernels.ir.graph import Attr, TensorType
from compiler_kernels.ir.shapes import Site, require

GATES: Final = {"lstm": 4, "gru": 3, "rnn": 1}
STATES: Final = ("h", "c")
STEPS: Final = {f"{kind}_steps": kind for kind in GATES}
"""Operations that exist after the freeze only, with the recurrent operation each is a part of."""


def recurrent(site: Site) -> TensorType:
    """x (T, B, I), w (G·H, I), r (G·H, H), [b (2·G·H)], [h0 (B, H)] and, of an lstm, [c0 (B, H)], [p (3·H)]."""
    gates = GATES[site.kind]
    x, w = site.shape(0), site.shape(1)
    if len(x) != 3 or len(w) != 2 or w[0] % gates:
        site.fail(f"x of shape {list(x)} and w of shape {list(w)} are not (T, B, I) and ({gates}·H, I)")
    hidden = w[0] // gates
    require(site, 1, (gates * hidden, x[2]), "w")
    require(site, 2, (gates * hidden, hidden), "r")
    require(site, 3, (2 * gates * hidden,), "b")
    require(site, 4, (x[1], hidden), "h0")
    require(site, 5, (x[1], hidden), "c0")
    require(site, 6, (3 * hidden,), "p")
    recurrent_functions.check(site)
    if "state" in site.attrs and site.str_("state") not in STATES:
        site.fail(f"state {site.str_('state')!r} is not one of {', '.join(STATES)}")
    return site.result((x[0], x[1], hidden))


def steps(kind: str, operands: Sequence[TensorType | None], attrs: Mapping[str, Attr], result: TensorType) -> None:
    """Check a ``<kind>_steps`` statement, which exists after the freeze only: the recurrence on products of x and w
    that a matmul before it computed. Operands: g (T, B, G·H), r (H, G·H), b (G·H), [rb (H)], [h0], [c0], [p].

    An ``IRError`` says what does not fit.
    """
    gates = GATES[kind]
    if len(result.shape) != 3 or "reverse" not in attrs:
        raise IRError(f"{kind}_steps has a result of rank {len(result.shape)}, or no direction")
    hidden = result.dims[-1]
    time, batch = result.dims[0], result.dims[1]
    wanted = [(time, batch, gates * hidden), (hidden, gates * hidden), (gates * hidden,), (hidden,)]
    wanted += [(batch, hidden), (batch, hidden), (3 * hidden,)]
    if not 3 <= len(operands) <= len(wanted) or any(o is None for o in operands[:3]):
        raise IRError(f"{kind}_steps has {len(operands)} operands, some of them absent")
    for found, shape in zip(operands, wanted, strict=False):
        if found is not None and found.dims != shape:
            raise IRError(f"{kind}_steps: an operand has shape {list(found.dims)} where {list(shape)} is needed")
