"""FHIR clients as they are published: each finds a model, reads its evidence, sees that it was withdrawn, and writes.

`make test-clients` installs all of them and lets none be skipped (``CUVIL_CLIENTS=all``).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registry_release import Released, Running, cuvil

from evidence.keys import load_keys
from fhir_registry.mapping.facts import read_facts
from fhir_registry.server.access import make_token

HERE = Path(__file__).parent
STATUS = "http://hl7.org/fhir/StructureDefinition/artifact-status"
ALL = os.environ.get("CUVIL_CLIENTS") == "all"


@pytest.fixture
def registered(running: Running, released: Released, capsys: pytest.CaptureFixture[str]) -> Running:
    cuvil("registry", "register", released.folder)
    capsys.readouterr()
    return running


@pytest.fixture
def token(registered: Running) -> Callable[[], str]:
    """A new token of a builder each time: one serves one write."""
    signer = next(s for s in load_keys(registered.home).signers if s.algorithm == "ecdsa-p384-sha384")
    return lambda: make_token(signer, registered.client.base)


def digest_of(released: Released) -> str:
    return str(read_facts(released.folder).build.sources["model.onnx"])


def withdraw() -> None:
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "a test ended")


def organisation(name: str) -> dict[str, Any]:
    return {"resourceType": "Organization", "name": name}


def test_fhirpy_finds_and_reads(registered: Running, released: Released) -> None:
    from fhirpy import SyncFHIRClient
    from fhirpy.base.exceptions import OperationOutcome, ResourceNotFound

    hospital = SyncFHIRClient(registered.client.base)
    models = hospital.resources("DeviceDefinition")
    model = models.search(identifier=digest_of(released)).get()
    for found in (
        models.search(identifier="https://cuvil.org/fhir/NamingSystem/model-version|tiny\\|1.0.0").get(),
        models.search(**{"model-purpose:contains": "made for tests"}).get(),
        models.search(**{"input-profile:contains": r"float32)[1\,1\,8\,8"}).first(),
        hospital.reference("DeviceDefinition", model["id"]).to_resource(),
    ):
        assert found["id"] == model["id"]
    assert model.get_by_path(["modifierExtension", {"url": STATUS}, "valueCode"]) == "active"
    assert models.search(**{"artifact-status": "retired"}).count() == 0
    signed = models.search(identifier=digest_of(released)).revinclude("Provenance", "target").fetch_raw()
    assert {entry["resource"]["resourceType"] for entry in signed["entry"]} == {"DeviceDefinition", "Provenance"}
    document = hospital.resources("DocumentReference").search(type="release").get()
    binary = hospital.execute(document["content"][0]["attachment"]["url"], method="get")
    assert base64.b64decode(binary["data"]) == (released.folder / "inference-engine.release.json").read_bytes()
    outcome = hospital.execute(f"DeviceDefinition/{model['id']}/$verify", method="get")
    assert outcome["issue"][0]["severity"] == "information"
    withdraw()
    again = models.search(identifier=digest_of(released)).get()
    assert again.get_by_path(["modifierExtension", {"url": STATUS}, "valueCode"]) == "retired"
    assert models.search(**{"artifact-status": "active"}).count() == 0
    with pytest.raises(OperationOutcome, match="did you mean identifier"):
        models.search(identifer="x").fetch()
    with pytest.raises(ResourceNotFound):
        hospital.reference("DeviceDefinition", "none").to_resource()


def test_fhirpy_writes(registered: Running, token: Callable[[], str]) -> None:
    from fhirpy import SyncFHIRClient
    from fhirpy.base.exceptions import (
        AuthorizationError,
        ForbiddenError,
        MultipleResourcesFound,
        OperationOutcome,
        ResourceNotFound,
    )

    base = registered.client.base

    def writer(**headers: str) -> Any:
        return SyncFHIRClient(base, authorization=f"Bearer {token()}", extra_headers=headers)

    with pytest.raises(AuthorizationError):
        SyncFHIRClient(base).resource("Organization", name="F").save()
    with pytest.raises((AuthorizationError, ForbiddenError)):
        SyncFHIRClient(base, authorization="Bearer x").resource("Organization", name="F").save()
    made = writer().resource("Organization", name="F")
    made.save()
    assert made["meta"]["versionId"] == "1"
    changed = writer(**{"If-Match": 'W/"1"'}).resource("Organization", **{**made.serialize(), "name": "F2"})
    changed.save()
    assert changed["meta"]["versionId"] == "2"
    stale = writer(**{"If-Match": 'W/"1"'}).resource("Organization", **{**made.serialize(), "name": "F3"})
    # fhirpy takes every 412 for several matches; the text says what it was.
    with pytest.raises(MultipleResourcesFound, match="current version is 2"):
        stale.save()
    with pytest.raises(OperationOutcome, match="nonsense"):
        writer().resource("Device", status="nonsense").save()
    wanted = {"system": "https://example.org/o", "value": "once"}
    for created in (True, False):
        one = writer().resources("Organization").search(identifier="https://example.org/o|once")
        _, was_created = one.get_or_create(SyncFHIRClient(base).resource("Organization", name="O", identifier=[wanted]))
        assert was_created is created
    entries = [
        {"resource": organisation(f"Page {n}"), "request": {"method": "POST", "url": "Organization"}} for n in range(25)
    ]
    bundle = writer().resource("Bundle", type="transaction", entry=entries)
    writer().execute("", data=bundle.serialize())
    paged = SyncFHIRClient(base).resources("Organization").search(name="page").sort("name").limit(4)
    names = [item["name"] for item in paged.fetch_all()]
    assert names == sorted(f"Page {n}" for n in range(25))
    assert paged.count() == 25
    writer().resource("Organization", id=made["id"]).delete()
    with pytest.raises(ResourceNotFound, match="was deleted with version 3"):
        SyncFHIRClient(base).reference("Organization", made["id"]).to_resource()


def test_fhir_pyrate(registered: Running, released: Released, token: Callable[[], str]) -> None:
    """Data frames of models, over pages."""
    if not ALL:
        pytest.importorskip("fhir_pyrate", reason="needs the extra cuvil[clients]")
    from fhir_pyrate import Pirate
    from fhir_pyrate.util.bundle_processing_templates import flatten_data

    client = registered.client
    with Pirate(base_url=client.base, auth=None, num_processes=1) as hospital:

        def frame(kind: str, **params: Any) -> Any:
            return hospital.steal_bundles_to_dataframe(kind, params, process_function=flatten_data)

        def models(**params: Any) -> Any:
            paths = [
                ("id", "id"),
                ("status", f"modifierExtension.where(url='{STATUS}').valueCode"),
                ("number", "modelNumber"),
            ]
            return hospital.steal_bundles_to_dataframe("DeviceDefinition", params, fhir_paths=paths)

        found = models(identifier=digest_of(released))
        assert found["number"].tolist() == ["1.0.0"] and found["status"].tolist() == ["active"]
        identifier = found["id"].item()
        assert models(**{"model-purpose:contains": "made for tests"})["id"].tolist() == [identifier]
        assert identifier in models(**{"input-profile:contains": r"float32)[1\,1\,8\,8"})["id"].tolist()
        documents = frame("DocumentReference", type="release")
        (address,) = documents["content_0_attachment_url"].tolist()
        _, _, data = client.raw("GET", address)
        assert data == (released.folder / "inference-engine.release.json").read_bytes()
        entries = [
            {"resource": organisation(f"Page {n}"), "request": {"method": "POST", "url": "Organization"}}
            for n in range(25)
        ]
        bundle = {"resourceType": "Bundle", "type": "transaction", "entry": entries}
        assert client.call("POST", "", bundle, {"Authorization": f"Bearer {token()}"})[0] == 200
        assert sorted(frame("Organization", name="page", _count=4)["name"]) == sorted(f"Page {n}" for n in range(25))
        assert hospital.get_bundle_total("Organization", {"name": "page", "_total": "accurate"}) == 25
        withdraw()
        assert models(identifier=digest_of(released))["status"].tolist() == ["retired"]
        assert len(models(**{"artifact-status": "active"})) == 0


@pytest.fixture
def node_modules(tmp_path: Path) -> Iterator[Path]:
    """A folder with the scripts of this one and the packages they name."""
    npm = shutil.which("npm")
    if not ALL and (npm is None or shutil.which("node") is None):
        pytest.skip("needs node 20 and npm")
    assert npm is not None
    for name in ("package.json", "fhir_kit_client.mjs"):
        shutil.copy(HERE / name, tmp_path / name)
    words = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--prefer-offline"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and not ALL:
        pytest.skip(f"npm cannot install fhir-kit-client here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    yield tmp_path


def test_fhir_kit_client(registered: Running, released: Released, token: Callable[[], str], node_modules: Path) -> None:
    def run(*tokens: str) -> Any:
        words = ["node", "fhir_kit_client.mjs", registered.client.base, digest_of(released), *tokens]
        done = subprocess.run(words, cwd=node_modules, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    said = run(*(token() for _ in range(7)))
    assert said["fhirVersion"] == "5.0.0" and said["status"] == "active" and said["verified"] == "information"
    assert len(said["byIdentifier"]) == 1 and said["byPurpose"] == said["byIdentifier"]
    assert set(said["byIdentifier"]) <= set(said["byInput"])
    assert base64.b64decode(said["evidence"]) == (released.folder / "inference-engine.release.json").read_bytes()
    assert said["missing"]["status"] == 404 and said["missing"]["type"] == "OperationOutcome"
    assert said["misspelt"]["status"] == 400 and "did you mean identifier" in said["misspelt"]["text"]
    assert said["refused"]["status"] == 401
    assert said["updated"] == "2" and said["conflict"]["status"] == 412 and said["patched"] == "K3"
    assert said["transaction"] == ["201"] * 7 and said["pages"]["pages"] == 3 and len(set(said["pages"]["found"])) == 7
    assert said["gone"]["status"] == 410
    assert said["version"] == "1" and said["history"] == 1
    withdraw()
    said = run()
    assert said["status"] == "retired" and said["active"] == 0 and said["history"] == 2
