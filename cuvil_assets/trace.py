"""From a node of the model to IR, C and evidence, and back, through the artefacts an engine's proof names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import format_graph, format_op
from compiler_kernels.ir.weights import unpack
from compiler_kernels.stage import Json
from compiler_kernels.targets.mlir.export import mlir_text
from cuvil_assets.store import ContentStore
from evidence.verifier.chain import Chain, read_chain
from evidence.verifier.digests import digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.files import read_small
from evidence.verifier.statement import read_statement
from evidence.verifier.verify import default_proof

LEVELS = {"l0": "ir_l0", "frozen": "frozen_graph", "l1": "ir_l1", "l2": "ir_l2"}


@dataclass(frozen=True)
class NodeTrace:
    """What became of one node: statements by level (text), kernel name, text of its L2 function and of its C function.

    A level where the node no longer exists (it was folded away) has no statements; a view has no kernel. ``model`` is
    the node as the model has it, ``kernel_nodes`` are all nodes its kernel computes, ``changes`` what the passes before
    the freeze recorded about it, ``tensors`` its rows of the equivalence report.
    """

    node: str
    statements: dict[str, list[str]]
    kernel: str
    function: str
    c_function: str
    model: str = ""
    kernel_nodes: list[str] = field(default_factory=list)
    changes: list[Mapping[str, Json]] = field(default_factory=list)
    tensors: list[Mapping[str, Json]] = field(default_factory=list)


@dataclass(frozen=True)
class KernelTrace:
    """The way back: a kernel, the nodes of the model it computes, the statements that call it, and its texts."""

    kernel: str
    nodes: list[str]
    calls: list[str]
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
        self.target = statement.target
        self.chain: Chain = read_chain(statement.chain, statement.head)

    def text(self, stage: str, name: str | None = None) -> str:
        """Text of an artefact (the principal one without ``name``); ``UsageError`` when the store no longer has it."""
        return self.data(stage, name).decode("utf-8")

    def data(self, stage: str, name: str | None = None) -> bytes:
        """Bytes of an artefact; the same error."""
        record = self.chain.record(stage)
        artifact = None if record is None else record.principal if name is None else record.artifact(name)
        data = None if artifact is None else self.store.find(artifact.sha3_512)
        if data is None:
            raise UsageError(
                f"{self.store.root}: does not hold the {stage} of {self.engine}; build it again on this machine"
            )
        return data

    def mlir(self) -> str:
        """The frozen graph as linalg on tensors, for the engine's target; ``UnsupportedError`` for open shapes."""
        module = self.module("frozen")
        store = unpack(module.main, self.data("frozen_graph", "weights.bin"))
        return mlir_text(module, store, self.target)

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
        known = self._index["l0"]
        if node not in known:
            near = sorted(name for name in known if node and node.lower() in name.lower())[:5]
            hint = f"did you mean {', '.join(near)}?" if near else "`cuvil explain ENGINE` lists them"
            raise UsageError(f"--node {node!r}: neither the model nor the engine has such a node or kernel; {hint}")
        statements = {
            level: [line for op in self._matching(level, node) for line in format_op(op, "")]
            for level in ("l0", "frozen", "l1")
        }
        calls = self._calls(node)
        statements["l2"] = [line for op in calls for line in format_op(op, "")]
        kernel = next((op.kind for op in calls if op.name.startswith("call.")), "")
        sources = known[node]
        names = {name for op in sources for name in (op.node, op.tensor) if name} | {node}
        tensors = {op.tensor for level in ("l0", "frozen") for op in self._matching(level, node) if op.tensor}
        return NodeTrace(
            node,
            statements,
            kernel,
            self._function(kernel),
            self._c_function(kernel),
            self._model_node(names),
            self._nodes_of(kernel),
            [c for c in self._changes if names & {str(c.get("node", "")), str(c.get("into", ""))}],
            [row for row in self._tensor_errors if row.get("tensor") in tensors],
        )

    def kernel(self, name: str) -> KernelTrace | None:
        """The kernel ``name``, or that of the C function ``name``; ``None`` when there is none, or a node of the model
        or one of its tensors is called that."""
        if name in self._index["l0"]:
            return None
        kernels = [graph.name for graph in self.module("l2").graphs[1:]]
        # The C functions of a kernel are <prefix>_<kernel>, with instruction set and number of a tile behind it.
        found = [k for k in kernels if k == name or re.search(rf"_{re.escape(k)}(?:_[a-z0-9]+){{0,2}}$", name)]
        if not found:
            return None
        kernel = max(found, key=len)
        calls = [line for op in self.module("l2").main.ops if op.name == f"call.{kernel}" for line in format_op(op, "")]
        return KernelTrace(kernel, self._nodes_of(kernel), calls, self._function(kernel), self._c_function(kernel))

    def equivalence(self) -> dict[str, Json]:
        """Verdict, grade, inputs and differing values of the equivalence report."""
        keys = ("verdict", "grade", "inputs", "compared_values", "differing_values")
        return {key: self._equivalence[key] for key in keys}

    def records(self) -> list[dict[str, Json]]:
        """Stage, principal artefact and its SHA3-512 of every record in the proof, in chain order."""
        return [
            {"stage": r.stage, "artifact": r.principal.name, "sha3_512": r.principal.sha3_512}
            for r in self.chain.records
        ]

    @cached_property
    def _equivalence(self) -> dict[str, Json]:
        document = json.loads(self.text("equivalence"))
        assert isinstance(document, dict)
        return document

    @property
    def _tensor_errors(self) -> list[Mapping[str, Json]]:
        errors = self._equivalence["errors"]
        rows = errors["tensors"] if isinstance(errors, dict) else None
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    @cached_property
    def _changes(self) -> list[Mapping[str, Json]]:
        """What the passes before the freeze recorded, from numerics.json."""
        return [c for c in json.loads(self.text("frozen_graph", "numerics.json"))["changes"] if isinstance(c, dict)]

    def _model_node(self, names: set[str]) -> str:
        """The node as the model has it, in onnx's own notation; empty where no node of the main graph has a name of
        these (an unnamed one is found by its output)."""
        import onnx

        model = onnx.load_model_from_string(self.data("source_model"))
        for node in model.graph.node:
            if node.name in names or names & set(node.output):
                return str(onnx.helper.printable_node(node))
        return ""

    def _function(self, kernel: str) -> str:
        return next((format_graph(g) for g in self.module("l2").graphs[1:] if g.name == kernel), "")

    def _nodes_of(self, kernel: str) -> list[str]:
        """Model nodes that the calls of ``kernel`` compute, in graph order."""
        results = {op.result for op in self.module("l2").main.ops if op.name == f"call.{kernel}"}
        found: dict[str, None] = {}
        for op in self.module("l1").main.ops:
            if op.result in results:
                found.update(dict.fromkeys(o.node or o.tensor for o in op.body or (op,) if o.node or o.tensor))
        return list(found)

    @cached_property
    def _index(self) -> dict[str, dict[str, list[Op]]]:
        """Statements of every level's main graph by the node and tensor names in them."""
        found: dict[str, dict[str, list[Op]]] = {}
        for level, module in self._modules.items():
            index = found.setdefault(level, {})
            for op in module.main.ops:
                names = dict.fromkeys(name for o in (op, *op.body) for name in (o.node, o.tensor) if name)
                for name in names:
                    index.setdefault(name, []).append(op)
        return found

    def _matching(self, level: str, node: str) -> list[Op]:
        return self._index[level].get(node, [])

    @cached_property
    def _made_by(self) -> dict[str, Op]:
        return {op.result: op for op in self.module("l2").main.ops if op.result}

    def _calls(self, node: str) -> list[Op]:
        """Statements of L2's main function that define what the node's L1 statements define."""
        results = [op.result for op in self._matching("l1", node) if op.result]
        return [self._made_by[result] for result in results if result in self._made_by]

    def _kernel_of(self, *names: str) -> str:
        for name in filter(None, names):
            for op in self._calls(name):
                if op.name.startswith("call."):
                    return op.kind
        return ""

    def _c_function(self, kernel: str) -> str:
        if not kernel:
            return ""
        # What stands for a Triton kernel where kernels are emulated is not the kernel.
        triton = rf"^@triton\.jit\ndef \w*_{re.escape(kernel)}\(.*?(?=^\S|\Z)"
        for text in self._triton:
            for match in re.finditer(triton, text, re.MULTILINE | re.DOTALL):
                return match[0].rstrip() + "\n"
        # A kernel may exist once per instruction set, with that as a suffix; the number in its name is unique.
        head = rf"^[^\n;]*\bvoid (?:__launch_bounds__\([^)]*\) )?\w*_{re.escape(kernel)}\w*\("
        pattern = rf"(?:^/\*[^\n]*\*/\n)*{head}[^;{{]*{{.*?^}}\n"
        found = [
            match[0] for source in self._sources for match in re.finditer(pattern, source, re.MULTILINE | re.DOTALL)
        ]
        return "\n".join(found)

    @cached_property
    def _sources(self) -> list[str]:
        record = self.chain.record("generated_source")
        names = [item.name for item in record.artifacts] if record is not None else []
        return [self.text("generated_source", name) for name in names if name.endswith((".c", ".cu"))]

    @cached_property
    def _triton(self) -> list[str]:
        record = self.chain.record("generated_source")
        names = [item.name for item in record.artifacts] if record is not None else []
        return [self.text("generated_source", name) for name in names if name.endswith(".py")]
