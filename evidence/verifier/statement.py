"""The in-toto statement of a build: which engine, made from what, by which stages.

Statement v1 (in-toto attestation framework) with predicate type ``https://cuvil.dev/compile-evidence/v1``. Its RFC 8785
bytes are the payload of the proof; they hold no clock time, path or random number, so equal builds give equal bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
    strict_json,
)
from evidence.verifier.chain import Chain
from evidence.verifier.sm2 import SM2_ID

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://cuvil.dev/compile-evidence/v1"
LEVEL = "build"
NOT_BOUND = "not bound"
VERDICTS = ("passed", "failed", "not executed")
# Where the compile-config digest comes from: recomputed from the records, or quoted from the generated_source record.
FROM_RECORDS, FROM_ENGINE = "records", "engine"
_DIGEST_DIGITS = {"sha256": 64, "sha3_512": 128, "sm3": 64}
_TEXTS = ("target", "arithmetic", "created", "created_source")
_PREDICATE_KEYS = (
    "level", "triple", "target", "arithmetic", "frozen_graph", "policy", "equivalence", "sources", "chain", "head",
    "sm2_id", "created", "created_source",
)  # fmt: skip


@dataclass(frozen=True)
class Equivalence:
    """Outcome of the equivalence stage: one of ``VERDICTS``, its grade, SHA3-512 (hex) of the report."""

    verdict: str
    grade: str
    report: str


@dataclass(frozen=True)
class Statement:
    """A parsed or to-be-signed build statement; digests are hex, ``frozen_graph`` and ``policy`` SHA3-512.

    ``chain`` and ``head`` stay in their JSON form: reading them is a check of its own (``chain.read_chain``).
    """

    subject: str
    subject_digests: Mapping[str, str]
    model_version: str
    compile_config: str
    compile_config_source: str
    hardware_fingerprint: str
    target: str
    arithmetic: str
    frozen_graph: str
    policy: str
    equivalence: Equivalence
    sources: Mapping[str, str]
    chain: Json
    head: str
    created: str
    created_source: str

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        predicate: dict[str, Json] = {
            "level": LEVEL,
            "triple": {
                "model_version": self.model_version,
                "compile_config": {"sha3_512": self.compile_config, "source": self.compile_config_source},
                "hardware_fingerprint": self.hardware_fingerprint,
            },
            "frozen_graph": {"sha3_512": self.frozen_graph},
            "policy": {"sha3_512": self.policy},
            "equivalence": {
                "verdict": self.equivalence.verdict,
                "grade": self.equivalence.grade,
                "report": {"sha3_512": self.equivalence.report},
            },
            "sources": dict(self.sources),
            "chain": self.chain,
            "head": self.head,
            "sm2_id": SM2_ID.decode("ascii"),
            **{key: getattr(self, key) for key in _TEXTS},
        }
        return canonical_bytes(
            {
                "_type": STATEMENT_TYPE,
                "subject": [{"name": self.subject, "digest": dict(self.subject_digests)}],
                "predicateType": PREDICATE_TYPE,
                "predicate": predicate,
            }
        )


def read_statement(payload: bytes) -> Statement:
    """Read a payload strictly; ``MalformedError`` names the field. The bytes must be the canonical ones."""
    value = strict_json(payload)
    if canonical_bytes(value) != payload:
        raise MalformedError("the statement is not in its RFC 8785 form")
    outer = expect_object(value, "the statement", ("_type", "subject", "predicateType", "predicate"))
    for key, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if outer[key] != expected:
            raise MalformedError(f"{key} is {outer[key]!r}, not {expected!r}")
    subjects = expect_list(outer["subject"], "subject")
    if len(subjects) != 1:
        raise MalformedError(f"subject holds {len(subjects)} entries; a build proof is about one engine")
    subject = expect_object(subjects[0], "subject[0]", ("name", "digest"))
    digests = expect_object(subject["digest"], "subject[0].digest", _DIGEST_DIGITS)
    predicate = expect_object(outer["predicate"], "predicate", _PREDICATE_KEYS)
    for key, expected in (("level", LEVEL), ("sm2_id", SM2_ID.decode("ascii"))):
        if predicate[key] != expected:
            raise MalformedError(f"predicate.{key} is {predicate[key]!r}, not {expected!r}")
    triple = expect_object(
        predicate["triple"], "predicate.triple", ("model_version", "compile_config", "hardware_fingerprint")
    )
    config = expect_object(triple["compile_config"], "predicate.triple.compile_config", ("sha3_512", "source"))
    if config["source"] not in (FROM_RECORDS, FROM_ENGINE):
        raise MalformedError("predicate.triple.compile_config.source is unknown")
    sources = expect_map(predicate["sources"], "predicate.sources")
    return Statement(
        subject=expect_text(subject["name"], "subject[0].name"),
        subject_digests={
            name: expect_hex(digests[name], f"subject[0].digest.{name}", digits)
            for name, digits in _DIGEST_DIGITS.items()
        },
        model_version=expect_text(triple["model_version"], "predicate.triple.model_version"),
        compile_config=expect_hex(config["sha3_512"], "predicate.triple.compile_config.sha3_512", 128),
        compile_config_source=expect_text(config["source"], "predicate.triple.compile_config.source"),
        hardware_fingerprint=expect_text(triple["hardware_fingerprint"], "predicate.triple.hardware_fingerprint"),
        frozen_graph=_sha3(predicate["frozen_graph"], "predicate.frozen_graph"),
        policy=_sha3(predicate["policy"], "predicate.policy"),
        equivalence=_equivalence(predicate["equivalence"]),
        sources={role: expect_hex(item, f"predicate.sources.{role}", 128) for role, item in sources.items()},
        chain=predicate["chain"],
        head=expect_hex(predicate["head"], "predicate.head", 128),
        **{key: expect_text(predicate[key], f"predicate.{key}") for key in _TEXTS},
    )


def compile_config_digest(chain: Chain) -> str:
    """Hex SHA3-512 of the RFC 8785 list of ``{stage, code_version, config}`` over all records, in order."""
    settings: list[Json] = [
        {"stage": item.stage, "code_version": item.code_version, "config": dict(item.config)} for item in chain.records
    ]
    return hashlib.sha3_512(canonical_bytes(settings)).hexdigest()


def _sha3(value: Json, where: str) -> str:
    return expect_hex(expect_object(value, where, ("sha3_512",))["sha3_512"], f"{where}.sha3_512", 128)


def _equivalence(value: Json) -> Equivalence:
    where = "predicate.equivalence"
    item = expect_object(value, where, ("verdict", "grade", "report"))
    verdict = expect_text(item["verdict"], f"{where}.verdict")
    if verdict not in VERDICTS:
        raise MalformedError(f"{where}.verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
    return Equivalence(verdict, expect_text(item["grade"], f"{where}.grade"), _sha3(item["report"], f"{where}.report"))
