"""What a run of the evidence on a GPU says in short: what is missing, what differs, which demands are reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

RATIOS: Final = {
    "resnet18": 0.2, "unet2m": 0.65, "densenet121": 0.7, "mobilenetv2": 0.7, "vit_tiny": 0.7, "ecg": 0.7, "bilstm": 0.7,
}  # fmt: skip
"""Most the engine's time at batch 1 may be of torch.compile's in a CUDA graph."""
LARGE: Final = {"resnet18 batch 32": 1.0}
MEMORY: Final = 0.75
"""Most the engine's device memory may be of torch eager's peak."""
SPREAD: Final = 1.1
"""Most the 99th percentile may be of the median."""
EVERY_BATCH: Final = tuple(range(2, 33))


def verdict(report: Mapping[str, Any]) -> dict[str, Any]:
    """``equal``: everything that was asked for was made and compared, and no bit differs anywhere. ``missing`` and
    ``differing`` say what stands against it; ``must_reach`` lists every demand, its limit, the value, and whether it is
    reached (one that was not measured has no value and is not reached)."""
    lacking, wrong = list(missing(report)), list(differing(report))
    demands = list(must_reach(report))
    return {
        "equal": not lacking and not wrong,
        "missing": lacking,
        "differing": wrong,
        "values_compared": sum(r.get("bits", {}).get("values", 0) for r in report["nets"].values()),
        "rows_compared": sum(x["rows"] for r in report["nets"].values() for x in r.get("rows", {}).values()),
        "reached": sum(d["reached"] for d in demands),
        "demands": len(demands),
        "must_reach": demands,
    }


def missing(report: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for everything that was asked for and is not there."""
    asked, nets = report["asked"], report["nets"]
    for label in asked["engines"]:
        if label not in report["builds"]:
            yield f"engine {label}: {report['failures'].get(label, 'not built')}"
    for key, batches in asked["batches"].items():
        row = nets.get(key, {})
        refused = report.get("refused", {}).get(key)
        if refused is not None:
            continue
        if "bits" not in row:
            yield f"{key}: not compared with the CPU engine"
        if "sm_80" in asked["also"].get(key, ()) and "sm_80" not in row:
            yield f"{key}: the engine for sm_80 was not compared"
        for batch in batches:
            if str(batch) not in row.get("rows", {}):
                yield f"{key}: rows of batch {batch} were not compared"
        if asked["times"] and "cuvil" not in row:
            yield f"{key}: not timed"
    for label in asked["large"] if asked["times"] else ():
        if "ratios" not in report.get("large_batches", {}).get(label, {}):
            yield f"{label}: not timed"
    for part in asked["parts"]:
        found = report.get(part)
        if found is None or "error" in found:
            yield f"{part}: {(found or {}).get('error', 'not done')}"


def differing(report: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for everything whose bits differ."""
    for key, row in report["nets"].items():
        for part in ("bits", "sm_80"):
            for what in ("differing", "differing_on_second_run"):
                if row.get(part, {}).get(what):
                    yield f"{key}, {part}: {row[part][what]} values {what.replace('_', ' ')}"
        for batch, rows in row.get("rows", {}).items():
            if rows["differing"]:
                yield f"{key}: {rows['differing']} values in rows of batch {batch}"
    bisect = report.get("bisect", {})
    if "planted_in" in bisect:
        if bisect["difference"] is not None:
            yield f"layer by layer: {bisect['difference']}"
        if bisect["planted_in"] != bisect["planted_found_at"]:
            yield f"the difference planted in {bisect['planted_in']} was found at {bisect['planted_found_at']}"
    for name in report.get("vectors", {}).get("wrong", ()):
        yield f"vector {name}"
    if report.get("cubin_from_two_folders", {}).get("equal") is False:
        yield "the cubin depends on the folder"
    for label in report.get("cubins_of_two_machines", {}).get("differ", ()):
        yield f"{label}: the code differs from the other machine's"


def must_reach(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every demand with its limit and what was found."""
    nets = report["nets"]
    large = report.get("large_batches", {})
    for key, limit in RATIOS.items():
        ratio = nets.get(key, {}).get("ratios", {}).get("compile_graph")
        yield _most(f"{key}: time of torch.compile's in a graph", limit, ratio)
    for label, limit in LARGE.items():
        yield _most(
            f"{label}: time of torch.compile's in a graph",
            limit,
            large.get(label, {}).get("ratios", {}).get("compile_graph"),
        )
    for key in RATIOS:
        yield _most(f"{key}: device memory of torch eager's peak", MEMORY, nets.get(key, {}).get("memory_ratio"))
    for label in LARGE:
        yield _most(f"{label}: device memory of torch eager's peak", MEMORY, large.get(label, {}).get("memory_ratio"))
    for key in dict.fromkeys([*RATIOS, *nets]):
        for clock, what in (("gpu_us", "the kernels"), ("wall_us", "whole inferences by the wall clock")):
            found = nets.get(key, {}).get("cuvil", {}).get(clock, {}).get("p99_over_p50")
            if found is not None or key in RATIOS:
                yield _most(f"{key}: p99 / p50 of {what}", SPREAD, found)
    compared = [r["bits"] for r in nets.values() if "bits" in r]
    wrong = sum(b["differing"] + b["differing_on_second_run"] for b in compared)
    yield _most("values that differ from the CPU engine, all models", 0, wrong if compared else None)
    for key, row in nets.items():
        if key in report["asked"]["open"] and key not in report.get("refused", {}):
            rows = [row.get("rows", {}).get(str(batch), {"differing": None})["differing"] for batch in EVERY_BATCH]
            done = sum(found is not None for found in rows)
            demand = _most(
                f"{key}: values that differ in rows of batches 2 to 32", 0, sum(found or 0 for found in rows)
            )
            yield {**demand, "batches_compared": done, "reached": demand["reached"] and done == len(EVERY_BATCH)}
    machines = report.get("cubins_of_two_machines", {})
    count = len(machines["differ"]) if machines.get("compared") else None
    yield {
        **_most("engines whose code differs between two machines", 0, count),
        "engines": len(machines.get("compared", ())),
    }


def _most(what: str, limit: float, value: float | None) -> dict[str, Any]:
    return {"what": what, "limit": limit, "value": value, "reached": value is not None and value <= limit}


def summary(row: Mapping[str, Any]) -> str:
    """One line for the terminal about one model."""
    parts = []
    if "bits" in row:
        parts.append(f"{row['bits']['differing']} of {row['bits']['values']} values differ")
    if "sm_80" in row:
        parts.append(f"sm_80 differing {row['sm_80']['differing']}")
    if "cuvil" in row:
        parts.append(f"{row['cuvil']['gpu_us']['median']} us")
    if "ratios" in row:
        parts.append(f"of torch's {row['ratios']}")
    if "memory_ratio" in row:
        parts.append(f"memory {row['memory_ratio']} of torch's")
    return ", ".join(parts)
