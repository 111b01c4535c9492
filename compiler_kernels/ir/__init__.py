"""The intermediate representation: dataclasses, operation table, text form, verifier."""

from compiler_kernels.ir.graph import ANONYMOUS, Attr, Dim, Graph, Module, Op, TensorType, Value, Weight

__all__ = ["ANONYMOUS", "Attr", "Dim", "Graph", "Module", "Op", "TensorType", "Value", "Weight"]
