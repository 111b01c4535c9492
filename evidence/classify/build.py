"""One side of a classification: a verified build, and the artefacts of it that can be found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import sha3_512_hex
from evidence.clauses.folder import stem_of
from evidence.delivered import Delivered
from evidence.verifier.canonical import MalformedError
from evidence.verifier.chain import Chain, read_chain
from evidence.verifier.dsse import read_envelope
from evidence.verifier.release import verify_release
from evidence.verifier.release_statement import RELEASE_SUFFIX
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.verify import verify_engine

Find = Callable[[str], bytes | None]
"""From a SHA3-512 (hex) to the bytes with that digest, or ``None``."""


@dataclass(frozen=True)
class Build:
    """A build whose proof holds. ``find`` looks where artefacts are kept by digest."""

    engine: Path
    statement: Statement
    chain: Chain
    find: Find

    @property
    def files(self) -> Delivered:
        return Delivered(self.engine)

    def facts(self, stage: str) -> Mapping[str, Any]:
        """Facts of the record of ``stage``; empty without one."""
        record = self.chain.record(stage)
        return record.facts if record else {}

    def digest(self, stage: str, name: str) -> str:
        """SHA3-512 of an artefact as its record states it; empty when there is none."""
        record = self.chain.record(stage)
        return next((a.sha3_512 for a in record.artifacts if a.name == name), "") if record else ""

    def document(self, stage: str, name: str) -> Any | None:
        """A JSON artefact by its recorded digest: from beside the engine, or where ``find`` looks; else ``None``."""
        digest = self.digest(stage, name)
        if not digest:
            return None
        beside = self.engine.with_name(f"{self.files.stem}.{name}")
        data = beside.read_bytes() if beside.is_file() else None
        if data is None or sha3_512_hex(data) != digest:
            data = self.find(digest)
        return None if data is None else json.loads(data)

    def sbom(self) -> Any | None:
        """The bill of materials beside the engine, ``None`` without one; ``UsageError`` for that of another engine."""
        name = self.files.report_names().get("sbom")
        if name is None:
            return None
        path = self.engine.with_name(name)
        try:
            document = json.loads(self.files.read(name))
            hashes = {h["alg"]: h["content"] for h in document["metadata"]["component"]["hashes"]}
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{path}: is no bill of materials of Cuvil; make it again with `cuvil sbom`") from None
        if hashes.get("SHA3-512") != self.statement.subject_digests["sha3_512"]:
            raise UsageError(f"{path}: is about another engine; make it again with `cuvil sbom`")
        return document


def documents(a: Build, b: Build, stage: str, name: str) -> tuple[Any, Any] | str:
    """A JSON artefact of both builds, or which of A and B lacks it: no path of this machine goes into a statement."""
    found = [build.document(stage, name) for build in (a, b)]
    missing = [name for name, item in zip("AB", found, strict=True) if item is None]
    return " and ".join(missing) if missing else (found[0], found[1])


def read_build(place: Path, trust_root: Path | None, find: Find) -> Build:
    """The build at ``place``, an engine or its folder (a release folder too).

    Raises ``UsageError`` when something is missing, and ``VerificationFailed`` when engine and proof do not belong
    together: what is classified must be what was built.
    """
    stem = stem_of(place)
    proof = stem.with_name(stem.name + ".proof.json")
    if not proof.is_file():
        raise UsageError(f"{place}: has no proof {proof.name} beside it; give an engine that `cuvil build` wrote")
    try:
        statement = read_statement(read_envelope(proof.read_bytes()).payload)
        engine = proof.with_name(statement.subject)
        if not engine.is_file():
            raise UsageError(f"{place}: lacks the engine {statement.subject} that its proof is about")
        released = any(proof.parent.glob(f"*{RELEASE_SUFFIX}"))
        report = verify_release(proof.parent, trust_root) if released else verify_engine(engine, proof, trust_root)
        report.raise_if_failed()
        chain = read_chain(statement.chain, statement.head)
    except MalformedError as error:
        raise UsageError(f"{proof}: {error}; give the proof that was delivered") from None
    except OSError as error:
        raise UsageError(f"{proof}: cannot be read ({error.strerror})") from None
    return Build(engine, statement, chain, find)
