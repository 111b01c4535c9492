"""``make_coverage``: vectors for the clinical logic of one built engine, run through it, and the report."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler_kernels.errors import RefusedError, UnsupportedError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.policy import policy_from_json
from compiler_kernels.policy.logic import resolve, tensors_of
from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.registry import host_runner, resolve_target
from evidence.coverage.execute import Executed, encode_vectors, execute
from evidence.coverage.finder import Finder
from evidence.coverage.grids import policy_bounds
from evidence.coverage.page import coverage_page
from evidence.coverage.recount import Counted, missing_tools, recount, version
from evidence.coverage.report import Recount, make_report
from evidence.delivered import COVERAGE_VECTORS
from evidence.verifier.chain import read_chain
from evidence.verifier.statement import Statement

Find = Callable[[str], bytes | None]
"""SHA3-512 (hex) to the bytes that have it, or ``None``."""


@dataclass(frozen=True)
class Made:
    """Report, its bytes, the page, and the compressed vectors (``--decide --vectors`` takes them unpacked)."""

    report: dict[str, Any]
    data: bytes
    page: bytes
    vectors: bytes


def make_coverage(
    statement: Statement,
    find: Find,
    engine: bytes,
    stem: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Made:
    """Coverage of ``engine``, which ``statement`` (a build proof's) is about; ``find`` gives artefacts of its build.

    Raises ``RefusedError`` when the policy has no section ``coverage`` with probes or an artefact is gone,
    ``UnsupportedError`` for open sizes or a target that cannot run here, ``VerificationFailed`` when the engine or a
    tool of the recount fails.
    """
    artefacts = _Artefacts(statement, find)
    policy = policy_from_json(artefacts.read("source_model", "policy.json"))
    probes = json.loads(artefacts.read("generated_source", "probes.json"))
    if policy.coverage is None or not probes["compiled_in"] or not probes["probes"]:
        raise RefusedError(
            f"{statement.subject} has no probes: give its policy decisions or safety guards and a section coverage, "
            "and build it again"
        )
    logic = resolve(policy, *tensors_of(parse_module(artefacts.read("frozen_graph", "frozen_graph.txt").decode())))
    open_size = next((t.name for t in logic.tensors if not all(t.fixed)), None)
    if open_size is not None:
        raise UnsupportedError(
            f"the size of {open_size!r} varies, and coverage needs fixed shapes; build with --input-shape"
        )
    prefix = host_runner(resolve_target(statement.target))
    if prefix is None:
        raise UnsupportedError(f"engines for {statement.target} cannot run here, so nothing can be recorded")
    finder = Finder(logic, policy_bounds(policy))
    found = finder.search(progress)
    encoded = encode_vectors(logic.tensors, found.vectors)
    most = (len(probes["probes"]) + 1) * len(found.vectors)
    executed = execute(engine, prefix, encoded, most)
    second = _recounted(artefacts.read("generated_source", "clinical.c").decode(), finder, executed)
    archive = gzip.compress(encoded, 9, mtime=0)
    head = {
        "engine": {
            "name": statement.subject,
            "sha256": statement.subject_digests["sha256"],
            "target": statement.target,
        },
        "model": policy.model.name,
        "model_version": policy.model.version,
        "config_digest": probes["config_digest"],
        "archive": {
            "file": stem + COVERAGE_VECTORS,
            "sha3_512": sha3_512_hex(archive),
            "vectors": len(found.vectors),
        },
    }
    report = make_report(head, probes["probes"], policy.coverage, finder, executed, second)
    data = (json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode()
    return Made(report, data, coverage_page(report), archive)


def has_probes(statement: Statement, find: Find) -> bool:
    """Whether the engine of ``statement`` has probes, so that there is something to cover."""
    probes = json.loads(_Artefacts(statement, find).read("generated_source", "probes.json"))
    return bool(probes["compiled_in"] and probes["probes"])


def _recounted(clinical: str, finder: Finder, executed: Executed) -> Recount:
    missing = missing_tools()
    if missing:
        return Recount(None, f"{', '.join(missing)} not found (scripts/system-packages.sh)", {})
    # clinical.c knows nothing of the guards of tensors: whether one is broken is the engine's word
    broken = {"input_guard": 4, "output_guard": 8}
    vectors = []
    for vector, answer in zip(finder.found.vectors, executed.answers, strict=True):
        failure = answer["failure"]["kind"] if answer.get("failure") else ""
        vectors.append(replace(vector, flags=vector.flags | broken.get(failure, 0)))
    job = Counted(clinical, finder.logic.tensors, encode_vectors(finder.logic.tensors, vectors))
    return Recount(version(), "", recount([job])[0])


class _Artefacts:
    def __init__(self, statement: Statement, find: Find) -> None:
        self.chain = read_chain(statement.chain, statement.head)
        self.find = find

    def read(self, stage: str, name: str) -> bytes:
        record = self.chain.record(stage)
        digests: Sequence[str] = [a.sha3_512 for a in record.artifacts if a.name == name] if record else []
        data = self.find(digests[0]) if digests else None
        if data is None:
            raise RefusedError(
                f"{stage}/{name} of this engine is not in the store of this machine; build it again here"
            )
        return data
