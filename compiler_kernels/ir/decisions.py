"""Comparisons of sizes as decisions for all sizes at once: true, false, or ``Unproved`` where it depends on the size.

Code written for integers therefore stays sound when it meets expressions: it can refuse, but not take a wrong branch.
Who decides is set by ``ir/symbols.py``, which knows the declared bounds of the module at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np


class Decider(Protocol):
    """Decides for the symbols in scope."""

    def ask(self, relation: str, left: Any, right: Any) -> bool:
        """Whether ``left relation right`` (``==``, ``<=`` or ``<``) holds for all sizes (true) or none (false)."""
        ...

    def need(self, value: Any) -> NoReturn:
        """Refuse code that needs ``value`` as a number."""
        ...


_current: Callable[[], Decider]


def decide_with(current: Callable[[], Decider]) -> None:
    """Called once by ``ir/symbols.py``."""
    global _current
    _current = current


def ask(relation: str, left: Any, right: Any) -> bool:
    """Whether ``left relation right`` (``==``, ``<=`` or ``<``) of sizes holds for all sizes (true) or none (false).

    ``Unproved`` where it depends on the sizes. Exact on integers.
    """
    difference = left - right
    if isinstance(difference, int):
        return {"==": difference == 0, "<=": difference <= 0, "<": difference < 0}[relation]
    return _current().ask(relation, left, right)


class Decided:
    """Base of ``Expr``: comparison, truth and conversion to a number ask the current decider."""

    __slots__ = ()

    def _ask(self, relation: str, other: object, swap: bool = False) -> Any:
        if not isinstance(other, int | np.integer | Decided):
            return NotImplemented
        return ask(relation, other, self) if swap else ask(relation, self, other)

    def __eq__(self, other: object) -> bool:
        return self._ask("==", other)  # type: ignore[no-any-return]

    def __hash__(self) -> int:
        raise NotImplementedError

    def __lt__(self, other: Any) -> bool:
        return self._ask("<", other)  # type: ignore[no-any-return]

    def __le__(self, other: Any) -> bool:
        return self._ask("<=", other)  # type: ignore[no-any-return]

    def __gt__(self, other: Any) -> bool:
        return self._ask("<", other, swap=True)  # type: ignore[no-any-return]

    def __ge__(self, other: Any) -> bool:
        return self._ask("<=", other, swap=True)  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return not ask("==", self, 0)

    def __index__(self) -> int:
        _current().need(self)

    def __int__(self) -> int:
        _current().need(self)

    def __float__(self) -> float:
        _current().need(self)
