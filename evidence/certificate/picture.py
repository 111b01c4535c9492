"""The layers of a certificate as a picture: how bounds and true error grow with depth."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from evidence.timing.picture import need_matplotlib


def draw(document: Mapping[str, Any]) -> bytes:
    """PNG of the ``layers`` of a certificate, each value over the tensor's rms; ``UsageError`` without matplotlib."""
    need_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in document["layers"] if row["scale"] > 0]
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for key, label, style in (
        ("forward_bound", "plain forward bound", "C1--"),
        ("bound", "certificate", "C0-"),
        ("error", "true error", "k:"),
        ("radius", "radius of the certificate's balls", "C2-."),
    ):
        points = [(i, row[key] / row["scale"]) for i, row in enumerate(rows) if row.get(key)]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    if rows:
        axes.set_yscale("log")
    axes.set_xlabel("layer, in the order of the frozen graph")
    axes.set_ylabel("largest over the tensor / its rms value")
    axes.set_title(f"rounding, {document['bits']}-bit balls", fontsize=9)
    axes.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format="png")
    pyplot.close(figure)
    return buffer.getvalue()
