"""The validator: good resources without a complaint, and everything that FHIR libraries commonly let through."""

from __future__ import annotations

import copy
import re
from decimal import Decimal
from typing import Any

import pytest
from fhirpathpy.engine.invocations import invocation_registry
from hypothesis import given
from hypothesis import strategies as st

from fhir_registry.definitions.types import r5
from fhir_registry.json_text import JsonError, read_json, write_json
from fhir_registry.validation.invariants import BY_HAND, NOT_EVALUATED, narrative_problem
from fhir_registry.validation.issues import operation_outcome
from fhir_registry.validation.moments import interval
from fhir_registry.validation.paths import compiled
from fhir_registry.validation.walk import validate

DEVICE: dict[str, Any] = {
    "resourceType": "DeviceDefinition",
    "id": "cxr-1",
    "identifier": [{"system": "https://example.org/models", "value": "cxr-1.0"}],
    "regulatoryIdentifier": [
        {"type": "license", "deviceIdentifier": "1", "issuer": "https://example.org", "jurisdiction": "urn:iso:cn"}
    ],
    "deviceName": [{"name": "cxr", "type": "registered-name"}],
    "version": [{"value": "1.0"}],
    "property": [{"type": {"text": "inputProfile"}, "valueString": "tensor(float32)[1,1,28,28]"}],
    "guideline": {"intendedUse": "Demonstration."},
    "conformsTo": [{"specification": {"text": "IEC 62304"}}],
    "contact": [{"system": "url", "value": "https://example.org"}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """``DEVICE`` with ``value`` at ``path`` (``None`` removes)."""
    found: Any = copy.deepcopy(DEVICE)
    place, parts = found, [int(p) if p.isdigit() else p for p in path.split(".")]
    for part in parts[:-1]:
        place = place[part]
    if value is None:
        del place[parts[-1]]
    else:
        place[parts[-1]] = value
    return dict(found)


def errors(resource: Any) -> list[tuple[str, str]]:
    return [(item.code, item.expression) for item in validate(resource) if item.severity == "error"]


def test_a_good_resource_has_no_issue() -> None:
    assert validate(DEVICE) == []


BAD: list[tuple[str, Any, tuple[str, str]]] = [
    ("color", "red", ("structure", "DeviceDefinition.color")),
    ("regulatoryIdentifier.0.type", "zzz", ("code-invalid", "DeviceDefinition.regulatoryIdentifier[0].type")),
    ("regulatoryIdentifier.0.issuer", None, ("required", "DeviceDefinition.regulatoryIdentifier[0].issuer")),
    ("regulatoryIdentifier.0.issuer", "a b", ("value", "DeviceDefinition.regulatoryIdentifier[0].issuer")),
    ("id", "x" * 65, ("value", "DeviceDefinition.id")),
    ("identifier", [], ("structure", "DeviceDefinition.identifier")),
    ("identifier", {"value": "x"}, ("structure", "DeviceDefinition.identifier")),
    ("identifier.0", {}, ("structure", "DeviceDefinition.identifier[0]")),
    ("identifier.0.value", " ", ("value", "DeviceDefinition.identifier[0].value")),
    ("identifier.0.value", 3, ("value", "DeviceDefinition.identifier[0].value")),
    ("identifier", [None], ("structure", "DeviceDefinition.identifier[0]")),
    ("property.0.valueInteger", 3, ("structure", "DeviceDefinition.property[0].valueInteger")),
    ("property.0.valueString", None, ("required", "DeviceDefinition.property[0].value")),
    ("owner", {"reference": "Patient/1"}, ("structure", "DeviceDefinition.owner.reference")),
    ("owner", {"reference": "Nothing/1"}, ("value", "DeviceDefinition.owner.reference")),
    ("extension", [{"url": "https://e.org"}], ("invariant", "DeviceDefinition.extension[0]")),
    (
        "extension",
        [{"url": "https://e.org", "valueString": "x", "extension": [{"url": "u", "valueString": "y"}]}],
        ("invariant", "DeviceDefinition.extension[0]"),
    ),
    ("contained", [{"resourceType": "Organization", "id": "o", "name": "x"}], ("invariant", "DeviceDefinition")),
    ("contained", [{"resourceType": "Nothing"}], ("not-supported", "DeviceDefinition.contained[0]")),
    ("contact.0.rank", 0, ("value", "DeviceDefinition.contact[0].rank")),
    ("contact.0.rank", "3", ("value", "DeviceDefinition.contact[0].rank")),
    ("contact.0.rank", True, ("value", "DeviceDefinition.contact[0].rank")),
    (
        "contact.0.period",
        {"start": "2026-02-01", "end": "2026-01-31"},
        ("invariant", "DeviceDefinition.contact[0].period"),
    ),
    ("text", {"status": "generated", "div": "<div>x</div>"}, ("invariant", "DeviceDefinition.text.div")),
    ("_partNumber", {}, ("structure", "DeviceDefinition.partNumber")),
    ("meta", {"lastUpdated": "2026-01-01"}, ("value", "DeviceDefinition.meta.lastUpdated")),
]


@pytest.mark.parametrize(("path", "value", "wanted"), BAD, ids=[f"{p}={v!r}"[:50] for p, v, _ in BAD])
def test_what_is_wrong_is_found_at_its_place(path: str, value: Any, wanted: tuple[str, str]) -> None:
    assert wanted in errors(changed(path, value))


@pytest.mark.parametrize(
    "resource",
    [
        {"resourceType": "Device", "status": "nonsense-code"},
        {"resourceType": "Patient", "gender": "zzz"},
        {"resourceType": "Patient", "active": "true"},
        {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": {"resourceType": "FooType"}}]},
        {"resourceType": "Nothing"},
        {},
        [],
        None,
        "x",
    ],
)
def test_these_are_refused(resource: Any) -> None:
    assert errors(resource)


def test_primitive_siblings() -> None:
    extension = {"extension": [{"url": "https://e.org", "valueString": "x"}]}
    patient = {"resourceType": "Patient", "_birthDate": extension}
    assert errors(patient) == []
    name = {"given": ["A", None], "_given": [None, extension]}
    assert errors({"resourceType": "Patient", "name": [name]}) == []
    assert errors({"resourceType": "Patient", "name": [{"given": ["A", None]}]})
    assert errors({"resourceType": "Patient", "name": [{"given": ["A"], "_given": [None, extension]}]})
    assert errors({"resourceType": "Patient", "_name": extension})


def test_decimals_keep_their_digits() -> None:
    data = b'{"a":0.9430,"b":19.00,"c":-1,"d":0.00000000000000000000001,"e":9007199254740993}'
    assert write_json(read_json(data)) == data.replace(b"0.00000000000000000000001", b"1E-23")
    assert read_json(b"0.9430") == Decimal("0.9430")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'"\\ud800"  ]',
        b'{"a":"\\ud800"}',
        b'{"a":"\\u0000"}',
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 70 + b"1" + b"}" * 70,
        b"1e999999999",
        b"1" * 500,
    ],
)
def test_text_that_is_refused(data: bytes) -> None:
    with pytest.raises(JsonError):
        read_json(data)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.text(st.characters(exclude_categories=["Cs"])).filter(lambda t: "\0" not in t),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdefgh"), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_json_round_trip(value: Any) -> None:
    assert read_json(write_json(value)) == value


@given(values)
def test_the_validator_takes_any_value(value: Any) -> None:
    for resource in (value, {"resourceType": "DeviceDefinition", "property": value, "identifier": value}):
        issues = validate(resource)
        assert operation_outcome(issues)["resourceType"] == "OperationOutcome"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<div xmlns="http://www.w3.org/1999/xhtml"><p>x</p></div>', ""),
        ('<div xmlns="http://www.w3.org/1999/xhtml"><a href="#x">x</a></div>', ""),
        ('<div xmlns="http://www.w3.org/1999/xhtml"><script>x</script></div>', "it holds <script>"),
        ('<div xmlns="http://www.w3.org/1999/xhtml"><p onclick="x">x</p></div>', "it holds the attribute onclick"),
        ('<div xmlns="http://www.w3.org/1999/xhtml"><a href="javascript:x">x</a></div>', "it refers to 'javascript:x'"),
        ("<div>x</div>", "it is no div of XHTML"),
        ('<!DOCTYPE d [<!ENTITY x "y">]><div>&x;</div>', "it holds a declaration, comment or processing instruction"),
    ],
)
def test_narratives(text: str, problem: str) -> None:
    assert narrative_problem(text) == problem


def test_intervals_of_time() -> None:
    assert interval("2026-02") == (interval("2026-02-01")[0], interval("2026-03-01")[0])  # type: ignore[index]
    assert interval("2026-01-01T00:00:00+08:00") == interval("2025-12-31T16:00:00Z")
    for text in ("2026-13", "2026-02-30", "26", "2026-01-01T25:00:00Z", "2026-01-01T00:00:00+99:00", "x"):
        assert interval(text) is None


def test_every_invariant_but_those_named_is_evaluated() -> None:
    """Parsed, and of functions that the path engine has, or written by hand."""
    kinds = [r5().structure(name) for name in r5()._raw["structures"]]
    rules = {c.key: c.expression for k in kinds if k is not None for e in k.elements.values() for c in e.constraints}
    rest = {key: text for key, text in rules.items() if key not in BY_HAND}
    assert {key for key, text in rest.items() if compiled(text) is None} == set()
    lacking = {
        key
        for key, text in rest.items()
        for name in re.findall(r"\b([A-Za-z]+)\(", re.sub(r"'[^']*'", "", text))
        if name not in invocation_registry
    }
    assert lacking == NOT_EVALUATED


def quantity(value: Any, **more: Any) -> dict[str, Any]:
    return {"value": Decimal(value), **more}


@pytest.mark.parametrize(
    ("key", "value", "holds"),
    [
        ("rng-2", {"low": quantity("1"), "high": quantity("3")}, True),
        ("rng-2", {"low": quantity("3"), "high": quantity("1")}, False),
        ("rng-2", {"low": quantity("3"), "high": quantity("2.9")}, True),  # 3 may be 2.5
        ("rng-2", {"low": quantity("3.00"), "high": quantity("2.9")}, False),
        ("rng-2", {"low": quantity("3", code="g"), "high": quantity("1", code="kg")}, True),
        ("rng-2", {"low": {"code": "g"}, "high": {}}, True),
        ("ratrng-2", {"lowNumerator": quantity("3"), "highNumerator": quantity("1")}, False),
        ("age-1", quantity("3", system="http://unitsofmeasure.org", code="a"), True),
        ("age-1", quantity("3"), False),
        ("age-1", quantity("-3", code="a"), False),
        ("cnt-3", quantity("3", code="1"), True),
        ("cnt-3", quantity("3.5", code="1"), False),
        ("cnt-3", quantity("3", code="g"), False),
        ("exp-2", {"name": "x_1"}, True),
        ("exp-2", {"name": "1 "}, False),
        ("bdl-10", {"type": "document"}, False),
        ("bdl-10", {"type": "collection"}, True),
        ("prov-1", {"who": {"reference": "Device/1"}, "onBehalfOf": {"reference": "Device/1"}}, False),
        ("prov-1", {"who": {"reference": "Device/1"}, "onBehalfOf": {"display": "x"}}, True),
        ("eld-11", {"binding": {}, "type": [{"code": "Period"}]}, False),
        ("eld-11", {"binding": {}, "type": [{"code": "Period"}, {"code": "code"}]}, True),
    ],
)
def test_invariants_written_by_hand(key: str, value: Any, holds: bool) -> None:
    assert BY_HAND[key](value, value) is holds
    for strange in (3, "x", [], {}, dict.fromkeys(value, 3)):
        BY_HAND[key](strange, strange)
