"""The registry's own definitions: complete, valid, served like everything else, and what the server says it does."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fhir.resources import get_fhir_model_class
from registry_client import Client

from fhir_registry.definitions.conformance import conformance_resources, definition, elements, generated
from fhir_registry.definitions.snapshot import SnapshotError, snapshot
from fhir_registry.search.parameters import BASE, SERVED, parameters_of
from fhir_registry.seed import seed
from fhir_registry.server import app
from fhir_registry.subscriptions.topics import topics
from fhir_registry.validation.walk import validate

OWN = list(generated().values())
PROFILE = f"{BASE}/StructureDefinition/cuvil-model-resource"


@pytest.fixture
def seeded(registry: Client) -> Iterator[Client]:
    assert seed(registry.store) == len(OWN) + len(topics())
    yield registry


def test_definitions_are_valid_and_complete() -> None:
    for item in conformance_resources():
        assert [i for i in validate(item) if i.severity == "error"] == [], item["url"]
        get_fhir_model_class(item["resourceType"]).model_validate(item)
        if item["resourceType"] != "StructureDefinition":
            continue
        shot, change = item["snapshot"]["element"], item["differential"]["element"]
        ids = [e["id"] for e in shot]
        assert len(set(ids)) == len(ids) and {e["id"] for e in change} <= set(ids)
        assert all(e["definition"] and "base" in e and "min" in e and "max" in e for e in shot[1:])


def test_a_snapshot_says_what_base_and_differential_say() -> None:
    by_id = {e["id"]: e for e in elements(PROFILE) or ()}
    plain, sliced = by_id["DeviceDefinition.identifier"], by_id["DeviceDefinition.identifier:release"]
    assert (plain["min"], plain["max"]) == (3, "*") and "slicing" in plain
    assert (sliced["min"], sliced["max"], sliced["sliceName"]) == (1, "*", "release") and "slicing" not in sliced
    value = by_id["DeviceDefinition.identifier:release.value"]
    assert value["path"] == "DeviceDefinition.identifier.value" and value["base"]["path"] == "Identifier.value"
    assert {"ele-1", "cuvil-sha3-512"} <= {c["key"] for c in value["constraint"]}
    assert value["definition"] == by_id["DeviceDefinition.identifier:modelVersion.value"]["definition"]
    # children of a sliced backbone element are repeated, each slice with its own
    assert by_id["DeviceDefinition.property:inputProfile.value[x]"]["type"] == [{"code": "string"}]
    assert len(by_id["DeviceDefinition.property.value[x]"]["type"]) == 7
    order = list(by_id)
    assert order.index("DeviceDefinition.property:withdrawn.value[x]") < order.index("DeviceDefinition.owner")


def test_a_short_name_of_a_choice_in_a_differential() -> None:
    base = definition(f"{BASE}/StructureDefinition/cuvil-engine")
    assert base is not None
    path = "DeviceDefinition.property.valueString"
    for low, rules, types in ((1, "closed", 1), (0, "open", 7)):
        found = copy.deepcopy(base)
        found["differential"]["element"] = [{"id": path, "path": path, "min": low}]
        made = {e["id"]: e for e in snapshot(found, elements)}
        whole = made["DeviceDefinition.property.value[x]"]
        assert whole["slicing"]["rules"] == rules and len(whole["type"]) == types
        assert made["DeviceDefinition.property.value[x]:valueString"]["type"] == [{"code": "string"}]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "DeviceDefinition.color", "path": "DeviceDefinition.color"},
        {"id": "DeviceDefinition.property", "path": "DeviceDefinition.property", "max": "2", "min": -1},
        {"id": "DeviceDefinition.modelNumber", "path": "DeviceDefinition.modelNumber", "max": "2"},
        {"id": "DeviceDefinition.modelNumber.x", "path": "DeviceDefinition.modelNumber.x"},
    ],
)
def test_a_differential_that_the_base_does_not_allow(change: dict[str, Any]) -> None:
    found = copy.deepcopy(definition(PROFILE))
    assert found is not None
    found["differential"]["element"] = [change]
    with pytest.raises(SnapshotError, match=r"DeviceDefinition\."):
        snapshot(found, elements)


def test_definitions_are_read_and_found(seeded: Client) -> None:
    assert seed(seeded.store) == 0
    status, _, found = seeded.call("GET", "StructureDefinition/cuvil-model-resource")
    assert status == 200 and found["url"] == PROFILE and len(found["snapshot"]["element"]) > 200
    for item in OWN:
        assert seeded.ids(f"{item['resourceType']}?url={item['url']}") == [item["id"]]
    assert set(seeded.ids("StructureDefinition?type=DeviceDefinition")) == {"cuvil-model-resource", "cuvil-engine"}
    assert seeded.ids("SearchParameter?code=model-purpose") == ["model-purpose"]
    for kind in ("StructureDefinition", "OperationDefinition", "ConceptMap", "NamingSystem"):
        assert seeded.call("POST", kind, {"resourceType": kind})[0] == 405
        assert seeded.call("DELETE", f"{kind}/verify")[0] == 405


def test_the_map_speaks_of_every_element_of_the_logical_model() -> None:
    (table,) = (item for item in OWN if item["resourceType"] == "ConceptMap")
    logical = [e["id"] for e in elements(f"{BASE}/StructureDefinition/ModelResource") or ()][1:]
    (group,) = table["group"]
    assert sorted(e["code"] for e in group["element"]) == sorted(logical)
    known = {e["id"] for e in elements(PROFILE) or ()} | {"DeviceDefinition.meta.versionId"}
    known |= {"DeviceDefinition.meta.lastUpdated", "DeviceDefinition.manufacturer.display"}
    known.add("DeviceDefinition.modifierExtension:artifactStatus.value[x]")
    assert {t["code"] for e in group["element"] for t in e.get("target", ())} <= known


def test_a_changed_definition_becomes_a_new_version(seeded: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = tuple({**i, "title": "changed"} if i["id"] == "verify" else i for i in conformance_resources())
    monkeypatch.setattr("fhir_registry.seed.conformance_resources", lambda: newer)
    assert seed(seeded.store) == 1
    found = seeded.call("GET", "OperationDefinition/verify")[2]
    assert found["title"] == "changed" and found["meta"]["versionId"] == "2"


def test_no_operation_is_served_that_is_not_listed(seeded: Client) -> None:
    source = (Path(app.__file__)).read_text(encoding="utf-8")
    (rest,) = seeded.call("GET", "metadata")[2]["rest"]
    listed = {o["name"] for entry in rest["resource"] for o in entry["operation"]}
    assert set(re.findall(r'"\$([a-z-]+)"', source)) == listed


VALUES = {"date": "2026", "number": "1", "quantity": "1", "reference": "Organization/x"}


def test_the_capability_statement_is_honest(seeded: Client) -> None:
    """All that it lists works, and what it does not list is refused."""
    statement = seeded.call("GET", "metadata")[2]
    assert [i for i in validate(statement) if i.severity == "error"] == []
    (rest,) = statement["rest"]
    assert [r["type"] for r in rest["resource"]] == list(SERVED)
    own = {item["url"] for item in OWN}
    for entry in rest["resource"]:
        kind, codes = entry["type"], {i["code"] for i in entry["interaction"]}
        for parameter in entry["searchParam"]:
            value = VALUES.get(parameter["type"], "x")
            status, _, found = seeded.call("GET", f"{kind}?{parameter['name']}={value}")
            assert status == 200, (kind, parameter["name"], found)
            assert not parameter["definition"].startswith(BASE) or parameter["definition"] in own
        assert set(parameters_of(kind)) == {p["name"] for p in entry["searchParam"]}
        assert seeded.call("GET", f"{kind}?_text=x")[0] == 400
        assert seeded.call("GET", f"{kind}?nothing=x")[0] == 400
        for include in entry.get("searchInclude", ()):
            assert seeded.call("GET", f"{kind}?_include={include}")[0] == 200
        assert seeded.call("GET", f"{kind}/_history")[0] == 200 and seeded.call("GET", f"{kind}/none")[0] == 404
        wrong = seeded.call("POST", kind, {"resourceType": kind, "nothing": 1})[0]
        assert wrong == (422 if "create" in codes else 405)
        assert (seeded.call("PUT", f"{kind}/x", {"resourceType": kind, "nothing": 1})[0] == 405) == (
            "update" not in codes
        )
        assert (seeded.call("DELETE", f"{kind}/none")[0] == 405) == ("delete" not in codes)
        for operation in entry["operation"]:
            assert not operation["definition"].startswith(BASE) or operation["definition"] in own
            if operation["name"] != "validate":
                _, _, refused = seeded.call("GET", f"{kind}/none/${operation['name']}")
                assert "there is no" in refused["issue"][0]["details"]["text"], operation
        assert all(url in own for url in entry.get("supportedProfile", ()))
        assert seeded.call("POST", f"{kind}/$validate", {"resourceType": kind, "nothing": 1})[0] == 200
    assert not any("conditionalDelete" in entry or "conditionalPatch" in entry for entry in rest["resource"])
    assert seeded.call("DELETE", "Organization?name=x")[0] == seeded.call("PATCH", "Organization?name=x", [])[0] == 405
    organisation = {"resourceType": "Organization", "id": "new", "name": "x"}
    assert seeded.call("PUT", "Organization/new", organisation)[0] == 201  # updateCreate
    assert seeded.call("PUT", "Organization?name=x", organisation)[0] == 200  # conditionalUpdate
    assert seeded.call("POST", "Organization", organisation, {"If-None-Exist": "name=x"})[0] == 200  # conditionalCreate
    for kind in ("Patient", "Observation", "Bundle", "Nothing"):
        assert seeded.call("GET", kind)[0] == 404
    assert seeded.call("POST", "Organization/x/$everything", {})[0] == 404
