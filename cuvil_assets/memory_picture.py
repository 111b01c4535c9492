"""The arena over time as an SVG drawing: one rectangle per buffer, statements to the right, bytes upwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape

WIDTH: Final = 1100
LEFT, RIGHT, TOP, BOTTOM = 90, 20, 56, 64
PLOT_HEIGHT: Final = 420
LABEL_WIDTH: Final = 6.2
"""Pixels of one letter of a label, a little more than the 11-pixel font needs."""
# Neighbouring colours differ in lightness too, so that the drawing reads in grey.
COLOURS: Final = ("#a6cee3", "#1f78b4", "#b2df8a", "#33a02c", "#fdbf6f", "#ff7f00", "#cab2d6", "#6a3d9a")
DARK: Final = frozenset({"#1f78b4", "#33a02c", "#6a3d9a"})


def draw_memory(memory: Mapping[str, Any]) -> bytes:
    """The memory plan in ``memory`` (``memory.json`` of stage ``generated_source``) as an SVG file, UTF-8.

    A buffer's rectangle spans the statements it lives through and its place in the arena; a buffer of parts has one for
    each. A dashed line marks the largest sum alive at one time, the least any plan needs. Equal plans give equal bytes.
    """
    arena, statements = max(1, int(memory["arena_bytes"])), max(1, int(memory["statements"]))
    plot = WIDTH - LEFT - RIGHT
    height = TOP + PLOT_HEIGHT + BOTTOM

    def x(statement: float) -> float:
        return LEFT + plot * statement / statements

    def y(byte: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - byte / arena)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{escape(_title(memory))}</text>',
        f'<text x="{LEFT}" y="40">{escape(_subtitle(memory))}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{plot}" height="{PLOT_HEIGHT}" fill="#f4f4f4"/>',
    ]
    shown = [piece for buffer in memory["buffers"] for piece in _pieces(buffer)]
    for number, buffer in enumerate(sorted(shown, key=lambda b: (b["begin"], b["offset"]))):
        left, wide = x(buffer["begin"]), x(buffer["end"] + 1) - x(buffer["begin"])
        top, tall = y(buffer["offset"] + buffer["bytes"]), PLOT_HEIGHT * buffer["bytes"] / arena
        colour = COLOURS[number % len(COLOURS)]
        name = buffer["node"] or buffer["id"]
        said = f"{name}: {buffer['bytes']:,} bytes at {buffer['offset']:,}, "
        said += f"statements {buffer['begin']} to {buffer['end']}"
        lines.append(
            f'<g><title>{escape(said)}</title><rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" '
            f'height="{tall:.1f}" fill="{colour}" stroke="white" stroke-width="0.5"/>'
            f"{_label(name, left, top, wide, tall, colour)}</g>"
        )
    bound = y(memory["lower_bound_bytes"])
    lines.append(
        f'<line x1="{LEFT}" y1="{bound:.1f}" x2="{WIDTH - RIGHT}" y2="{bound:.1f}" stroke="black" '
        'stroke-dasharray="5 4"/>'
    )
    return "\n".join([*lines, *_axes(arena, statements, height), "</svg>", ""]).encode()


def _pieces(buffer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The buffer as one, or its parts, each like a buffer."""
    whole = {key: value for key, value in buffer.items() if key != "parts"}
    return [
        whole | {"offset": whole["offset"] + part["first"]} | {key: part[key] for key in ("bytes", "begin", "end")}
        for part in buffer.get("parts", ())
    ] or [whole]


def _title(memory: Mapping[str, Any]) -> str:
    return (
        f"Arena of {size(memory['arena_bytes'])} over the {memory['statements']} statements of an inference "
        f"(dashed: largest sum alive, {size(memory['lower_bound_bytes'])})"
    )


def _subtitle(memory: Mapping[str, Any]) -> str:
    before, after = (memory["traffic"][key] for key in ("before_fusion", "after_fusion"))
    moved = [size(t["bytes_read"] + t["bytes_written"]) for t in (before, after)]
    if "device_bytes" in memory:
        parts = f"on the GPU {size(memory['device_bytes'])}, of it weights {size(memory['weights_bytes'])}; "
    else:
        parts = (
            f"weights {size(memory['weights_bytes'])}, inputs {size(memory['input_bytes'])}, "
            f"outputs {size(memory['output_bytes'])}, scratch {size(memory['scratch_bytes_per_thread'])} per thread; "
        )
    return (
        f"{parts}"
        f"tensors alive without padding {size(memory['live_unpadded_bytes'])}; "
        f"moved per inference {moved[0]} before fusion, {moved[1]} after"
    )


def _label(name: str, left: float, top: float, wide: float, tall: float, colour: str) -> str:
    """The name inside its rectangle, shortened to fit; nothing where not even a few letters do."""
    room = int((wide - 6) / LABEL_WIDTH)
    if tall < 12 or room < 3:
        return ""
    shown = name if len(name) <= room else name[: room - 1] + "…"
    ink = "white" if colour in DARK else "black"
    return f'<text x="{left + 3:.1f}" y="{top + min(tall / 2 + 4, tall - 3):.1f}" fill="{ink}">{escape(shown)}</text>'


def _axes(arena: int, statements: int, height: int) -> list[str]:
    lines = []
    for tick in range(5):
        at = TOP + PLOT_HEIGHT * (1 - tick / 4)
        lines.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{size(arena * tick / 4)}</text>')
        lines.append(f'<line x1="{LEFT - 4}" y1="{at:.1f}" x2="{LEFT}" y2="{at:.1f}" stroke="black"/>')
    step = max(1, -(-statements // 10))
    for statement in range(0, statements, step):
        at = LEFT + (WIDTH - LEFT - RIGHT) * statement / statements
        lines.append(f'<text x="{at:.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{statement}</text>')
        lines.append(
            f'<line x1="{at:.1f}" y1="{height - BOTTOM}" x2="{at:.1f}" y2="{height - BOTTOM + 4}" stroke="black"/>'
        )
    centre = LEFT + (WIDTH - LEFT - RIGHT) / 2
    return [*lines, f'<text x="{centre:.0f}" y="{height - BOTTOM + 42}" text-anchor="middle">statement</text>']


def size(count: float) -> str:
    """Bytes for people: three digits and a decimal unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
