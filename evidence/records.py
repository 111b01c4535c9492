"""From stage results to signable records."""

from __future__ import annotations

from compiler_kernels.stage import StageResult
from evidence.verifier.canonical import expect_hex, expect_map, signable
from evidence.verifier.digests import digest_known
from evidence.verifier.records import ArtifactRecord, StageRecord, checked, relative_name


def record_of(result: StageResult) -> StageRecord:
    """The record of ``result``: digests of every artefact, floats and large integers as strings.

    Raises ``MalformedError`` when the result has no artefact, two of one name, a name that leaves its folder, or an
    input that is not a SHA3-512 in hex. Facts enter the signed bytes, so they must not hold clock times or paths.
    """
    where = f"stage {result.stage}"
    artifacts = []
    for item in result.artifacts:
        digests = digest_known(item.data, item.sha3_512)
        name = relative_name(item.name, where)
        artifacts.append(ArtifactRecord(name, item.media_type, digests.size, **digests.digest_set()))
    inputs = {role: expect_hex(digest, f"{where} input {role}", 128) for role, digest in result.inputs.items()}
    record = StageRecord(
        result.stage,
        result.code_version,
        inputs,
        expect_map(signable(dict(result.config)), f"{where} config"),
        tuple(artifacts),
        expect_map(signable(dict(result.facts)), f"{where} facts"),
    )
    return checked(record, where)
