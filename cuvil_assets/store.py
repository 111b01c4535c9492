"""Content store and action cache: what was computed once is looked up, and every hit is verified by rehashing.

A process rehashes a file once, and again when its inode, size or time of change differs from when it did.

``cas/<SHA3-512>`` holds artefacts by digest, ``ac/<key>`` stage results by action key. A file that does not match its
name or its own digest counts as absent and is replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Artifact, Json, StageResult, sha3_512_hex
from cuvil_assets.files import write_atomic

FORMAT = "cuvil-result/1"
# Packages whose code takes part in stage results besides Cuvil's own.
TOOLS = ("numpy", "onnx", "pydantic", "pyyaml", "ziglang")


# Files this process has hashed: path, inode, size and time of change to digest.
_HASHED: dict[tuple[str, int, int, int], str] = {}


class ContentStore:
    """Immutable bytes by SHA3-512 under ``root``/cas."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "cas"

    def put(self, data: bytes, digest: str = "") -> str:
        """Store ``data``, replacing a damaged copy, and return its digest; ``UsageError`` when that is impossible.

        ``digest`` is that of ``data`` where the caller knows it.
        """
        digest = digest or sha3_512_hex(data)
        if not self.holds(digest):
            self._write(self.folder / digest, data)
        return digest

    def find(self, digest: str) -> bytes | None:
        """The bytes with this digest, or ``None`` when they are absent or damaged."""
        path = self.folder / digest
        try:
            identity = _identity(path)
            data = path.read_bytes()
        except OSError:
            return None
        if _HASHED.get(identity) != digest:
            if sha3_512_hex(data) != digest:
                return None
            _HASHED[identity] = digest
        return data

    def holds(self, digest: str) -> bool:
        """Whether ``find`` would return bytes."""
        try:
            known = _HASHED.get(_identity(self.folder / digest)) == digest
        except OSError:
            return False
        return known or self.find(digest) is not None

    def _write(self, path: Path, data: bytes) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, data, 0o444)
        except OSError as error:
            raise UsageError(
                f"{path.parent}: the store cannot be written ({error.strerror}); free space or set CUVIL_HOME elsewhere"
            ) from error


def _identity(path: Path) -> tuple[str, int, int, int]:
    state = path.stat()
    return str(path), state.st_ino, state.st_size, state.st_ctime_ns


class ActionCache(ContentStore):
    """A content store that also remembers which action gave which result."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.actions = root / "ac"

    def save(self, result: StageResult) -> dict[str, Json]:
        """Store every artefact of ``result``; returns the result as JSON that refers to them by digest."""
        for artifact in result.artifacts:
            self.put(artifact.data, artifact.sha3_512)
        return encode(result)

    def load(self, document: Mapping[str, Json]) -> StageResult | None:
        """The result ``save`` described, or ``None`` when an artefact is gone, damaged, or the form is wrong."""
        try:
            return decode(document, self)
        except (KeyError, TypeError, ValueError):
            return None

    def remember(self, key: str, result: StageResult) -> None:
        """Enter ``result`` under the action key ``key``."""
        body = json.dumps(self.save(result), sort_keys=True)
        entry = {"result": body, "sha3_512": sha3_512_hex(body.encode())}
        self._write(self.actions / key, (json.dumps(entry) + "\n").encode())

    def recall(self, key: str) -> StageResult | None:
        """The verified result of the action ``key``, or ``None``."""
        try:
            entry = json.loads((self.actions / key).read_bytes())
            body = str(entry["result"])
            if sha3_512_hex(body.encode()) != entry["sha3_512"]:
                return None
            document = json.loads(body)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return self.load(document) if isinstance(document, dict) else None


@dataclass(frozen=True)
class Action:
    """What determines a stage result; ``key`` is its SHA3-512 over canonical JSON."""

    stage: str
    code_version: str
    inputs: Mapping[str, str]
    config: Mapping[str, Json]

    @property
    def key(self) -> str:
        parts = ["cuvil-action/1", self.stage, self.code_version, dict(self.inputs), dict(self.config), tools()]
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha3_512(text.encode()).hexdigest()


@lru_cache(maxsize=1)
def tools() -> dict[str, str]:
    """Installed versions of ``TOOLS``: an upgrade never meets an old cache entry."""
    found = {}
    for name in TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


def encode(result: StageResult) -> dict[str, Json]:
    """``result`` as JSON, artefacts by digest."""
    return {
        "format": FORMAT,
        "stage": result.stage,
        "code_version": result.code_version,
        "inputs": dict(result.inputs),
        "config": dict(result.config),
        "facts": dict(result.facts),
        "artifacts": [
            {"name": a.name, "media_type": a.media_type, "size": len(a.data), "sha3_512": a.sha3_512}
            for a in result.artifacts
        ],
    }


def decode(document: Mapping[str, Json], store: ContentStore) -> StageResult:
    """Inverse of ``encode``. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for anything not of that form."""
    if document["format"] != FORMAT:
        raise ValueError("unknown format")
    inputs, config, facts, listed = (document[k] for k in ("inputs", "config", "facts", "artifacts"))
    if not (
        isinstance(inputs, dict) and isinstance(config, dict) and isinstance(facts, dict) and isinstance(listed, list)
    ):
        raise TypeError("not a stage result")
    artifacts = []
    for item in listed:
        if not isinstance(item, dict):
            raise TypeError("not an artefact")
        data = store.find(str(item["sha3_512"]))
        if data is None:
            raise ValueError("an artefact is missing or damaged")
        name, media_type = str(item["name"]), str(item["media_type"])
        artifacts.append(Artifact.of_known_digest(name, data, media_type, str(item["sha3_512"])))
    if not artifacts:
        raise ValueError("a stage result needs an artefact")
    return StageResult(
        str(document["stage"]),
        str(document["code_version"]),
        {role: str(digest) for role, digest in inputs.items()},
        config,
        tuple(artifacts),
        facts,
    )
