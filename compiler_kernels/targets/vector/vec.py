"""Text of vector operations for one instruction set (runtime/ca1_vec.h and ca1_math.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler_kernels.ir.graph import Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import c_float
from compiler_kernels.targets.isa import Isa

_DIRECT: Final = frozenset(
    "relu sigmoid tanh erf exp log sqrt neg abs reciprocal hard_swish softplus add sub mul div min max pow".split()
)
_LANEWISE: Final = {"floor": "__builtin_floorf", "ceil": "__builtin_ceilf"}


@dataclass(frozen=True, slots=True)
class Vec:
    """Names of the vector layer for ``isa``: ``v("fma")`` is ``ca1_fma_v16``."""

    isa: Isa

    def __call__(self, name: str) -> str:
        return f"ca1_{name}_v{self.isa.lanes}"

    @property
    def type(self) -> str:
        return self("f32")

    @property
    def lanes(self) -> int:
        return self.isa.lanes

    @property
    def per_block(self) -> int:
        """Vectors in a channel block of 16."""
        return BLOCK // self.isa.lanes

    def load(self, address: str) -> str:
        return f"{self('load')}({address})"

    def store(self, address: str, value: str) -> str:
        return f"{self('store')}({address}, {value});"

    def set1(self, value: str) -> str:
        return f"{self('set1')}({value})"

    def fma(self, a: str, b: str, c: str) -> str:
        return f"{self('fma')}({a}, {b}, {c})"

    def add(self, a: str, b: str) -> str:
        return f"{self('add')}({a}, {b})"

    def masked(self, value: str, channels: int, lane: int) -> str:
        """``value`` with +0 in the lanes from ``channels`` on, where its first lane is channel ``lane`` of a block."""
        mask = self.load(f"ca1_mask.lanes + {BLOCK - channels + lane}")
        return f"{self('as_f32')}({self('iand')}({self('as_i32')}({value}), {self('as_i32')}({mask})))"

    def statement(self, op: Op, arguments: list[str]) -> str:
        """C statement defining ``op.result`` as one elementwise operation over vector ``arguments``."""
        if op.kind in _LANEWISE:
            return self._by_lane(op, arguments[0])
        return f"const {self.type} {op.result} = {self.expression(op, arguments)};"

    def expression(self, op: Op, arguments: list[str]) -> str:
        x = arguments[0]
        if op.kind in _DIRECT:
            return f"{self(op.kind)}({', '.join(arguments)})"
        if op.kind == "prelu":
            return f"{self('leaky_relu')}({x}, {arguments[1]})"
        if op.kind == "affine":
            return self.fma(x, arguments[1], arguments[2])
        if op.kind in ("leaky_relu", "elu"):
            return f"{self(op.kind)}({x}, {self.set1(c_float(op.float_('alpha')))})"
        if op.kind == "hard_sigmoid":
            alpha, beta = (self.set1(c_float(op.float_(k))) for k in ("alpha", "beta"))
            return f"{self('hard_sigmoid')}({x}, {alpha}, {beta})"
        if op.kind == "gelu":
            return f"{self('gelu_tanh' if op.str_('approximate') == 'tanh' else 'gelu')}({x})"
        if op.kind == "clip":
            text = x
            if op.has("lo"):
                text = f"{self('maxn')}({text}, {self.set1(c_float(op.float_('lo')))})"
            if op.has("hi"):
                text = f"{self('minn')}({text}, {self.set1(c_float(op.float_('hi')))})"
            return text
        raise AssertionError(f"no vector form of {op.kind}")

    def _by_lane(self, op: Op, x: str) -> str:
        lanes = f"{op.result}_lanes"
        return (
            f"float {lanes}[{self.lanes}]; {self.store(lanes, x)} "
            f"for (int l = 0; l < {self.lanes}; l++) {lanes}[l] = {_LANEWISE[op.kind]}({lanes}[l]); "
            f"const {self.type} {op.result} = {self.load(lanes)};"
        )
