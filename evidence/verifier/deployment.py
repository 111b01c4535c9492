"""The statement of one device that it holds a released engine, and the device's fingerprint.

Statement v1 with predicate type ``https://cuvil.dev/deployment/v1``. The fingerprint is made of the serial number and
the network addresses the operating system reports; whoever administers the machine can change both, so its grade is
``asserted``. On aarch64 the device signs with P-384 only (docs/evidence.md says why SM2 is not signed there).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_hex, expect_list, expect_object
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.subjects import Subject, encode_statement, read_subjects

DEPLOYMENT_TYPE = "https://cuvil.dev/deployment/v1"
DEPLOYMENT_SUFFIX = ".deployment.json"
ASSERTED = "asserted"
NO_SERIAL = "none reported"
_SERIALS = (
    "sys/class/dmi/id/product_serial",
    "sys/class/dmi/id/board_serial",
    "sys/firmware/devicetree/base/serial-number",
    "etc/machine-id",
)
_KEYS = ("triple", "model", "created", "created_source")
_TRIPLE = ("model_version", "compile_config", "hardware_fingerprint")


@dataclass(frozen=True)
class Fingerprint:
    """Serial number with its source, network addresses in order, grade and the SHA3-512 (hex) over them."""

    serial: str
    source: str
    mac: tuple[str, ...]
    grade: str = ASSERTED

    @property
    def digest(self) -> str:
        """Hex SHA3-512 of the RFC 8785 form of serial, source and addresses."""
        parts: list[Json] = ["cuvil-fingerprint/1", self.serial, self.source, list(self.mac)]
        return hashlib.sha3_512(canonical_bytes(parts)).hexdigest()

    def to_json(self) -> dict[str, Json]:
        return {
            "serial": self.serial,
            "source": self.source,
            "mac": list(self.mac),
            "grade": self.grade,
            "digest": self.digest,
        }


@dataclass(frozen=True)
class Deployment:
    """A parsed or to-be-signed deployment statement; ``compile_config`` as in the build proof."""

    subjects: Mapping[str, Subject]
    model: str
    model_version: str
    compile_config: Json
    fingerprint: Fingerprint
    created: str
    created_source: str

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        predicate: dict[str, Json] = {
            "triple": {
                "model_version": self.model_version,
                "compile_config": self.compile_config,
                "hardware_fingerprint": self.fingerprint.to_json(),
            },
            "model": self.model,
            "created": self.created,
            "created_source": self.created_source,
        }
        return encode_statement(self.subjects.values(), DEPLOYMENT_TYPE, predicate)


def read_deployment(payload: bytes) -> Deployment:
    """Read a payload strictly; ``MalformedError`` names the field."""
    subjects, _, found = read_subjects(payload, DEPLOYMENT_TYPE)
    item = expect_object(found, "predicate", _KEYS)
    triple = expect_object(item["triple"], "predicate.triple", _TRIPLE)
    where = "predicate.triple.hardware_fingerprint"
    print_ = expect_object(triple["hardware_fingerprint"], where, ("serial", "source", "mac", "grade", "digest"))
    if print_["grade"] != ASSERTED:
        raise MalformedError(f"{where}.grade is not {ASSERTED!r}")
    fingerprint = Fingerprint(
        text(print_["serial"], f"{where}.serial"),
        text(print_["source"], f"{where}.source"),
        tuple(text(item, f"{where}.mac") for item in expect_list(print_["mac"], f"{where}.mac")),
    )
    if expect_hex(print_["digest"], f"{where}.digest", 128) != fingerprint.digest:
        raise MalformedError(f"{where}.digest is not that of its serial and addresses")
    return Deployment(
        subjects,
        text(item["model"], "predicate.model"),
        text(triple["model_version"], "predicate.triple.model_version"),
        triple["compile_config"],
        fingerprint,
        text(item["created"], "predicate.created"),
        text(item["created_source"], "predicate.created_source"),
    )


def this_fingerprint(root: Path = Path("/")) -> Fingerprint:
    """The fingerprint of this machine, from the files below ``root`` that Linux offers.

    The serial number is the first readable one of product, board, device tree and machine id; the addresses are those
    of network interfaces with hardware behind them, or of all but the loopback one where none says so (a container).
    """
    serial, source = NO_SERIAL, NO_SERIAL
    for name in _SERIALS:
        found = _line(root / name)
        if found:
            serial, source = found, name
            break
    interfaces = _interfaces(root / "sys/class/net")
    real = [item for item in interfaces if (item / "device").exists()] or interfaces
    addresses = {_line(item / "address").lower() for item in real} - {"", "00:00:00:00:00:00"}
    return Fingerprint(serial, source, tuple(sorted(addresses)))


def _interfaces(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").split("\x00")[0].strip()
    except OSError:
        return ""
