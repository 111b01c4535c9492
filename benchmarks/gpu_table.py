"""The table of docs/gpu.md from a report of the evidence on a GPU.

    python -m benchmarks.gpu_table [FILE]          # benchmarks/results/gpu_evidence.json if not given

prints the rows in Markdown, and after them what else the text of that page says in numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_verdict import LARGE, MEMORY, RATIOS, SPREAD

NAMES: Final = {
    "resnet18": "ResNet-18 224", "unet2m": "U-Net 2M 256", "densenet121": "DenseNet-121 224",
    "mobilenetv2": "MobileNetV2 224", "vit_tiny": "ViT-tiny 224", "ecg": "ECG CNN 12x5000",
    "bilstm": "bidirectional LSTM 250x12", "resnet18 batch 32": "ResNet-18, batch 32",
}  # fmt: skip
HEAD: Final = (
    "| batch 1 | Cuvil | torch eager in a graph | torch.compile in a graph | ratio to the last | most allowed | wall "
    "| p99 / p50 kernels | wall | device memory / torch's peak |"
)


def rows(report: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table."""
    yield HEAD
    yield "|---" * 10 + "|"
    found = {**report["nets"], **report.get("large_batches", {})}
    for key, limit in {**RATIOS, **LARGE}.items():
        row = found.get(key, {})
        if "ratios" not in row:
            continue
        own, torch = row["cuvil"], row["torch"]
        times = [torch.get(label, {}).get("gpu_us", {}).get("median") for label in ("eager_graph", "compile_graph")]
        cells = [
            NAMES[key], _number(own["gpu_us"]["median"]), *(_number(t) for t in times),
            str(row["ratios"].get("compile_graph", "")), str(limit), _number(own["wall_us"]["median"]),
            str(own["gpu_us"]["p99_over_p50"]), str(own["wall_us"]["p99_over_p50"]), f"{row['memory_ratio']:.2f}",
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def facts(report: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the rest of the report."""
    machine, found = report["machine"], report["verdict"]
    yield f"{machine['date'][:10]}, {machine['gpus'][0] if machine['gpus'] else 'no GPU'}, torch {machine['torch']}"
    yield f"sources: {', '.join(f'{k} {v[:16]}' for k, v in report['sources'].items())}"
    yield f"equal: {found['equal']}"
    for what in ("missing", "differing"):
        yield f"{what}: {found[what] or 'nothing'}"
    yield f"{found['values_compared']} values and {found['rows_compared']} rows compared"
    for key, row in report["nets"].items():
        if key not in RATIOS and "cuvil" in row:
            memory = f", memory {row['memory_ratio']}" if "memory_ratio" in row else ""
            spread = row["cuvil"]["wall_us"]["p99_over_p50"]
            yield f"{key}: {row['cuvil']['gpu_us']['median']} us, p99/p50 by the wall {spread}{memory}"
    for key, row in report["nets"].items():
        if row.get("rows"):
            yield f"{key}: rows of {len(row['rows'])} batches"
    for key, sentence in report.get("refused", {}).items():
        yield f"{key} is refused: {sentence}"
    for part in ("vectors", "bisect", "traffic", "cubin_from_two_folders", "cubins_of_two_machines"):
        if part in report:
            short = {k: len(v) if isinstance(v, dict | list) else v for k, v in report[part].items()}
            yield f"{part}: {json.dumps(short)}"
    yield f"{found['reached']} of {found['demands']} demands reached (memory {MEMORY}, p99/p50 {SPREAD}); not:"
    for demand in found["must_reach"]:
        if not demand["reached"]:
            yield f"  {demand}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    place = Path(words[0]) if words else Path(__file__).parent / "results" / "gpu_evidence.json"
    try:
        report = json.loads(place.read_bytes())
        lines = [*rows(report), "", *facts(report)]
    except (OSError, ValueError, KeyError) as error:
        print(f"error: {place} is no report of make gpu-evidence ({error})", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
