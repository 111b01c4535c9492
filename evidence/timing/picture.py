"""The benchmark as a picture: for every model the time of each system relative to ours."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from compiler_kernels.errors import UsageError


def need_matplotlib() -> None:
    """``UsageError`` when it is not installed, to be known before the long work."""
    try:
        version("matplotlib")
    except PackageNotFoundError:
        raise UsageError("--picture needs matplotlib: run pip install 'cuvil[bench]', or leave it out") from None


def draw(document: dict[str, Any], path: Path) -> None:
    """Write a PNG of the document of ``bench``. ``UsageError`` without matplotlib, models that ran, or a place."""
    need_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    entries = [m for m in document["models"] if "cuvil" in m["systems"]]
    if not entries:
        raise UsageError("--picture has nothing to draw: no model ran")
    clock = "cpu_ms" if document["threads"] == 1 else "wall_ms"
    names = list(dict.fromkeys(name for entry in entries for name in entry["systems"]))
    height = 0.8 / len(names)
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.28 * len(names) * len(entries)), layout="constrained")
    for index, name in enumerate(names):
        rows = [i for i, entry in enumerate(entries) if name in entry["systems"]]
        times = [entries[i]["systems"][name][clock]["median"] for i in rows]
        ours = [entries[i]["systems"]["cuvil"][clock]["median"] for i in rows]
        bars = axes.barh(
            [i + index * height for i in rows], [t / o for t, o in zip(times, ours, strict=True)], height, label=name
        )
        axes.bar_label(bars, [f"{t:.3g} ms" for t in times], fontsize=7, padding=2)
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(entries))], [entry["model"] for entry in entries])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set_xlabel(f"median {'processor' if clock == 'cpu_ms' else 'wall'} time relative to cuvil (shorter is faster)")
    axes.set_title(f"{document['machine']['processor']}, {document['threads']} thread(s)", fontsize=9)
    axes.margins(x=0.1)
    figure.legend(fontsize=8, ncols=len(names), loc="outside lower center")
    try:
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise UsageError(f"--picture {path}: cannot be written ({error.strerror}); name another file") from None
    finally:
        pyplot.close(figure)
