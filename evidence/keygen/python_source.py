"""Canonical form of Python source: its abstract syntax tree without positions.

Comments, blank lines, quotation marks, parentheses and line breaks do not reach the tree. Docstrings do: a program can
read them. Empty fields are left out, so that a Python that knows more fields gives the same form.
"""

from __future__ import annotations

import ast
import warnings
from typing import Final

from evidence.keygen.text import Literal, Named, Unreadable, Value, number, value_text

_LEFT_OUT: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Follows from the position (ctx), is spelling (the u of u"..."), or is a comment."""


def canonical(data: bytes) -> bytes:
    """The canonical form. Raises ``Unreadable`` for what this Python's grammar does not accept."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\\d" in a string is the author's business
            tree = ast.parse(data)
    except SyntaxError as error:
        raise Unreadable(f"is not valid Python ({error.msg})", error.lineno or 0) from None
    except ValueError as error:
        raise Unreadable(f"is not valid Python ({error})") from None
    except (RecursionError, MemoryError):
        raise Unreadable("is nested too deeply") from None
    # A kernel that runs the file reads this comment.
    shebang = data.split(b"\n", 1)[0].rstrip() + b"\n" if data.startswith(b"#!") else b""
    try:
        return shebang + value_text(_value(tree)).encode()
    except RecursionError:
        raise Unreadable("is nested too deeply") from None


def _value(node: object) -> Value:
    if isinstance(node, ast.Constant):
        return Named("Constant", {"value": _constant(node.value)})
    if isinstance(node, ast.AST):
        fields = {name: getattr(node, name, None) for name in node._fields if name not in _LEFT_OUT}
        return Named(type(node).__name__, {n: _value(f) for n, f in fields.items() if f is not None and f != []})
    if isinstance(node, list):
        return [_value(item) for item in node]
    assert node is None or isinstance(node, str | int)
    return node


def _constant(value: object) -> Value:
    if isinstance(value, float):
        return number(repr(value))
    if isinstance(value, complex):
        return Named("imaginary", {"value": number(repr(value.imag))})
    if value is Ellipsis:
        return Literal("ellipsis")
    assert value is None or isinstance(value, bool | int | str | bytes)
    return value
