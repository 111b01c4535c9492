"""What an L1 module needs in memory and how many bytes its statements move, before and after fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_kernels.ir.graph import Graph, Module, all_operands
from compiler_kernels.ir.weights import layout
from compiler_kernels.passes.memory import Lifetime, lifetimes, lower_bound, parts_of
from compiler_kernels.stage import Json

_ENGINE_PARTS = ("weights_bytes", "arena_bytes", "input_bytes", "output_bytes")
_NO_TRAFFIC = ("tensor.", "view.")


def memory_totals(l1: Module) -> dict[str, Json]:
    """Bytes of weights (each distinct constant once, aligned to 64), inputs, outputs, and of values alive at one time.

    ``live_unpadded_bytes`` is the largest sum over the statements of the arena's tensors alive there, without halo,
    padded channels and alignment: what any plan of this statement order needs at least. A part of a concatenation
    without copies is alive from the statement that makes it.
    """
    graph = l1.main
    outputs = [op.out.logical.nbytes for op in graph.ops if op.name == "tensor.alloc" and op.has("output")]
    return {
        "weights_bytes": layout(graph.weights)[1],
        "input_bytes": sum(value.type.nbytes for value in graph.inputs),
        "output_bytes": sum(outputs),
        "live_unpadded_bytes": lower_bound(_unpadded(graph)),
    }


def _unpadded(graph: Graph) -> list[Lifetime]:
    """Lifetimes of the tensors in the arena, those of a concatenation without copies by part."""
    sizes_of = {
        buffer: {op.int_("first"): op.out.logical.nbytes for op in parts} for buffer, parts in parts_of(graph).items()
    }
    sizes = {op.result: op.out.logical.nbytes for op in graph.ops if op.name == "tensor.alloc"}
    return [
        replace(
            b,
            size=sizes[b.id],
            pieces=tuple(replace(piece, size=sizes_of[b.id][piece.start]) for piece in b.pieces),
        )
        for b in lifetimes(graph)
    ]


def buffer_labels(l1: Module) -> dict[str, str]:
    """For every buffer the model's node (else the operation) that first writes it; parts count for their whole."""
    whole = {op.result: op.operands[0] for op in l1.main.ops if op.name == "tensor.part"}
    found: dict[str, str] = {}
    for op in l1.main.ops:
        buffer = op.into
        while buffer in whole:
            buffer = whole[buffer]
        if buffer:
            found.setdefault(buffer, op.node or op.name)
    return found


def traffic(graph: Graph) -> dict[str, Json]:
    """Bytes read and written by the statements of ``graph``, each operand and result once, weights apart.

    A count of the text, not of a cache: a kernel may read an operand several times or find it in cache. Reshapes,
    views and concatenations without copies move nothing; a slice reads what it returns.
    """
    types = graph.types()
    constants = {weight.id for weight in graph.weights}
    read = written = weights = statements = 0
    for op in graph.ops:
        if op.type is None or op.kind == "reshape" or op.name.startswith(_NO_TRAFFIC):
            continue
        statements += 1
        written += op.type.nbytes
        for operand in dict.fromkeys(all_operands(op)):
            size = types[operand].nbytes
            if operand in constants:
                weights += size
            else:
                read += min(size, op.type.nbytes) if op.kind == "slice" else size
    return {"statements": statements, "bytes_read": read, "bytes_written": written, "weight_bytes_read": weights}


def memory_report(plan: Mapping[str, Json], frozen: Module, l1: Module) -> dict[str, Json]:
    """The note of ``PlanMemory`` with totals, a label for every buffer, and the traffic before and after fusion."""
    labels = buffer_labels(l1)
    buffers = plan["buffers"]
    assert isinstance(buffers, list)
    return {
        **plan,
        **memory_totals(l1),
        "statements": len(l1.main.ops),
        "traffic": {"before_fusion": traffic(frozen.main), "after_fusion": traffic(l1.main)},
        "buffers": [{**b, "node": labels.get(str(b["id"]), "")} for b in buffers if isinstance(b, dict)],
    }


def lockstep_bytes(memory: Mapping[str, Json]) -> int:
    """Memory of the second engine of lockstep beside scratch: weights, arena, inputs and outputs of its own."""
    return sum(size for key in _ENGINE_PARTS if isinstance(size := memory[key], int))


def total_bytes(memory: Mapping[str, Json], threads: int = 1) -> int:
    """Memory of one engine with ``threads`` threads: weights, arena, inputs, outputs and scratch, twice with lockstep.

    Of a GPU engine it is the device's.
    Program code, stacks and the C library (some hundred kilobytes) are not counted.
    """
    device = memory.get("device_bytes")
    if isinstance(device, int):
        return device
    parts = [memory[key] for key in _ENGINE_PARTS] + [memory["scratch_bytes_per_thread"]] * threads
    parts.append(memory.get("lockstep_bytes", 0))
    return sum(part for part in parts if isinstance(part, int))
