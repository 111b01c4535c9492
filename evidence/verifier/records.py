"""Stage records: what one stage read, was told and produced, in a form that can be signed.

A record is the JSON object ``{"format", "stage", "code_version", "inputs", "config", "artifacts", "facts"}``, canonical
by RFC 8785; its bytes are what the chain hashes (``evidence/chain.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
)

FORMAT = "cuvil-stage/1"
_ARTIFACT_KEYS = ("name", "media_type", "size", "sha256", "sha3_512", "sm3")
_RECORD_KEYS = ("format", "stage", "code_version", "inputs", "config", "artifacts", "facts")


@dataclass(frozen=True)
class ArtifactRecord:
    """One file of a stage: relative POSIX name, media type, size in bytes, three digests in hex."""

    name: str
    media_type: str
    size: int
    sha256: str
    sha3_512: str
    sm3: str

    def to_json(self) -> dict[str, Json]:
        return {key: getattr(self, key) for key in _ARTIFACT_KEYS}

    @classmethod
    def from_json(cls, value: Json, where: str) -> ArtifactRecord:
        item = expect_object(value, where, _ARTIFACT_KEYS)
        size = item["size"]
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise MalformedError(f"{where}.size is not a number of bytes")
        return cls(
            relative_name(expect_text(item["name"], f"{where}.name"), where),
            expect_text(item["media_type"], f"{where}.media_type"),
            size,
            expect_hex(item["sha256"], f"{where}.sha256", 64),
            expect_hex(item["sha3_512"], f"{where}.sha3_512", 128),
            expect_hex(item["sm3"], f"{where}.sm3", 64),
        )


@dataclass(frozen=True)
class StageRecord:
    """The signable record of one stage; ``inputs`` maps a role to the SHA3-512 (hex) of what filled it."""

    stage: str
    code_version: str
    inputs: Mapping[str, str]
    config: Mapping[str, Json]
    artifacts: tuple[ArtifactRecord, ...]
    facts: Mapping[str, Json]

    @property
    def principal(self) -> ArtifactRecord:
        return self.artifacts[0]

    def artifact(self, name: str) -> ArtifactRecord | None:
        """The artefact called ``name``, or ``None``."""
        return next((item for item in self.artifacts if item.name == name), None)

    def to_json(self) -> dict[str, Json]:
        return {
            "format": FORMAT,
            "stage": self.stage,
            "code_version": self.code_version,
            "inputs": dict(self.inputs),
            "config": dict(self.config),
            "artifacts": [item.to_json() for item in self.artifacts],
            "facts": dict(self.facts),
        }

    @cached_property
    def canonical(self) -> bytes:
        """The record's RFC 8785 bytes; raises ``MalformedError`` when a text in it cannot be encoded."""
        return canonical_bytes(self.to_json())

    @classmethod
    def from_json(cls, value: Json, where: str = "record") -> StageRecord:
        """Read a record strictly; raises ``MalformedError`` naming the field."""
        item = expect_object(value, where, _RECORD_KEYS)
        if item["format"] != FORMAT:
            raise MalformedError(f"{where}.format is not {FORMAT!r}")
        inputs = expect_map(item["inputs"], f"{where}.inputs")
        artifacts = [
            ArtifactRecord.from_json(entry, f"{where}.artifacts[{index}]")
            for index, entry in enumerate(expect_list(item["artifacts"], f"{where}.artifacts"))
        ]
        return checked(
            cls(
                expect_text(item["stage"], f"{where}.stage"),
                expect_text(item["code_version"], f"{where}.code_version"),
                {role: expect_hex(digest, f"{where}.inputs.{role}", 128) for role, digest in inputs.items()},
                expect_map(item["config"], f"{where}.config"),
                tuple(artifacts),
                expect_map(item["facts"], f"{where}.facts"),
            ),
            where,
        )


def relative_name(name: str, where: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or "\\" in name:
        raise MalformedError(f"{where}: artefact name {name!r} is not a plain relative path")
    return name


def checked(record: StageRecord, where: str) -> StageRecord:
    if not record.artifacts:
        raise MalformedError(f"{where} has no artefact")
    names = [item.name for item in record.artifacts]
    if len(set(names)) != len(names):
        raise MalformedError(f"{where} has two artefacts of one name")
    return record
