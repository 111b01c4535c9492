"""``cuvil explain``: what became of the model, read from the store through the engine's proof."""

from __future__ import annotations

from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from cuvil_assets.trace import LEVELS, Lineage, NodeTrace

TITLES = {
    "l0": "L0: as imported",
    "frozen": "frozen graph: from here every bit is defined",
    "l1": "L1: fused, with buffers",
    "l2": "L2: the call",
}


def run(engine: Path, ir: str, node: str, json: bool) -> None:
    """Print a level, a node, or the list of nodes. Raises ``UsageError``."""
    if ir and ir not in LEVELS:
        raise UsageError(f"--ir {ir!r} is not known; choose one of {', '.join(LEVELS)}")
    if ir and node:
        raise UsageError("--ir prints a whole level and --node one node; give one of them")
    lineage = Lineage(engine, ContentStore(current_home().store))
    if ir:
        text = lineage.text(LEVELS[ir])
        if json:
            print_json({"ir": ir, "text": text})
        else:
            print(text, end="")
    elif node:
        trace = lineage.trace(node)
        if json:
            print_json(_document(trace))
        else:
            print(node_text(trace))
    else:
        rows = lineage.nodes()
        if json:
            print_json({"nodes": as_json([{"node": n, "operation": o, "kernel": k} for n, o, k in rows])})
            return
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, operation, kernel in rows:
            print(f"{name:{widths[0]}}  {operation:{widths[1]}}  {kernel or '(no kernel: folded away or a view)'}")


def node_text(trace: NodeTrace) -> str:
    """The way of one node from the model to C, for people."""
    parts = [f"node {trace.node}"]
    for level, title in TITLES.items():
        lines = trace.statements[level] or ["(nothing: the node was folded away before)"]
        parts.append("\n".join([f"-- {title}", *lines]))
    if trace.kernel:
        parts.append(f"-- L2: the function @{trace.kernel}\n{trace.function}")
        parts.append(f"-- C\n{trace.c_function.rstrip()}")
    return "\n\n".join(parts)


def _document(trace: NodeTrace) -> dict[str, Json]:
    return {
        "node": trace.node,
        "statements": as_json(trace.statements),
        "kernel": trace.kernel,
        "function": trace.function,
        "c_function": trace.c_function,
    }
