"""``make_sbom``: the bill of materials of one built engine, from its signed statement and the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from compiler_kernels.errors import CuvilError, RefusedError
from compiler_kernels.policy import Policy, policy_from_json
from evidence.sbom.check import TOOL_ROOT, problems
from evidence.sbom.crypto import crypto_parts
from evidence.sbom.document import document, encode
from evidence.sbom.environment import environment_parts
from evidence.sbom.gates import check_gates
from evidence.sbom.linked import DEVICE_COMPILER, LIBRARIES, SECOND_DEVICE_COMPILER, linked_parts, top_refs
from evidence.sbom.model import model_card, model_parts
from evidence.sbom.parts import LINKED, Part
from evidence.verifier.chain import Chain, read_chain
from evidence.verifier.digests import Digests
from evidence.verifier.statement import Statement

MEDIA_TYPE = "application/vnd.cyclonedx+json; version=1.6"
PREDICATE_TYPE = "https://cyclonedx.org/bom"
SUFFIX = ".cdx.json"
Find = Callable[[str], bytes | None]
"""SHA3-512 (hex) to the bytes that have it, or ``None``."""


@dataclass(frozen=True)
class Bill:
    """A finished bill of materials: file name, bytes, licence texts by relative path, and the parts it was made of."""

    name: str
    data: bytes
    licences: dict[str, bytes]
    parts: tuple[Part, ...]

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.data)
        assert isinstance(found, dict)
        return found

    def summary(self) -> dict[str, Any]:
        """Counts by group, and names and versions of the libraries."""
        groups: dict[str, int] = {}
        for part in self.parts:
            groups[part.group] = groups.get(part.group, 0) + 1
        libraries = {p.name: p.version for p in self.parts if p.ref.startswith("library:")}
        return {"components": len(self.parts), "groups": dict(sorted(groups.items())), "libraries": libraries}


def sbom_name(engine_name: str) -> str:
    """``inference-engine.cdx.json`` for ``inference-engine.bin``."""
    return PurePath(engine_name).stem + SUFFIX


def make_sbom(statement: Statement, find: Find, *, signatures: Iterable[str] = (), gates: bool = True) -> Bill:
    """The bill of materials of the engine ``statement`` (a build proof's) is about.

    ``find`` gives artefacts by SHA3-512, ``signatures`` names further signature algorithms (``ml-dsa-65``). With
    ``gates`` the policy's section ``sbom`` is enforced. The bytes depend on the statement, the artefacts and the
    installed distributions only. Raises ``RefusedError`` for a gate, a missing artefact, or another compiler than the
    engine's being installed; ``UsageError`` when cyclonedx-python-lib is missing.
    """
    chain = read_chain(statement.chain, statement.head)
    policy = _policy(statement, find)
    parts = [
        *_linked(chain, find),
        *model_parts(chain, policy),
        *crypto_parts([*signatures, *(["shake256"] if policy.audit and policy.audit.sessions else [])]),
        *environment_parts(),
    ]
    for compiler in (DEVICE_COMPILER, SECOND_DEVICE_COMPILER):
        if any(part.ref == compiler for part in parts):
            parts = [part.with_needs(compiler) if part.ref == TOOL_ROOT else part for part in parts]
    section = policy.sbom
    if section is not None:
        parts = [_with_support(part, dict(section.end_of_support)) for part in parts]
        if gates:
            check_gates(parts, section)
    root = _root(statement, policy, parts)
    found = document(
        root,
        parts,
        created=statement.created,
        manufacturer=section.manufacturer if section is not None else "",
        model_card=model_card(chain, policy, find),
        embed=[f"library:{name}" for name in LIBRARIES] + [TOOL_ROOT],
    )
    data = encode(found)
    wrong = problems(data)
    if wrong:
        raise CuvilError(f"the bill of materials is not sound: {wrong[0]}: this is a defect of Cuvil, please report it")
    return Bill(sbom_name(statement.subject), data, _texts(parts), (root, *parts))


def _policy(statement: Statement, find: Find) -> Policy:
    data = find(statement.policy)
    if data is None:
        raise RefusedError("the store no longer holds the policy of this engine; build the engine again here")
    return policy_from_json(data)


def _linked(chain: Chain, find: Find) -> list[Part]:
    engine, generated = chain.record("engine"), chain.record("generated_source")
    if engine is None or generated is None:
        raise RefusedError("the proof has no record of the engine or of its source; build the engine again")
    sources: dict[str, bytes] = {}
    for item in generated.artifacts:
        data = find(item.sha3_512)
        if data is None:
            raise RefusedError(f"the store no longer holds {item.name} of this engine; build the engine again here")
        sources[item.name] = data
    return linked_parts(engine, find, sources)


def _with_support(part: Part, ends: dict[str, str]) -> Part:
    if not part.ref.startswith("library:"):
        return part
    return replace(part, properties={**part.properties, "cuvil:end-of-support": ends.get(part.name, "unknown")})


def _root(statement: Statement, policy: Policy, parts: list[Part]) -> Part:
    digests = statement.subject_digests
    section = policy.sbom
    needs = [*top_refs(parts), "model", *(p.ref for p in parts if p.ref.startswith("crypto:") and _signs(p))]
    return Part(
        ref="engine",
        kind="application",
        name=statement.subject,
        group=LINKED,
        version=policy.model.version,
        description=f"Inference engine of the model {policy.model.name} for {statement.target}.",
        supplier=section.manufacturer if section is not None else "",
        digests=Digests(0, digests["sha256"], digests["sha3_512"], digests["sm3"]),
        properties={
            "cuvil:target": statement.target,
            "cuvil:arithmetic": statement.arithmetic,
            "cuvil:frozen-graph-sha3-512": statement.frozen_graph,
            "cuvil:compile-config-sha3-512": statement.compile_config,
            "cuvil:chain-head": statement.head,
            "cuvil:created-source": statement.created_source,
        },
        needs=tuple(needs),
    )


def _signs(part: Part) -> bool:
    return part.ref not in ("crypto:sm3", "crypto:sha-384")


def _texts(parts: list[Part]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for part in parts:
        if part.licence is not None:
            found.update(zip(part.licence.files, part.licence.texts, strict=True))
    return dict(sorted(found.items()))
