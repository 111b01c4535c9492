"""``.intoto.jsonl``: statements with standard predicates, one DSSE envelope a line, signed by the release's keys.

SLSA provenance v1, one test result for each report, and the SBOM. The file is not authenticated as a whole by its
format; the release statement lists its digest, so nothing in it can be dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_map, signable, strict_json
from evidence.verifier.dsse import PAYLOAD_TYPE, Envelope, read_envelope
from evidence.verifier.signers import find_keys, trusted_keys
from evidence.verifier.subjects import Subject, read_subjects
from evidence.verifier.trust import TrustRoot

if TYPE_CHECKING:
    from evidence.verifier.release_parts import Contents

PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
TEST_RESULT_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
CYCLONEDX_TYPE = "https://cyclonedx.org/bom"
REPORTS = ("equivalence", "coverage", "reproducibility", "decisions")
RESULTS = {"passed": "PASSED", "failed": "FAILED"}


def encode_line(envelope: Envelope) -> bytes:
    """One line: the envelope in its RFC 8785 form and a line feed."""
    return canonical_bytes(strict_json(envelope.encode())) + b"\n"


def read_lines(data: bytes) -> list[Envelope]:
    """The envelopes, strictly; ``MalformedError`` names the line."""
    if not data.endswith(b"\n"):
        raise MalformedError("the last line does not end")
    found = []
    for number, line in enumerate(data[:-1].split(b"\n"), 1):
        try:
            envelope = read_envelope(line)
            if encode_line(envelope) != line + b"\n":
                raise MalformedError("is not in its RFC 8785 form")
        except MalformedError as error:
            raise MalformedError(f"line {number}: {error}") from None
        found.append(envelope)
    return found


def sbom_predicate(data: bytes) -> dict[str, Json]:
    """A CycloneDX document as a predicate: what RFC 8785 signing does not carry (floats) becomes text."""
    return expect_map(signable(strict_json(data)), "the SBOM")


def check_lines(contents: Contents) -> tuple[bool, str]:
    """Every line is signed by the release's keys and speaks of its engine and reports."""
    part = contents.statement.parts.get("intoto")
    if part is None:
        return True, "the release holds no in-toto statements, and its policy demands none"
    root = TrustRoot(contents.root.grade, trusted_keys(contents.keys))
    wanted = [item.key_id for item in contents.keys]
    engine = contents.statement.subjects[contents.statement.engine]
    expected = _expected(contents)
    lines = read_lines(contents.read(part.file))
    for number, envelope in enumerate(lines, 1):
        where = f"{part.file} line {number}"
        if envelope.payload_type != PAYLOAD_TYPE or envelope.verification_material is not None:
            raise MalformedError(f"{where} is not a plain in-toto envelope")
        if [item.key_id for item in envelope.signatures] != wanted:
            raise MalformedError(f"{where} is not signed by the keys of the release")
        if not all(key.holds(envelope.signed_bytes) for key in find_keys(envelope, root, ())):
            raise MalformedError(f"{where}: a signature does not hold")
        subjects, kind, predicate = read_subjects(envelope.payload, None)
        _about(where, subjects, engine)
        key = (kind, _report_digest(predicate) if kind == TEST_RESULT_TYPE else "")
        if key not in expected:
            raise MalformedError(f"{where} is a statement this release does not call for, or one too many: {kind}")
        name = expected.pop(key)
        if kind == CYCLONEDX_TYPE and predicate != sbom_predicate(contents.read(name)):
            raise MalformedError(f"{where} is not the SBOM {name}")
        if kind == TEST_RESULT_TYPE and predicate.get("result") != RESULTS.get(_verdict(contents, name), "WARNED"):
            raise MalformedError(f"{where} states another result than {name}")
    if expected:
        raise MalformedError(f"{part.file} lacks a statement of type {next(iter(expected))[0]}")
    return True, f"{len(lines)} statements are signed by the release's keys and agree with its files"


def _expected(contents: Contents) -> dict[tuple[str, str], str]:
    """The statements there must be: type and report digest to the file each is about."""
    parts = contents.statement.parts
    found = {(PROVENANCE_TYPE, ""): ""}
    if "sbom" in parts:
        found[CYCLONEDX_TYPE, ""] = parts["sbom"].file
    for name in REPORTS:
        if name in parts:
            found[TEST_RESULT_TYPE, parts[name].sha3_512] = parts[name].file
    return found


def _verdict(contents: Contents, file: str) -> str:
    return next(part.verdict for part in contents.statement.parts.values() if part.file == file)


def _about(where: str, subjects: dict[str, Subject], engine: Subject) -> None:
    if subjects != {engine.name: engine}:
        raise MalformedError(f"{where} is about another subject than the engine {engine.name}")


def _report_digest(predicate: dict[str, Json]) -> str:
    configuration = predicate.get("configuration")
    entry = configuration[0] if isinstance(configuration, list) and configuration else None
    digest = entry.get("digest") if isinstance(entry, dict) else None
    value = digest.get("sha3_512") if isinstance(digest, dict) else None
    return value if isinstance(value, str) else "none"
