"""How a pass runs: the change, the verifier after it, and a note of what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.symbols import scope, symbols_of
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.stage import Json


@dataclass(frozen=True)
class PassResult:
    """The changed module, whether it changed, and a JSON note per change (with its error, before the freeze)."""

    module: Module
    modified: bool
    notes: tuple[Mapping[str, Json], ...] = field(default=())


class ModulePass(Protocol):
    """One pass per module of this package. ``changes_bits`` is True only for passes that run before the freeze."""

    name: ClassVar[str]
    changes_bits: ClassVar[bool]

    def run(self, module: Module, store: WeightStore) -> PassResult:
        """Return the changed module; new constants go into ``store``."""


def run_passes(
    module: Module, store: WeightStore, passes: Sequence[ModulePass]
) -> tuple[Module, list[dict[str, Json]]]:
    """Run ``passes`` in order, verifying after each. Notes come back as ``{"pass": name, **note}``.

    Symbolic sizes are compared under the bounds that the module declares.
    """
    notes: list[dict[str, Json]] = []
    for item in passes:
        with scope(symbols_of(module.meta)):
            result = item.run(module, store)
        if result.modified:
            verify(result.module)
        module = result.module
        notes += [{"pass": item.name, **note} for note in result.notes]
    return module, notes
