"""Many small symbolic engines as one program, run at several sizes each and compared with the reference bit by bit."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from compiler_kernels.compile import Frozen, freeze_model
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import load_policy
from compiler_kernels.stages.backend import lower_to_l2
from evidence.engine_program import engine_text, main_text, unit_text
from evidence.reference import load_graph, run
from evidence.vector_engines import canonical_nan

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "vectors"))

from vector_targets import Way, compile_program, run_program, ways

Array = npt.NDArray[Any]
WAYS = [w for w in ways() if "scalar" not in w.name and "wasm" not in w.name]

_MAIN = """int main(void) {
    int number;
    while (fread(&number, sizeof number, 1, stdin) == 1) {
        const cuvil_engine *engine = engines[number];
        for (int n = 0; n < engine->input_count; n++) {
            const cuvil_tensor *t = &engine->inputs[n];
            int64_t sizes[8];
            size_t count = 1;
            if (fread(sizes, sizeof *sizes, (size_t)t->rank, stdin) != (size_t)t->rank) return 2;
            for (int a = 0; a < t->rank; a++) count *= (size_t)sizes[a];
            if (t->extents) memcpy((int64_t *)t->extents, sizes, (size_t)t->rank * sizeof *sizes);
            if (fread(engine->input_buffers[n], element_bytes(t->dtype), count, stdin) != count) return 3;
        }
        const char *refusal = engine->bind ? engine->bind() : 0;
        if (refusal) { fprintf(stderr, "%s", refusal); return 4; }
        engine->infer();
        for (int n = 0; n < engine->output_count; n++) {
            const cuvil_tensor *t = &engine->outputs[n];
            size_t count = 1;
            for (int a = 0; a < t->rank; a++) count *= (size_t)(t->extents ? t->extents[a] : t->shape[a]);
            if (fwrite(engine->output_buffers[n], element_bytes(t->dtype), count, stdout) != count) return 5;
        }
    }
    return fflush(stdout) ? 6 : 0;
}
"""


@dataclass(frozen=True)
class Case:
    """A model, the bounds of its symbols as the policy writes them, and the inputs of every run with their sizes."""

    name: str
    model: onnx.ModelProto
    shapes: str
    runs: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]]


@dataclass(frozen=True)
class Ready:
    """A case after the compiler."""

    case: Case
    module: Module
    frozen: Frozen

    def expected(self) -> list[list[Array]]:
        """The reference's outputs of every run."""
        neutral = neutral_json(self.frozen.module.main, symbols_of(self.frozen.module.meta))
        weights = pack(self.frozen.module.main, self.frozen.store)
        found = []
        for sizes, feeds in self.case.runs:
            graph = load_graph(neutral, weights, sizes)
            values = run(graph, dict(feeds), "ca1")
            found.append([values[value_id] for value_id, _ in graph.outputs])
        return found


def ready(case: Case) -> Ready:
    text = f'version: 1\nmodel: {{name: net, version: "1"}}\nshapes: {{{case.shapes}}}\n'
    frozen = freeze_model(case.model.SerializeToString(), policy=load_policy(text.encode(), "p.yaml"))
    assert symbols_of(frozen.module.meta)
    return Ready(case, lower_to_l2(frozen.module, frozen.store), frozen)


def differing(items: Sequence[Ready], expected: Sequence[list[list[Array]]], way: Way, folder: Path) -> list[str]:
    """Runs whose bits differ, as sentences."""
    engines = [engine_text(r.case.name, r.module, r.frozen.store, f"v{n}", way.isa) for n, r in enumerate(items)]
    files = {"engines.c": unit_text(engines, way.isa), "main.c": main_text((e.prefix for e in engines), _MAIN)}
    product = compile_program(files, way, folder)
    data = []
    for number, item in enumerate(items):
        names = [v.name or v.id for v in item.module.main.inputs]
        for _, feeds in item.case.runs:
            data.append(struct.pack("<i", number))
            for name in names:
                array = np.asarray(feeds[name], order="C")
                data += [struct.pack(f"<{array.ndim}q", *array.shape), array.tobytes()]
    output = run_program(product, way, b"".join(data), folder)
    wrong, start = [], 0
    for item, runs in zip(items, expected, strict=True):
        for (sizes, _), arrays in zip(item.case.runs, runs, strict=True):
            for array in arrays:
                got = canonical_nan(np.frombuffer(output, array.dtype, array.size, start)).reshape(array.shape)
                start += array.nbytes
                if got.tobytes() != canonical_nan(array).tobytes():
                    pair = [a.reshape(-1).view(f"V{a.dtype.itemsize}") for a in (got, canonical_nan(array))]
                    places = np.flatnonzero(pair[0] != pair[1])[:3].tolist()
                    wrong.append(f"{item.case.name} at {dict(sizes)}: first differences at {places} of {array.size}")
    assert start == len(output)
    return wrong
