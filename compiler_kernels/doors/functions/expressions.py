"""Expressions: constants are computed, arrays become nodes, everything else is refused with line, column and remedy."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import numpy as np

from compiler_kernels.doors.functions.effects import Opaque, dotted, impure
from compiler_kernels.doors.functions.indexing import subscript
from compiler_kernels.doors.functions.module import Source, member
from compiler_kernels.doors.functions.table import METHODS, TABLE, array, cast
from compiler_kernels.doors.functions.values import Array, Graph, NotPure, holds_array
from compiler_kernels.errors import UsageError

_BINARY: dict[type[ast.operator], tuple[Callable[..., Any], Any]] = {
    ast.Add: (operator.add, np.add),
    ast.Sub: (operator.sub, np.subtract),
    ast.Mult: (operator.mul, np.multiply),
    ast.Div: (operator.truediv, np.true_divide),
    ast.Pow: (operator.pow, np.power),
    ast.MatMult: (operator.matmul, np.matmul),
    ast.FloorDiv: (operator.floordiv, None),
    ast.Mod: (operator.mod, None),
    ast.BitAnd: (operator.and_, np.logical_and),
    ast.BitOr: (operator.or_, np.logical_or),
}
_COMPARE: dict[type[ast.cmpop], tuple[Any, Any]] = {
    ast.Eq: (operator.eq, np.equal),
    ast.NotEq: (operator.ne, np.not_equal),
    ast.Lt: (operator.lt, np.less),
    ast.LtE: (operator.le, np.less_equal),
    ast.Gt: (operator.gt, np.greater),
    ast.GtE: (operator.ge, np.greater_equal),
    ast.In: (lambda a, b: a in b, None),
    ast.NotIn: (lambda a, b: a not in b, None),
}
_UNARY: dict[type[ast.unaryop], Any] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_BUILTINS: dict[str, Any] = {
    f.__name__: f
    for f in (
        abs,
        bool,
        dict,
        enumerate,
        float,
        int,
        len,
        list,
        max,
        min,
        range,
        reversed,
        round,
        sorted,
        sum,
        tuple,
        zip,
    )
}
_ATTRIBUTES = frozenset("shape ndim size dtype T itemsize eps max min tiny real".split())
_CONSTANT_METHODS = frozenset(
    """append extend get items keys values index count copy astype reshape sum mean max min std tolist item
    transpose""".split()
)
_EXPONENT_LIMIT = 4096


class Expressions:
    """Evaluates expressions in the frame that ``lookup`` sees; statements and calls of functions are a subclass's."""

    def __init__(self, source: Source, graph: Graph) -> None:
        self.source = source
        self.graph = graph

    def lookup(self, node: ast.Name) -> Any:
        raise NotImplementedError

    def call_function(self, node: ast.Call, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        raise NotImplementedError

    def refuse(self, node: ast.AST, what: str) -> NotPure:
        """The error for ``node``: file, line, column, the source, what is wrong and the remedy."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
        text = " ".join((ast.get_source_segment(self.source.text, node) or "").split())
        shown = f"`{text if len(text) <= 60 else text[:57] + '...'}` " if text else ""
        return NotPure(f"{self.source.filename}, line {line}, column {column}: {shown}{what}")

    def value(self, node: ast.expr) -> Any:
        """The value of an expression. ``NotPure`` and ``UsageError`` name file, line and column."""
        self.graph.where = node.lineno
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.refuse(node, "is not in the subset of Python that is compiled (docs/doors.md lists it)")
        try:
            return method(node)
        except (NotPure, UsageError) as error:
            if f"{self.source.filename}, line " in str(error):
                raise
            raise type(error)(str(self.refuse(node, str(error)))) from None
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, MemoryError) as error:
            # a constant computation of the user's went wrong, as it would have in Python
            raise UsageError(str(self.refuse(node, f"fails with {type(error).__name__} ({error})"))) from None

    def constant_truth(self, node: ast.expr, what: str, remedy: str) -> bool:
        """Truth of a condition that must not depend on the data."""
        value = self.value(node)
        if isinstance(value, Opaque):
            raise self.refuse(node, f"depends on {value.source} (line {value.line}); {what} needs a constant")
        if holds_array(value):
            raise self.refuse(node, f"makes {what} depend on the data; {remedy}")
        return bool(value)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self.lookup(node)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self._items(node.elts))

    def _list(self, node: ast.List) -> Any:
        return list(self._items(node.elts))

    def _items(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.value(node.value)
            else:
                yield self.value(node)

    def _dict(self, node: ast.Dict) -> Any:
        if any(key is None for key in node.keys):
            raise NotPure("unpacks a dict; write its items out")
        return {self.value(k): self.value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None}

    def _slice(self, node: ast.Slice) -> slice:
        return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))

    def _listcomp(self, node: ast.ListComp) -> Any:
        return self.comprehension(node)

    def _generatorexp(self, node: ast.GeneratorExp) -> Any:
        return self.comprehension(node)

    def _ifexp(self, node: ast.IfExp) -> Any:
        chosen = self.constant_truth(node.test, "a choice", "use np.where(condition, a, b), which computes both")
        return self.value(node.body if chosen else node.orelse)

    def _boolop(self, node: ast.BoolOp) -> Any:
        wants = isinstance(node.op, ast.Or)
        name = "np.logical_or" if wants else "np.logical_and"
        found: Any = None
        for part in node.values:
            found = self.value(part)
            if holds_array(found):
                raise self.refuse(part, f"makes `{'or' if wants else 'and'}` depend on the data; use {name}")
            if isinstance(found, Opaque) or bool(found) == wants:
                return found
        return found

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        found = self.value(node.operand)
        if isinstance(found, Opaque):
            return found
        if isinstance(node.op, ast.Not):
            if holds_array(found):
                raise NotPure("makes `not` depend on the data; use np.logical_not")
            return not found
        if not isinstance(found, Array):
            return _UNARY[type(node.op)](found)
        if isinstance(node.op, ast.UAdd):
            return found
        if isinstance(node.op, ast.Invert) and found.dtype != np.bool_:
            raise NotPure("inverts the bits of integers, which is not in the subset; use arithmetic")
        return self.apply(np.negative if isinstance(node.op, ast.USub) else np.logical_not, [found], {})

    def _binop(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        """``left op right``."""
        for side in (left, right):
            if isinstance(side, Opaque):
                return side
        entry = _BINARY.get(type(op))
        arrays = isinstance(left, Array) or isinstance(right, Array)
        if entry is None or (arrays and entry[1] is None):
            raise NotPure("uses an operator that is not in the subset for arrays; for // use np.floor(a / b)")
        plain, function = entry
        if not arrays:
            if isinstance(op, ast.Pow) and isinstance(right, int) and abs(right) > _EXPONENT_LIMIT:
                raise NotPure(f"has an exponent beyond {_EXPONENT_LIMIT}")
            return plain(left, right)
        if function in (np.logical_and, np.logical_or):
            dtypes = [a.dtype if isinstance(a, Array) else np.asarray(a).dtype for a in (left, right)]
            if any(dtype != np.bool_ for dtype in dtypes):
                raise NotPure("combines the bits of integers, which is not in the subset; use arithmetic")
        return self.apply(function, [left, right], {})

    def _compare(self, node: ast.Compare) -> Any:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        for value in values:
            if isinstance(value, Opaque):
                return value
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            return (values[0] is values[1]) == isinstance(node.ops[0], ast.Is)
        if not holds_array(values):
            pairs = zip(node.ops, values[:-1], values[1:], strict=True)
            found = [_COMPARE[type(op)][0](a, b) for op, a, b in pairs]
            return found[0] if len(found) == 1 else all(found)
        function = _COMPARE[type(node.ops[0])][1]
        if len(node.ops) > 1 or function is None:
            raise NotPure("makes a chain of comparisons depend on the data; use (a < b) & (b < c)")
        return self.apply(function, values, {})

    def _subscript(self, node: ast.Subscript) -> Any:
        owner, index = self.value(node.value), self.value(node.slice)
        for part in (owner, index):
            if isinstance(part, Opaque):
                return part
        if isinstance(owner, Array):
            return subscript(self.graph, owner, index)
        if isinstance(index, Array):
            raise NotPure("looks a value up by data; use np.where, or a constant index")
        return owner[index]

    def _attribute(self, node: ast.Attribute) -> Any:
        name = dotted(node, self.source.modules)
        if name is not None and name.partition(".")[0] in ("numpy", "math"):
            try:
                return member(name)
            except KeyError:
                raise NotPure("is not in the subset (docs/doors.md lists the functions that are)") from None
        owner = self.value(node.value)
        if isinstance(owner, Opaque):
            return owner
        if node.attr not in _ATTRIBUTES or isinstance(owner, str | list | tuple | dict):
            raise NotPure(f"reads the attribute {node.attr!r}, which is not in the subset")
        if isinstance(owner, Array):
            if node.attr == "T":
                return self.apply(np.transpose, [owner], {})
            return owner.dtype.itemsize if node.attr == "itemsize" else getattr(owner, node.attr)
        return getattr(owner, node.attr)

    def _call(self, node: ast.Call) -> Any:
        name = dotted(node.func, self.source.modules)
        if impure(name):
            return Opaque(f"{name}()", node.lineno)
        if any(keyword.arg is None for keyword in node.keywords):
            raise NotPure("passes arguments by **; write them out")
        args = list(self._items(node.args))
        kwargs = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        for value in (*args, *kwargs.values()):
            if isinstance(value, Opaque):
                return value
        if isinstance(node.func, ast.Name):
            if node.func.id in self.source.functions:
                return self.call_function(node, self.source.functions[node.func.id], args, kwargs)
            if node.func.id not in self.source.modules and node.func.id in _BUILTINS:
                return self._builtin(_BUILTINS[node.func.id], args, kwargs)
        elif isinstance(node.func, ast.Attribute) and (name or "").partition(".")[0] not in ("numpy", "math"):
            return self._method(self.value(node.func.value), node.func.attr, args, kwargs)
        if name is None or name.partition(".")[0] not in ("numpy", "math"):
            raise NotPure("is a call of something that is not in this file and not in the subset")
        try:
            function = member(name)
        except KeyError:
            raise NotPure("is not in the subset (docs/doors.md lists the functions that are)") from None
        return self.apply(function, args, kwargs)

    def _method(self, owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(owner, Opaque):
            return owner
        if isinstance(owner, Array):
            if name in ("item", "tolist", "any", "all", "nonzero"):
                raise NotPure(f"takes values out of the graph with {name}(); keep them in an array")
            if name not in METHODS:
                raise NotPure(f"calls the method {name!r}, which is not in the subset")
            return self._emit(METHODS[name], [owner, *args], kwargs)
        if name not in _CONSTANT_METHODS:
            raise NotPure(f"calls the method {name!r}, which is not in the subset")
        return getattr(owner, name)(*args, **kwargs)

    def _builtin(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        arrays = [a for a in args if isinstance(a, Array)]
        if not arrays:
            found = function(*args, **kwargs)
            return list(found) if isinstance(found, enumerate | zip | reversed) else found
        if function is len and arrays[0].shape:
            return arrays[0].shape[0]
        if function in (abs, round):
            return self.apply(np.absolute if function is abs else np.round, args, kwargs)
        if function in (enumerate, zip, list, tuple, reversed):
            found = function(*([a[1] for a in self._rows(v)] if isinstance(v, Array) else v for v in args), **kwargs)
            return list(found)
        names = {sum: "np.sum", min: "np.minimum or np.min", max: "np.maximum or np.max"}
        remedy = f"use {names[function]}" if function in names else "keep it an array"
        raise NotPure(f"takes values out of the graph with {function.__name__}(); {remedy}")

    def _rows(self, value: Array) -> Iterator[tuple[int, Array]]:
        for number in range(value.shape[0] if value.shape else 0):
            yield number, subscript(self.graph, value, number)

    def apply(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy or math: with constants it is computed, with arrays it becomes nodes."""
        if not holds_array([*args, *kwargs.values()]):
            with np.errstate(all="ignore"):
                return function(*args, **kwargs)
        if isinstance(function, type) and issubclass(function, np.generic) and len(args) == 1 and not kwargs:
            return cast(self.graph, args[0], function)
        if getattr(function, "__module__", "") == math.__name__:
            raise NotPure(f"takes a value out of the graph with math.{function.__name__}; use NumPy's")
        emitter = TABLE.get(function)
        if emitter is None:
            raise NotPure("is in the subset for constants only")
        if function not in (np.concatenate, np.stack):
            args = [array(self.graph, a) if isinstance(a, list | tuple) and holds_array(a) else a for a in args]
        return self._emit(emitter, args, kwargs)

    def _emit(self, emitter: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            signature(emitter).bind(self.graph, *args, **kwargs)
        except TypeError as error:
            raise NotPure(f"is called with arguments outside the subset ({error})") from None
        return emitter(self.graph, *args, **kwargs)
