"""What one mutation does in the importer, and on the way to C where it is accepted."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from fuzz_mutate import Mutant

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.symbols import Bound
from compiler_kernels.ir.verify import verify
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from compiler_kernels.targets.c.program import Identity, generate
from compiler_kernels.targets.isa import BY_NAME

MOST_WORK = 3_000_000
"""Elements of all results together, of what is lowered too."""


@dataclass(frozen=True)
class Verdict:
    """``accepted``, ``refused``, or the name of a defect; ``stage`` is how far it came."""

    kind: str
    stage: str
    text: str = ""

    @property
    def defect(self) -> bool:
        return self.kind not in ("accepted", "refused")


def fault(sentence: str) -> str:
    """What is wrong with a refusal's wording, or the empty string."""
    if not sentence.strip():
        return "empty message"
    if any(c in sentence for c in "\n\r\0"):
        return "more than one line"
    if "Traceback" in sentence:
        return "not a sentence"
    return ""


def _unforeseen(error: CuvilError) -> bool:
    """Whether the importer failed in a way nobody wrote a sentence for."""
    return error.__cause__ is not None and not isinstance(error.__cause__, CuvilError)


def attempt(mutant: Mutant) -> Verdict:
    """Import, verify, freeze, lower and generate. Only the first two may meet models they should have refused."""
    stage = "import"
    try:
        seed = mutant.seed
        bounds = {n: Bound(lo, hi) for n, (lo, hi) in seed.bounds.items()}
        module, store = import_onnx(mutant.data, filename="mutant.onnx", pins=dict(seed.pins), bounds=bounds)
        stage = "verify"
        verify(module)
        if bounds or sum(op.out.count for op in module.main.ops) > MOST_WORK:
            return Verdict("accepted", stage)
        stage = "freeze"
        frozen, _ = freeze(module, store)
        stage = "lower"
        lowered = lower_to_l2(frozen, store)
        stage = "generate"
        isa = BY_NAME["avx2"]
        generate(lowered, store, Identity("m", "0", "0" * 128, "0" * 128, isa.name), prefix="m", isas=(isa,))
    except CuvilError as error:
        wrong = (
            fault(str(error))
            or ("a defect caught at last" if _unforeseen(error) else "")
            or ("an internal rule" if stage in ("verify", "lower") else "")
        )
        return Verdict(wrong or "refused", stage, traceback.format_exc()[-3000:] if wrong else str(error)[:2000])
    except Exception:
        return Verdict("traceback", stage, traceback.format_exc()[-3000:])
    return Verdict("accepted", stage)
