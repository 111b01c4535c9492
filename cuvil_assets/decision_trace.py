"""What became of one decision, safety guard or fallback of the policy: text, numbers, probes, C, what was tested."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler_kernels.errors import UsageError
from cuvil_assets.trace import Lineage


@dataclass(frozen=True)
class DecisionTrace:
    """``probe`` is the row of ``probes.json``; ``numbers`` are the thresholds and quantities its text reads, by name,
    as the policy states them; ``c_function`` is its part of ``clinical.c``; ``tested`` the answers compared."""

    probe: Mapping[str, Any]
    numbers: Mapping[str, str]
    c_function: str
    tested: Mapping[str, Any]

    def text(self) -> str:
        """For people."""
        probe = self.probe
        head = [f"{probe['kind']} {probe['name']} (probe {probe['number']}, {probe['id']})"]
        labels = [("answers", probe["requirements"]), ("clauses", probe["clauses"])]
        head += [f"{word}: {', '.join(items)}" for word, items in labels if items]
        parts = ["\n".join(head)]
        if probe["text"]:
            parts.append(f"-- the policy\n{probe['text']}")
        if probe["conditions"]:
            rows = [f"{c['index']}: {c['text']}" for c in probe["conditions"]]
            parts.append("\n".join(["-- conditions, by the bit that a probe records", *rows]))
        if self.numbers:
            parts.append("\n".join(["-- numbers", *(f"{name} = {text}" for name, text in self.numbers.items())]))
        first, last = probe["lines"]
        parts.append(f"-- C: clinical.c, lines {first} to {last}\n{self.c_function}")
        if self.tested:
            count = self.tested["inferences"] + self.tested["given"]
            parts.append(
                "-- test: engine and independent evaluator\n"
                f"{self.tested['differing']} of {count} answers differ ({self.tested['given']} on made-up outputs)"
            )
        return "\n\n".join(parts)


def trace_decisions(lineage: Lineage, name: str) -> list[DecisionTrace]:
    """Traces of the probes called ``name``: a decision, guard or failure, a probe's id, a C function, or a requirement.
    ``UsageError`` when there is none."""
    probes = json.loads(lineage.text("generated_source", "probes.json"))["probes"]
    found = [p for p in probes if name in (p["name"], p["id"], p["function"], *p["requirements"])]
    if not found:
        known = (
            ", ".join(sorted({p["name"] for p in probes})) or "none: the policy has no decisions and no safety guards"
        )
        raise UsageError(f"--decision {name!r} is nothing of this engine's clinical logic; known are {known}")
    policy = json.loads(lineage.text("source_model", "policy.json"))
    source = lineage.text("generated_source", "clinical.c").splitlines()
    tested = json.loads(lineage.text("equivalence")).get("decisions", {})
    return [
        DecisionTrace(
            probe, _numbers(policy, probe["text"]), "\n".join(source[probe["lines"][0] - 1 : probe["lines"][1]]), tested
        )
        for probe in found
    ]


def _numbers(policy: Mapping[str, Any], text: str) -> dict[str, str]:
    """Thresholds and quantities that ``text`` names, and those that these name, in the order met."""
    found: dict[str, str] = {}
    waiting = [text]
    while waiting:
        for name in re.findall(r"[A-Za-z_]\w*", waiting.pop(0)):
            threshold, quantity = policy["thresholds"].get(name), policy["quantities"].get(name)
            if name in found or (threshold is None and quantity is None):
                continue
            if threshold is not None:
                found[name] = str(threshold["value"]) + (f" ({threshold['source']})" if threshold["source"] else "")
            else:
                found[name] = quantity["value"] + (f" [{quantity['unit']}]" if quantity["unit"] else "")
                waiting.append(quantity["value"])
    return found
