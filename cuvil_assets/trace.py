"""From a node of the model to its IR statements and its C function, through the artefacts an engine's proof names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import format_graph, format_op
from cuvil_assets.store import ContentStore
from evidence.chain import Chain, read_chain
from evidence.digests import digest_file
from evidence.dsse import read_envelope
from evidence.files import read_small
from evidence.statement import read_statement
from evidence.verify import default_proof

LEVELS = {"l0": "ir_l0", "frozen": "frozen_graph", "l1": "ir_l1", "l2": "ir_l2"}


@dataclass(frozen=True)
class NodeTrace:
    """What became of one node: statements by level (text), kernel name, text of its L2 function and of its C function.

    A level where the node no longer exists (it was folded away) has no statements; a view has no kernel.
    """

    node: str
    statements: dict[str, list[str]]
    kernel: str
    function: str
    c_function: str


class Lineage:
    """The compile artefacts of the engine at ``engine``, read from ``store`` by the digests in its proof.

    Signatures are not checked here: that is what ``cuvil verify`` does. Raises ``UsageError`` when engine or proof
    cannot be read, or do not belong together.
    """

    def __init__(self, engine: Path, store: ContentStore) -> None:
        if engine.is_dir():
            raise UsageError(f"{engine}: is a directory, not an engine; give the engine file")
        digests = digest_file(engine)
        proof = default_proof(engine)
        envelope = read_envelope(read_small(proof, "proof", "give an engine with its proof beside it"))
        statement = read_statement(envelope.payload)
        if statement.subject_digests["sha256"] != digests.sha256:
            raise UsageError(f"{engine}: is not the engine of {proof}; run `cuvil verify` on it")
        self.engine = engine
        self.store = store
        self.chain: Chain = read_chain(statement.chain, statement.head)

    def text(self, stage: str, name: str | None = None) -> str:
        """Text of an artefact (the principal one without ``name``); ``UsageError`` when the store no longer has it."""
        record = self.chain.record(stage)
        artifact = None if record is None else record.principal if name is None else record.artifact(name)
        data = None if artifact is None else self.store.find(artifact.sha3_512)
        if data is None:
            raise UsageError(
                f"{self.store.root}: does not hold the {stage} of {self.engine}; build it again on this machine"
            )
        return data.decode("utf-8")

    def module(self, level: str) -> Module:
        """The IR of ``level`` (a key of ``LEVELS``)."""
        return self._modules[level]

    @cached_property
    def _modules(self) -> dict[str, Module]:
        return {level: parse_module(self.text(stage)) for level, stage in LEVELS.items()}

    def nodes(self) -> list[tuple[str, str, str]]:
        """``(node, L0 operation, kernel)`` in graph order; the kernel is empty for what was folded or is a view."""
        return [
            (op.node or op.tensor, op.kind, self._kernel_of(op.node, op.tensor)) for op in self.module("l0").main.ops
        ]

    def trace(self, node: str) -> NodeTrace:
        """Follow ``node`` (a node's name, or that of a tensor it makes); ``UsageError`` listing near names."""
        known = {op.node for op in self.module("l0").main.ops} | {op.tensor for op in self.module("l0").main.ops}
        if node not in known:
            near = sorted(name for name in known if node and node.lower() in name.lower())[:5]
            hint = f"did you mean {', '.join(near)}?" if near else "`cuvil explain ENGINE` lists them"
            raise UsageError(f"--node {node!r}: the model has no such node; {hint}")
        statements = {
            level: [line for op in self._matching(level, node) for line in format_op(op, "")]
            for level in ("l0", "frozen", "l1")
        }
        calls = self._calls(node)
        statements["l2"] = [line for op in calls for line in format_op(op, "")]
        kernel = next((op.kind for op in calls if op.name.startswith("call.")), "")
        function = next((graph for graph in self.module("l2").graphs[1:] if graph.name == kernel), None)
        return NodeTrace(
            node,
            statements,
            kernel,
            format_graph(function) if isinstance(function, Graph) else "",
            self._c_function(kernel),
        )

    def _matching(self, level: str, node: str) -> list[Op]:
        return [
            op
            for op in self.module(level).main.ops
            if node in (op.node, op.tensor) or any(node in (inner.node, inner.tensor) for inner in op.body)
        ]

    def _calls(self, node: str) -> list[Op]:
        """Statements of L2's main function that define what the node's L1 statements define."""
        results = {op.result for op in self._matching("l1", node) if op.result}
        return [op for op in self.module("l2").main.ops if op.result in results]

    def _kernel_of(self, *names: str) -> str:
        for name in filter(None, names):
            for op in self._calls(name):
                if op.name.startswith("call."):
                    return op.kind
        return ""

    def _c_function(self, kernel: str) -> str:
        if not kernel:
            return ""
        # A kernel may exist once per instruction set, with that as a suffix; the number in its name is unique.
        pattern = rf"(?:^/\*[^\n]*\*/\n)*^[^\n;]*\bvoid \w*_{re.escape(kernel)}\w*\([^;{{]*{{.*?^}}\n"
        found = [
            match[0] for source in self._sources for match in re.finditer(pattern, source, re.MULTILINE | re.DOTALL)
        ]
        return "\n".join(found)

    @cached_property
    def _sources(self) -> list[str]:
        record = self.chain.record("generated_source")
        names = [item.name for item in record.artifacts] if record is not None else []
        return [self.text("generated_source", name) for name in names if name.endswith(".c")]
