"""``cuvil explain``: what became of the model, read from the store through the engine's proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from cuvil_assets.cli.outcome import print_json
from cuvil_assets.decision_trace import trace_decisions
from cuvil_assets.home import current_home
from cuvil_assets.store import ContentStore
from cuvil_assets.trace import LEVELS, KernelTrace, Lineage, NodeTrace

MLIR = "mlir"
TITLES = {
    "l0": "L0: as imported",
    "frozen": "frozen graph: from here every bit is defined",
    "l1": "L1: fused, with buffers",
    "l2": "L2: the call",
}


def run(engine: Path, ir: str, node: str, decision: str, json: bool) -> None:
    """Print a level, a node, a kernel, a part of the clinical logic, or the list of nodes. Raises ``UsageError``."""
    if ir and ir not in (*LEVELS, MLIR):
        raise UsageError(f"--ir {ir!r} is not known; choose one of {', '.join((*LEVELS, MLIR))}")
    if (ir and node) or (decision and (ir or node)):
        raise UsageError("--ir prints a whole level, --node one node, --decision one decision; give one of them")
    lineage = Lineage(engine, ContentStore(current_home().store))
    if ir:
        text = lineage.mlir() if ir == MLIR else lineage.text(LEVELS[ir])
        if json:
            print_json({"ir": ir, "text": text})
        else:
            print(text, end="")
    elif decision:
        traces = trace_decisions(lineage, decision)
        if json:
            print_json({"probes": as_json([asdict(trace) for trace in traces])})
        else:
            print("\n\n".join(trace.text() for trace in traces))
    elif node:
        kernel = lineage.kernel(node)
        if kernel is not None:
            if json:
                print_json(_kernel_document(kernel))
            else:
                print(kernel_text(kernel))
            return
        trace = lineage.trace(node)
        equivalence, records = lineage.equivalence(), lineage.records()
        if json:
            print_json({**_document(trace), "equivalence": equivalence, "records": as_json(records)})
        else:
            print("\n\n".join([node_text(trace), *evidence_text(trace, equivalence, records)]))
    else:
        rows = lineage.nodes()
        if json:
            print_json({"nodes": as_json([{"node": n, "operation": o, "kernel": k} for n, o, k in rows])})
            return
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for name, operation, kernel_name in rows:
            print(f"{name:{widths[0]}}  {operation:{widths[1]}}  {kernel_name or '(no kernel: folded away or a view)'}")


def node_text(trace: NodeTrace) -> str:
    """The way of one node from the model to C, for people."""
    parts = [f"node {trace.node}"]
    if trace.model:
        parts.append(f"-- the model\n{trace.model}")
    for level, title in TITLES.items():
        lines = trace.statements[level] or ["(nothing: the node was folded away before)"]
        parts.append("\n".join([f"-- {title}", *lines]))
        if level == "l0" and trace.changes:
            lines = [", ".join(f"{k} {v}" for k, v in change.items()) for change in trace.changes]
            parts.append("\n".join(["-- changes before the freeze, with their error", *lines]))
    if trace.kernel:
        parts.append(f"-- L2: the function @{trace.kernel}\n{trace.function}")
        parts.append(f"-- back: nodes that @{trace.kernel} computes\n{chr(10).join(trace.kernel_nodes)}")
        parts.append(f"-- C\n{trace.c_function.rstrip()}")
    return "\n\n".join(parts)


def evidence_text(
    trace: NodeTrace, equivalence: Mapping[str, Json], records: Sequence[Mapping[str, Json]]
) -> list[str]:
    """What was tested and recorded, for people."""
    lines = [
        "-- test: engine and independent reference",
        f"{equivalence['verdict']} ({equivalence['grade']}): {equivalence['inputs']} inputs, "
        f"{equivalence['differing_values']} of {equivalence['compared_values']} output values differ",
    ]
    for row in trace.tensors:
        peer = f"; onnxruntime {row['onnxruntime_rms_error']:.3g}" if "onnxruntime_rms_error" in row else ""
        lines.append(
            f"tensor {row['tensor']}: rms error against binary64 {row['rms_error']:.3g}, "
            f"largest {row['max_error']:.3g}{peer}"
        )
    stages = [f"{r['stage']:18} {r['artifact']:24} {str(r['sha3_512'])[:16]}..." for r in records]
    return ["\n".join(lines), "\n".join(["-- evidence: stage records in the proof, with SHA3-512", *stages])]


def kernel_text(trace: KernelTrace) -> str:
    """The way back from a kernel to the model, for people."""
    return "\n\n".join(
        [
            f"kernel {trace.kernel}",
            "\n".join(["-- the model: nodes it computes", *trace.nodes]),
            "\n".join(["-- L2: calls", *trace.calls]),
            f"-- L2: the function\n{trace.function}",
            f"-- C\n{trace.c_function.rstrip()}",
        ]
    )


def _document(trace: NodeTrace) -> dict[str, Json]:
    return {
        "node": trace.node,
        "model": trace.model,
        "statements": as_json(trace.statements),
        "changes": as_json(trace.changes),
        "kernel": trace.kernel,
        "kernel_nodes": as_json(trace.kernel_nodes),
        "function": trace.function,
        "c_function": trace.c_function,
        "tensors": as_json(trace.tensors),
    }


def _kernel_document(trace: KernelTrace) -> dict[str, Json]:
    return {
        "kernel": trace.kernel,
        "nodes": as_json(trace.nodes),
        "calls": as_json(trace.calls),
        "function": trace.function,
        "c_function": trace.c_function,
    }
