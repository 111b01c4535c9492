"""The build proof: a statement about one engine, signed with SM2-with-SM3 and with ECDSA P-384.

Signing the same build twice gives the same payload; the SM2 signature differs, because SM2 takes a random number.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from compiler_kernels.stage import Artifact, StageResult
from evidence.records import record_of
from evidence.verifier import dsse
from evidence.verifier.build import equivalence_of, proof_name, quoted_config_digest
from evidence.verifier.canonical import MalformedError
from evidence.verifier.chain import Chain, build_chain, check_links
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.records import StageRecord
from evidence.verifier.signing import REQUIRED_ALGORITHMS, Signer, key_id
from evidence.verifier.statement import (
    FROM_ENGINE,
    FROM_RECORDS,
    NOT_BOUND,
    Statement,
    compile_config_digest,
)

CODE_VERSION = "1"
MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second RFC 3339 can write


def created_from(environment: Mapping[str, str]) -> tuple[str, str]:
    """``(RFC 3339 time in UTC, where it comes from)``: ``SOURCE_DATE_EPOCH``, else 0; never the wall clock.

    Raises ``UsageError`` when the variable is not a whole number of seconds from 0 to the year 9999.
    """
    text = environment.get(EPOCH_VARIABLE)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= _LAST_SECOND):
        raise UsageError(f"{EPOCH_VARIABLE}={text!r} is not a whole number of seconds since 1970; correct or unset it")
    moment = datetime.datetime.fromtimestamp(int(text or 0), datetime.UTC)
    source = EPOCH_VARIABLE if text is not None else f"default, {EPOCH_VARIABLE} not set"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ"), source


def build_statement(
    records: Sequence[StageRecord],
    *,
    engine_name: str,
    model_version: str,
    target: str,
    arithmetic: str = "CA-1",
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """The payload bytes for the engine that the last build stages describe, delivered as the file ``engine_name``.

    ``records`` in build order. Everything but the arguments is quoted from them: the sources are the inputs of
    ``source_model``, the policy its ``policy.json``, the engine the principal artefact of ``engine``, verdict and grade
    the facts ``verdict`` and ``grade`` of ``equivalence``, the compile-config digest the fact ``config_digest`` of
    ``generated_source`` (without that fact it is computed over all records). ``environment`` defaults to the process's
    and is read for ``SOURCE_DATE_EPOCH`` only.
    Raises ``MalformedError`` when a record is missing or records and arguments contradict each other, ``UsageError``
    for a bad epoch.
    """
    chain = build_chain(records)
    source, engine = _record(chain, "source_model"), _record(chain, "engine")
    check_links(chain.records, source.inputs)
    policy = source.artifact("policy.json")
    if policy is None:
        raise MalformedError("stage source_model has no policy.json")
    if engine.config.get("target", target) != target:
        raise MalformedError(f"the engine was built for {engine.config['target']}, not for {target}")
    digest = quoted_config_digest(chain)
    created, created_source = created_from(os.environ if environment is None else environment)
    return Statement(
        subject=PurePath(engine_name).name,
        subject_digests={key: getattr(engine.principal, key) for key in ("sha256", "sha3_512", "sm3")},
        model_version=model_version,
        compile_config=digest or compile_config_digest(chain),
        compile_config_source=FROM_ENGINE if digest else FROM_RECORDS,
        hardware_fingerprint=NOT_BOUND,
        target=target,
        arithmetic=arithmetic,
        frozen_graph=_record(chain, "frozen_graph").principal.sha3_512,
        policy=policy.sha3_512,
        equivalence=equivalence_of(_record(chain, "equivalence")),
        sources=source.inputs,
        chain=chain.to_json(),
        head=chain.head,
        created=created,
        created_source=created_source,
    ).encode()


def build_proof(
    results: Sequence[StageResult],
    signers: Sequence[Signer],
    *,
    engine_name: str,
    model_version: str,
    target: str,
    arithmetic: str = "CA-1",
    environment: Mapping[str, str] | None = None,
) -> StageResult:
    """The stage ``build_proof``: ``inference-engine.proof.json``, a DSSE envelope with two signatures.

    ``results`` are all earlier stages in build order; ``signers`` one SM2 and one P-384 signer in that order
    (``KeySet.signers``); the other arguments are those of ``build_statement``, as are the errors. An engine whose
    equivalence verdict is ``failed`` is not signed: ``VerificationFailed`` with the check ``equivalence``.
    """
    if tuple(signer.algorithm for signer in signers) != REQUIRED_ALGORITHMS:
        raise UsageError(f"a proof needs the signers {' and '.join(REQUIRED_ALGORITHMS)}; load a complete key set")
    records = [record_of(result) for result in results]
    payload = build_statement(
        records,
        engine_name=engine_name,
        model_version=model_version,
        target=target,
        arithmetic=arithmetic,
        environment=environment,
    )
    chain = build_chain(records)
    if equivalence_of(_record(chain, "equivalence")).verdict == "failed":
        raise VerificationFailed("equivalence", f"{engine_name}: the engine differs from the reference; not signed")
    return StageResult(
        stage="build_proof",
        code_version=CODE_VERSION,
        inputs={f"{result.stage}/{result.principal.name}": result.principal.sha3_512 for result in results},
        config={"target": target, "model_version": model_version},
        artifacts=(Artifact(proof_name(engine_name), dsse.sign(payload, signers).encode(), MEDIA_TYPE),),
        facts={
            "head": chain.head,
            "payload_sha3_512": hashlib.sha3_512(payload).hexdigest(),
            "signers": {signer.algorithm: key_id(signer.spki) for signer in signers},
        },
    )


def _record(chain: Chain, stage: str) -> StageRecord:
    record = chain.record(stage)
    if record is None:
        raise MalformedError(f"the chain has no record of stage {stage}")
    return record
