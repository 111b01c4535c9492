"""Symbolic dimensions: a named one equals itself, an anonymous one equals nothing."""

from __future__ import annotations

from compiler_kernels.ir import ANONYMOUS, TensorType


def test_anonymous_dimensions_never_unify() -> None:
    named, anonymous = TensorType(("N", 3)), TensorType((ANONYMOUS, 3))
    assert named.unifies(named)
    assert not anonymous.unifies(anonymous)
    assert not named.unifies(TensorType(("M", 3)))
    assert not named.unifies(TensorType(("N", 3), "int64"))
    assert not named.unifies(TensorType(("N", 3, 1)))
