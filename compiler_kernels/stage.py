"""What every stage returns: artefacts and facts, with no knowledge of evidence or of Dagster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Artifact:
    """One immutable file produced or consumed by a stage.

    ``name`` is a relative POSIX path; ``data`` its exact bytes.
    """

    name: str
    data: bytes
    media_type: str = "application/octet-stream"

    @cached_property
    def sha3_512(self) -> str:
        """Hex SHA3-512 of the bytes (FIPS 202)."""
        return hashlib.sha3_512(self.data).hexdigest()

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")

    @classmethod
    def of_known_digest(cls, name: str, data: bytes, media_type: str, sha3_512: str) -> Artifact:
        """An artefact whose digest the caller has just computed or verified; hashing 50 MB again takes 0.3 s."""
        artifact = cls(name, data, media_type)
        artifact.__dict__["sha3_512"] = sha3_512
        return artifact


@dataclass(frozen=True)
class StageResult:
    """Result of one stage, a pure function of ``inputs`` and ``config``.

    ``inputs`` maps the input's role to its SHA3-512 hex digest; ``artifacts[0]`` is the principal artefact whose digest
    is the stage's data version; ``facts`` are JSON values a reader or a downstream record may quote (floats allowed
    here; ``evidence`` turns them into strings before signing).
    """

    stage: str
    code_version: str
    inputs: Mapping[str, str]
    config: Mapping[str, Json]
    artifacts: tuple[Artifact, ...]
    facts: Mapping[str, Json] = field(default_factory=dict)

    @property
    def principal(self) -> Artifact:
        return self.artifacts[0]

    def artifact(self, name: str) -> Artifact:
        """The artefact called ``name``; raises ``KeyError`` when the stage did not produce it."""
        for item in self.artifacts:
            if item.name == name:
                return item
        raise KeyError(f"stage {self.stage} has no artefact {name!r}")


def sha3_512_hex(data: bytes) -> str:
    """Hex SHA3-512 (FIPS 202) of ``data``."""
    return hashlib.sha3_512(data).hexdigest()


def as_json(value: Any) -> Json:
    """Narrow ``value`` to plain JSON (NumPy scalars and tuples become Python ones); ``TypeError`` for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    if hasattr(value, "item"):
        return as_json(value.item())
    raise TypeError(f"not a JSON value: {type(value).__name__}")
