"""The parts of engine.c that lockstep adds: the second engine, the table of held values, the interleaved steps."""

from __future__ import annotations

from collections.abc import Mapping

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.writer import c_string


def joined(first: Mapping[str, bytes], second: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of both engines: the same ones, one engine after the other in each text.

    Both read their weights from one file; in the engine they are two copies.
    """
    texts = ("engine.c", "weights.S")
    return {name: data + b"\n" + second[name] if name in texts else data for name, data in first.items()}


def declarations(main: Graph, prefix: str) -> list[str]:
    """What ``<prefix>_infer`` and the description need: the second engine and the table of held values."""
    rows = held_values(main)
    return [
        "/* Lockstep: the second engine stands at the end of this file. */",
        f"extern const cuvil_engine {prefix}_engine_instance;",
        f'__attribute__((visibility("hidden"))) extern const cuvil_engine {prefix}_checker_engine_instance;',
        f"static const char *{prefix}_mismatch;",
        f"static const cuvil_held {prefix}_held_values[] = {{",
        *rows,
        *([] if rows else ["    {0, 0, 0, 0, 0},"]),
        "};",
    ]


def fields(main: Graph, prefix: str) -> str:
    """The last fields of the engine's description."""
    rows = len(held_values(main))
    return f"&{prefix}_checker_engine_instance, &{prefix}_mismatch, {prefix}_held_values, {rows}"


def steps(prefix: str, count: int) -> list[str]:
    """The statements of an inference: step by step in both engines."""
    return [
        f"    const cuvil_engine *const engine = &{prefix}_engine_instance, *const checker = engine->checker;",
        "    const cuvil_step *others = checker->variants[0].steps;",
        "    cuvil_lockstep_begin(engine);",
        f"    for (int s = 0; s < {count}; s++) {{",
        "        steps[s].run(0, steps[s].items, engine->scratch);",
        "        others[s].run(0, others[s].items, checker->scratch);",
        f"        cuvil_lockstep_step(engine, &{prefix}_variants[v], s);",
        "    }",
        f"    cuvil_lockstep_end(engine, &{prefix}_variants[v]);",
    ]


def held_values(main: Graph) -> list[str]:
    """Rows of the table of values in the arena, in the order of the steps that use them last.

    Left out: values whose size is known at run time only, and those that an inference may leave unwritten because a
    selection does not need them.
    """
    made = {op.result: op for op in main.ops if op.name == "tensor.alloc" and not op.has("output")}
    whole = {op.result: op.operands[0] for op in main.ops if op.name == "tensor.part"}
    where: dict[str, str] = {}  # the buffer of a value
    last: dict[str, int] = {}
    writer: dict[str, str] = {}
    skipped: set[str] = set()
    calls = 0
    for op in main.ops:
        if op.name.startswith("view.") and op.operands[0] in where:
            where[op.result] = where[op.operands[0]]
        if not op.name.startswith("call."):
            continue
        buffer = op.into
        while buffer in whole:
            buffer = whole[buffer]
        where[op.result] = buffer
        writer[buffer] = op.node or op.kind
        if op.has("when"):
            skipped.add(buffer)
        for value in (op.result, *_read(op)):
            if value in where:
                last[where[value]] = calls
        calls += 1
    rows = []
    for buffer, step in sorted(last.items(), key=lambda item: item[1]):
        if buffer in made and buffer not in skipped and made[buffer].out.is_static:
            alloc = made[buffer]
            count = alloc.out.nbytes // DTYPES[alloc.out.dtype].nbytes
            place = f"{step}, {alloc.int_('offset')}, {count}, CUVIL_{alloc.out.dtype.upper()}"
            rows.append(f"    {{{place}, {c_string(writer[buffer])}}},")
    return rows


def _read(op: Op) -> tuple[str, ...]:
    conditions = op.attr("when") if op.has("when") else ()
    assert isinstance(conditions, tuple)
    return (*op.operands, *(str(c).lstrip("!") for c in conditions))
