"""Frame of kernels that compute a blocked value row by row: one work item is a row of one block of 16 channels."""

from __future__ import annotations

from collections.abc import Callable

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, Kernel
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import Access, Chain, three
from compiler_kernels.targets.vector.vec import Vec


class Rows:
    """``n``, ``cb``, ``d``, ``h`` are the item's batch, channel block, depth and row; ``tail`` its padded channels.

    ``head`` adds file-scope text before the kernel.
    """

    def __init__(self, function: Graph, isa: Isa, name: str, skip_root: bool = True) -> None:
        self.function, self.isa, self.name = function, isa, name
        self.vec = Vec(isa)
        self.chain = Chain(function, self.vec, skip_root)
        self.out = function.ops[-1].out
        self.y = self.chain.y
        self.depth, self.height, self.width = three(self.out.dims[2:], 1)
        self.blocks = self.out.physical.blocks
        self.tail = self.out.dims[1] % BLOCK
        self.head: list[str] = []

    def emit(self, body: Callable[[Code, int], None], shown: Graph | None = None) -> Kernel:
        """``body(code, tail)`` writes one item, given how many channels its block has if not 16 (else 0).

        ``shown`` is the function as the reader of the C text knows it, where it was rewritten.
        """
        code = Code()
        for op in (shown or self.function).ops:
            code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
        params = ", ".join(f"const float *{v.id}" for v in self.function.inputs)
        suffix = {n: f"{n}_" for n in self.chain.accesses}
        for parameter, inner in suffix.items():
            params = ", ".join(
                f"const float *{inner}" if p == f"const float *{parameter}" else p for p in params.split(", ")
            )
        self.base = {v.id: suffix.get(v.id, v.id) for v in self.function.inputs}
        batch = self.out.dims[0]
        items = batch * self.blocks * self.depth * self.height
        with (
            code.block(f"CA1_DEVICE static void {self.name}({params}, float *y_, int begin, int end)"),
            code.block("for (int item = begin; item < end; item++)"),
        ):
            code.add(
                f"const int h = item % {self.height}, d = item / {self.height} % {self.depth};",
                f"const int cb = item / {self.height * self.depth} % {self.blocks};",
                f"const int n = item / {self.height * self.depth * self.blocks};",
            )
            for name, access in self.chain.accesses.items():
                moved = Access(f"{name}_", *_fields(access))
                code.add(f"const float *{name} = {moved.at('n', 'cb', ['d', 'h', '0'])};")
            start = Access("y_", *_fields(self.y)).at("n", "cb", ["d", "h", "0"])
            code.add(f"float *y = {start};", "(void)n, (void)d, (void)h;")
            self._halo(code)
            if self.tail and self.blocks > 1:
                with code.block(f"if (cb < {self.blocks - 1})"):
                    body(code, 0)
                with code.block("else"):
                    body(code, self.tail)
            else:
                body(code, self.tail)
        return Kernel(self.name, "\n".join([*self.head, *code.lines]) + "\n", len(self.function.inputs), items)

    def _halo(self, code: Code) -> None:
        layout = self.out.physical
        if any(layout.halo):
            halo = three(layout.halo, 0)
            _, step_h, step_w = self.y.spatial
            side = 2 * halo[2] * step_w
            above = side + 2 * halo[1] * step_h
            last = f"d == {self.depth - 1} && h == {self.height - 1}"
            code.add(f"ca1_halo(y, d, h, {last}, {side}, {above}, {self.y.origin}, {self.width * step_w});")

    def columns(self, code: Code, tail: int, body: Callable[[Code, int], None], width: int | None = None) -> None:
        """Loop over the row's columns ``c``, with pointers of the chain and ``y`` moved; ``body(code, lane)``."""
        with code.block(f"for (int c = 0; c < {self.width if width is None else width}; c++)"):
            for lane in range(0, BLOCK, self.vec.lanes):
                code.add("{")
                body(code, lane)
                code.add("}")
            moves = [f"y += {self.y.spatial[2]}"]
            moves += [f"{n} += {a.spatial[2]}" for n, a in self.chain.accesses.items() if a.spatial[2]]
            code.add(", ".join(moves) + ";")


def _fields(access: Access) -> tuple[int, int, tuple[int, int, int], int, bool]:
    return access.batch, access.block, access.spatial, access.origin, access.broadcast
