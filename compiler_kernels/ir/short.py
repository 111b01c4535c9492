"""The short form of the IR text (docs/ir.md): what a reader leaves out is filled in, or refused with its place.

Result types are inferred from the operands; at L1 a statement without buffer gets one, ``?`` of an allocation takes the
size of what is written there, and buffers nothing frees are freed after their last use. The printer never writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn, Protocol

from compiler_kernels.errors import CuvilError, IRError
from compiler_kernels.ir.graph import ANONYMOUS, Graph, Op, TensorType, Value, Weight, make_attrs
from compiler_kernels.ir.ops import L0_OPS, infer

LIKE_FIRST: Final = ("affine", "copy", "relayout")
_BUFFERS: Final = ("tensor.alloc", "tensor.part", "tensor.free")


class Token(Protocol):
    """A token of the parser with its place in the text, both from 1."""

    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass(frozen=True)
class Draft:
    """A graph as written; ``spans`` are the tokens of every constant, of every statement, and of ``return``."""

    name: str
    inputs: tuple[Value, ...]
    statements: tuple[Op | Weight, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...]
    spans: tuple[Sequence[Token], ...]


def level_of(drafts: Sequence[Draft]) -> str:
    """The level a text does not state: ``l2`` with calls or several graphs, ``l1`` with buffers, else ``l0``."""
    ops = [s for d in drafts for s in d.statements if isinstance(s, Op)]
    if len(drafts) > 1 or any(op.name.startswith("call.") for op in ops):
        return "l2"
    later = any(op.into or op.body or op.name.startswith(("tensor.", "view.", "fused.")) for op in ops)
    return "l1" if later or any(op.kind in LIKE_FIRST for op in ops) else "l0"


def complete(drafts: Sequence[Draft], level: str) -> tuple[Graph, ...]:
    """The graphs in full. ``IRError`` with line and column for an undefined name or a type that cannot be inferred."""
    return tuple(_Completion(draft, level == "l1").run() for draft in drafts)


@dataclass
class _Completion:
    draft: Draft
    with_buffers: bool
    types: dict[str, TensorType] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    allocs: dict[str, int] = field(default_factory=dict)  # index in ops
    idle: dict[str, None] = field(default_factory=dict)  # allocations nothing has written yet
    home: dict[str, str] = field(default_factory=dict)  # allocation in which a value or part lies
    span: Sequence[Token] = ()
    written_at: dict[str, Sequence[Token]] = field(default_factory=dict)  # where an allocation stands in the text

    def run(self) -> Graph:
        draft = self.draft
        weights: list[Weight] = []
        self.span = draft.spans[0]
        for value in draft.inputs:
            self._define(value.id, value.type)
        for statement, span in zip(draft.statements, draft.spans[1:], strict=False):
            self.span = span
            if isinstance(statement, Weight):
                weights.append(statement)
                self._define(statement.id, statement.type)
            else:
                self._statement(statement)
        self.span = draft.spans[-1]
        self._known(draft.outputs)
        if self.with_buffers:
            self._check_sizes()
            self._mark_outputs()
            self.ops = list(self._with_frees())
        return Graph(draft.name, draft.inputs, tuple(weights), tuple(self.ops), draft.outputs, draft.output_names)

    def fail(self, why: str, at: str = "") -> NoReturn:
        """Point at the token ``at``, the last such one being an operand, or at the statement."""
        spots = [t for t in self.span if t.text == at] if at else []
        token = spots[-1] if spots else self.span[0]
        raise IRError(f"IR text line {token.line}, column {token.column}: {why}")

    # names -----------------------------------------------------------------------------------------------------------
    def _define(self, name: str, ttype: TensorType) -> None:
        if name in self.types:
            self.fail(f"%{name} is defined twice; give one of the two values another name", f"%{name}")
        self.types[name] = ttype

    def _known(self, names: Iterable[str]) -> None:
        for name in names:
            if name and name not in self.types:
                self.fail(
                    f"%{name} is not defined; define it in a line before, or declare it as an input of the graph: "
                    f"graph (%{name}: float32[1, 32]) {{ ... }}",
                    f"%{name}",
                )

    # statements ------------------------------------------------------------------------------------------------------
    def _statement(self, op: Op) -> None:
        self._known((*op.operands, op.into))
        if op.name == "tensor.alloc":
            self._define(op.result, op.out)
            self.allocs[op.result] = len(self.ops)
            self.idle[op.result] = None
            self.home[op.result] = op.result
            self.written_at[op.result] = self.span
        elif op.name == "tensor.free":
            pass
        else:
            if not op.result:
                self.fail(f"{op.name} has no result; write %name = {op.name}(...)", op.name)
            op = self._typed(op, self.types)
            if self.with_buffers and op.name not in _BUFFERS:
                op = self._placed(op)
            elif op.name == "tensor.part" and op.operands:
                self.home[op.result] = self.home.get(op.operands[0], "")
            self._define(op.result, op.out)
        self.ops.append(op)

    def _typed(self, op: Op, types: dict[str, TensorType]) -> Op:
        """``op`` and its body with result types."""
        if op.body:
            inside = dict(types)
            body: list[Op] = []
            for inner in op.body:
                for name in inner.operands:
                    if name and name not in inside:
                        self.fail(f"%{name} is not defined in the body of {op.name} or before it", f"%{name}")
                body.append(self._typed(inner, inside))
                inside[inner.result] = body[-1].out
            op = replace(op, body=tuple(body), type=op.type or body[-1].type)
        if op.type is not None:
            return op
        return replace(op, type=self._inferred(op, types))

    def _inferred(self, op: Op, types: dict[str, TensorType]) -> TensorType:
        dialect = op.name.partition(".")[0]
        spec = L0_OPS.get(op.kind)
        if dialect == "op" and op.kind in LIKE_FIRST and op.operands and op.operands[0]:
            return types[op.operands[0]]
        if dialect not in ("op", "view") or spec is None or spec.declared:
            known = dialect != "op" or spec is not None
            why = "its operands do not determine the type of its result" if known else "no such operation exists"
            self.fail(f"{op.name}: {why}" + ("; state it, as in : float32[1, 32]" if known else ""), op.name)
        operands = [types[o].logical if o else None for o in op.operands]
        attrs = {k: v for k, v in op.attrs if k not in ("in_place", "runtime_weights")}
        try:
            return infer(op.kind, operands, attrs)
        except CuvilError as error:  # IRError, or a proof about symbolic sizes that does not exist
            unknown = any(t is not None and not t.is_static for t in operands)
            self.fail(f"{error}" + ("; or state the type of the result after a colon" if unknown else ""), op.name)

    # buffers ---------------------------------------------------------------------------------------------------------
    def _placed(self, op: Op) -> Op:
        if op.name.startswith("view."):
            self.home[op.result] = self.home.get(op.operands[0], "") if op.operands else ""
            return op
        if not op.into:
            fitting = [b for b in self.idle if self._fits(self.ops[self.allocs[b]].out, op.out)]
            op = replace(op, into=fitting[-1] if fitting else self._allocate(op.out))
        if op.into in self.allocs:
            self.idle.pop(op.into, None)
            index = self.allocs[op.into]
            found = self.ops[index].out
            if self._fits(found, op.out):
                self.ops[index] = replace(self.ops[index], type=replace(found, shape=op.out.shape))
                self.types[op.into] = self.ops[index].out
        self.home[op.result] = self.home.get(op.into, "")
        return op

    @staticmethod
    def _fits(room: TensorType, value: TensorType) -> bool:
        same = (room.dtype, room.layout, len(room.shape)) == (value.dtype, value.layout, len(value.shape))
        return same and all(r in (v, ANONYMOUS) for r, v in zip(room.shape, value.shape, strict=True))

    def _allocate(self, ttype: TensorType) -> str:
        written = {s.id if isinstance(s, Weight) else s.result for s in self.draft.statements}
        number = len(self.allocs)
        while f"b{number}" in self.types or f"b{number}" in written:
            number += 1
        name = f"b{number}"
        self._define(name, ttype)
        self.allocs[name] = len(self.ops)
        self.home[name] = name
        self.ops.append(Op("tensor.alloc", (), name, ttype))
        return name

    def _check_sizes(self) -> None:
        for name, index in self.allocs.items():
            if ANONYMOUS in self.ops[index].out.shape:
                self.span = self.written_at[name]
                self.fail(f"nothing of this shape is written into %{name}, which would say what ? is; state the size")

    def _mark_outputs(self) -> None:
        """An allocation that is returned says so, as every later stage expects."""
        for position, (value, name) in enumerate(zip(self.draft.outputs, self.draft.output_names, strict=True)):
            index = self.allocs.get(self.home.get(value, ""))
            if index is not None and not self.ops[index].has("output"):
                attrs = {**dict(self.ops[index].attrs), "output": name, "position": position}
                self.ops[index] = replace(self.ops[index], attrs=make_attrs(attrs))

    def _with_frees(self) -> Iterable[Op]:
        kept = {self.home.get(o, "") for o in self.draft.outputs}
        kept |= {op.operands[0] for op in self.ops if op.name == "tensor.free" and op.operands}
        last: dict[str, int] = {}
        for index, op in enumerate(self.ops):
            for name in (*op.operands, op.into, op.result):
                last[self.home.get(name, "")] = index
        ends: dict[int, list[str]] = {}
        for buffer in self.allocs:
            if buffer not in kept:
                ends.setdefault(last[buffer], []).append(buffer)
        for index, op in enumerate(self.ops):
            yield op
            yield from (Op("tensor.free", (buffer,)) for buffer in ends.get(index, ()))
