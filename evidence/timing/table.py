"""The document of a benchmark as lines of text."""

from __future__ import annotations

from typing import Any

from evidence.timing.runners import PEERS


def ratio(systems: dict[str, Any], clock: str) -> dict[str, float]:
    """Time of the fastest peer divided by ours, from medians and from minima (above 1: we are faster)."""
    found = {}
    for kind in ("median", "min"):
        peers = [s[clock][kind] for name, s in systems.items() if name != "cuvil"]
        if peers:
            found[kind] = round(min(peers) / systems["cuvil"][clock][kind], 3)
    return found


def peak_text(peak: dict[str, float]) -> str:
    return ", ".join(f"{isa} {value} GFLOP/s" for isa, value in peak.items())


def table(document: dict[str, Any]) -> list[str]:
    """The results as lines of text: medians in milliseconds (processor time on one thread, else wall time)."""
    clock = "cpu" if document["threads"] == 1 else "wall"
    names = ["cuvil", *(p for p in PEERS if any(p in m["systems"] for m in document["models"]))]
    peak = max(document["machine"]["fma_peak_gflops_per_core"].values(), default=0.0) * document["threads"]
    lines = [f"median {clock} ms, {document['threads']} thread(s); ratio: fastest peer / cuvil (median, min)"]
    lines.append(f"{'model':14}" + "".join(f"{n:>13}" for n in names) + f"{'ratio':>14}{'of peak':>9}  isa")
    for entry in document["models"]:
        systems = entry["systems"]
        if "cuvil" not in systems:
            lines.append(f"{entry['model']:14}{'refused':>13}  {entry['refused']['cuvil']}")
            continue
        times = [f"{systems[n][f'{clock}_ms']['median']:13.3f}" if n in systems else f"{'-':>13}" for n in names]
        ratios = entry[f"ratio_{clock}"]
        both = f"{ratios['median']:.2f}, {ratios['min']:.2f}" if ratios else "-"
        used = entry["multiply_adds"] * 2e-6 / systems["cuvil"][f"{clock}_ms"]["median"]
        share = f"{used / peak:9.0%}" if peak else f"{'-':>9}"
        lines.append(f"{entry['model']:14}" + "".join(times) + f"{both:>14}{share}  {systems['cuvil']['flags']['isa']}")
    lines += [f"refused: {why}" for e in document["models"] for who, why in e["refused"].items() if who != "cuvil"]
    return lines + [f"FAILED: {text}" for entry in document["models"] for text in entry["failures"]]
