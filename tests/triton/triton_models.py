"""Models against the scalar code: what tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from emulation import lowered, memory_of, random_input
from numpy_triton import run

from compiler_kernels.policy import Numerics
from compiler_kernels.targets.cuda.fallback import emit_fallback
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.plan import Launch, plan
from compiler_kernels.targets.triton.emit import emit_with_triton, triton_file
from compiler_kernels.toolchain.emulator import Emulator

DIRECT = Numerics(winograd="forbid")


def planned(model: bytes, numerics: Numerics | None = None) -> tuple[list[Launch], str]:
    """The launches of a model with Triton kernels where there are any, and the text of the latter."""
    module, _ = lowered(model, None, numerics)
    launches = plan(module, SM_90, "g", emit_with_triton)
    return launches, triton_file([launch.kernel for launch in launches], ["test"])


def check_text(
    model: bytes,
    numerics: Numerics | None = None,
    special: bool = False,
    inputs: Sequence[np.ndarray] = (),
    change: Callable[[str], str] = lambda text: text,
) -> list[str]:
    """Run every Triton kernel's text in NumPy and its stand-in in the emulator from the same memory as the scalar code,
    and compare every bit that each leaves, halo included. ``change`` is made to the text before. Returns the names
    of the Triton kernels."""
    module, store = lowered(model, None, numerics)
    inputs = inputs or [random_input(v.type, n) for n, v in enumerate(module.main.inputs)]
    if special:
        for x in inputs:
            x.reshape(-1)[::7] = np.resize(np.array([np.inf, -0.0, 1e-42, -3e38], np.float32), x.reshape(-1)[::7].shape)
    plain = plan(module, SM_90, "s", emit_fallback)
    launches = plan(module, SM_90, "g", emit_with_triton)
    text = change(triton_file([launch.kernel for launch in launches], ["test"]))
    emulator = Emulator([launch.kernel for launch in (*plain, *launches)])
    memory = memory_of(module, store, inputs)
    found = []
    for reference, launch in zip(plain, launches, strict=True):
        before = memory.snapshot()
        emulator.launch(reference.kernel.name, memory.pointers(reference))
        wanted = memory.snapshot()
        if launch.kernel.triton is None:
            continue
        found.append(launch.kernel.name)
        names = [*(f"p{n}" for n in range(len(launch.arguments) - 1)), "y"]
        for stand_in in (False, True):
            memory.restore(before)
            if stand_in:
                emulator.launch(launch.kernel.name, memory.pointers(launch))
            else:
                floats = {
                    name: memory.of(p.space, p.index)[p.offset :].view(np.float32)
                    for name, p in zip(names, launch.arguments, strict=True)
                }
                run(text, launch.kernel.name, launch.kernel.grid[0], floats)
            for key, expected in wanted.items():
                got = memory.of(*key)
                wrong = [int(i) for i in np.flatnonzero(got != expected)]
                wrong = _without_nan(wrong, got, expected)
                assert not wrong, (
                    f"{launch.kernel.name} ({launch.node}), stand-in {stand_in}: {len(wrong)} bytes of {key} differ, "
                    f"first at {wrong[0]}"
                )
        memory.restore(wanted)
    return found


def _without_nan(wrong: list[int], got: np.ndarray, expected: np.ndarray) -> list[int]:
    """Without the bytes of floats that are NaN in both: which NaN is not defined (docs/arithmetic.md, 1.5)."""
    both = np.isnan(got.view(np.float32)) & np.isnan(expected.view(np.float32))
    return [i for i in wrong if not both[i // 4]]
