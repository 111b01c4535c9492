"""Offline verification of an engine against its proof and a trust root.

Every check has a stable name and a sentence. Nothing in a proof is believed before a trusted signature over it holds:
until then only its form and its signatures are looked at. Verification uses no network, no private key and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from evidence.verifier.build import equivalence_of, holds_engine, proof_name, quoted_config_digest
from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.chain import Chain, check_links, read_chain
from evidence.verifier.digests import Digests, digest_file
from evidence.verifier.dsse import PAYLOAD_TYPE, Envelope, read_envelope
from evidence.verifier.files import read_small
from evidence.verifier.report import Checks, VerifyReport
from evidence.verifier.signing import P384, REQUIRED_ALGORITHMS, SM2
from evidence.verifier.statement import FROM_ENGINE, Statement, compile_config_digest, read_statement
from evidence.verifier.trust import DEVELOPMENT, TrustRoot, default_trust_root, load_trust_root

_SIGNATURE_CHECKS = {SM2: "signature-sm2", P384: "signature-p384"}
_LABELS = {SM2: "SM2", P384: "P-384"}


def default_proof(engine: Path) -> Path:
    """Where the proof of ``engine`` lies unless another path is given."""
    return engine.with_name(proof_name(engine.name))


def verify_engine(engine: Path, proof: Path | None = None, trust_root: Path | None = None) -> VerifyReport:
    """Verify the file ``engine``; ``proof`` defaults to ``<stem>.proof.json`` beside it.

    ``trust_root`` defaults to the development trust root under ``$CUVIL_HOME``. Raises ``UsageError`` when one of the
    three files is missing or unreadable or the trust root is invalid, ``UnsupportedError`` when this machine has no
    SM2; everything else is a check in the report.
    """
    root = load_trust_root(trust_root or default_trust_root())
    digests = digest_file(engine)
    proof = proof or default_proof(engine)
    data = read_small(proof, "proof", "give the proof that was delivered with the engine")
    checks = Checks()
    evidence = check_build_proof(checks, engine.name, digests, data, root)
    trust = DEVELOPMENT if trust_root is None else "given"
    return VerifyReport(str(engine), str(proof), trust, root.grade, tuple(checks.items), digests.digest_set(), evidence)


def check_build_proof(checks: Checks, name: str, digests: Digests, data: bytes, root: TrustRoot) -> dict[str, Json]:
    """Make all ``CHECKS`` for an engine and the bytes of its proof; returns what a report quotes of the statement."""
    envelope = checks.run("proof-readable", lambda: (read_envelope(data), "the proof is a well-formed DSSE envelope"))
    if envelope is None:
        checks.skip("the proof cannot be read")
        return {}
    if checks.run("payload-type", lambda: _payload_type(envelope)) is None:
        checks.skip("the payload is not of the type Cuvil signs")
        return {}
    if not _check_signatures(checks, envelope, root):
        checks.skip("no trusted signature holds for the payload")
        return {}
    statement = checks.run("statement", lambda: (read_statement(envelope.payload), "the statement is well formed"))
    if statement is None:
        checks.skip("the statement cannot be read")
        return {}
    checks.run("subject-digest", lambda: _subject(statement, name, digests))
    chain = checks.run("chain", lambda: _chain(statement))
    if chain is not None:
        checks.run("records", lambda: _links(chain, statement))
        checks.run("engine-digest-in-record", lambda: _engine_record(chain, statement))
        checks.run("compile-config", lambda: _compile_config(chain, statement))
        checks.run("frozen-graph", lambda: _quoted(chain, "frozen_graph", None, statement.frozen_graph))
        checks.run("policy", lambda: _quoted(chain, "source_model", "policy.json", statement.policy))
        checks.run("equivalence", lambda: _equivalence(chain, statement))
    checks.skip("the chain does not hold")
    return _summary(statement)


def _payload_type(envelope: Envelope) -> tuple[str, str]:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    return PAYLOAD_TYPE, f"the payload type is {PAYLOAD_TYPE}"


def _check_signatures(checks: Checks, envelope: Envelope, root: TrustRoot) -> bool:
    """Run the signer and signature checks; whether at least one trusted signature covers the payload."""
    outcome: dict[str, bool] = {}
    for signature in envelope.signatures:
        key = root.key(signature.key_id)
        if key is not None:
            valid = key.verifier().verify(envelope.signed_bytes, signature.value)
            outcome[key.algorithm] = outcome.get(key.algorithm, True) and valid
    checks.run("signer-trusted", lambda: _trusted(envelope, root, outcome))
    for algorithm in REQUIRED_ALGORITHMS:
        if algorithm in outcome:
            checks.run(_SIGNATURE_CHECKS[algorithm], partial(_signature, algorithm, outcome))
    return any(outcome.values())


def _trusted(envelope: Envelope, root: TrustRoot, outcome: Mapping[str, bool]) -> tuple[bool, str]:
    missing = [_LABELS[item] for item in REQUIRED_ALGORITHMS if item not in outcome]
    if missing:
        found = ", ".join(f"{item.key_id[:16]}..." for item in envelope.signatures)
        raise MalformedError(f"no {' and no '.join(missing)} signature is by a key of the trust root; found {found}")
    ignored = sum(root.key(item.key_id) is None for item in envelope.signatures)
    note = f"; {ignored} by other keys ignored" if ignored else ""
    return True, f"an SM2 and a P-384 signature are by keys of the trust root{note}"


def _signature(algorithm: str, outcome: Mapping[str, bool]) -> tuple[bool, str]:
    label = _LABELS[algorithm]
    if outcome[algorithm]:
        return True, f"the {label} signature holds for the payload"
    others = [valid for other, valid in outcome.items() if other != algorithm]
    if any(others):
        reason = "the signature was changed, since another trusted signature holds for the same payload"
    elif others:
        reason = "no trusted signature holds, so the payload was changed after signing"
    else:
        reason = "the payload or the signature was changed"
    raise MalformedError(f"the {label} signature does not match the payload: {reason}")


def _subject(statement: Statement, name: str, digests: Digests) -> tuple[bool, str]:
    found = digests.digest_set()
    wrong = [item for item, value in statement.subject_digests.items() if found[item] != value]
    if wrong:
        raise MalformedError(
            f"{name} is not the engine {statement.subject} of this proof, or was changed: {', '.join(wrong)} differ; "
            f"its SHA-256 is {digests.sha256}, the proof says {statement.subject_digests['sha256']}"
        )
    note = "" if name == statement.subject else f" (delivered as {statement.subject})"
    return True, f"{name}{note} has the SHA-256, SHA3-512 and SM3 digests of the proof"


def _chain(statement: Statement) -> tuple[Chain, str]:
    chain = read_chain(statement.chain, statement.head)
    return chain, f"all {len(chain.records)} record hashes and the head are as recomputed"


def _links(chain: Chain, statement: Statement) -> tuple[bool, str]:
    check_links(chain.records, statement.sources)
    return True, "every input of every stage is a declared source or an artefact of an earlier stage"


def _engine_record(chain: Chain, statement: Statement) -> tuple[bool, str]:
    if not holds_engine(chain, statement.subject_digests):
        raise MalformedError("the engine named by the proof is not an artefact of the record of stage engine")
    return True, "the engine is an artefact of the record of stage engine"


def _compile_config(chain: Chain, statement: Statement) -> tuple[bool, str]:
    from_engine = statement.compile_config_source == FROM_ENGINE
    expected = quoted_config_digest(chain) if from_engine else compile_config_digest(chain)
    if expected != statement.compile_config:
        raise MalformedError("the compile-config digest is not that of the records")
    return True, f"the compile-config digest is that of the {'generated source' if from_engine else 'records'}"


def _quoted(chain: Chain, stage: str, artifact: str | None, digest: str) -> tuple[bool, str]:
    record = chain.record(stage)
    found = None if record is None else record.principal if artifact is None else record.artifact(artifact)
    if found is None or found.sha3_512 != digest:
        raise MalformedError(
            f"the digest {digest[:16]}... is not that of {artifact or 'the artefact'} of stage {stage}"
        )
    return True, f"the digest is that of {found.name} of stage {stage}"


def _equivalence(chain: Chain, statement: Statement) -> tuple[bool, str]:
    record = chain.record("equivalence")
    if record is None or equivalence_of(record) != statement.equivalence:
        raise MalformedError("verdict, grade and report are not those of the record of stage equivalence")
    if statement.equivalence.verdict == "failed":
        raise MalformedError("the engine differs from the reference according to the equivalence report")
    return True, f"equivalence with the reference: {statement.equivalence.verdict} ({statement.equivalence.grade})"


def _summary(statement: Statement) -> dict[str, Json]:
    return {
        "subject": statement.subject,
        "model_version": statement.model_version,
        "compile_config": statement.compile_config,
        "hardware_fingerprint": statement.hardware_fingerprint,
        "target": statement.target,
        "arithmetic": statement.arithmetic,
        "frozen_graph": statement.frozen_graph,
        "policy": statement.policy,
        "equivalence": {"verdict": statement.equivalence.verdict, "grade": statement.equivalence.grade},
        "head": statement.head,
        "created": statement.created,
        "created_source": statement.created_source,
    }
