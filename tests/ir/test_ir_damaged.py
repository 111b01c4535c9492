"""Damaged text ends in one IRError."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ir_text import modules

from compiler_kernels.errors import IRError
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module

HEAD = "cuvil.ir level=l0 version=1\n"


@settings(max_examples=100, deadline=None)
@given(modules, st.integers(0, 10**6), st.integers(0, 10**6), st.text(max_size=3))
def test_damaged_text(module: Module, start: int, length: int, extra: str) -> None:
    text = print_module(module)
    start %= len(text)
    try:
        parse_module(text[:start] + extra + text[start + length % 8 :])
    except IRError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        HEAD + 'meta a = "\\x"',
        HEAD + 'meta a = "\x07"',
        HEAD + "graph @g() {\n  %a = op.b() c=" + "9" * 5000,
        HEAD + "graph @g() {\n  %a = op.b() c=" + "[" * 5000,
        HEAD + "graph @g() {\n" + "  %a = op.b() {\n" * 5000,
    ],
)
def test_text_that_python_itself_would_choke_on(text: str) -> None:
    with pytest.raises(IRError, match="IR text"):
        parse_module(text)
