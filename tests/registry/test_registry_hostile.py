"""What an attacker sends within HTTP: injections, bombs, tricks with addresses; refused in FHIR's words."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import random
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from registry_client import Client
from registry_serving import serving
from test_registry_rest import device, entry

from fhir_registry.definitions.types import r5
from fhir_registry.search.parameters import SERVED, parameters_of
from fhir_registry.server.json_patch import PatchError, apply_patch
from fhir_registry.validation.walk import validate

SQL = (
    "' OR '1'='1",
    "x' UNION SELECT body FROM version --",
    "x'; DROP TABLE resource; --",
    'x" OR 1=1 --',
    "x\\' OR 1=1 --",
    "%",
    "1) OR (1=1",
)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One registry for all tests that look at answers alone."""
    with serving(tmp_path_factory.mktemp("standing")) as client:
        yield client


@pytest.fixture(scope="module")
def filled(standing: Client) -> Client:
    for name in ("a", "b"):
        standing.created(device(name))
    return standing


def kept(client: Client) -> list[str]:
    return client.ids("DeviceDefinition")


def test_sql_in_every_search_parameter_is_a_value(filled: Client) -> None:
    before = kept(filled)
    held = http.client.HTTPConnection(filled.base.split("/")[2], timeout=30)
    matched = []
    for kind in SERVED:
        for number, (code, parameter) in enumerate(parameters_of(kind).items()):
            for modifier in ("", ":exact", ":contains") if parameter.type == "string" else ("",):
                text = SQL[number % len(SQL)]
                held.request("GET", f"/fhir/{kind}?{quote(code + modifier)}={quote(text)}")
                answer = held.getresponse()
                found = json.loads(answer.read())
                assert answer.status in (200, 400), (kind, code, found)
                if found.get("entry"):
                    matched.append((kind, code, text))
    held.close()
    assert matched == []
    assert kept(filled) == before


@pytest.mark.parametrize(
    "name", ["_sort", "_elements", "_cursor", "_include", "_revinclude", "_count", "_summary", "_total", "_has"]
)
@pytest.mark.parametrize("text", SQL)
def test_sql_in_what_shapes_a_result(filled: Client, name: str, text: str) -> None:
    status, _, found = filled.call("GET", f"DeviceDefinition?{name}={quote(text)}")
    assert status == (200 if name == "_elements" else 400), found


@pytest.mark.parametrize(
    "items",
    [["1' OR 1=1"], ["x", "1"], [], ["9" * 30], [1], "x", {"a": 1}, [None], ["-1"], ["²"], ["1", "2", "3", "4", "5"]],
)
def test_a_cursor_somebody_made(filled: Client, items: Any) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(items).encode()).decode().rstrip("=")
    assert filled.call("GET", f"DeviceDefinition?_cursor={cursor}")[0] == 400
    assert filled.call("GET", f"DeviceDefinition/_history?_cursor={cursor}")[0] == 400


def test_fhirpath_in_values_is_text(filled: Client) -> None:
    """Expressions come from the definitions alone; nobody may bring one."""
    texts = ("where(true)", "%resource.repeat($this)", "descendants()", "' + %resource.id + '", "iif(true, 1/0, 2)")
    for text in texts:
        made = filled.created(
            device("path", modelNumber=text, property=[{"type": {"text": text}, "valueString": text}])
        )
        assert made["modelNumber"] == text
        assert filled.call("GET", f"DeviceDefinition?identifier={quote(text)}")[2].get("entry") is None
    own = {
        "resourceType": "SearchParameter", "url": "https://example.org/p", "name": "P", "status": "active",
        "description": "x", "code": "p", "base": ["Device"], "type": "string", "expression": "Device.descendants()",
    }  # fmt: skip
    assert filled.call("POST", "SearchParameter", own)[0] == 405


@pytest.mark.parametrize("path", ["Device", "", "Device/$validate", "DeviceDefinition/x"])
@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\x00", b"\xff\xfe{\x00}\x00", b'{"resourceType":', b"[" * 10_000,
        b'{"a":' * 10_000, b'{"resourceType":"Device","extension":' + b'[{"url":"u","extension":' * 10_000,
        b'{"resourceType":"Device","resourceType":"Patient"}', b'{"resourceType":"Device","a\\ud800b":["\\ud800"]}',
        b'{"resourceType":["Device"]}',
        b'{"resourceType":{"a":1}}', b'{"resourceType":"Device","id":1e400}', b'"' + b"x" * 100_000 + b'"',
    ],
    ids=lambda b: repr(b[:24]),
)  # fmt: skip
def test_bodies_that_are_no_resource(standing: Client, path: str, body: bytes) -> None:
    status, _, found = standing.call("PUT" if path.endswith("/x") else "POST", path, body)
    if path.endswith("$validate") and status == 200:
        assert found["issue"][0]["severity"] in ("error", "fatal")
    else:
        assert status in (400, 422), (status, found)


def test_a_compressed_bomb_is_not_opened(standing: Client) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    for coding in ("gzip", "br", "deflate, gzip", "x"):
        assert standing.call("POST", "Device", bomb, {"Content-Encoding": coding})[0] == 415


def test_a_patch_cannot_grow_without_end() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"} for _ in range(200)]
    begin = time.process_time()
    with pytest.raises(PatchError) as refused:
        apply_patch({"a": [1]}, doubling)
    assert refused.value.status == 413
    assert time.process_time() - begin < 10


def test_bundles_with_what_is_not_known(registry: Client) -> None:
    unknown = entry("POST", "Nothing", {"resourceType": "Nothing"})
    other = entry("POST", "Device", {"resourceType": "Nothing"})
    wrong = entry("POST", "DeviceDefinition", device("x", owner={"reference": "Patient/1"}))
    dangling = entry("POST", "DeviceDefinition", device("x", owner={"reference": "urn:uuid:none"}))
    circle = []
    for number in (0, 1):
        model = device("x", hasPart=[{"reference": {"reference": f"urn:uuid:{1 - number}"}}])
        circle.append(entry("POST", "DeviceDefinition", model, fullUrl=f"urn:uuid:{number}"))
    for kind in ("batch", "transaction"):
        for one in (unknown, other, wrong):
            status, _, found = registry.call("POST", "", {"resourceType": "Bundle", "type": kind, "entry": [one]})
            if status == 200:
                assert found["entry"][0]["response"]["status"] in ("400", "422")
            else:
                assert status in (400, 422) and "Bundle.entry[0]" in json.dumps(found)
    status, _, found = registry.call("POST", "", {"resourceType": "Bundle", "type": "transaction", "entry": circle})
    assert status == 200, found
    assert registry.call("POST", "", {"resourceType": "Bundle", "type": "transaction", "entry": [dangling]})[0] < 500
    many = [entry("GET", "Device")] * 501
    assert registry.call("POST", "", {"resourceType": "Bundle", "type": "batch", "entry": many})[0] == 413


def test_a_binary_in_a_batch_is_json(registry: Client) -> None:
    """Its own bytes between ours would let it say anything in our name."""
    data = base64.b64encode(b'{"resourceType":"Patient"},"response":{"status":"200"}},{"x":').decode()
    made = registry.created({"resourceType": "Binary", "contentType": "application/fhir+json", "data": data})
    batch = {"resourceType": "Bundle", "type": "batch", "entry": [entry("GET", f"Binary/{made['id']}")]}
    found = registry.call("POST", "", batch)[2]
    assert len(found["entry"]) == 1 and found["entry"][0]["resource"] == made


@pytest.mark.parametrize("sent", ["text/html", "text/html\r\nX-Injected: 1", "image/svg+xml", "a/b; x=\u00e9"])
def test_a_binary_never_runs_in_a_browser(standing: Client, sent: str) -> None:
    data = base64.b64encode(b"<script>alert(1)</script>").decode()
    status, _, made = standing.call("POST", "Binary", {"resourceType": "Binary", "contentType": sent, "data": data})
    if status != 201:
        assert status == 422
        return
    status, headers, _ = standing.raw("GET", f"Binary/{made['id']}")
    assert status == 200 and "x-injected" not in headers
    assert headers["content-disposition"] == "attachment" and headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]


@pytest.mark.parametrize(
    "place",
    [
        "Device/..", "Device/%2e%2e", "Device/..%2f..%2fetc%2fpasswd", "../registry.sqlite", "%2e%2e/registry.sqlite",
        "Device/%00", "Device/a%00b", "Device/a%0d%0aX-Injected:%201", "Device/%252e%252e", "Device/%ff%fe",
        "Device%2fa", "Device/a/_history/1%2f..", "Device/a/_history/%D9%A1", "Device/a/_history/99999999999999999999",
        "%44evice/" + "x" * 65, "Device//a", "./Device", "Device/a;b=c", "DEVICE", "_history/1", "$x",
        "Device/$x/y/z/w",
    ],
)  # fmt: skip
def test_tricks_with_addresses(standing: Client, place: str) -> None:
    status, headers, found = standing.call("GET", place)
    assert status in (400, 404, 405), (status, found)
    assert "x-injected" not in headers


def test_an_address_is_decoded_once(registry: Client) -> None:
    assert registry.call("PUT", "Organization/a", {"resourceType": "Organization", "id": "a", "name": "O"})[0] == 201
    assert registry.call("GET", "Organization/%61")[0] == 200
    assert registry.call("GET", "Organization/%2561")[0] == 404
    assert registry.call("GET", "Organization%2fa")[0] == 404


def test_line_ends_do_not_reach_the_headers(standing: Client) -> None:
    text = quote("a\r\nX-Injected: 1\r\n\r\n<script>")
    for path in (f"Device?_id={text}", f"Device?{text}=1", f"{text}", f"Device/{text}"):
        _, headers, _ = standing.call("GET", path)
        assert "x-injected" not in headers
    status, headers, _ = standing.call("POST", "Device", {"resourceType": "Device"}, {"If-None-Exist": f"_id={text}"})
    assert status in (201, 400, 422) and "x-injected" not in headers


def test_a_method_is_what_it_is(registry: Client) -> None:
    made = registry.created(device("kept"))
    place = f"DeviceDefinition/{made['id']}"
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        assert registry.call("GET", place, headers={name: "DELETE"})[0] == 200
        assert registry.call("POST", place, {}, {name: "DELETE"})[0] in (400, 404, 405)
    assert registry.call("GET", f"{place}?_method=DELETE")[0] in (200, 400)
    assert registry.call("GET", place)[0] == 200
    for method in ("TRACE", "OPTIONS", "PROPFIND"):
        status, _, text = registry.raw(method, place)
        assert status == 405 and json.loads(text)["resourceType"] == "OperationOutcome", method


def test_long_and_many(registry: Client) -> None:
    assert registry.call("GET", "Device?identifier=" + "a" * 30_000)[0] in (200, 400)
    assert registry.call("GET", "Device?" + "&".join(f"a{n}=1" for n in range(300)))[0] == 400
    assert registry.call("GET", "Device?" + "&".join("identifier=a" for _ in range(21)))[0] == 400
    assert registry.call("GET", "Device?identifier=" + ",".join("a" for _ in range(300)))[0] == 400
    assert registry.call("GET", "Device?_id=" + "a,b," * 90 + "c")[0] in (200, 400)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert registry.call("POST", "Device/_search", b"identifier=" + b"a" * (7 << 20), form)[0] in (200, 400)


def evil_texts() -> list[str]:
    rng = random.Random(1)
    seeds = ["a", " ", "0", "A=", "a.", "1.", "-", "urn:", "http://", "a a ", "AAA", "\t\n", "2026-01-01T", "/a", "+"]
    return [s * (20_000 // len(s)) + end for s in seeds for end in ("!", "\n", "")] + [
        "".join(rng.choice("a0 .:-/=+") for _ in range(20_000)) + "!"
    ]


def test_no_pattern_takes_more_than_linear_time() -> None:
    """Regular expressions of the definitions meet texts of whoever writes: each answers at once."""
    structure = r5().structure("Parameters")
    assert structure is not None
    names = [
        n for n, (_, k) in structure.children["Parameters.parameter"].items() if k is not None and k.code[0].islower()
    ]
    assert len(names) > 15
    slow = []
    for name in names:  # what is not linear takes minutes for these
        for text in evil_texts():
            begin = time.process_time()
            validate({"resourceType": "Parameters", "parameter": [{"name": "x", name: text}]})
            if time.process_time() - begin > 5:
                slow.append((name, text[:20], len(text)))
    assert slow == []


def test_eight_megabytes_of_small_elements(registry: Client) -> None:
    items = b",".join([b'{"value":"a"}'] * 590_000)
    body = b'{"resourceType":"DeviceDefinition","identifier":[' + items + b"]}"
    assert registry.call("POST", "DeviceDefinition", body)[0] == 413
    assert registry.call("POST", "$validate", body)[0] == 413


def test_invariants_that_take_too_long_are_said(registry: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some invariants of R5 are quadratic: this one takes minutes, and meanwhile others are answered."""
    monkeypatch.setattr("fhir_registry.validation.walk.MOST_SECONDS", 0.2)
    actors = [{"key": f"a{n}", "type": "person", "title": f"t{n}"} for n in range(150)]
    steps = [{"operation": {"title": "x", "initiator": f"a{n}"}} for n in range(150)]
    scenario = {"resourceType": "ExampleScenario", "status": "draft", "actor": actors}
    scenario["process"] = [{"title": "x", "step": steps}]
    found = registry.call("POST", "$validate", scenario)[2]
    assert "too-costly" in [issue["code"] for issue in found["issue"]]


def test_references_within_are_not_quadratic() -> None:
    inside = [{"resourceType": "DeviceDefinition", "id": f"o{n}", "modelNumber": "x"} for n in range(3000)]
    parts = [{"reference": {"reference": f"#o{n}"}} for n in range(3000)]
    begin = time.process_time()
    issues = validate({"resourceType": "DeviceDefinition", "contained": inside, "hasPart": parts})
    assert time.process_time() - begin < 10
    assert issues == []
    dangling = validate({"resourceType": "Device", "definition": {"reference": {"reference": "#no"}}})
    assert "invariant" in {i.code for i in dangling}
