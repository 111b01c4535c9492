"""How a GPU engine refuses a run-time value: every launch that may has a word on the device, 0 before every inference.

A kernel leaves the number of its sentence there and goes on. The words come back with the outputs, and the first
launch of the graph that left one is the engine's refusal, as on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler_kernels.targets.cuda.plan import Launch

PAGE: Final = 1024
"""Words of a page: host buffers are whole pages, so that they can be locked for fast copies."""


def refusing(launches: Sequence[Launch]) -> list[Launch]:
    """The launches that may refuse a run-time value, in the order of the graph."""
    return [launch for launch in launches if launch.kernel.refusals]


def first_sentences(launches: Sequence[Launch]) -> list[int]:
    """Of every launch that may refuse, how many sentences those before it have."""
    found, before = [], 0
    for launch in refusing(launches):
        found.append(before)
        before += len(launch.kernel.refusals)
    return found


def report_function(launches: Sequence[Launch], prefix: str) -> list[str]:
    """C text of the words on the host (``<prefix>_accepted``, zeros for the device; ``<prefix>_refused``, what comes
    back) and of ``<prefix>_report()``, which makes a sentence of them; nothing where no launch refuses."""
    found = refusing(launches)
    if not found:
        return []
    room = -(-len(found) // PAGE) * PAGE
    return [
        f"static _Alignas(4096) int {prefix}_accepted[{room}], {prefix}_refused[{room}];",
        f"static const char *const {prefix}_sentences[] = {{",
        *(f"    {sentence}," for launch in found for sentence in launch.kernel.refusals),
        "};",
        f"static const int {prefix}_first_sentence[] = {{{', '.join(map(str, first_sentences(launches)))}}};",
        f"static void {prefix}_report(void) {{",
        f"    for (int n = 0; n < {len(found)} && !{prefix}_refusal; n++)",
        f"        if ({prefix}_refused[n])",
        f"            {prefix}_refusal = {prefix}_sentences[{prefix}_first_sentence[n] + {prefix}_refused[n] - 1];",
        "}",
    ]
