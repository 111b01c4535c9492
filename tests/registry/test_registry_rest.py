"""The interactions of FHIR R5 over HTTP: versions, conditions, searches, patches, bundles, every kind of refusal."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from registry_client import Client
from test_registry_validation import DEVICE

from fhir_registry.validation.walk import validate


def device(name: str, **more: Any) -> dict[str, Any]:
    found = {k: v for k, v in DEVICE.items() if k != "id"}
    found["identifier"] = [{"system": "https://example.org/models", "value": name}]
    found["deviceName"] = [{"name": name, "type": "registered-name"}]
    return {**found, **more}


def test_create_read_update_delete_and_history(registry: Client) -> None:
    status, headers, made = registry.call("POST", "DeviceDefinition", device("a"))
    assert status == 201 and headers["etag"] == 'W/"1"'
    assert headers["location"] == f"{registry.base}/DeviceDefinition/{made['id']}/_history/1"
    assert made["meta"]["versionId"] == "1" and validate(made) == []
    place = f"DeviceDefinition/{made['id']}"
    status, headers, found = registry.call("GET", place)
    assert (status, found) == (200, made)
    assert registry.call("GET", place, headers={"If-None-Match": headers["etag"]})[0] == 304
    made["partNumber"] = "7"
    status, headers, second = registry.call("PUT", place, made, {"If-Match": 'W/"1"'})
    assert status == 200 and headers["etag"] == 'W/"2"' and second["partNumber"] == "7"
    assert registry.call("PUT", place, made, {"If-Match": 'W/"1"'})[0] == 412
    assert registry.call("GET", f"{place}/_history/1")[2]["meta"]["versionId"] == "1"
    assert registry.call("DELETE", place)[0] == 204
    assert registry.call("GET", place)[0] == 410
    assert registry.call("DELETE", place)[0] == 204
    status, _, history = registry.call("GET", f"{place}/_history")
    assert [e["request"]["method"] for e in history["entry"]] == ["DELETE", "PUT", "POST"]
    assert history["total"] == 3 and validate(history) == []
    assert registry.ids("DeviceDefinition") == []
    assert registry.call("GET", "DeviceDefinition/none")[0] == 404
    assert registry.call("DELETE", "DeviceDefinition/none")[0] == 404
    assert registry.call("PUT", "DeviceDefinition/mine", {**device("m"), "id": "mine"})[0] == 201


def test_numbers_come_back_with_their_digits(registry: Client) -> None:
    made = device("digits", property=[{"type": {"text": "AUC"}, "valueQuantity": {"value": 1}}])
    text = json.dumps(made).replace('"value": 1}', '"value": 0.9430}').encode()
    status, _, body = registry.raw("POST", "DeviceDefinition", text)
    assert status == 201 and b'"value":0.9430' in body


def test_conditional_create_by_many_at_once_makes_one(registry: Client) -> None:
    answers: list[tuple[int, str]] = []

    def go() -> None:
        condition = {"If-None-Exist": "identifier=https://example.org/models|once"}
        status, _, found = registry.call("POST", "DeviceDefinition", device("once"), condition)
        answers.append((status, found["id"]))

    threads = [threading.Thread(target=go) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status for status, _ in answers) == [200] * 15 + [201]
    assert len({identifier for _, identifier in answers}) == 1


def test_conditional_update(registry: Client) -> None:
    where = "DeviceDefinition?identifier=https://example.org/models|c"
    assert registry.call("PUT", where, device("c"))[0] == 201
    status, _, found = registry.call("PUT", where, device("c", partNumber="2"))
    assert status == 200 and found["partNumber"] == "2" and found["meta"]["versionId"] == "2"
    registry.created(device("c"))
    assert registry.call("PUT", where, device("c"))[0] == 412
    assert registry.call("PUT", "DeviceDefinition", device("c"))[0] == 400


def test_searches(registry: Client) -> None:
    owner = registry.created({"resourceType": "Organization", "name": "Université Ärzte", "active": True})
    made = {}
    for number in range(7):
        more: dict[str, Any] = {"guideline": {"intendedUse": f"Finds disease number {number} in radiographs"}}
        if number % 2:
            more["owner"] = {"reference": f"Organization/{owner['id']}"}
        made[number] = registry.created(device(f"model-{number}", **more))["id"]
    ids = registry.ids
    assert ids("DeviceDefinition?identifier=https://example.org/models|model-3") == [made[3]]
    assert ids("DeviceDefinition?identifier=model-3,model-5") == [made[3], made[5]]
    assert ids("DeviceDefinition?identifier=https://other.org|model-3") == []
    assert ids("DeviceDefinition?device-name=MODEL-2") == [made[2]]
    assert ids("DeviceDefinition?device-name:contains=del-4") == [made[4]]
    assert ids("DeviceDefinition?device-name:exact=Model-4") == []
    assert ids("DeviceDefinition?model-purpose:contains=number%206") == [made[6]]
    assert ids("DeviceDefinition?organization:missing=true") == [made[0], made[2], made[4], made[6]]
    assert ids(f"DeviceDefinition?organization=Organization/{owner['id']}&device-name=model-1") == [made[1]]
    assert ids("DeviceDefinition?organization.name=universite") == [made[1], made[3], made[5]]
    assert ids("DeviceDefinition?organization:Organization.active=true&_sort=-device-name") == [
        made[5],
        made[3],
        made[1],
    ]
    assert ids("DeviceDefinition?_sort=-device-name&_count=2") == [made[n] for n in (6, 5, 4, 3, 2, 1, 0)]
    assert ids("DeviceDefinition?_sort=-_lastUpdated,device-name&_count=3") == [made[n] for n in (6, 5, 4, 3, 2, 1, 0)]
    assert ids("DeviceDefinition?_lastUpdated=ge2020-01-01") == list(made.values())
    assert ids("DeviceDefinition?_lastUpdated=lt2020") == []
    assert ids(f"DeviceDefinition?_id={made[0]},{made[1]}") == [made[0], made[1]]
    _, _, page = registry.call("GET", "DeviceDefinition?device-name=model-1&_include=DeviceDefinition:organization")
    assert [(e["resource"]["resourceType"], e["search"]["mode"]) for e in page["entry"]] == [
        ("DeviceDefinition", "match"),
        ("Organization", "include"),
    ]
    _, _, page = registry.call("GET", "Organization?name=universi&_revinclude=DeviceDefinition:organization")
    assert len(page["entry"]) == 4
    _, _, page = registry.call("GET", "DeviceDefinition?_total=accurate&_count=2&_elements=deviceName")
    assert page["total"] == 7 and len(page["entry"]) == 2
    assert "guideline" not in page["entry"][0]["resource"] and "deviceName" in page["entry"][0]["resource"]
    assert page["entry"][0]["resource"]["meta"]["tag"][0]["code"] == "SUBSETTED"
    assert registry.call("GET", "DeviceDefinition?_summary=count")[2]["total"] == 7
    form = b"identifier=model-3&_count=1"
    status, _, page = registry.call(
        "POST", "DeviceDefinition/_search", form, {"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert status == 200 and page["entry"][0]["resource"]["id"] == made[3]


def test_pages_hold_while_others_write(registry: Client) -> None:
    first = [registry.created(device(f"p{n}"))["id"] for n in range(6)]
    _, _, page = registry.call("GET", "DeviceDefinition?_count=3&_summary=data")
    seen = [e["resource"]["id"] for e in page["entry"]]
    registry.call("DELETE", f"DeviceDefinition/{first[0]}")
    registry.created(device("later"))
    following = next(link["url"] for link in page["link"] if link["relation"] == "next")
    assert "_summary=data" in following
    rest = registry.ids(following)
    assert seen == first[:3] and rest[:3] == first[3:] and len(rest) == 4


REFUSED = [
    ("GET", "Nothing", None, 404),
    ("GET", "DeviceDefinition?identifer=x", None, 400),
    ("GET", "DeviceDefinition?identifier=", None, 400),
    ("GET", "DeviceDefinition?identifier:above=x", None, 400),
    ("GET", "DeviceDefinition?_lastUpdated=yesterday", None, 400),
    ("GET", "DeviceDefinition?_count=many", None, 400),
    ("GET", "DeviceDefinition?_sort=color", None, 400),
    ("GET", "DeviceDefinition?_include=Device:definition", None, 400),
    ("GET", "DeviceDefinition?_cursor=abc", None, 400),
    ("GET", "DeviceDefinition?_cursor=WyIxIiwgInguIl0", None, 400),
    ("GET", "DeviceDefinition?organization.name.x=1", None, 400),
    ("GET", "DeviceDefinition/%2e%2e%2f", None, 404),
    ("GET", "DeviceDefinition/x/_history/0", None, 404),
    ("GET", "DeviceDefinition/x/y/z/w", None, 404),
    ("PUT", "DeviceDefinition/x", {**DEVICE, "id": "y"}, 400),
    ("POST", "DeviceDefinition", {"resourceType": "DeviceDefinition", "color": "red"}, 422),
    ("POST", "DeviceDefinition", {"resourceType": "Device"}, 400),
    ("POST", "DeviceDefinition", b"{", 400),
    ("POST", "DeviceDefinition", b'{"resourceType":"DeviceDefinition","partNumber":"1","partNumber":"2"}', 422),
    ("POST", "Device", {"resourceType": "Device", "status": "nonsense-code"}, 422),
    ("POST", "DocumentReference", {"resourceType": "DocumentReference", "status": "current", "content": []}, 422),
    ("POST", "StructureDefinition", {"resourceType": "StructureDefinition"}, 405),
    ("POST", "", {"resourceType": "Bundle", "type": "collection"}, 400),
    ("PATCH", "DeviceDefinition/none", [{"op": "add", "path": "/x", "value": 1}], 404),
    ("TRACE", "DeviceDefinition", None, 405),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED, ids=[f"{m} {p}"[:40] for m, p, _, _ in REFUSED])
def test_refusals_are_outcomes(registry: Client, method: str, path: str, body: Any, status: int) -> None:
    assert registry.call(method, path, body)[0] == status


def test_what_is_not_served_is_said(registry: Client) -> None:
    assert registry.call("GET", "metadata", headers={"Accept": "application/fhir+xml"})[0] == 406
    assert registry.call("GET", "metadata?_format=xml")[0] == 406
    assert registry.call("GET", "metadata?_format=json")[0] == 200
    assert registry.call("POST", "Device", b"<Device/>", {"Content-Type": "application/fhir+xml"})[0] == 415
    assert registry.call("GET", "DeviceDefinition?nope=1", headers={"Prefer": "handling=lenient"})[0] == 200
    assert registry.call("POST", "Device", b"x" * (9 << 20))[0] == 413


def test_the_statement_of_capabilities_is_valid(registry: Client) -> None:
    _, _, found = registry.call("GET", "metadata")
    assert [i for i in validate(found) if i.severity == "error"] == []


def test_patch(registry: Client) -> None:
    made = registry.created(device("p"))
    place, patch = f"DeviceDefinition/{made['id']}", {"Content-Type": "application/json-patch+json"}
    change = [
        {"op": "test", "path": "/deviceName/0/name", "value": "p"},
        {"op": "add", "path": "/partNumber", "value": "9"},
    ]
    status, _, found = registry.call("PATCH", place, change, patch)
    assert status == 200 and found["partNumber"] == "9" and found["meta"]["versionId"] == "2"
    assert registry.call("PATCH", place, change, {**patch, "If-Match": 'W/"1"'})[0] == 412
    assert registry.call("PATCH", place, [{"op": "test", "path": "/partNumber", "value": "8"}], patch)[0] == 422
    assert registry.call("PATCH", place, [{"op": "remove", "path": "/nothing"}], patch)[0] == 422
    assert registry.call("PATCH", place, [{"op": "add", "path": "/color", "value": "red"}], patch)[0] == 422
    assert registry.call("PATCH", place, [{"op": "replace", "path": "/id", "value": "other"}], patch)[0] == 422
    assert registry.call("PATCH", place, [{"op": "jump", "path": ""}], patch)[0] == 400
    assert registry.call("GET", place)[2]["meta"]["versionId"] == "2"


def entry(method: str, url: str, resource: Any = None, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"request": {"method": method, "url": url}, **more}
    return found if resource is None else {**found, "resource": resource}


def test_a_transaction_is_all_or_nothing(registry: Client) -> None:
    organisation = {"resourceType": "Organization", "name": "O"}
    model = device("t", owner={"reference": "urn:uuid:05efabf0-4be2-4561-91ce-51548425acb9"})
    bundle = {
        "resourceType": "Bundle",
        "type": "transaction",
        "entry": [
            entry("POST", "DeviceDefinition", model),
            entry("POST", "Organization", organisation, fullUrl="urn:uuid:05efabf0-4be2-4561-91ce-51548425acb9"),
            entry("GET", "Organization?name=O"),
        ],
    }
    status, _, found = registry.call("POST", "", bundle)
    assert status == 200 and [e["response"]["status"] for e in found["entry"]] == ["201", "201", "200"]
    owner = found["entry"][0]["resource"]["owner"]["reference"]
    assert registry.call("GET", owner)[2]["name"] == "O"
    assert registry.ids("DeviceDefinition?organization.name=O") == [found["entry"][0]["resource"]["id"]]
    bad = {**bundle, "entry": [*bundle["entry"], entry("POST", "Device", {"resourceType": "Device", "status": "x"})]}
    status, _, outcome = registry.call("POST", "", bad)
    assert status == 422 and outcome["issue"][0]["expression"] == ["Bundle.entry[3].resource.status"]
    late = {**bundle, "entry": [*bundle["entry"][:2], entry("DELETE", "DeviceDefinition/none")]}
    assert registry.call("POST", "", late)[0] == 404
    assert len(registry.ids("DeviceDefinition")) == 1 and len(registry.ids("Organization")) == 1


def test_a_batch_answers_each_entry(registry: Client) -> None:
    entries = [
        entry("POST", "Organization", {"resourceType": "Organization", "name": "B"}),
        entry("POST", "Organization", {"resourceType": "Organization", "color": 1}),
        entry("GET", "Organization/none"),
        entry("GET", "Organization?name=Z"),
    ]
    status, _, found = registry.call("POST", "", {"resourceType": "Bundle", "type": "batch", "entry": entries})
    assert status == 200
    assert [e["response"]["status"] for e in found["entry"]] == ["201", "422", "404", "200"]


def test_validate(registry: Client) -> None:
    status, _, found = registry.call("POST", "DeviceDefinition/$validate", DEVICE)
    assert status == 200 and found["issue"][0]["severity"] == "information"
    status, _, found = registry.call("POST", "DeviceDefinition/$validate", {**DEVICE, "color": "red"})
    assert status == 200 and found["issue"][0]["expression"] == ["DeviceDefinition.color"]
