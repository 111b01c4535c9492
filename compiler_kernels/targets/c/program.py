"""Assemble engine.c: kernels, static memory, the call sequence, and the description the runtime reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.extents import SUFFIX, extents_name
from compiler_kernels.ir.graph import Graph, Module, Op, TensorType
from compiler_kernels.ir.symbols import Symbols, scope, symbols_of
from compiler_kernels.ir.weights import WeightStore, layout, pack
from compiler_kernels.policy.audit import Sessions
from compiler_kernels.stage import Json, sha3_512_hex
from compiler_kernels.targets.c import lockstep as lockstep_text
from compiler_kernels.targets.c.clinical import Clinical, generate_clinical
from compiler_kernels.targets.c.includes import include
from compiler_kernels.targets.c.program_sizes import axes_of, bind_function, extents_of, room, size_tables
from compiler_kernels.targets.c.runtime_checks import REFUSING
from compiler_kernels.targets.c.scalar import emit_kernel
from compiler_kernels.targets.c.sizes import is_symbolic
from compiler_kernels.targets.c.writer import Kernel, c_number, c_string, c_type
from compiler_kernels.targets.isa import CHECKER, SCALAR, Isa
from compiler_kernels.targets.vector import emit_vector_kernel
from compiler_kernels.targets.vector.sized_kernels import emit_sized_kernel

MAX_RANK = 8
# Headers that few kernels need, and what is in the text of such.
_HEADERS = (
    ("ca1_integer.h", ("ca1_madd_v",)),
    ("ca1_resize.h", ("ca1_axis",)),
    ("ca1_sample.h", ("ca1_pixel", "ca1_roi_", "ca1_nearest_")),
    ("ca1_part.h", ("ca1_load_bits_v", "ca1_first(")),
    ("ca1_rows.h", ("ca1_row_", "ca1_column_sum")),
)
MAX_THREADS = 16
COMPILED_FILES = ("engine.c", "kernels.c", "clinical.c", "weights.S", "engine_weights.bin")
"""What the compiler reads of the generated files, beside the runtime."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks of one input or output: finite values only, and an inclusive range (``None`` = unbounded)."""

    finite: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What an engine says about itself with ``--version``; all digests are SHA3-512 hex."""

    model: str
    model_version: str
    frozen_graph: str
    config_digest: str
    target: str
    arithmetic: str = "CA-1"


@dataclass(frozen=True)
class Program:
    """Generated files of one engine: name -> bytes, ``engine.c`` first."""

    files: Mapping[str, bytes]
    arena_bytes: int
    kernels: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)
    scratch_bytes: int = 0
    """Of each thread."""
    memory: Mapping[str, Json] = field(default_factory=dict)
    """What ``memory.json`` says instead of the plan of the L2 module."""

    @property
    def source(self) -> str:
        return self.files["engine.c"].decode()


def generate(
    module: Module,
    store: WeightStore,
    identity: Identity,
    guards: Mapping[tuple[str, str], Guard] | None = None,
    prefix: str = "cuvil",
    isas: Sequence[Isa] = (SCALAR,),
    lockstep: bool = False,
    clinical: Clinical | None = None,
    sessions: Sessions | None = None,
) -> Program:
    """Generate the C program of an L2 ``module``; every external symbol starts with ``prefix``.

    ``guards`` are keyed by ``("inputs", NAME)`` and ``("outputs", NAME)``; ``isas`` are the instruction sets to emit
    kernels for, best first. ``lockstep`` adds a second engine of scalar kernels with weights and memory of its own, its
    symbols starting with ``<prefix>_checker``, and an inference that runs both and compares (docs/lockstep.md).
    ``clinical`` is the policy's logic, resolved against the module. ``sessions`` has the program keep records of
    inferences (docs/sessions.md). ``UnsupportedError`` when an operation has no kernel.
    """
    with scope(symbols_of(module.meta)):
        second = _generate(module, store, identity, {}, f"{prefix}_checker", (CHECKER,), None) if lockstep else None
        program = _generate(module, store, identity, guards or {}, prefix, isas, clinical, second)
        program = _joined(program, second) if second else program
    return recording(program, sessions) if sessions else program


def _joined(first: Program, second: Program) -> Program:
    kernels = {**first.kernels, **second.kernels}
    scratch = first.scratch_bytes + second.scratch_bytes
    return Program(lockstep_text.joined(first.files, second.files), first.arena_bytes, kernels, scratch)


def recording(program: Program, sessions: Sessions) -> Program:
    """``program`` with the table that makes the linker take the runtime's session hook in."""
    lines = [
        "",
        "/* audit.sessions of the policy: the program can record every inference (docs/sessions.md). */",
        '#include "cuvil_session.h"',
        hidden_symbol("const cuvil_session_hooks cuvil_sessions = {"),
        f"    {c_string(sessions.inputs)}, {int(sessions.required)}, {int(sessions.sync)},",
        "    cuvil_session_open, cuvil_session_begin, cuvil_session_append,",
        "};",
    ]
    text = program.files["engine.c"] + ("\n".join(lines) + "\n").encode()
    return replace(program, files={**program.files, "engine.c": text})


def _generate(
    module: Module,
    store: WeightStore,
    identity: Identity,
    guards: Mapping[tuple[str, str], Guard],
    prefix: str,
    isas: Sequence[Isa],
    clinical: Clinical | None,
    second: Program | None = None,
) -> Program:
    main, symbols = module.main, symbols_of(module.meta)
    weights = pack(main, store) or bytes(64)
    arena = int(dict(module.meta).get("arena_bytes", "0"))
    lockstep = second is not None
    note = [
        f"/* Generated by Cuvil from the frozen graph {identity.frozen_graph[:32]}...",
        about_model(identity),
    ]
    files: dict[str, bytes] = {"engine.c": b""}
    kernels: dict[str, tuple[Kernel, ...]] = {}
    section = [*note, " * Kernels; the comment above each is the IR it implements. Compiled once per section. */"]
    for isa in isas:
        kernels[isa.name] = tuple(emit_for(f, isa, f"{prefix}_{f.name}_{isa.name}", symbols) for f in module.graphs[1:])
        section += _kernel_section(main, module.graphs[1:], kernels[isa.name], isa, prefix)
    files["kernels.c"] = ("\n".join(section) + "\n").encode()
    if second:
        files["kernels.c"] += second.files["kernels.c"]
    logic = generate_clinical(clinical, prefix, identity.config_digest, note)
    decides = clinical is not None and clinical.any()
    scratch = max((k.scratch_floats for ks in kernels.values() for k in ks), default=0)
    scratch = -(-scratch // 16) * 16  # every thread's area begins on a cache line of its own
    refuses = may_refuse(module.graphs[1:])
    lines = [
        *note,
        " * Static memory, the description the runtime reads, and one inference. No memory is allocated.",
        f" * kernels.c: SHA3-512 {sha3_512_hex(files['kernels.c'])}{'' if decides else ' */'}",
        *([f" * clinical.c: SHA3-512 {sha3_512_hex(logic['clinical.c'])} */"] if decides else []),
        include("cuvil_engine.h"),
        include("cuvil_fpenv.h"),
        include("cuvil_x86.h"),
        *([include("ca1_typed.h")] if symbols else []),  # sizes that are quotients or extremes
        "",
        *_shared_memory(main, prefix, arena, scratch),
        *(size_tables(main.inputs, _named(main), symbols, prefix) if symbols else []),
        *([hidden_symbol(f"const char *{prefix}_refusal;"), ""] if refuses else []),
        *_variants(main, isas, prefix, refuses, lockstep),
        *(bind_function(main.inputs, _named(main), symbols, prefix) if symbols else []),
        *([f"extern const cuvil_clinical {prefix}_clinical_logic;"] if decides else []),
        *description(
            main, identity, guards, prefix, weights, arena, len(isas), scratch, refuses, len(symbols), lockstep, decides
        ),
    ]
    files["engine.c"] = ("\n".join(lines) + "\n").encode()
    files["weights.S"] = weights_assembly(prefix).encode()
    files["engine_weights.bin"] = weights
    files |= logic
    return Program(files, arena, kernels, max(scratch, 16) * 4)


def emit_for(function: Graph, isa: Isa, name: str, symbols: Symbols | None = None) -> Kernel:
    """The kernel of ``function`` for ``isa``: a vector kernel where a family has one, else plain scalar code."""
    if is_symbolic(function):
        kernel = emit_sized_kernel(function, isa, name, symbols or {})
    else:
        kernel = emit_vector_kernel(function, isa, name)
    return kernel if kernel is not None else emit_kernel(function, name, symbols)


def _kernel_section(
    main: Graph, functions: Sequence[Graph], kernels: Sequence[Kernel], isa: Isa, prefix: str
) -> list[str]:
    """The section of ``kernels.c`` for one instruction set: the kernels and the table of steps that calls them."""
    by_name = {f.name: k for f, k in zip(functions, kernels, strict=True)}
    return [
        f"\n#ifdef {isa.macro}",
        # some kernel families declare what plain C does not use
        *(['#pragma GCC diagnostic ignored "-Wunused-variable"'] if isa is CHECKER else []),
        "#define CA1_VL 1",
        include("ca1_math.h"),
        *(["#undef CA1_VL", f"#define CA1_VL {isa.lanes}", include("ca1_math.h")] if isa.lanes != 1 else []),
        include("ca1_sum.h"),
        include("ca1_typed.h"),
        include("ca1_whole.h"),
        include("ca1_sum_typed.h"),
        include("ca1_index.h"),
        include("ca1_tile.h"),
        include("ca1_winograd.h"),
        *(include(name) for name, words in _HEADERS if any(w in k.text for k in kernels for w in words)),
        include("cuvil_engine.h"),
        *(_refusal_macro(prefix) if may_refuse(functions) else ()),
        "",
        f"extern const unsigned char {prefix}_weights[];",
        f"extern unsigned char {prefix}_arena[];",
        *([f"extern int64_t {prefix}_sizes[];"] if any(k.sizes for k in kernels) else []),
        *(f"extern {c_type(v.type)} {prefix}_in{n}[];" for n, v in enumerate(main.inputs)),
        *(f"extern {c_type(op.out)} {prefix}_out{n}[];" for n, op in _outputs(main)),
        "",
        *(k.text for k in kernels),
        *_steps(main, by_name, isa, prefix),
        f"#endif /* {isa.macro} */",
    ]


def may_refuse(functions: Sequence[Graph]) -> bool:
    return any(op.kind in REFUSING for function in functions for op in function.ops)


def _refusal_macro(prefix: str) -> list[str]:
    """``#undef``: several engines may share a translation unit."""
    return [
        include("ca1_refusal.h"),
        "#undef CA1_REFUSAL",
        f"#define CA1_REFUSAL {prefix}_refusal",
        f"extern const char *{prefix}_refusal;",
    ]


def weights_assembly(prefix: str, file: str = "engine_weights.bin") -> str:
    """Assembly that embeds the weights file; a C array would cost minutes for a large model."""
    symbol = f"{prefix}_weights"
    return (
        "    .section .rodata\n"
        f"    .balign 64\n    .globl {symbol}\n{symbol}:\n"
        f'    .incbin "{file}"\n'
        '    .section .note.GNU-stack,"",%progbits\n'
    )


def about_model(identity: Identity) -> str:
    """The line of a generated file's first comment that says what was compiled."""
    model, version = in_comment(identity.model), in_comment(identity.model_version)
    return f" * model {model} {version}, arithmetic {identity.arithmetic}."


def in_comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _outputs(main: Graph) -> list[tuple[int, Op]]:
    found = [(op.int_("position"), op) for op in main.ops if op.name == "tensor.alloc" and op.has("output")]
    return sorted(found, key=lambda item: item[0])


def hidden_symbol(declaration: str) -> str:
    return f'__attribute__((visibility("hidden"))) {declaration}'


def _shared_memory(main: Graph, prefix: str, arena: int, scratch: int) -> list[str]:
    """Definitions of the buffers the kernel files share."""
    lines = [
        f"extern const unsigned char {prefix}_weights[];",
        hidden_symbol(f"_Alignas(64) unsigned char {prefix}_arena[{max(arena, 64)}];"),
        f"static _Alignas(64) float {prefix}_scratch[{MAX_THREADS} * {max(scratch, 16)}];",
    ]
    for n, v in enumerate(main.inputs):
        count = max(1, room(v.type).count)
        lines.append(
            hidden_symbol(f"_Alignas(64) {c_type(v.type)} {prefix}_in{n}[{count}]; /* {in_comment(v.name)} */")
        )
    for n, op in _outputs(main):
        label = in_comment(op.str_("output"))
        lines.append(
            hidden_symbol(f"_Alignas(64) {c_type(op.out)} {prefix}_out{n}[{max(1, room(op.out).count)}]; /* {label} */")
        )
    inputs = ", ".join(f"{prefix}_in{n}" for n in range(len(main.inputs)))
    outputs = ", ".join(f"{prefix}_out{n}" for n, _ in _outputs(main))
    return [
        *lines,
        f"static void *const {prefix}_inputs[] = {{{inputs}}};",
        f"static void *const {prefix}_outputs[] = {{{outputs}}};",
        "",
    ]


def _steps(main: Graph, kernels: Mapping[str, Kernel], isa: Isa, prefix: str) -> list[str]:
    """The calls of the L2 main function as a table of steps."""
    offsets, _ = layout(main.weights)
    where: dict[str, str] = {v.id: f"{prefix}_in{n}" for n, v in enumerate(main.inputs)}
    where.update({w.id: f"(const {c_type(w.type)} *)({prefix}_weights + {offsets[w.ref]})" for w in main.weights})
    buffers: dict[str, str] = {op.result: f"{prefix}_out{n}" for n, op in _outputs(main)}
    functions: list[str] = []
    table: list[str] = []
    for op in main.ops:
        if op.name == "tensor.alloc":
            if not op.has("output"):
                buffers[op.result] = f"({c_type(op.out)} *)({prefix}_arena + {op.int_('offset')})"
        elif op.name == "tensor.part":
            first = op.int_("first") // DTYPES[op.out.dtype].nbytes
            buffers[op.result] = f"({buffers[op.operands[0]]} + {first})"
        elif op.name.startswith("view."):
            where[op.result] = where[op.operands[0]]
        else:
            kernel = kernels[op.kind]
            target = buffers[op.into]
            where[op.result] = target
            arguments = [where[o] for o in op.operands if o] + [target]
            arguments += [f"{prefix}_sizes"] if kernel.sizes else []
            arguments += (["scratch"] if kernel.scratch_floats else []) + ["begin", "end"]
            number = len(table)
            unused = "" if kernel.scratch_floats else "(void)scratch; "
            functions.append(
                f"static void step{number}(int begin, int end, float *scratch) "
                f"{{ {unused}{_guarded(op, where)}{kernel.name}({', '.join(arguments)}); }}"
            )
            table.append(f"    {{step{number}, {kernel.items}, {c_string(kernel.name)}, {c_string(op.node)}}},")
    hidden = hidden_symbol(f"const cuvil_step {prefix}_steps_{isa.name}[] = {{")
    return [*functions, "", hidden, *(table or ["    {0, 0, 0, 0},"]), "};"]


def _guarded(op: Op, where: Mapping[str, str]) -> str:
    """``if`` before a call that a selection may not need (passes/skip_unselected.py)."""
    if not op.has("when"):
        return ""
    conditions = op.attr("when")
    assert isinstance(conditions, tuple)
    names = [str(c) for c in conditions]
    return f"if ({' && '.join('!' * n.startswith('!') + '*' + where[n.lstrip('!')] for n in names)}) "


_SUPPORTED = {"avx512": "cuvil_x86_has_avx512()"}


def _variants(main: Graph, isas: Sequence[Isa], prefix: str, refuses: bool, lockstep: bool) -> list[str]:
    """The table of instruction sets and ``<prefix>_infer``."""
    count = _step_count(main)
    lines: list[str] = []
    for isa in isas:
        lines.append(hidden_symbol(f"extern const cuvil_step {prefix}_steps_{isa.name}[];"))
        lines.append(f"static int {prefix}_has_{isa.name}(void) {{ return {_SUPPORTED.get(isa.name, '1')}; }}")
    lines.append(f"static const cuvil_variant {prefix}_variants[] = {{")
    lines += [f'    {{"{i.name}", {prefix}_has_{i.name}, {prefix}_steps_{i.name}, 0}},' for i in isas]
    lines.append("};")
    lines += lockstep_text.declarations(main, prefix) if lockstep else []
    run = f"steps[s].run(0, steps[s].items, {prefix}_scratch);"
    return [
        *lines,
        f"static void {prefix}_infer(void) {{",
        "    /* Asked once: under a hypervisor cpuid costs more than a small inference. */",
        "    static int v = -1;",
        f"    if (v < 0) for (v = 0; v < {len(isas) - 1} && !{prefix}_variants[v].supported(); v++) {{}}",
        f"    const cuvil_step *steps = {prefix}_variants[v].steps;",
        *([f"    {prefix}_refusal = 0;"] if refuses else []),
        "    const cuvil_fpenv fpenv = cuvil_fpenv_enter();",
        *(lockstep_text.steps(prefix, count) if lockstep else [f"    for (int s = 0; s < {count}; s++) {run}"]),
        "    cuvil_fpenv_leave(fpenv);",
        "}",
        "",
    ]


def _named(main: Graph) -> list[tuple[str, TensorType]]:
    """The outputs a host sees, in order: without those that say the actual size of another."""
    return [(op.str_("output"), op.out) for _, op in _outputs(main) if not op.str_("output").endswith(SUFFIX)]


def _step_count(main: Graph) -> int:
    return sum(1 for op in main.ops if op.name.startswith("call."))


def _tensor(name: str, ttype: TensorType, guard: Guard, extents: str, axes: str) -> str:
    if len(ttype.dims) > MAX_RANK:
        raise UnsupportedError(f"tensor '{name}' has rank {len(ttype.dims)}; engines take at most {MAX_RANK}")
    shape = ", ".join(str(d) for d in ttype.dims) or "0"
    low, high = guard.low, guard.high
    if ttype.dtype == "float32":  # bounds are binary32 numbers where the values are
        low, high = (None if bound is None else float(np.float32(bound)) for bound in (low, high))
    bounds = ", ".join(c_number(bound or 0.0, "float64") for bound in (low, high))
    return (
        f"    {{{c_string(name)}, CUVIL_{ttype.dtype.upper()}, {len(ttype.dims)}, {{{shape}}}, {ttype.count}, "
        f"{int(guard.finite)}, {int(low is not None)}, {int(high is not None)}, {bounds}, {extents}, {axes}}},"
    )


def description(
    main: Graph,
    identity: Identity,
    guards: Mapping[tuple[str, str], Guard],
    prefix: str,
    weights: bytes,
    arena: int,
    variants: int,
    scratch: int,
    refuses: bool,
    symbols: int,
    lockstep: bool,
    decides: bool,
    launches: int | None = None,
) -> list[str]:
    """The tables of inputs and outputs and ``<prefix>_engine_instance``.

    ``launches``: the engine computes on a GPU by so many of them, has no arena or scratch on the host, and there is
    ``<prefix>_computing_device``.
    """
    device = launches is not None
    memory = "0, 0, 1" if device else f"{prefix}_scratch, {max(scratch, 16)}, {MAX_THREADS}"

    def table(kind: str, rows: Sequence[tuple[str, TensorType]]) -> list[str]:
        short = "in" if kind == "input_table" else "out"
        body = [
            _tensor(
                name,
                room(t),
                guards.get((f"{short}puts", name), Guard()),
                extents.get(name) or extents_of(short, prefix, n, t),
                axes_of(short, prefix, n, t),
            )
            for n, (name, t) in enumerate(rows)
        ]
        return [f"static const cuvil_tensor {prefix}_{kind}[] = {{", *body, "};"]

    inputs = [(v.name or v.id, v.type) for v in main.inputs]
    places = {op.str_("output"): n for n, op in _outputs(main)}
    outputs = _named(main)
    extents = {name: f"{prefix}_out{places[extents_name(name)]}" for name in places if extents_name(name) in places}
    strings = (
        identity.model,
        identity.model_version,
        identity.arithmetic,
        identity.frozen_graph,
        identity.config_digest,
        sha3_512_hex(weights),
        identity.target,
    )
    return [
        *table("input_table", inputs),
        *table("output_table", outputs),
        f"const cuvil_engine {prefix}_engine_instance = {{",
        *(f"    {c_string(s)}," for s in strings),
        f"    {len(inputs)}, {len(outputs)}, {prefix}_input_table, {prefix}_output_table,",
        f"    {prefix}_weights, {len(weights)}ul, {arena}ul,",
        f"    {prefix}_inputs, {prefix}_outputs,",
        f"    {variants}, {prefix}_variants, {_step_count(main) if launches is None else launches}, 0,",
        f"    {memory},",
        f"    {prefix}_infer, {f'&{prefix}_refusal' if refuses else '0'}, {f'{prefix}_bind' if symbols else '0'},",
        f"    {f'{prefix}_symbols' if symbols else '0'}, {symbols}, {'0' if device else f'{prefix}_arena'},",
        f"    {lockstep_text.fields(main, prefix) if lockstep else '0, 0, 0, 0'},",
        f"    {f'&{prefix}_clinical_logic' if decides else '0'},",
        f"    {f'&{prefix}_computing_device' if device else '0'},",
        "};",
    ]
