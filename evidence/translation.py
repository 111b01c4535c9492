"""Translation validation: a module after a pass computes the bits of the frozen graph, or the pass is refused.

The module is executed statement by statement on real memory (``translation_machine.py``), the frozen graph by the
independent reference, on ordinary and on adversarial inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.passes.infra import ModulePass
from compiler_kernels.stage import Json
from evidence.reference import ReferenceError, load_graph, run
from evidence.test_inputs import make_inputs, special
from evidence.translation_machine import Floats, Machine, Values
from evidence.translation_memory import Fault

CHECK: Final = "translation-validation"


def validation_inputs(
    module: Module, bounds: Mapping[str, tuple[float, float] | None] | None = None, count: int = 5, seed: int = 1
) -> list[dict[str, Floats]]:
    """``count`` (more than 3) sets of inputs: low end, high end, cancellation with subnormals, then random ones. Where
    no range excludes them, one more set holds infinities, NaN, both zeros and the smallest and largest numbers."""
    shapes = {v.name or v.id: v.type.dims for v in module.main.inputs}
    known = dict(bounds or {})
    sets = make_inputs(shapes, known, max(count, 4), seed)
    if any(known.get(name) is None for name in shapes):
        odd = np.array([np.inf, np.nan, 0.0, -0.0, 1e-45, -3.4e38, 1.0, -1.0, -np.inf, 1e-20, 3.0], np.float32)
        last = {}
        for name, shape in shapes.items():
            if known.get(name) is None:
                base = special(shape, None, 3)
                flat = base.reshape(-1)
                flat[:: max(1, flat.size // 11)] = np.resize(odd, flat[:: max(1, flat.size // 11)].size)
                last[name] = base
            else:
                last[name] = sets[-1][name]
        sets.append(last)
    return sets


@dataclass(frozen=True)
class Baseline:
    """What the frozen graph computes: inputs, the reference's outputs by name for each, and the constants."""

    inputs: Sequence[Values]
    expected: Sequence[Values]
    constants: Sequence[Floats]


def baseline(frozen: Module, store: WeightStore, inputs: Sequence[Values]) -> Baseline:
    """Evaluate the frozen graph on ``inputs`` with the independent reference."""
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    found = []
    for one in inputs:
        values = run(graph, one)
        found.append({name: np.asarray(values[vid], np.float32) for vid, name in graph.outputs})
    constants = [np.asarray(w, np.float32) for w in graph.weights.values() if w.dtype == np.float32]
    return Baseline(inputs, found, constants)


def validate(module: Module, store: WeightStore, base: Baseline) -> int:
    """The number of output values compared, all of equal bits.

    ``VerificationFailed`` (check ``translation-validation``) names the first output and index that differ, or what the
    module does that cannot be right.
    """
    compared = 0
    machine = Machine(module, store, base.constants)
    for number, (one, want) in enumerate(zip(base.inputs, base.expected, strict=True)):
        try:
            got = machine.run(one)
        except (Fault, ReferenceError) as error:
            raise VerificationFailed(CHECK, f"level {module.level}: {error}") from error
        except (KeyError, IndexError, ValueError, TypeError, AssertionError, AttributeError) as error:
            sentence = f"level {module.level} cannot be executed ({type(error).__name__}: {error})"
            raise VerificationFailed(CHECK, sentence) from error
        compared += _compare(module, number, got, want)
    return compared


def _compare(module: Module, number: int, got: Values, want: Values) -> int:
    if list(got) != list(want):
        raise VerificationFailed(CHECK, f"level {module.level} has the outputs {list(got)}, not {list(want)}")
    for name, value in want.items():
        mine = got[name]
        if mine.shape != value.shape:
            raise VerificationFailed(CHECK, f"output {name!r} has shape {mine.shape}, not {value.shape}")
        bits = [np.where(np.isnan(v), np.float32(np.nan), v).view(np.uint32).reshape(-1) for v in (mine, value)]
        wrong = np.flatnonzero(bits[0] != bits[1])
        if wrong.size:
            at = int(wrong[0])
            raise VerificationFailed(
                CHECK,
                f"level {module.level}: output {name!r} differs from the frozen graph at index {at} of input {number} "
                f"(0x{int(bits[0][at]):08x}, not 0x{int(bits[1][at]):08x}; {wrong.size} of {bits[0].size} values)",
            )
    return sum(v.size for v in want.values())


def validated_passes(
    frozen: Module, store: WeightStore, passes: Sequence[ModulePass], inputs: Sequence[Values]
) -> Iterator[tuple[Module, dict[str, Json]]]:
    """Run ``passes`` on a frozen module, checking each result with the verifier and against the frozen graph.

    Yields the module after each pass and a note ``{"pass", "changed", "inputs", "values"}``. ``IRError`` or
    ``VerificationFailed`` at the first pass whose result is wrong.
    """
    base = baseline(frozen, store, inputs)
    module = frozen
    for item in passes:
        result = item.run(module, store)
        verify(result.module)
        try:
            count = validate(result.module, store, base) if result.modified else 0
        except VerificationFailed as error:
            raise VerificationFailed(CHECK, f"pass {item.name} changed what is computed: {error}") from error
        module = result.module
        yield module, {"pass": item.name, "changed": result.modified, "inputs": len(inputs), "values": count}
