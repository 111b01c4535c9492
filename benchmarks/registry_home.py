"""A registry to measure: a temporary home with a builder's key, a store filled with models, the server as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evidence.keys import init_keys, load_keys
from evidence.verifier.signing import P384
from fhir_registry.search.extract import index_rows
from fhir_registry.server.access import make_token
from fhir_registry.store.base import Store, Write

SYSTEM = "https://example.org/models"
_STATUS = "http://hl7.org/fhir/StructureDefinition/artifact-status"
_PROPERTY = "https://cuvil.org/fhir/CodeSystem/model-property"
_FINDINGS = "pneumonia nodule effusion fracture haemorrhage oedema embolism stenosis".split()
_BATCH = 2000
MAKERS = 97


def maker(number: int) -> dict[str, Any]:
    return {"resourceType": "Organization", "name": f"Manufacturer {number}", "active": True}


def model(number: int) -> dict[str, Any]:
    """A DeviceDefinition of about 2.3 KB, as the pipeline writes them."""
    finding, size = _FINDINGS[number % len(_FINDINGS)], 32 << number % 5
    digest = f"{number:064x}" * 2
    return {
        "resourceType": "DeviceDefinition",
        "modifierExtension": [{"url": _STATUS, "valueCode": "retired" if number % 10 == 0 else "active"}],
        "description": f"Finds {finding} on chest radiographs. Model {number}.",
        "identifier": [
            {"system": SYSTEM, "value": f"model-{number}|1.0.0"},
            {"system": "urn:sha3-512:release", "value": digest},
            {"system": "urn:sha3-512:model", "value": digest[::-1]},
        ],
        "manufacturer": {"reference": f"Organization/maker-{number % MAKERS}"},
        "deviceName": [{"name": f"{finding} finder {number}", "type": "registered-name"}],
        "modelNumber": "1.0.0",
        "classification": [{"type": {"coding": [{"system": SYSTEM, "code": f"class-{number % 3}"}]}}],
        "conformsTo": [{"specification": {"coding": [{"system": SYSTEM, "code": f"standard-{number % 7}"}]}}],
        "version": [
            {"type": {"text": "model version"}, "value": "1.0.0"},
            {"type": {"text": "compile config"}, "value": digest[:64]},
        ],
        "property": [
            _property("inputProfile", f"image: tensor(float32)[1,1,{size},{size}]"),
            _property("outputProfile", f"probability: tensor(float32)[1,{number % 9 + 1}]"),
            _property("modelDigest", f"sha3-512:{digest}"),
            _property("configDigest", f"sha3-512:{digest[::-1]}"),
        ],
        "guideline": {"intendedUse": f"Second reading for {finding}; a physician decides. Made for measurements."},
    }


def _property(code: str, text: str) -> dict[str, Any]:
    return {"type": {"coding": [{"system": _PROPERTY, "code": code}]}, "valueString": text}


def fill(store: Store, resources: int, progress: Callable[[int], None]) -> None:
    """Write ``resources`` models with the ids ``m-0`` and on, and their manufacturers."""
    items = [(f"maker-{number}", maker(number)) for number in range(MAKERS)]
    for start in range(0, resources + 1, _BATCH):
        items += [(f"m-{number}", model(number)) for number in range(start, min(resources, start + _BATCH))]
        store.commit([Write("PUT", r["resourceType"], name, r, tuple(index_rows(r))) for name, r in items])
        items = []
        progress(min(resources, start + _BATCH))


class Server:
    """``base``: what tokens are for; ``pid``: the process whose CPU time counts."""

    def __init__(self, base: str, pid: int, home: Path) -> None:
        self.base, self.pid = base, pid
        address = urlsplit(base)
        assert address.hostname is not None and address.port is not None
        self.host, self.port, self._path = address.hostname, address.port, address.path
        self._signer = next(s for s in load_keys(home).signers if s.algorithm == P384)

    def get(self, path: str) -> bytes:
        return f"GET {self._path}/{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n\r\n".encode()

    def post(self, path: str, body: bytes) -> bytes:
        """A create with a token of its own."""
        head = (
            f"POST {self._path}/{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Authorization: Bearer {make_token(self._signer, self.base, seconds=300)}\r\n"
            f"Content-Type: application/fhir+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@contextmanager
def running(home: Path, *options: str) -> Iterator[Server]:
    """``cuvil registry serve`` over ``home``, as users start it."""
    init_keys(home)
    process = subprocess.Popen(
        [sys.executable, "-m", "cuvil_assets.cli", "registry", "serve", "--port", "0", *options],
        env={**os.environ, "CUVIL_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address.endswith("/metadata"):
            raise RuntimeError("the registry did not start; see above")
        yield Server(address.removesuffix("/metadata"), process.pid, home)
    finally:
        process.terminate()
        process.communicate(timeout=30)
