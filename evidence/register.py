"""The authority's own record of issued keys: ``register.json``, read strictly and replaced whole."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    expect_list,
    expect_object,
    expect_text,
    strict_base64,
    strict_json,
)
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small
from evidence.verifier.times import parse_time, time_text

FORMAT = "cuvil-ca-register/1"
_OPTIONAL = ("successor", "revoked_at", "reason", "invalidity_date", "endorsements")


@dataclass(frozen=True)
class Issued:
    """One set of keys: the folder ``name``, its owner, and what became of it; times are aware, in UTC.

    ``successor``: name of the set that replaces it. ``endorsements``: by algorithm, the predecessor's signatures.
    """

    name: str
    person: str
    role: str
    purpose: str
    successor: str | None = None
    revoked_at: datetime | None = None
    reason: str | None = None
    invalidity_date: datetime | None = None
    endorsements: dict[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        optional: dict[str, Json] = {
            "successor": self.successor,
            "revoked_at": None if self.revoked_at is None else time_text(self.revoked_at),
            "reason": self.reason,
            "invalidity_date": None if self.invalidity_date is None else time_text(self.invalidity_date),
            "endorsements": {k: base64.b64encode(v).decode("ascii") for k, v in self.endorsements.items()} or None,
        }
        fields: dict[str, Json] = {
            "name": self.name,
            "person": self.person,
            "role": self.role,
            "purpose": self.purpose,
        }
        return fields | {key: value for key, value in optional.items() if value is not None}


@dataclass
class Register:
    """All issued sets in the order of issue, and the numbers of the last keyring and the last revocation lists."""

    issued: list[Issued]
    keyring_version: int
    crl_number: int

    def named(self, name: str) -> Issued:
        """The set of that name; ``UsageError`` when there is none."""
        found = next((item for item in self.issued if item.name == name), None)
        if found is None:
            known = ", ".join(item.name for item in self.issued) or "none"
            raise UsageError(f"{name!r} is no issued set of keys; those issued are: {known}")
        return found

    def current(self, person: str, role: str) -> Issued | None:
        """The set of ``person`` in ``role`` that is neither replaced nor revoked."""
        return next(
            (
                item
                for item in self.issued
                if (item.person, item.role) == (person, role) and item.successor is None and item.revoked_at is None
            ),
            None,
        )

    def put(self, item: Issued) -> None:
        """Add ``item``, or replace the one of its name."""
        names = [other.name for other in self.issued]
        if item.name in names:
            self.issued[names.index(item.name)] = item
        else:
            self.issued.append(item)

    def save(self, path: Path) -> None:
        body: dict[str, Json] = {
            "format": FORMAT,
            "keyring_version": self.keyring_version,
            "crl_number": self.crl_number,
            "issued": [item.to_json() for item in self.issued],
        }
        replace_file(path, (json.dumps(body, indent=2, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> Register:
        """Read a register; ``UsageError`` naming the file."""
        data = read_small(path, "register", "restore it from a copy")
        try:
            value = expect_object(strict_json(data), "object", ("format", "keyring_version", "crl_number", "issued"))
            if value["format"] != FORMAT:
                raise MalformedError(f"format is not {FORMAT!r}")
            numbers = [value[name] for name in ("keyring_version", "crl_number")]
            if not all(isinstance(number, int) and number >= 0 for number in numbers):
                raise MalformedError("keyring_version or crl_number is no whole number")
            issued = [_issued(item, f"issued[{i}]") for i, item in enumerate(expect_list(value["issued"], "issued"))]
        except MalformedError as error:
            raise UsageError(f"{path}: the register {error}; restore it from a copy") from None
        return cls(issued, int(str(numbers[0])), int(str(numbers[1])))


def _issued(value: Json, where: str) -> Issued:
    item = expect_object(value, where, ("name", "person", "role", "purpose"), _OPTIONAL)
    texts = {name: expect_text(item[name], f"{where}.{name}") for name in ("name", "person", "role", "purpose")}
    times = {n: parse_time(item[n], f"{where}.{n}") for n in ("revoked_at", "invalidity_date") if n in item}
    signed = item.get("endorsements", {})
    if not isinstance(signed, dict):
        raise MalformedError(f"{where}.endorsements is not an object")
    return Issued(
        texts["name"],
        texts["person"],
        texts["role"],
        texts["purpose"],
        expect_text(item["successor"], f"{where}.successor") if "successor" in item else None,
        times.get("revoked_at"),
        expect_text(item["reason"], f"{where}.reason") if "reason" in item else None,
        times.get("invalidity_date"),
        {name: strict_base64(expect_text(text, where), f"{where}.endorsements") for name, text in signed.items()},
    )


def replace_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write ``path`` so that a reader sees the old or the new content, never a part."""
    descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    Path(name).replace(path)
