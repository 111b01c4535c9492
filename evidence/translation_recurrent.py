"""What a ``<kind>_steps`` statement computes, by the reference's own recurrent operators.

The statement gets the products with x ready made. The reference computes them itself, so it is given them as x, with an
identity for its weights, and an arithmetic that copies where that identity is multiplied: 0 times an infinity is no 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.ir.graph import Op
from evidence.reference import RefNode
from evidence.reference.arithmetic import Arithmetic
from evidence.reference.interpreter import evaluate

Floats = npt.NDArray[np.float32]
GATES: Final = {"lstm": 4, "gru": 3, "rnn": 1}
STEPS: Final = frozenset(f"{kind}_steps" for kind in GATES)


class _Selecting:
    """Canonical Arithmetic 1, except that a product with ``identity`` is its operand, bit for bit."""

    def __init__(self, inner: Arithmetic, identity: Floats) -> None:
        self._inner, self._identity = inner, identity

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def product_sum(self, x: Floats, w: Floats, *rest: Any, **more: Any) -> Any:
        if np.may_share_memory(w, self._identity):
            return x[:, np.argmax(w[0], axis=0)]
        return self._inner.product_sum(x, w, *rest, **more)


def evaluate_steps(arithmetic: Arithmetic, op: Op, attrs: Mapping[str, Any], given: Sequence[Any]) -> Floats:
    """The states of all steps. ``given``: g (T, B, G H), r (H, G H), b (G H), [rb (H)], [h0], [c0], [p]."""
    kind = op.kind.removesuffix("_steps")
    g, r, b = given[:3]
    rb = given[3] if len(given) > 3 else None
    identity = np.eye(g.shape[2], dtype=np.float32)
    both = np.zeros((2, b.size), np.float32)
    both[0] = b
    if rb is not None:
        both[1, -rb.size :] = rb
    operands = [g, identity, np.ascontiguousarray(r.T), both.reshape(-1), *given[4:]]
    node = RefNode(kind, (), op.result, op.out.dims, "float32", attrs, op.node)
    return evaluate(_Selecting(arithmetic, identity), node, operands)
