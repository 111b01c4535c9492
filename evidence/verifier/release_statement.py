"""The statement of a release: every file of its folder, and what was demanded, approved and logged.

Statement v1 with predicate type ``https://cuvil.dev/release/v1``. It lies over the build proof and never replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import Json, MalformedError, expect_hex, expect_list, expect_map, expect_object
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.sm2 import SM2_ID
from evidence.verifier.subjects import Subject, encode_statement, file_name, read_subjects

RELEASE_TYPE = "https://cuvil.dev/release/v1"
RELEASE_SUFFIX = ".release.json"
# What a policy can demand; the parts are files with a verdict.
PARTS = ("equivalence", "sbom", "coverage", "reproducibility", "dataset", "decisions", "intoto")
# Parts that a policy demands in vain while their verdict is another than `passed`.
MUST_PASS = ("equivalence", "reproducibility")
DEMANDS = (*PARTS, "approvals", "timestamp")
ROLES = ("developer", "tester", "quality")
# What "approvals" means where a policy demands it without a section of its own (compiler_kernels/policy/approvals.py).
DEFAULT_ROLES, DEFAULT_THRESHOLD = ROLES, 2
_KEYS = (
    "model", "model_version", "triple", "engine", "proof", "parts", "approvals", "demanded", "policy", "clauses", "log",
    "timestamp", "material", "created", "created_source", "sm2_id",
)  # fmt: skip
_TRIPLE = ("model_version", "compile_config", "hardware_fingerprint")


@dataclass(frozen=True)
class Part:
    """One report of a release: its file, SHA3-512 (hex) and verdict in words."""

    file: str
    sha3_512: str
    verdict: str

    def to_json(self) -> dict[str, Json]:
        return {"file": self.file, "sha3_512": self.sha3_512, "verdict": self.verdict}


@dataclass(frozen=True)
class ApprovalEntry:
    """One approval as the release lists it; ``key_id`` is that of its first signature."""

    role: str
    person: str
    key_id: str
    file: str
    sha3_512: str

    def to_json(self) -> dict[str, Json]:
        return {key: getattr(self, key) for key in ("role", "person", "key_id", "file", "sha3_512")}


@dataclass(frozen=True)
class LogEntry:
    """Where the build stands in the log: ``root`` is the hex SHA-256 tree root of ``tree_size`` leaves."""

    origin: str
    tree_size: int
    leaf_index: int
    root: str
    file: str

    def to_json(self) -> dict[str, Json]:
        return {key: getattr(self, key) for key in ("origin", "tree_size", "leaf_index", "root", "file")}


@dataclass(frozen=True)
class ReleaseStatement:
    """A parsed or to-be-signed release statement; ``proof_head`` is the head of the build's chain.

    ``policy`` is the SHA3-512 of the canonical ``policy.json`` in the folder; ``clauses`` and ``log`` may be ``None``;
    ``material`` is ``Material.digest`` of what lies beside the signatures.
    """

    subjects: Mapping[str, Subject]
    model: str
    model_version: str
    triple: Mapping[str, Json]
    engine: str
    proof: Part
    parts: Mapping[str, Part]
    approvals: tuple[ApprovalEntry, ...]
    demanded: tuple[str, ...]
    policy: Part
    clauses: Mapping[str, Json] | None
    log: LogEntry | None
    stamped: bool
    material: str
    created: str
    created_source: str

    @property
    def proof_head(self) -> str:
        return self.proof.verdict

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        predicate: dict[str, Json] = {
            "model": self.model,
            "model_version": self.model_version,
            "triple": dict(self.triple),
            "engine": self.engine,
            "proof": {"file": self.proof.file, "sha3_512": self.proof.sha3_512, "head": self.proof.verdict},
            "parts": {name: part.to_json() for name, part in self.parts.items()},
            "approvals": [item.to_json() for item in self.approvals],
            "demanded": list(self.demanded),
            "policy": {"file": self.policy.file, "sha3_512": self.policy.sha3_512},
            "clauses": None if self.clauses is None else dict(self.clauses),
            "log": None if self.log is None else self.log.to_json(),
            "timestamp": {"expected": self.stamped},
            "material": {"sha3_512": self.material},
            "created": self.created,
            "created_source": self.created_source,
            "sm2_id": SM2_ID.decode("ascii"),
        }
        return encode_statement(self.subjects.values(), RELEASE_TYPE, predicate)


def read_release_statement(payload: bytes) -> ReleaseStatement:
    """Read a payload strictly; ``MalformedError`` names the field. The bytes must be the canonical ones."""
    subjects, _, found = read_subjects(payload, RELEASE_TYPE)
    item = expect_object(found, "predicate", _KEYS)
    if item["sm2_id"] != SM2_ID.decode("ascii"):
        raise MalformedError("predicate.sm2_id is not the identity of GM/T 0009")
    parts = {name: _part(value, f"predicate.parts.{name}") for name, value in _map(item, "parts").items()}
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        raise MalformedError(f"predicate.parts has the unknown key {', '.join(unknown)}")
    stamped = expect_object(item["timestamp"], "predicate.timestamp", ("expected",))["expected"]
    if not isinstance(stamped, bool):
        raise MalformedError("predicate.timestamp.expected is not true or false")
    clauses, log = item["clauses"], item["log"]
    demanded = tuple(text(name, "predicate.demanded") for name in expect_list(item["demanded"], "predicate.demanded"))
    return ReleaseStatement(
        subjects=subjects,
        model=text(item["model"], "predicate.model"),
        model_version=text(item["model_version"], "predicate.model_version"),
        triple=expect_object(item["triple"], "predicate.triple", _TRIPLE),
        engine=file_name(text(item["engine"], "predicate.engine"), "predicate.engine"),
        proof=_part(item["proof"], "predicate.proof", "head"),
        parts=parts,
        approvals=tuple(
            _approval(value, f"predicate.approvals[{index}]")
            for index, value in enumerate(expect_list(item["approvals"], "predicate.approvals"))
        ),
        demanded=demanded,
        policy=_part(item["policy"], "predicate.policy", None),
        clauses=None if clauses is None else expect_map(clauses, "predicate.clauses"),
        log=None if log is None else _log(log),
        stamped=stamped,
        material=expect_hex(
            expect_object(item["material"], "predicate.material", ("sha3_512",))["sha3_512"], "predicate.material", 128
        ),
        created=text(item["created"], "predicate.created"),
        created_source=text(item["created_source"], "predicate.created_source"),
    )


def _map(item: Mapping[str, Json], key: str) -> dict[str, Json]:
    return expect_map(item[key], f"predicate.{key}")


def _part(value: Json, where: str, last: str | None = "verdict") -> Part:
    item = expect_object(value, where, ("file", "sha3_512", *((last,) if last else ())))
    return Part(
        file_name(text(item["file"], f"{where}.file"), where),
        expect_hex(item["sha3_512"], f"{where}.sha3_512", 128),
        text(item[last], f"{where}.{last}") if last else "",
    )


def _approval(value: Json, where: str) -> ApprovalEntry:
    item = expect_object(value, where, ("role", "person", "key_id", "file", "sha3_512"))
    role = text(item["role"], f"{where}.role")
    if role not in ROLES:
        raise MalformedError(f"{where}.role {role!r} is not one of {', '.join(ROLES)}")
    return ApprovalEntry(
        role,
        text(item["person"], f"{where}.person"),
        expect_hex(item["key_id"], f"{where}.key_id", 64),
        file_name(text(item["file"], f"{where}.file"), where),
        expect_hex(item["sha3_512"], f"{where}.sha3_512", 128),
    )


def _log(value: Json) -> LogEntry:
    where = "predicate.log"
    item = expect_object(value, where, ("origin", "tree_size", "leaf_index", "root", "file"))
    return LogEntry(
        text(item["origin"], f"{where}.origin"),
        count(item["tree_size"], f"{where}.tree_size"),
        count(item["leaf_index"], f"{where}.leaf_index"),
        expect_hex(item["root"], f"{where}.root", 64),
        file_name(text(item["file"], f"{where}.file"), where),
    )


def count(value: Json, where: str) -> int:
    """``value`` as a whole number from 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedError(f"{where} is not a whole number from 0")
    return value
