"""Many small engines in one C program: what the vectors and the node tests share.

Starting the C compiler and reading its headers costs more than a one-node engine does, so the generated files of many
engines become one translation unit with one main function around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.targets.c.program import Identity, generate
from compiler_kernels.targets.isa import Isa


@dataclass(frozen=True)
class EngineText:
    """The C text of one engine whose external symbols, and file-scope names once renamed, start with ``prefix``."""

    prefix: str
    text: str


def engine_text(name: str, module: Module, store: WeightStore, prefix: str, isa: Isa) -> EngineText:
    """Generate the L2 ``module`` for one instruction set; ``UnsupportedError`` when an operation has no kernel.

    The weights become an array of bytes, which is fit for small models only.
    """
    program = generate(module, store, Identity(name, "0", "0" * 128, "0" * 128, isa.name), prefix=prefix, isas=(isa,))
    kernels = program.files["kernels.c"].decode()
    names = file_scope_names(kernels, prefix)
    weights = ",".join(map(str, program.files["engine_weights.bin"]))
    parts = [
        f"const _Alignas(64) unsigned char {prefix}_weights[] = {{{weights}}};",
        program.files["engine.c"].decode(),
        *(f"#define {name} {prefix}_{name}" for name in names),
        kernels,
        *(f"#undef {name}" for name in names),
    ]
    return EngineText(prefix, "\n".join(parts))


_ATTRIBUTES = re.compile(r"_Alignas\(\w+\)|__attribute__\(\(.*?\)\)(?=\s)")
_STATIC = re.compile(r"^static\s[^;={(\[]*?\b(\w+)\s*[(\[=;]", re.MULTILINE)


def file_scope_names(text: str, prefix: str) -> list[str]:
    """Names with internal linkage in ``text`` that do not start with ``prefix``: two engines would define them twice.

    >>> file_scope_names("static void step0(int n) {}\\nstatic const _Alignas(64) float e1_table[4];", "e1")
    ['step0']
    """
    found = _STATIC.findall(_ATTRIBUTES.sub("", text))
    return sorted({name for name in found if not name.startswith(f"{prefix}_")})


def unit_text(engines: Sequence[EngineText], isa: Isa) -> bytes:
    """All engines as one C file."""
    return "\n".join([f"#define {isa.macro} 1", *(e.text for e in engines)]).encode()


_MAIN = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuvil_engine.h"
{declarations}
static const cuvil_engine *const engines[] = {{{table}}};
enum {{ engine_count = sizeof engines / sizeof engines[0] }};
static size_t element_bytes(int dtype) {{
    switch (dtype) {{
{sizes}
    }}
    return 0;
}}
"""


def main_text(prefixes: Iterable[str], body: str) -> bytes:
    """A C file with the table ``engines``, ``element_bytes(dtype)`` and ``body``, which defines ``main``."""
    names = list(prefixes)
    head = _MAIN.format(
        declarations="\n".join(f"extern const cuvil_engine {p}_engine_instance;" for p in names),
        table=", ".join(f"&{p}_engine_instance" for p in names),
        sizes="\n".join(f"    case {d.onnx}: return {d.nbytes};" for d in DTYPES.values()),
    )
    return (head + body).encode()
