"""Computing an archived inference again and comparing every bit of it that the record holds (docs/sessions.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.audit_erase import Subject
from evidence.sessions.archive import Archive
from evidence.sessions.engine_process import Program, in_memory
from evidence.sessions.inputs import digest_of_npy, open_input, vault_of
from evidence.sessions.record import ERASURE, INFERENCE, Record, Tensor
from evidence.verifier.canonical import Json
from evidence.verifier.errors import UsageError, VerificationFailed

_SAME_MODEL = ("arithmetic", "frozen_graph", "weights_digest")


@dataclass(frozen=True)
class Replayed:
    """The outcome for one record. ``difference`` is empty when every compared bit is equal, else names the first one.

    ``compared``: what was compared; ``engine``: identity of the engine that computed it again; ``run``: its instruction
    set and threads.
    """

    index: int
    difference: str
    compared: tuple[str, ...]
    engine: Mapping[str, Json]
    run: Mapping[str, Json]

    def to_json(self) -> dict[str, Json]:
        """One object for ``--json``."""
        return {
            "record": self.index,
            "equal": not self.difference,
            "difference": self.difference or None,
            "compared": list[Json](self.compared),
            "target": self.engine.get("target"),
            "run": dict(self.run),
        }


@dataclass(frozen=True)
class Source:
    """Where the inputs of an archive's records come from: its keys in ``home``, and what was erased."""

    home: Path
    archive: Archive
    erased: frozenset[str]
    subjects: Mapping[str, Subject]

    @staticmethod
    def of(home: Path, archive: Archive, records: list[Record]) -> Source:
        vault = vault_of(home, archive)
        erased = frozenset(item.subject for item in records if item.kind == ERASURE)
        return Source(home, archive, erased, vault.subjects() if vault else {})

    def subject(self, record: Record) -> Subject | None:
        """The subject whose salt is in the digests of ``record``, ``None`` where they have none.

        ``VerificationFailed`` ``session-erased`` when it was erased, ``UsageError`` when this home has no key of it.
        """
        if not record.fields["salted"]:
            return None
        if record.subject in self.erased:
            raise VerificationFailed(
                "session-erased",
                f"record {record.index}: its subject ({record.subject}) was erased: input and salt are gone, so it "
                "cannot be replayed, from a copy of the input either",
            )
        found = self.subjects.get(record.subject)
        if found is None:
            raise UsageError(
                f"record {record.index}: this home ({self.home / 'sessions'}) has no key of subject {record.subject}; "
                "set CUVIL_HOME to the one that ran the inference"
            )
        return found

    def files(self, record: Record, given: Mapping[str, bytes]) -> tuple[Subject | None, dict[str, bytes]]:
        """Subject and .npy files of the inputs by name, kept or ``given``; checked against the record's digests.

        ``VerificationFailed``: ``session-erased``, ``session-input`` (a kept file is missing or changed),
        ``replay-input`` (a given one is another array). ``UsageError`` where an input is neither kept nor given.
        """
        names = {tensor.name for tensor in record.inputs}
        unknown = sorted(set(given) - names)
        if unknown:
            raise UsageError(
                f"record {record.index} has no input '{unknown[0]}'; its inputs are {', '.join(sorted(names))}"
            )
        subject = self.subject(record)
        return subject, {tensor.name: self._file(record, tensor, subject, given) for tensor in record.inputs}

    def _file(self, record: Record, tensor: Tensor, subject: Subject | None, given: Mapping[str, bytes]) -> bytes:
        data = given.get(tensor.name)
        if data is None:
            if not record.fields["kept"] or subject is None:
                raise UsageError(
                    f"record {record.index}: input '{tensor.name}' was not kept; give it: --input {tensor.name}=X.npy"
                )
            return open_input(self.archive, subject, tensor)
        try:
            digest = digest_of_npy(data, tensor.dtype, subject.salt if subject else None)
        except UsageError as error:
            raise UsageError(f"the file of input '{tensor.name}' {error}") from None
        if digest != tensor.digest:
            raise VerificationFailed(
                "replay-input",
                f"record {record.index}: the file given for input '{tensor.name}' is not the one that was used: its "
                f"digest is {digest[:16]}... and {tensor.digest[:16]}... is recorded",
            )
        return data


def check_engine(record: Record, described: Mapping[str, Any], path: Path) -> None:
    """That the engine computes the recorded model; ``VerificationFailed`` ``replay-engine`` otherwise.

    Another target is welcome: the frozen graph and the weights define every bit. With the same target the
    configuration, policy included, must be the same too.
    """
    recorded = record.fields["engine"]
    assert isinstance(recorded, dict)
    keys = (*_SAME_MODEL, *(("config_digest",) if described.get("target") == recorded["target"] else ()))
    for key in keys:
        if str(described.get(key, "")).removeprefix("sha3-512:") != recorded[key]:
            raise VerificationFailed(
                "replay-engine",
                f"{path}: is not the engine of record {record.index} ({recorded['model']} {recorded['model_version']})"
                f": its {key} is {str(described.get(key, ''))[:16]}... and {str(recorded[key])[:16]}... is recorded",
            )
    if not described.get("sessions"):
        raise UsageError(f"{path}: keeps no records; give an engine whose policy has audit.sessions")


def replay_record(
    record: Record, files: Mapping[str, bytes], subject: Subject | None, engine: Program, options: list[str]
) -> Replayed:
    """Run ``engine`` on ``files`` (.npy, by input) and compare. ``options``: further words, such as ``--isa scalar``.

    ``UsageError`` when the engine cannot run at all. The new record lies in a temporary archive that is removed.
    """
    with tempfile.TemporaryDirectory(prefix="cuvil-replay-") as folder, in_memory(files) as (paths, descriptors):
        words = [word for name, path in paths.items() for word in ("--input", f"{name}={path}")]
        words += ["--output-dir", f"{folder}/out", "--session", f"{folder}/session", *options]
        code, _, said = engine.infer(words, subject, descriptors, trace=False)
        again = Archive(Path(folder) / "session")
        if code not in (0, 3) or not again.file.tail()[0]:
            raise UsageError(
                f"{engine.path}: did not compute record {record.index} again: {said.strip() or 'no answer'}"
            )
        new = again.records()[-1]
    assert new.kind == INFERENCE
    run, identity = new.fields["run"], new.fields["engine"]
    assert isinstance(run, dict) and isinstance(identity, dict)
    difference, compared = first_difference(record, new)
    return Replayed(record.index, difference, compared, identity, run)


def first_difference(old: Record, new: Record) -> tuple[str, tuple[str, ...]]:
    """The first thing in which ``new`` differs from ``old`` (empty when in none), and what was compared until then."""
    compared: list[str] = []
    for kind, before, after in (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs)):
        if kind == "output":
            for key in ("status", "failure"):
                compared.append(key)
                if old.fields[key] != new.fields[key]:
                    return f"{key} is {_said(new.fields[key])} and was {_said(old.fields[key])}", tuple(compared)
        for one, other in zip(before, after, strict=False):
            compared.append(f"{kind} {one.name}")
            if one != other:
                return f"{kind} '{one.name}' has other bits ({other.digest[:16]}..., was {one.digest[:16]}...)", tuple(
                    compared
                )
        if len(before) != len(after):
            return f"there are {len(after)} {kind}s and were {len(before)}", tuple(compared)
    for key in ("quantities", "guards", "decisions"):
        compared.append(key)
        first, second = old.fields[key], new.fields[key]
        if first == second:
            continue
        if isinstance(first, dict) and isinstance(second, dict):
            name = next(n for n in sorted({*first, *second}) if first.get(n) != second.get(n))
            return f"{key[:-1]} '{name}' is {_said(second.get(name))} and was {_said(first.get(name))}", tuple(compared)
        return f"the {key} have other bits", tuple(compared)
    return "", tuple(compared)


def _said(value: Json) -> str:
    if isinstance(value, dict):
        return " of ".join(str(part) for part in (value.get("kind"), value.get("guard")) if part)
    return "absent" if value is None else str(value).lower()
