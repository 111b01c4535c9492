"""What FHIR libraries commonly let through is refused with 422, the exact place, and words for people."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from registry_client import Client

from fhir_registry.json_text import JsonContentError, read_json
from fhir_registry.validation.walk import validate

XHTML = 'xmlns="http://www.w3.org/1999/xhtml"'
REGULATORY = {"type": "license", "deviceIdentifier": "1", "issuer": "https://e.org", "jurisdiction": "urn:iso:cn"}
ORGANISATION = {"resourceType": "Organization", "id": "o", "name": "x"}


def device(**members: Any) -> dict[str, Any]:
    return {"resourceType": "DeviceDefinition", "modelNumber": "1", **members}


def document(attachment: Any) -> dict[str, Any]:
    return {"resourceType": "DocumentReference", "status": "current", "content": [{"attachment": attachment}]}


def text_of(div: str) -> dict[str, Any]:
    return device(text={"status": "generated", "div": div})


D = "DeviceDefinition"
CASES: dict[str, tuple[dict[str, Any] | bytes, str, str]] = {
    # resource or text of it, expression, a word of the issue
    "required code": (
        device(regulatoryIdentifier=[{**REGULATORY, "type": "zzz"}]),
        f"{D}.regulatoryIdentifier[0].type",
        "'zzz'",
    ),
    "code of Device.status": ({"resourceType": "Device", "status": "nonsense-code"}, "Device.status", "nonsense-code"),
    "text for integer": (
        device(hasPart=[{"reference": {"reference": f"{D}/1"}, "count": "3"}]),
        f"{D}.hasPart[0].count",
        "number",
    ),
    "text for boolean": ({**ORGANISATION, "active": "true"}, "Organization.active", "true or false"),
    "id of 65 characters": (device(id="x" * 65), f"{D}.id", "id"),
    "empty list": (device(identifier=[]), f"{D}.identifier", "empty"),
    "empty object": (device(identifier=[{}]), f"{D}.identifier[0]", "empty"),
    "ext-1": (
        device(extension=[{"url": "u:x", "valueString": "x", "extension": [{"url": "y", "valueString": "z"}]}]),
        f"{D}.extension[0]",
        "ext-1",
    ),
    "dom-2": (
        device(contained=[{**ORGANISATION, "contained": [ORGANISATION]}], owner={"reference": "#o"}),
        D,
        "dom-2",
    ),
    "cpt-2": (device(contact=[{"value": "x"}]), f"{D}.contact[0]", "cpt-2"),
    "per-1": (
        device(contact=[{"system": "url", "value": "x", "period": {"start": "2026-02", "end": "2026-01"}}]),
        f"{D}.contact[0].period",
        "per-1",
    ),
    "target of a reference": (device(owner={"reference": "Patient/1"}), f"{D}.owner.reference", "Organization"),
    "target within": (
        device(contained=[{"resourceType": "Device", "id": "d", "lotNumber": "1"}], owner={"reference": "#d"}),
        f"{D}.owner.reference",
        "Organization",
    ),
    "script in a narrative": (text_of(f"<div {XHTML}><script>x</script></div>"), f"{D}.text.div", "txt-1"),
    "handler in a narrative": (text_of(f'<div {XHTML}><p onclick="x">x</p></div>'), f"{D}.text.div", "txt-1"),
    "narrative that is no XHTML": (text_of("<div>x</div>"), f"{D}.text.div", "txt-1"),
    "empty narrative": (text_of(f"<div {XHTML}> </div>"), f"{D}.text.div", "txt-2"),
    "ref-1": (device(owner={"reference": "#nothing"}), f"{D}.owner", "ref-1"),
    "ref-2": (device(owner={"type": "Organization"}), f"{D}.owner", "ref-2"),
    "qty-3": (
        device(property=[{"type": {"text": "x"}, "valueQuantity": {"code": "g"}}]),
        f"{D}.property[0].value",
        "qty-3",
    ),
    "rng-2": (
        device(property=[{"type": {"text": "x"}, "valueRange": {"low": {"value": 3}, "high": {"value": 1}}}]),
        f"{D}.property[0].value",
        "rng-2",
    ),
    "org-1": ({"resourceType": "Organization", "active": True}, "Organization", "org-1"),
    "NUL": (b'{"resourceType":"DeviceDefinition","modelNumber":"a\\u0000"}', f"{D}.modelNumber", "NUL"),
    "half a surrogate": (
        b'{"resourceType":"DeviceDefinition","note":[{"text":"\\ud800"}]}',
        f"{D}.note[0].text",
        "surrogate",
    ),
    "white space alone": (device(modelNumber=" \t"), f"{D}.modelNumber", "white space"),
    "member given twice": (
        b'{"resourceType":"DeviceDefinition","identifier":[{"value":"1"},{"value":"2","value":"3"}]}',
        f"{D}.identifier[1].value",
        "twice",
    ),
    "fhir_comments": (device(fhir_comments=["x"]), f"{D}.fhir_comments", "no element"),
    "uri with a space": (device(identifier=[{"system": "a b"}]), f"{D}.identifier[0].system", "uri"),
    "null without a sibling": (device(note=[None]), f"{D}.note[0]", "null"),
    "null in a list of primitives": (
        device(productionIdentifierInUDI=["lot-number", None]),
        f"{D}.productionIdentifierInUDI[1]",
        "null",
    ),
    "nothing but a type": ({"resourceType": D}, D, "needs an element"),
    "nothing but id and meta": ({"resourceType": D, "id": "x", "meta": {"source": "u:x"}}, D, "needs an element"),
    "att-1": (document({"data": "eA=="}), "DocumentReference.content[0].attachment", "att-1"),
    "empty attachment": (document({}), "DocumentReference.content[0].attachment", "empty"),
    "unknown element": (device(color="red"), f"{D}.color", "no element"),
    "list for one": (device(modelNumber=["1"]), f"{D}.modelNumber", "not a list"),
    "one for a list": (device(identifier={"value": "1"}), f"{D}.identifier", "list"),
    "two of a choice": (
        device(property=[{"type": {"text": "x"}, "valueInteger": 1, "valueString": "x"}]),
        f"{D}.property[0].valueString",
        "exclude each other",
    ),
    "date that is none": (
        {"resourceType": "Device", "manufactureDate": "2026-02-30"},
        "Device.manufactureDate",
        "2026-02-30",
    ),
    "instant without zone": (device(meta={"lastUpdated": "2026-01-01T00:00:00"}), f"{D}.meta.lastUpdated", "instant"),
    "base64 that is none": (
        document({"contentType": "a/b", "data": "???"}),
        "DocumentReference.content[0].attachment.data",
        "base64",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_place_and_words(registry: Client, name: str) -> None:
    resource, expression, word = CASES[name]
    body = resource if isinstance(resource, bytes) else json.dumps(resource).encode()
    kind = json.loads(body)["resourceType"]
    status, _, found = registry.call("POST", kind, body)
    assert status == 422
    issues = [
        (tuple(i.get("expression", ())), i["details"]["text"]) for i in found["issue"] if i["severity"] == "error"
    ]
    assert [text for place, text in issues if place == (expression,) and word in text], issues
    # and $validate says the same
    status, _, said = registry.call("POST", f"{kind}/$validate", body)
    assert status == 200 and [i for i in said["issue"] if i["severity"] == "error"] == found["issue"]


def test_a_resource_refused_for_one_thing_has_one_issue() -> None:
    for name in ("required code", "text for integer", "empty list", "uri with a space", "nothing but a type", "att-1"):
        resource = CASES[name][0]
        assert isinstance(resource, dict)
        assert len([i for i in validate(resource) if i.severity == "error"]) == 1, name


def test_what_was_sent_comes_back(registry: Client) -> None:
    """Digits of decimals, fractions of instants, base64 as written, and integer64, which is a string in JSON."""
    data = base64.b64encode(bytes(range(256))).decode()
    text = (
        '{"resourceType":"DocumentReference","status":"current","date":"2026-01-01T00:00:00.749+08:00",'
        f'"content":[{{"attachment":{{"contentType":"a/b","data":"{data}","size":"9007199254740993"}}}}]}}'
    )
    sent = json.loads(text)
    _, headers, _ = registry.raw("POST", "DocumentReference", text.encode())
    body = registry.raw("GET", headers["location"])[2].decode()
    assert text[text.index('"status"') :] in body.replace(body[body.index('"id"') : body.index('"status"')], "")
    assert json.loads(body)["content"] == sent["content"] and '"9007199254740993"' in body
    quantity = '"valueQuantity":{"value":0.9430},"type":{"text":"AUC"}'
    exact = '"valueQuantity":{"value":19.00},"type":{"text":"AUC"}'
    text = f'{{"resourceType":"DeviceDefinition","property":[{{{quantity}}},{{{exact}}}]}}'
    _, headers, _ = registry.raw("POST", "DeviceDefinition", text.encode())
    body = registry.raw("GET", headers["location"])[2].decode()
    assert quantity in body and exact in body
    assert registry.raw("GET", "DeviceDefinition?_elements=property")[2].decode().count(quantity) == 1


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (b'{"a":1,"a":2}', "a"),
        (b'[{"a":"\\u0000"}]', "[0].a"),
        (b'{"resourceType":"X","b":[{"c":{"d":1}},{"c":{"d":1,"d":1}}]}', "X.b[1].c.d"),
        (b'{"a":{"b":["x","\\u0000"]}}', "a.b"),
        (b'{"a\\u0000":1}', "a\0"),
    ],
)
def test_the_place_of_a_member_that_fhir_does_not_allow(text: bytes, expression: str) -> None:
    with pytest.raises(JsonContentError) as caught:
        read_json(text)
    assert caught.value.expression == expression
