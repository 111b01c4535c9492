"""From a release to what a hospital sees: registered, found by fhirpy, verified where it lies, withdrawn."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from fhir.resources import get_fhir_model_class
from registry_release import Released, Running, cuvil
from tiny_models import ModelMaker

from cuvil_assets.builder import open_instance
from cuvil_assets.cli import main
from cuvil_assets.home import Home
from evidence.keys import load_keys
from fhir_registry.definitions.conformance import elements
from fhir_registry.definitions.types import r5
from fhir_registry.mapping.facts import read_facts
from fhir_registry.search.parameters import BASE
from fhir_registry.server.access import make_token
from fhir_registry.validation.walk import validate


def test_from_a_release_to_what_a_hospital_sees(
    running: Running, released: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    from fhirpy import SyncFHIRClient
    from fhirpy.base.exceptions import OperationOutcome

    client = running.client
    cuvil("registry", "register", released.folder)
    assert "resources written" in capsys.readouterr().out
    with open_instance(Home(running.home)) as instance:
        event = instance.get_latest_materialization_event(dg.AssetKey("model_resource"))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.partition == "tiny-1.0.0|x86_64-linux-musl"
    cuvil("registry", "register", released.folder, "--json")
    assert json.loads(capsys.readouterr().out)["changed"] == 0
    hospital = SyncFHIRClient(client.base)
    found = hospital.resources("DeviceDefinition")
    digest = read_facts(released.folder).build.sources["model.onnx"]
    model = found.search(identifier=digest).get()
    assert model["modelNumber"] == "1.0.0"
    assert [c["type"]["text"] for c in model["classification"]] == ["Class III", "21-03-02"]
    assert model["regulatoryIdentifier"][0]["type"] == "license"
    assert model["conformsTo"][0] == {
        "category": {"text": "software life cycle"},
        "specification": {"text": "IEC 62304"},
        "version": ["2006+A1:2015"],
    }
    assert found.search(**{"model-purpose:contains": "made for tests"}).get()["id"] == model["id"]
    assert found.search(**{"input-profile:contains": r"float32)[1\,1\,8\,8"}).get()["id"] == model["id"]
    assert not found.search(**{"input-profile:contains": r"float32)[1\,1\,8\,9"}).fetch()
    assert found.search(identifier=r"tiny\|1.0.0").get()["id"] == model["id"]
    with pytest.raises(OperationOutcome, match="is no system"):
        found.search(identifier="tiny|1.0.0").fetch()
    assert found.search(**{"artifact-status": "active", "manufacturer.name": "example"}).count() == 2
    status, _, view = client.call("GET", f"DeviceDefinition/{model['id']}/$model-resource")
    assert status == 200 and view["status"] == "active" and view["modelPurpose"] == "Finds nothing; made for tests."
    assert view["inputProfile"] == ["image: tensor(float32)[1,1,8,8]"] and view["outputConfidence"] is None
    assert not_of_the_logical_model(view) == []
    _, _, outcome = client.call("GET", f"DeviceDefinition/{model['id']}/$verify")
    assert outcome["issue"][0]["severity"] == "information" and "checks of the release hold" in str(outcome["issue"][0])
    history = client.call("GET", f"Provenance?target=DeviceDefinition/{model['id']}")[2]["entry"][0]["resource"]
    assert history["target"][0]["reference"] == f"DeviceDefinition/{model['id']}/_history/1"
    assert {s["sigFormat"] for s in history["signature"]} == {
        "application/vnd.cuvil.sm2-sm3",
        "application/vnd.cuvil.ecdsa-p384-sha384",
    }
    # the very bytes of the release, by any client
    document = client.call("GET", "DocumentReference?type=release")[2]["entry"][0]["resource"]
    address = f"{client.base}/{document['content'][0]['attachment']['url']}"
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.read() == (released.folder / "inference-engine.release.json").read_bytes()
        assert answer.headers["Content-Disposition"] == "attachment"
    for kind in ("DeviceDefinition", "DocumentReference", "Provenance", "Organization", "Binary"):
        for item in client.call("GET", f"{kind}?_count=100")[2].get("entry", ()):
            assert validate(item["resource"]) == []
            # a second opinion, from models generated elsewhere
            get_fhir_model_class(kind).model_validate(item["resource"])
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "a test ended")
    view = client.call("GET", f"DeviceDefinition/{model['id']}/$model-resource")[2]
    assert view["status"] == "retired" and view["withdrawn"].endswith(": a test ended")
    assert found.search(**{"artifact-status": "active"}).count() == 0
    issues = client.call("GET", f"DeviceDefinition/{model['id']}/$verify")[2]["issue"]
    assert "withdrawn" in issues[1]["details"]["text"]
    assert main(["registry", "register", str(released.folder)]) == 2
    capsys.readouterr()
    cuvil("registry", "list")
    assert "retired  tiny|1.0.0" in capsys.readouterr().out
    cuvil("registry", "audit")
    assert "events in one chain" in capsys.readouterr().out


@pytest.mark.slow
def test_releases_for_two_targets_are_one_model_and_withdrawn_together(
    running: Running, released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_model: ModelMaker
) -> None:
    policy, engine, arm = released.folder.parent / "policy.yaml", tmp_path / "b" / "engine.bin", tmp_path / "arm"
    cuvil("build", "--model", tiny_model(), "--policy", policy, "--target", "aarch64-linux-musl",
          "--input-shape", "image=1,1,8,8", "--output", engine, "--equivalence-inputs", "1")  # fmt: skip
    cuvil("sbom", engine)
    cuvil("release", engine, "--output", arm)
    client = running.client
    cuvil("registry", "register", released.folder)
    cuvil("registry", "register", arm)
    capsys.readouterr()
    for release in (released.folder, arm):
        cuvil("registry", "register", release, "--json")
        said = json.loads(capsys.readouterr().out)
        assert said["changed"] == 0 and said["version"] == 2
    model = client.call("GET", f"DeviceDefinition/{said['id']}")[2]
    assert len(model["hasPart"]) == 2
    digests = {i["value"] for i in model["identifier"]}
    assert digests > {read_facts(release).digest for release in (released.folder, arm)}
    outcome = client.call("GET", f"DeviceDefinition/{said['id']}/$verify")[2]
    assert outcome["issue"][0]["details"]["text"] == "all 54 checks of the 2 releases hold"
    page = client.raw("GET", f"{client.base.removesuffix('/fhir')}/models/{said['id']}")[2].decode()
    assert page.count('class="step holds"') == 2 * 2 * 12 and "does not hold" not in page
    cuvil("registry", "withdraw", "tiny|1.0.0", "--reason", "a test ended")
    assert client.call("GET", "DeviceDefinition?artifact-status=active&_total=accurate")[2]["total"] == 0
    assert client.call("GET", "DeviceDefinition?artifact-status=retired&_total=accurate")[2]["total"] == 3


def test_a_deployed_engine_is_a_device(
    running: Running, released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, client = tmp_path / "release", running.client
    cuvil("registry", "register", released.folder)
    shutil.copytree(released.folder, here)
    cuvil("deploy", here)
    capsys.readouterr()
    cuvil("registry", "register", here, "--json")
    said = json.loads(capsys.readouterr().out)
    facts = read_facts(here)
    assert facts.deployed is not None and facts.zip == read_facts(released.folder).zip
    fingerprint = facts.deployed.statement.fingerprint
    # the statement as Binary and DocumentReference, and the Device; the release itself was there
    assert said["changed"] == 3 and said["device"].startswith("device-")
    device = client.call("GET", f"Device/{said['device']}")[2]
    assert device["serialNumber"] == fingerprint.serial and device["status"] == "active"
    assert [v["value"] for v in device["version"]][::2] == ["tiny-1.0.0", fingerprint.digest]
    assert device["version"][0]["installDate"] == facts.deployed.statement.created
    assert not set(fingerprint.mac) & set(json.dumps(device).split('"'))
    engine = device["definition"]["reference"]["reference"]
    assert client.ids(f"Device?definition={engine}") == client.ids("Device?definition.artifact-status=active")
    documents = client.call("GET", "DocumentReference?type=deployment")[2]["entry"]
    assert [d["resource"]["content"][0]["attachment"]["title"] for d in documents] == [facts.deployed.name]
    for item in [device, *(d["resource"] for d in documents)]:
        assert [i for i in validate(item) if i.severity == "error"] == []
    bundle = tmp_path / "deployed.zip"
    cuvil("bundle", here, "--output", bundle)
    capsys.readouterr()
    cuvil("registry", "register", bundle, "--json")
    assert json.loads(capsys.readouterr().out)["changed"] == 0


def not_of_the_logical_model(view: dict[str, Any]) -> list[str]:
    """Members of a flat view that the logical model ModelResource does not have, or has otherwise."""
    listed = elements(f"{BASE}/StructureDefinition/ModelResource") or []
    known = {e["path"].partition(".")[2]: e for e in listed[1:]}
    wrong = [name for name in view if name not in known]
    for name, element in known.items():
        value = view.get(name)
        many = element["max"] == "*"
        values = value if isinstance(value, list) else [value] if value is not None else []
        if isinstance(value, list) is not many or len(values) < element["min"]:
            wrong.append(name)
        code = element["type"][0]["code"]
        pattern = r5().pattern(code)
        wrong += [name for v in values if v and pattern is not None and pattern.fullmatch(v) is None]
    return wrong


def test_what_is_no_verified_release_is_not_registered(
    running: Running, released: Released, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(released.folder, copy)
    proof = copy / "inference-engine.proof.json"
    proof.write_bytes(proof.read_bytes().replace(b"1", b"2", 1))
    assert main(["registry", "register", str(copy), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["check"]
    assert main(["registry", "register", str(tmp_path)]) in (1, 2)
    assert main(["registry", "withdraw", "tiny|9", "--reason", "x"]) == 2
    assert main(["registry", "withdraw", "tiny|9", "--reason", " "]) == 2
    assert main(["registry", "list"]) == 0
    assert "0 model versions" in capsys.readouterr().out


ORGANISATION = {"resourceType": "Organization", "name": "O"}


def test_writes_need_a_builders_token(running: Running) -> None:
    client = running.client
    status, headers, _ = client.call("POST", "Organization", ORGANISATION)
    assert status == 401 and headers["www-authenticate"].startswith("Bearer")
    signer = next(s for s in load_keys(running.home).signers if s.algorithm == "ecdsa-p384-sha384")

    def post(token: str) -> int:
        return client.call("POST", "Organization", ORGANISATION, {"Authorization": f"Bearer {token}"})[0]

    token = make_token(signer, client.base)
    assert post(token) == 201
    assert post(token) == 403  # once only
    assert post(make_token(signer, "https://another.org/fhir")) == 403
    # Who was sent a token for itself may not use it here by calling this server by its own name.
    elsewhere = {"Authorization": f"Bearer {make_token(signer, 'http://another.org/fhir')}", "Host": "another.org"}
    assert client.call("POST", "Organization", ORGANISATION, elsewhere)[0] == 403
    assert post(make_token(signer, client.base, now=time.time() - 600)) == 403
    assert post(make_token(signer, client.base, now=time.time() + 600)) == 403
    assert post(make_token(signer, client.base, seconds=4000)) == 403
    head, claims, signature = make_token(signer, client.base).split(".")
    assert post(f"{head}.{claims}.{signature[:-4]}AAAA") == 403
    assert post(f"eyJhbGciOiJub25lIn0.{claims}.") == 403
    assert post("x") == 403
    assert client.call("POST", "Organization", ORGANISATION, {"Authorization": "Basic eDp5"})[0] == 401
    assert client.call("POST", "Organization/$validate", ORGANISATION)[0] == 200
    assert client.call("DELETE", "Organization/x")[0] == 401


def test_a_key_of_somebody_else_is_refused(running: Running, home_maker: Callable[[], Path]) -> None:
    from evidence.keys import init_keys

    other = init_keys(home_maker())
    signer = next(s for s in other.signers if s.algorithm == "ecdsa-p384-sha384")
    token = make_token(signer, running.client.base)
    status = running.client.call("POST", "Organization", ORGANISATION, {"Authorization": f"Bearer {token}"})[0]
    assert status == 403
