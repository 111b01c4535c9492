"""Writes ``.intoto.jsonl``: SLSA provenance v1, a test result for each report, the SBOM as a predicate.

Sources: SLSA provenance v1 (https://slsa.dev/provenance/v1), in-toto attestation predicates test-result v0.1 and
CycloneDX. Everything said is quoted from the build proof and the reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evidence.verifier import dsse
from evidence.verifier.canonical import Json
from evidence.verifier.chain import Chain
from evidence.verifier.intoto import (
    CYCLONEDX_TYPE,
    PROVENANCE_TYPE,
    REPORTS,
    RESULTS,
    TEST_RESULT_TYPE,
    encode_line,
    sbom_predicate,
)
from evidence.verifier.release_statement import Part
from evidence.verifier.signing import Signer
from evidence.verifier.statement import Statement
from evidence.verifier.subjects import Subject, encode_statement

BUILD_TYPE = "https://cuvil.dev/build/v1"
BUILDER_ID = "https://cuvil.dev/builder/v1"


def provenance(build: Statement, chain: Chain) -> dict[str, Json]:
    """The SLSA provenance predicate of a build: its sources, the settings of every stage, what each stage left.

    The builder is whoever holds the signing keys; no SLSA level is claimed.
    """
    source = chain.record("source_model")
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "model_version": build.model_version,
                "target": build.target,
                "arithmetic": build.arithmetic,
                "source_model": dict(source.config) if source else {},
            },
            "internalParameters": {
                "stages": [
                    {"stage": item.stage, "code_version": item.code_version, "config": dict(item.config)}
                    for item in chain.records
                ]
            },
            "resolvedDependencies": [
                {"name": role, "digest": {"sha3_512": digest}} for role, digest in sorted(build.sources.items())
            ],
        },
        "runDetails": {
            "builder": {"id": BUILDER_ID},
            "metadata": {"invocationId": build.head},
            "byproducts": [
                {
                    "name": f"{record.stage}/{item.name}",
                    "mediaType": item.media_type,
                    "digest": {"sha256": item.sha256, "sha3_512": item.sha3_512, "sm3": item.sm3},
                }
                for record in chain.records
                for item in record.artifacts
            ],
        },
    }


def test_result(part: Part) -> dict[str, Json]:
    """The test-result predicate of one report: ``WARNED`` where it says neither passed nor failed."""
    return {
        "result": RESULTS.get(part.verdict, "WARNED"),
        "configuration": [
            {"name": part.file, "digest": {"sha3_512": part.sha3_512}, "annotations": {"verdict": part.verdict}}
        ],
    }


def intoto_lines(
    engine: Subject,
    build: Statement,
    chain: Chain,
    parts: Mapping[str, Part],
    sbom: bytes | None,
    signers: Sequence[Signer],
) -> bytes:
    """The file: one signed statement a line, provenance first."""
    predicates: list[tuple[str, dict[str, Json]]] = [(PROVENANCE_TYPE, provenance(build, chain))]
    predicates += [(TEST_RESULT_TYPE, test_result(parts[name])) for name in REPORTS if name in parts]
    if sbom is not None:
        predicates.append((CYCLONEDX_TYPE, sbom_predicate(sbom)))
    return b"".join(
        encode_line(dsse.sign(encode_statement([engine], kind, predicate), signers)) for kind, predicate in predicates
    )
