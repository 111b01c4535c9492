"""What the evidence of one release says: read from the documents the registry holds, and checked while it is read.

The signatures are not checked here (a page that does is ``models/ID/verify``); digests, links and the chain are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evidence.verifier.canonical import MalformedError
from evidence.verifier.chain import check_links, read_chain
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import VerifierError
from evidence.verifier.release_statement import RELEASE_SUFFIX, ReleaseStatement, read_release_statement
from evidence.verifier.statement import Statement, read_statement
from fhir_registry.fields import objects, table, text

HOLDS, BROKEN, UNKNOWN = "holds", "broken", "unknown"


@dataclass(frozen=True)
class Step:
    """One box of the picture: a stage of the build, or ``proof``, ``release``, ``registration``.

    ``digest``: SHA3-512 (hex) of what the step made; ``state``: ``HOLDS``, ``BROKEN`` or ``UNKNOWN``.
    """

    name: str
    made: str
    digest: str
    state: str


@dataclass(frozen=True)
class Row:
    """A name with its meaning: a threshold, quantity, decision or guard of the policy."""

    name: str
    value: str
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class ReleaseView:
    """One release of a model version. ``equivalence``: the verdict, and ``grade`` how the engine was run for it (a GPU
    engine perhaps only emulated); ``steps``: the chain; ``fault``: why it does not hold, else empty."""

    digest: str
    target: str
    arithmetic: str
    equivalence: str
    grade: str
    created: str
    engine_sha3_512: str
    steps: tuple[Step, ...]
    fault: str
    approvals: tuple[tuple[str, str, str], ...]
    ranges: Mapping[str, str]
    thresholds: tuple[Row, ...]
    quantities: tuple[Row, ...]
    decisions: tuple[Row, ...]
    guards: tuple[Row, ...]
    fallbacks: tuple[Row, ...]


def read_release(
    release: bytes, by_digest: Mapping[str, bytes], stored: tuple[str, bytes, frozenset[str]]
) -> ReleaseView | None:
    """The release whose statement is ``release``; ``None`` where that is no release statement.

    ``by_digest``: the registry's documents by SHA3-512. ``stored``: version, bytes and identifiers of the resource that
    registers it.
    """
    try:
        statement = read_release_statement(read_envelope(release).payload)
    except (MalformedError, VerifierError):
        return None
    digest = hashlib.sha3_512(release).hexdigest()
    proof = by_digest.get(statement.proof.sha3_512)
    build, steps, fault = _build_steps(proof, statement)
    version, body, identifiers = stored
    registered = digest in identifiers and (build is None or set(build.sources.values()) & identifiers)
    steps += (
        Step(
            "release",
            f"{statement.engine.removesuffix('.bin')}{RELEASE_SUFFIX}",
            digest,
            HOLDS if proof is not None and not fault else UNKNOWN,
        ),
        Step("registration", version, hashlib.sha3_512(body).hexdigest(), HOLDS if registered else BROKEN),
    )
    if not registered and not fault:
        fault = "the registered resource does not name this release"
    policy = _policy(by_digest.get(statement.policy.sha3_512))
    return ReleaseView(
        digest=digest,
        target=build.target if build is not None else "",
        arithmetic=build.arithmetic if build is not None else "",
        equivalence=build.equivalence.verdict if build is not None else "",
        grade=build.equivalence.grade if build is not None else "",
        created=statement.created,
        engine_sha3_512=build.subject_digests["sha3_512"] if build is not None else "",
        steps=steps,
        fault=fault,
        approvals=tuple((item.role, item.person, item.key_id) for item in statement.approvals),
        ranges=_ranges(policy),
        thresholds=tuple(
            Row(n, text(v, "value"), "", text(v, "source")) for n, v in table(policy, "thresholds").items()
        ),
        quantities=tuple(Row(n, text(v, "value"), text(v, "unit")) for n, v in table(policy, "quantities").items()),
        decisions=tuple(
            Row(n, text(v, "when"), "", text(v, "description")) for n, v in table(policy, "decisions").items()
        ),
        fallbacks=tuple(
            Row(n, text(v, "action"), "", text(v, "message")) for n, v in table(policy, "fallbacks").items()
        ),
        guards=tuple(
            Row(n, text(v, "require"), "", text(v, "description")) for n, v in table(policy, "safety", "guards").items()
        ),
    )


def _build_steps(proof: bytes | None, statement: ReleaseStatement) -> tuple[Statement | None, tuple[Step, ...], str]:
    """The statement of the build, its stages as boxes with the proof at their end, and what does not hold."""
    if proof is None:
        return None, (Step("proof", statement.proof.file, statement.proof.sha3_512, UNKNOWN),), ""
    try:
        build = read_statement(read_envelope(proof).payload)
    except (MalformedError, VerifierError) as error:
        return None, (Step("proof", statement.proof.file, statement.proof.sha3_512, BROKEN),), str(error)
    state, fault = HOLDS, ""
    try:
        chain = read_chain(build.chain, build.head)
        check_links(chain.records, build.sources)
        if build.head != statement.proof_head:
            raise MalformedError("the release names another head of the chain than the proof")
    except MalformedError as error:
        state, fault = BROKEN, str(error)
    steps = []
    for entry in build.chain if isinstance(build.chain, list) else ():
        first = (objects(entry, "record", "artifacts") or [{}])[0]
        steps.append(
            Step(text(entry, "record", "stage"), text(first, "name"), text(first, "digests", "sha3_512")
                 or text(first, "sha3_512"), state)
        )  # fmt: skip
    return build, (*steps, Step("proof", statement.proof.file, statement.proof.sha3_512, state)), fault


def _policy(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _ranges(policy: dict[str, Any]) -> dict[str, str]:
    """Of each tensor what the guards demand: ``0 … 1``."""
    found = {}
    for name, rules in {**table(policy, "inputs"), **table(policy, "outputs")}.items():
        limits = rules.get("range") if isinstance(rules, dict) else None
        if isinstance(limits, list) and len(limits) == 2:
            found[name] = f"{limits[0]} … {limits[1]}"
    return found
