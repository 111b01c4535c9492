"""Assemble the program of a GPU engine: kernels.cu, the table of launches, and one block of device memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Graph, Module, TensorType
from compiler_kernels.ir.symbols import scope, symbols_of
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.passes.memory import aligned
from compiler_kernels.policy.audit import Sessions
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.c.clinical import Clinical, generate_clinical
from compiler_kernels.targets.c.includes import include
from compiler_kernels.targets.c.program import (
    Guard,
    Identity,
    Program,
    about_model,
    description,
    hidden_symbol,
    in_comment,
    recording,
    weights_assembly,
)
from compiler_kernels.targets.c.program_sizes import bind_function, room, size_tables
from compiler_kernels.targets.c.writer import c_string, c_type
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import MOST_ARGUMENTS, MOST_LAUNCHES
from compiler_kernels.targets.cuda.plan import Launch, Place, emit_cuda, named_outputs, outputs_of, places_of
from compiler_kernels.targets.cuda.refusals import refusing, report_function
from compiler_kernels.targets.cuda.schedule import arranged
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.targets.triton.emit import emit_with_triton, triton_file

PAGE = 4096
ALIGNMENT = 256
NO_KERNELS = "/* The kernels of this engine are CUDA C++: kernels.cu. */\ntypedef int cuvil_no_kernels_here;\n"


@dataclass(frozen=True)
class Block:
    """The engine's device memory: byte offsets of its parts, and how large it is. Inputs, outputs and workspace lie in
    the arena where it is planned for them."""

    arena: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    workspace: int
    tickets: int
    sizes: int
    refusals: int
    total: int

    def offset(self, place: Place) -> int:
        """Where ``place`` lies; weights begin the block."""
        base = {"weights": (0,), "arena": (self.arena,), "input": self.inputs, "output": self.outputs}[place.space]
        return base[place.index] + place.offset

    def pointers(self, launch: Launch) -> list[int]:
        """Offsets of all that the kernel of ``launch`` takes."""
        kernel, found = launch.kernel, [self.offset(place) for place in launch.arguments]
        if kernel.workspace_bytes:
            found.append(self.workspace if launch.workspace is None else self.offset(launch.workspace))
        found += [*[self.tickets] * bool(kernel.tickets), *[self.sizes] * kernel.sizes]
        return [*found, *([self.refusals + 4 * launch.refusal] if kernel.refusals else [])]


def block_of(module: Module, launches: Sequence[Launch], weights: int) -> Block:
    """Lay the block out: weights, arena, the inputs, outputs and workspace that are not in it, tickets, table of sizes,
    refusals, each aligned to 256."""
    main = module.main
    arena = aligned(weights, ALIGNMENT)
    at = arena + aligned(max(64, int(dict(module.meta).get("arena_bytes", "0"))), ALIGNMENT)
    offsets: list[list[int]] = [[], []]
    types = ([v.type for v in main.inputs], [op.out for op in outputs_of(main)])
    for found, group, places in zip(offsets, types, places_of(main), strict=True):
        for ttype, place in zip(group, places, strict=True):
            if place.space == "arena":
                found.append(arena + place.offset)
                continue
            found.append(at)
            at += aligned(max(1, room(ttype).count) * DTYPES[ttype.dtype].nbytes, ALIGNMENT)
    shared = [launch.kernel.workspace_bytes for launch in launches if launch.workspace is None]
    tickets = at + aligned(max(shared, default=0), ALIGNMENT)
    sizes = tickets + aligned(4 * max((launch.kernel.tickets for launch in launches), default=0), ALIGNMENT)
    refusals = sizes + aligned(8 * len(symbols_of(module.meta)), ALIGNMENT)
    total = refusals + aligned(4 * len(refusing(launches)), ALIGNMENT)
    return Block(arena, tuple(offsets[0]), tuple(offsets[1]), at, tickets, sizes, refusals, total)


def generate_cuda(
    module: Module,
    store: WeightStore,
    identity: Identity,
    gpu: Gpu,
    guards: Mapping[tuple[str, str], Guard] | None = None,
    prefix: str = "cuvil",
    clinical: Clinical | None = None,
    sessions: Sessions | None = None,
    triton: bool = False,
) -> Program:
    """Generate the program of an L2 ``module`` for ``gpu``; the arguments of ``targets.c.program.generate``.
    ``triton``: functions that have a Triton kernel get it.

    ``UnsupportedError`` where an operation has no kernel.
    """
    with scope(symbols_of(module.meta)):
        program = _generate(module, store, identity, gpu, guards or {}, prefix, clinical, triton)
    return recording(program, sessions) if sessions else program


def _generate(
    module: Module,
    store: WeightStore,
    identity: Identity,
    gpu: Gpu,
    guards: Mapping[tuple[str, str], Guard],
    prefix: str,
    clinical: Clinical | None,
    triton: bool,
) -> Program:
    arrangement = arranged(module, gpu, prefix, emit_with_triton if triton else emit_cuda)
    module, launches = arrangement.module, arrangement.launches
    main, symbols = module.main, symbols_of(module.meta)
    weights = pack(main, store) or bytes(64)
    arena = int(dict(module.meta).get("arena_bytes", "0"))
    block = block_of(module, launches, len(weights))
    note = [
        f"/* Generated by Cuvil from the frozen graph {identity.frozen_graph[:32]}...",
        about_model(identity),
    ]
    head = [*note, f" * Kernels for {gpu.name}; the comment above each is the IR it implements. */"]
    files: dict[str, bytes] = {"engine.c": b"", "kernels.c": NO_KERNELS.encode()}
    kernels = [launch.kernel for launch in launches]
    files["kernels.cu"] = unit_text(kernels, head, copies=True).encode()
    second = triton_file(kernels, [line.strip("/* ") for line in head]).encode()
    files |= {"kernels_triton.py": second} if second else {}
    logic = generate_clinical(clinical, prefix, identity.config_digest, note)
    decides = clinical is not None and clinical.any()
    lines = [
        *note,
        " * The launches on the GPU, their memory there, and the description the runtime reads.",
        *([f" * kernels_triton.py: SHA3-512 {sha3_512_hex(second)}"] if second else []),
        f" * kernels.cu: SHA3-512 {sha3_512_hex(files['kernels.cu'])}{'' if decides else ' */'}",
        *([f" * clinical.c: SHA3-512 {sha3_512_hex(logic['clinical.c'])} */"] if decides else []),
        include("cuvil_engine.h"),
        '#include "cuvil_gpu.h"',
        *([include("ca1_typed.h")] if symbols else []),
        "",
        *_host_memory(main, prefix),
        *(size_tables(main.inputs, _named(main), symbols, prefix) if symbols else []),
        hidden_symbol(f"const char *{prefix}_refusal;"),
        "",
        *_launch_table(launches, block, prefix),
        *_steps(launches, gpu, prefix),
        *report_function(launches, prefix),
        *_device(main, gpu, block, launches, len(weights), len(symbols), prefix),
        *(bind_function(main.inputs, _named(main), symbols, prefix) if symbols else []),
        *([f"extern const cuvil_clinical {prefix}_clinical_logic;"] if decides else []),
        *description(
            main, identity, guards, prefix, weights, arena, 1, 0, True, len(symbols), False, decides, len(launches)
        ),
    ]
    files["engine.c"] = ("\n".join(lines) + "\n").encode()
    files["weights.S"] = (weights_assembly(prefix) + image_assembly(prefix, gpu)).encode()
    files["engine_weights.bin"] = weights
    memory = {**arrangement.memory, "arena_bytes": arena, "weights_bytes": len(weights), "device_bytes": block.total}
    return Program(files | logic, arena, memory=memory)


def _named(main: Graph) -> list[tuple[str, TensorType]]:
    return [(op.str_("output"), op.out) for op in named_outputs(main)]


def images_of(gpu: Gpu) -> tuple[str, ...]:
    """Files that nvcc makes for ``gpu``: its own code and, where later chips run it, the PTX too."""
    return ("kernels.cubin",) if gpu.clusters else ("kernels.cubin", "kernels.ptx")


def image_assembly(prefix: str, gpu: Gpu) -> str:
    """Assembly that embeds what nvcc made."""
    text = "    .section .rodata\n"
    for n, file in enumerate(images_of(gpu)):
        symbol = f"{prefix}_image{n}"
        text += f'    .balign 64\n    .globl {symbol}\n    .hidden {symbol}\n{symbol}:\n    .incbin "{file}"\n'
    return text


def _host_memory(main: Graph, prefix: str) -> list[str]:
    """Host buffers of inputs and outputs: whole pages, so that they can be locked for fast copies."""
    lines = [f"extern const unsigned char {prefix}_weights[];"]
    names: tuple[list[str], list[str]] = ([], [])
    inputs = [(v.type, v.name) for v in main.inputs]
    outputs = [(op.out, op.str_("output")) for op in outputs_of(main)]
    for found, kind, group in zip(names, ("in", "out"), (inputs, outputs), strict=True):
        for n, (ttype, label) in enumerate(group):
            found.append(f"{prefix}_{kind}{n}")
            size = DTYPES[ttype.dtype].nbytes
            count = aligned(max(1, room(ttype).count) * size, PAGE) // size
            text = f"_Alignas({PAGE}) {c_type(ttype)} {found[-1]}[{count}]; /* {in_comment(label)} */"
            lines.append(hidden_symbol(text))
    return [
        *lines,
        f"static void *const {prefix}_inputs[] = {{{', '.join(names[0]) or '0'}}};",
        f"static void *const {prefix}_outputs[] = {{{', '.join(names[1]) or '0'}}};",
        "",
    ]


def _launch_table(launches: Sequence[Launch], block: Block, prefix: str) -> list[str]:
    offsets: list[int] = []
    rows = []
    if len(launches) > MOST_LAUNCHES:
        raise UnsupportedError(
            f"the model takes {len(launches)} GPU launches, and an engine has at most "
            f"{MOST_LAUNCHES}: build for a CPU target"
        )
    for launch in launches:
        kernel, first = launch.kernel, len(offsets)
        offsets += block.pointers(launch)
        # Triton gives every kernel two pointers to scratch memory; these kernels have none (toolchain/triton.py).
        offsets += [0, 0] if kernel.triton else []
        if len(offsets) - first > MOST_ARGUMENTS:
            raise UnsupportedError(
                f"node {launch.node or kernel.name} has {len(launch.arguments) - 1} operands, and a GPU kernel takes "
                f"at most {MOST_ARGUMENTS - 4}: build for a CPU target"
            )
        grid = ", ".join(map(str, kernel.grid))
        rows.append(
            f"    {{{c_string(kernel.name)}, {c_string(launch.node)}, {{{grid}}}, {kernel.block}, "
            f"{kernel.shared_bytes}, {kernel.cluster}, {int(kernel.dependent)}, {first}, {len(offsets) - first}}},"
        )
    return [
        f"static const unsigned long {prefix}_offsets[] = {{{', '.join(f'{o}ul' for o in offsets) or '0'}}};",
        f"static const cuvil_launch {prefix}_launches[] = {{",
        *(rows or ["    {0, 0, {1, 1, 1}, 1, 0, 1, 0, 0, 0},"]),
        "};",
    ]


def _steps(launches: Sequence[Launch], gpu: Gpu, prefix: str) -> list[str]:
    rows = []
    for launch in launches:
        x, y, z = launch.kernel.grid
        threads = min(x * y * z * launch.kernel.block, 2**31 - 1)
        rows.append(f"    {{0, {threads}, {c_string(launch.kernel.name)}, {c_string(launch.node)}}},")
    return [
        f"static const cuvil_step {prefix}_steps[] = {{",
        *(rows or ["    {0, 0, 0, 0},"]),
        "};",
        f"static int {prefix}_supported(void) {{ return 1; }}",
        f"static const cuvil_variant {prefix}_variants[] = {{{{{c_string(gpu.name)}, {prefix}_supported, "
        f"{prefix}_steps, 0}}}};",
    ]


def _device(
    main: Graph, gpu: Gpu, block: Block, launches: Sequence[Launch], weights: int, symbols: int, prefix: str
) -> list[str]:
    major, minor = gpu.capability
    images = [f"{{{major}, {minor}, {major}, 0, {prefix}_image0}}"]
    images += [f"{{{major}, {minor}, 0, 1, {prefix}_image1}}"] if len(images_of(gpu)) > 1 else []
    types = {"in": [v.type for v in main.inputs], "out": [op.out for op in outputs_of(main)]}
    rows: dict[str, list[str]] = {}
    for kind, offsets in (("in", block.inputs), ("out", block.outputs)):
        rows[kind] = []
        for n, (ttype, offset) in enumerate(zip(types[kind], offsets, strict=True)):
            size = max(1, room(ttype).count) * DTYPES[ttype.dtype].nbytes
            rows[kind].append(f"    {{{prefix}_{kind}{n}, {offset}ul, {size}ul}},")
    if symbols:
        rows["in"].append(f"    {{{prefix}_sizes, {block.sizes}ul, {8 * symbols}ul}},")
    count, words = len(launches), len(refusing(launches))
    if words:
        rows["in"].append(f"    {{{prefix}_accepted, {block.refusals}ul, {4 * words}ul}},")
        rows["out"].append(f"    {{{prefix}_refused, {block.refusals}ul, {4 * words}ul}},")
    if len(rows["in"]) + len(rows["out"]) > 1024:
        raise UnsupportedError("a GPU engine takes at most 1024 inputs and outputs")
    program, report = f"{prefix}_gpu_engine", f" {prefix}_report();" if words else ""
    return [
        *(f"extern const unsigned char {prefix}_image{n}[];" for n in range(len(images))),
        f"static const cuvil_image {prefix}_images[] = {{{', '.join(images)}}};",
        f"static const cuvil_transfer {prefix}_to_device[] = {{",
        *(rows["in"] or ["    {0, 0, 0},"]),
        "};",
        f"static const cuvil_transfer {prefix}_from_device[] = {{",
        *(rows["out"] or ["    {0, 0, 0},"]),
        "};",
        f"static const cuvil_gpu_program {program} = {{",
        f"    {c_string(gpu.name)}, {prefix}_images, {len(images)}, {prefix}_launches, {count}, {prefix}_offsets,",
        f"    {prefix}_weights, {weights}ul, {block.total}ul, {block.arena}ul,",
        f"    {prefix}_to_device, {prefix}_from_device, {len(rows['in'])}, {len(rows['out'])}, &{prefix}_refusal,",
        "};",
        f"static const char *{prefix}_open(void) {{ return cuvil_gpu_open(&{program}); }}",
        f"static void {prefix}_erase_device(void) {{ cuvil_gpu_erase(&{program}); }}",
        f"static double {prefix}_time(void) {{ return cuvil_gpu_time(&{program}); }}",
        f"static void {prefix}_infer(void) {{ cuvil_gpu_infer(&{program});{report} }}",
        f"static const cuvil_device {prefix}_computing_device = {{",
        f"    {c_string(gpu.name)}, {block.total}ul, {prefix}_open, {prefix}_erase_device, {prefix}_time,",
        "    cuvil_gpu_name,",
        "};",
        "",
    ]
