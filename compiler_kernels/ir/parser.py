"""Reader of the text form (docs/ir.md): the exact inverse of the printer, with line and column in every error.

A text whose first line is not the full header is in the short form; ``ir/short.py`` fills in what it leaves out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, NoReturn

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import as_dim
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import LEVELS, Attr, Dim, Graph, Module, Op, TensorType, Value, Weight
from compiler_kernels.ir.short import Draft, complete, level_of
from compiler_kernels.ir.symbols import PREFIX, Bound, parse_bound, scope
from compiler_kernels.ir.text import VERSION

MAX_DIGITS: Final = 1000
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]+)|(?P<comment>\#[^\n]*)|(?P<newline>\n)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<number>-?(?:inf|nan)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      |(?P<value>%[A-Za-z0-9_.]+)|(?P<symbol>@[A-Za-z0-9_.]+)
      |(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<punct>//|[-+*@=:,(){}\[\]?|])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


def _lex(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    line, start, pos = 1, 0, 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            raise IRError(f"IR text line {line}, column {pos - start + 1}: unexpected character {text[pos]!r}")
        kind = match.lastgroup or ""
        if kind == "newline":
            tokens.append(_Token("newline", "", line, pos - start + 1))
            line, start = line + 1, match.end()
        elif kind not in ("space", "comment"):
            tokens.append(_Token(kind, match.group(), line, pos - start + 1))
        pos = match.end()
    tokens.append(_Token("end", "", line, pos - start + 1))
    return tokens


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _lex(text)
        self.pos = 0

    # token helpers -------------------------------------------------------------------------------------------------
    @property
    def here(self) -> _Token:
        return self.tokens[self.pos]

    def fail(self, wanted: str) -> NoReturn:
        t = self.here
        got = repr(t.text) if t.text else t.kind
        raise IRError(f"IR text line {t.line}, column {t.column}: expected {wanted}, found {got}")

    def take(self, kind: str, text: str | None = None) -> str:
        t = self.here
        if t.kind != kind or (text is not None and t.text != text):
            self.fail(repr(text) if text else kind)
        self.pos += 1
        return t.text

    def at(self, text: str) -> bool:
        return self.here.kind in ("punct", "name") and self.here.text == text

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.pos += 1
            return True
        return False

    def newlines(self) -> None:
        while self.here.kind == "newline":
            self.pos += 1

    def string(self) -> str:
        text = self.take("string")
        try:
            return str(json.loads(text))
        except ValueError:
            self.pos -= 1
            self.fail("a string with JSON's escapes")

    def integer(self) -> int:
        text = self.take("number")
        if len(text) > MAX_DIGITS:  # beyond it Python refuses to convert
            self.pos -= 1
            self.fail(f"an integer of at most {MAX_DIGITS} digits")
        return int(text)

    def value_id(self) -> str:
        return self.take("value")[1:]

    # grammar -------------------------------------------------------------------------------------------------------
    def module(self) -> Module:
        self.newlines()
        level, exact = self.header()
        self.newlines()
        meta: list[tuple[str, str]] = []
        bounds: dict[str, Bound] = {}
        while self.at("meta"):
            self.pos += 1
            key = self.take("name")
            self.take("punct", "=")
            meta.append((key, self.string()))
            if not exact and key.startswith(PREFIX):
                bounds[key.removeprefix(PREFIX)] = self.bound(meta[-1][1])
            self.newlines()
        drafts: list[Draft] = []
        while self.here.kind != "end":
            bare = not exact and not drafts and not self.at("graph")
            drafts.append(self.body("main", (), self.pos, "") if bare else self.graph(exact))
            self.newlines()
        if not drafts:
            self.fail("a graph")
        if exact:
            return Module(level, tuple(_as_written(draft) for draft in drafts), tuple(meta))
        level = level or level_of(drafts)
        with scope(bounds):
            return Module(level, complete(drafts, level), tuple(meta))

    def bound(self, text: str) -> Bound:
        """Bounds of a symbol, for the inference of types; the token before this one is their text."""
        try:
            return parse_bound(text)
        except IRError as error:
            t = self.tokens[self.pos - 1]
            raise IRError(f"IR text line {t.line}, column {t.column}: {error}") from None

    def header(self) -> tuple[str, bool]:
        """Level, empty where the text does not say it, and whether the text means exactly what it says."""
        if not self.accept("cuvil.ir"):
            return "", False
        self.take("name", "level")
        self.take("punct", "=")
        level = self.take("name")
        if level not in LEVELS:
            self.pos -= 1
            self.fail("one of " + ", ".join(LEVELS))
        if self.here.kind == "newline":
            return level, False
        self.take("name", "version")
        self.take("punct", "=")
        if self.here.text != str(VERSION):
            self.fail(f"version {VERSION}")
        self.pos += 1
        return level, True

    def graph(self, exact: bool) -> Draft:
        start = self.pos
        self.take("name", "graph")
        name = self.take("symbol")[1:] if exact or self.here.kind == "symbol" else "main"
        self.take("punct", "(")
        inputs: list[Value] = []
        while not self.at(")"):
            if inputs:
                self.take("punct", ",")
            vid = self.value_id()
            self.take("punct", ":")
            ttype = self.type()
            inputs.append(Value(vid, ttype, self.string() if self.here.kind == "string" else vid))
        self.take("punct", ")")
        self.take("punct", "{")
        return self.body(name, tuple(inputs), start, "}")

    def body(self, name: str, inputs: tuple[Value, ...], start: int, end: str) -> Draft:
        """Statements up to ``return``, and the closing ``end`` where there is one."""
        spans = [self.tokens[start : max(self.pos, start + 1)]]
        statements: list[Op | Weight] = []
        while True:
            self.newlines()
            start = self.pos
            if self.at("return"):
                break
            statements.append(self.statement())
            spans.append(self.tokens[start : self.pos])
        self.pos += 1
        outputs: list[str] = []
        names: list[str] = []
        while self.here.kind == "value":
            outputs.append(self.value_id())
            names.append(self.string() if self.here.kind == "string" else outputs[-1])
            if not self.accept(","):
                break
        spans.append(self.tokens[start : self.pos])
        self.newlines()
        if end:
            self.take("punct", end)
        return Draft(name, inputs, tuple(statements), tuple(outputs), tuple(names), tuple(spans))

    def statement(self) -> Op | Weight:
        result = ""
        if self.here.kind == "value":
            result = self.value_id()
            self.take("punct", "=")
        name = self.take("name")
        if name == "weight":
            self.take("name", "ref")
            self.take("punct", "=")
            ref = self.string()
            self.take("punct", ":")
            return Weight(result, self.type(), ref)
        if name == "tensor.free" and self.here.kind == "value":
            operands: tuple[str, ...] = (self.value_id(),)
        else:
            operands = self.operands() if name != "tensor.alloc" else ()
        into = ""
        if self.accept("into"):
            into = self.value_id()
        attrs: dict[str, Attr] = {}
        shape: tuple[tuple[Dim, ...], str] | None = None
        while self.here.kind == "name":
            key = self.take("name")
            self.take("punct", "=")
            if name == "tensor.alloc" and key == "shape":
                shape = self.dims()
            elif name == "tensor.alloc" and key == "dtype":
                attrs["dtype"] = self.take("name")
            else:
                attrs[key] = self.attr()
        ttype: TensorType | None = None
        if name == "tensor.alloc":
            if shape is None or "dtype" not in attrs:
                self.fail("shape=[...] dtype=... of tensor.alloc")
            ttype = TensorType(shape[0], str(attrs.pop("dtype")), shape[1])
        elif self.accept(":"):
            ttype = self.type()
        node = tensor = ""
        if self.accept("@"):
            node, tensor = self.string(), self.string()
        body: list[Op] = []
        if self.accept("{"):
            self.newlines()
            while not self.accept("}"):
                inner = self.statement()
                if isinstance(inner, Weight):
                    self.fail("an operation (weights belong to the graph)")
                body.append(inner)
                self.newlines()
        if self.here.kind not in ("newline", "end") and not self.at("}"):
            self.fail("end of line")
        return Op(name, operands, result, ttype, tuple(sorted(attrs.items())), into, tuple(body), node, tensor)

    def operands(self) -> tuple[str, ...]:
        self.take("punct", "(")
        found: list[str] = []
        while not self.at(")"):
            if found:
                self.take("punct", ",")
            if self.accept("none"):
                found.append("")
            else:
                found.append(self.value_id())
        self.take("punct", ")")
        return tuple(found)

    def dims(self) -> tuple[tuple[Dim, ...], str]:
        """Dimensions and layout between brackets."""
        self.take("punct", "[")
        found: list[Dim] = []
        layout: list[str] = []
        while not self.at("]"):
            if self.accept("|"):
                while self.here.kind in ("name", "number"):
                    layout.append(self.here.text)
                    self.pos += 1
                break
            if found:
                self.take("punct", ",")
            if self.here.kind == "number" and self.here.text.isdigit() and self.tokens[self.pos + 1].text in ",]|":
                found.append(self.integer())
            elif self.accept("?"):
                found.append("?")
            else:
                found.append(self.size())
        self.take("punct", "]")
        return tuple(found), " ".join(layout)

    def size(self) -> Dim:
        """The canonical text of an expression over symbols."""
        first, depth, words = self.here, 0, list[str]()
        while self.here.kind in ("name", "number", "punct") and (depth or self.here.text not in (",", "]", "|")):
            depth += {"(": 1, ")": -1}.get(self.here.text, 0)
            words.append(self.here.text)
            self.pos += 1
        try:
            return as_dim(parse_dim(" ".join(words)))
        except IRError as error:
            raise IRError(f"IR text line {first.line}, column {first.column}: {error}") from None

    def type(self) -> TensorType:
        dtype = self.take("name")
        dims, layout = self.dims()
        return TensorType(dims, dtype, layout)

    def attr(self) -> Attr:
        t = self.here
        if t.kind == "number":
            if re.fullmatch(r"-?\d+", t.text):
                return self.integer()
            self.pos += 1
            return float(t.text)
        if t.kind == "string":
            return self.string()
        if t.kind == "name" and t.text in ("true", "false", "inf", "nan"):
            self.pos += 1
            return t.text == "true" if t.text in ("true", "false") else float(t.text)
        if t.kind == "punct" and t.text == "[":
            self.pos += 1
            items: list[Attr] = []
            while not self.at("]"):
                if items:
                    self.take("punct", ",")
                items.append(self.attr())
            self.take("punct", "]")
            return _uniform(items, self)
        self.fail("a value")


def _uniform(items: list[Attr], parser: _Parser) -> Attr:
    if all(isinstance(i, int) and not isinstance(i, bool) for i in items):
        return tuple(int(i) for i in items if isinstance(i, int))
    if all(isinstance(i, float) for i in items):
        return tuple(float(i) for i in items if isinstance(i, float))
    if all(isinstance(i, str) for i in items):
        return tuple(str(i) for i in items if isinstance(i, str))
    parser.fail("a list of integers, of floats or of strings")


def _as_written(draft: Draft) -> Graph:
    weights = tuple(s for s in draft.statements if isinstance(s, Weight))
    ops = tuple(s for s in draft.statements if isinstance(s, Op))
    return Graph(draft.name, draft.inputs, weights, ops, draft.outputs, draft.output_names)


def parse_module(text: str) -> Module:
    """Read a module, in full or in the short form (docs/ir.md).

    ``IRError`` names line and column of the first thing that is not in the grammar or, in the short form, is undefined
    or cannot be inferred. The result is not verified.
    """
    try:
        return _Parser(text).module()
    except RecursionError:
        raise IRError("IR text is nested too deeply") from None
