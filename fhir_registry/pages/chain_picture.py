"""Where the boxes of the evidence chain stand in its picture; the template draws them as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from fhir_registry.pages.evidence_view import Step

WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 212, 84, 34, 36, 6
WIDE: Final = 4
NARROW: Final = 1


@dataclass(frozen=True)
class Box:
    step: Step
    number: int
    x: int
    y: int


@dataclass(frozen=True)
class Picture:
    """Boxes in reading order, and an arrow (points of a polyline) from each to the next."""

    columns: int
    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[str, ...]
    box_width: int = WIDTH
    box_height: int = HEIGHT


def picture(steps: Sequence[Step], columns: int) -> Picture:
    """Rows of ``columns`` boxes, each read from left to right."""
    boxes = tuple(
        Box(
            step,
            at + 1,
            EDGE + at % columns * (WIDTH + GAP_X),
            EDGE + at // columns * (HEIGHT + GAP_Y),
        )
        for at, step in enumerate(steps)
    )
    rows = (len(boxes) + columns - 1) // columns
    return Picture(
        columns,
        2 * EDGE + columns * WIDTH + (columns - 1) * GAP_X,
        2 * EDGE + rows * HEIGHT + max(rows - 1, 0) * GAP_Y,
        boxes,
        tuple(_arrow(a, b) for a, b in pairwise(boxes)),
    )


def _arrow(start: Box, end: Box) -> str:
    middle = HEIGHT // 2
    if start.y == end.y:
        points = [(start.x + WIDTH, start.y + middle), (end.x - 4, end.y + middle)]
    else:
        between, half = start.y + HEIGHT + GAP_Y // 2, WIDTH // 2
        points = [(start.x + half, start.y + HEIGHT), (start.x + half, between), (end.x + half, between),
                  (end.x + half, end.y - 4)]  # fmt: skip
    return " ".join(f"{x},{y}" for x, y in points)
