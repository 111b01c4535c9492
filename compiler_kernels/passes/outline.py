"""L1 -> L2: one function per distinct kernel, shared by signature, and a main function of calls into the arena."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, Value
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult

MAX_NAME = 40


@dataclass(frozen=True)
class OutlineKernels:
    """Two statements share a function when their operations, attributes and types agree; buffers are arguments."""

    name: ClassVar[str] = "outline-kernels"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        main = module.main
        types = main.types()
        functions: dict[tuple[tuple[TensorType, ...], tuple[Op, ...]], Graph] = {}
        ops: list[Op] = []
        for op in main.ops:
            if op.name == "tensor.free":
                continue
            if op.name in ("tensor.alloc", "tensor.part", "view.reshape", "view.concat"):
                ops.append(op)
                continue
            key = _signature(op, types)
            if key not in functions:
                functions[key] = _function(len(functions), op, key)
            kept = tuple((k, v) for k, v in op.attrs if k == "when")
            ops.append(replace(op, name=f"call.{functions[key].name}", attrs=kept, body=()))
        graphs = (replace(main, ops=tuple(ops)), *functions.values())
        return PassResult(replace(module, level="l2", graphs=graphs), True, ({"functions": len(functions)},))


def _signature(op: Op, types: dict[str, TensorType]) -> tuple[tuple[TensorType, ...], tuple[Op, ...]]:
    """Parameter types, and the body in terms of parameters ``p<i>`` and temporaries ``t<i>``, without source names."""
    present = [o for o in op.operands if o]
    names = {o: f"p{i}" for i, o in enumerate(present)}
    body: list[Op] = []
    for inner in op.body or (op,):
        operands = tuple(names[o] if o else "" for o in inner.operands)
        names[inner.result] = f"t{len(body)}"
        attrs = tuple((k, v) for k, v in inner.attrs if k not in ("in_place", "when"))
        body.append(Op(inner.name, operands, names[inner.result], inner.type, attrs))
    return tuple(types[o] for o in present), tuple(body)


def _function(number: int, op: Op, key: tuple[tuple[TensorType, ...], tuple[Op, ...]]) -> Graph:
    params, body = key
    return Graph(
        f"k{number}_{op.kind}"[:MAX_NAME],
        tuple(Value(f"p{i}", t, f"p{i}") for i, t in enumerate(params)),
        (),
        body,
        (body[-1].result,),
        ("y",),
    )
