"""ROC curves of both sides with the point at which each decides, as a PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler_kernels.errors import UsageError
from evidence.decisions.compare import Comparison
from evidence.timing.picture import need_matplotlib


def draw(found: Comparison, path: Path) -> None:
    """Write the picture. ``UsageError`` without matplotlib, for a test set of one class, or no place to write."""
    need_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    positive = found.positive
    if positive.all() or not positive.any():
        raise UsageError("--picture needs positive and negative items; the labels hold one kind only")
    figure, axes = pyplot.subplots(figsize=(5.6, 5.6), layout="constrained")
    for side, (name, width, colour, marker) in enumerate(
        (("before", 4.0, "#8fb4d9", "s"), ("after", 1.2, "#b03030", "o"))
    ):
        scores = found.columns[side].ranks(positive)
        # the curve has a corner at every score from the highest down; +inf first, so that it starts at (0, 0)
        cuts = np.unique(np.append(scores, np.inf))[::-1]
        ill, well = np.sort(scores[positive]), np.sort(scores[~positive])
        x, y = (1 - np.searchsorted(v, cuts, "left") / len(v) for v in (well, ill))
        counts = found.counts(side)
        point = (counts[False, True] / len(well), counts[True, True] / len(ill))
        axes.plot(
            [0, *x, 1], [0, *y, 1], color=colour, linewidth=width, label=f"{name}: AUC {found.rocs[side].area:.4f}"
        )
        axes.plot(*point, marker, color=colour, markersize=11 - 4 * side, markeredgecolor="black",
                  label=f"{name}: sensitivity {point[1]:.3f}, specificity {1 - point[0]:.3f}")  # fmt: skip
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.6, linestyle=":")
    axes.set(xlabel="1 - specificity", ylabel="sensitivity", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
    axes.set_title(f"{len(positive)} items, {int(positive.sum())} positive; {len(found.flipped)} flipped", fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    try:
        figure.savefig(path, dpi=150, format="png")
    except OSError as error:
        raise UsageError(f"--picture {path}: cannot be written ({error.strerror}); name another file") from None
    finally:
        pyplot.close(figure)
