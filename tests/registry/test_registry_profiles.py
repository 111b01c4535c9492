"""Profiles: a resource that claims one is held to it, and a refusal names the element and the slice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_client import Client

from fhir_registry.mapping import names
from fhir_registry.validation.conform import check_profile
from fhir_registry.validation.issues import Issue
from fhir_registry.validation.profile import ProfileError, compile_profile, profile
from fhir_registry.validation.walk import validate

DIGEST = "0123456789abcdef" * 8


def named(code: str, value: str) -> dict[str, Any]:
    return {"type": names.coded(names.PROPERTY, code), "valueString": value}


MODEL: dict[str, Any] = {
    "resourceType": "DeviceDefinition",
    "id": "m",
    "meta": {"profile": [names.PROFILE]},
    "modifierExtension": [{"url": names.STATUS, "valueCode": "active"}],
    "identifier": [
        {"system": names.MODEL_VERSION, "value": "cxr|1.0"},
        {"system": names.RELEASE, "value": DIGEST},
        {"system": names.SHA3_512, "value": DIGEST},
    ],
    "deviceName": [{"name": "cxr", "type": "registered-name"}],
    "modelNumber": "1.0",
    "version": [{"type": names.coded(names.VERSION_KIND, "model-version"), "value": "cxr-1.0"}],
    "property": [
        named("inputProfile", "image: tensor(float32)[1,1,28,28]"),
        named("outputProfile", "scores: tensor(float32)[1,2]"),
        named("arithmetic", "ca1"),
        named("equivalence", "passed (tested)"),
    ],
    "hasPart": [{"reference": {"reference": "DeviceDefinition/e"}}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """``MODEL`` with ``value`` at ``path`` (``None`` removes)."""
    found: Any = copy.deepcopy(MODEL)
    place, parts = found, [int(p) if p.isdigit() else p for p in path.split(".")]
    for part in parts[:-1]:
        place = place[part]
    if value is None:
        del place[parts[-1]]
    elif parts[-1] == "+":
        place.append(value)
    else:
        place[parts[-1]] = value
    return dict(found)


def test_a_model_that_meets_its_profile() -> None:
    assert validate(MODEL) == []


D = "DeviceDefinition"
BAD: list[tuple[str, Any, str, str, str]] = [
    # what is changed, code, expression, what the text names
    (
        "modifierExtension",
        None,
        "required",
        f"{D}.modifierExtension",
        "modifierExtension:artifactStatus is needed once",
    ),
    ("modifierExtension.0.url", "https://e.org/x", "required", f"{D}.modifierExtension", "artifactStatus"),
    ("modifierExtension.0.valueCode", "gone", "code-invalid", f"{D}.modifierExtension[0].value", "publication-status"),
    (
        "modifierExtension.0",
        {"url": names.STATUS, "valueString": "active"},
        "structure",
        f"{D}.modifierExtension[0].value",
        "value[x] is a code, not a String",
    ),
    ("identifier.1", None, "required", f"{D}.identifier", "identifier:release is needed once, and there are 0"),
    ("identifier.1.value", "abc", "invariant", f"{D}.identifier[1].value", "identifier:release.value: cuvil-sha3-512"),
    (
        "identifier.0.value",
        None,
        "required",
        f"{D}.identifier[0].value",
        "modelVersion.value is needed once",
    ),
    (
        "identifier.+",
        {"system": names.MODEL_VERSION, "value": "cxr|2.0"},
        "structure",
        f"{D}.identifier",
        "identifier:modelVersion is allowed once, and there are 2",
    ),
    ("modelNumber", None, "required", f"{D}.modelNumber", "modelNumber is needed once"),
    ("version.0.type.coding.0.code", "other", "required", f"{D}.version", "version:modelVersion"),
    (
        "property.0.valueString",
        "28x28",
        "invariant",
        f"{D}.property[0].value",
        "inputProfile.value[x]: cuvil-tensor",
    ),
    (
        "property.0",
        None,
        "required",
        f"{D}.property",
        "inputProfile is needed once, and there are 0 (One",
    ),
    (
        "property.2",
        {"type": names.coded(names.PROPERTY, "arithmetic"), "valueInteger": 1},
        "structure",
        f"{D}.property[2].value",
        "property:arithmetic.value[x] is a string, not a Integer",
    ),
    ("property.+", named("arithmetic", "x"), "structure", f"{D}.property", "property:arithmetic is allowed once"),
    ("hasPart", None, "required", f"{D}.hasPart", "hasPart is needed once"),
]


@pytest.mark.parametrize(("path", "value", "code", "place", "text"), BAD, ids=[f"{b[0]}-{b[2]}" for b in BAD])
def test_what_breaks_the_profile_is_named(path: str, value: Any, code: str, place: str, text: str) -> None:
    issues = [i for i in validate(changed(path, value)) if i.severity == "error"]
    assert any(i.code == code and i.expression == place and text in i.text for i in issues), issues
    assert all(i.text.startswith(("cuvil-model-resource: ", "artifact-status: ")) for i in issues)


def test_what_the_profile_leaves_open() -> None:
    assert validate(changed("identifier.+", {"system": "https://e.org", "value": "x"})) == []
    assert validate(changed("identifier.+", {"system": names.RELEASE, "value": DIGEST})) == []
    assert validate(changed("property.+", {"type": {"text": "mine"}, "valueInteger": 3})) == []
    other = {"type": {"coding": [{"system": "https://e.org", "code": "x"}]}, "valueInteger": 3}
    (issue,) = validate(changed("property.+", other))
    assert issue.severity == "warning" and "property.type should have a code of the value set" in issue.text
    both = {"coding": [{"system": "https://e.org", "code": "x"}, *MODEL["property"][0]["type"]["coding"]]}
    assert validate(changed("property.0.type", both)) == []


strange = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["url", "system", "type", "coding", "code", "value", "reference"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(set(MODEL) - {"resourceType"})), strange, st.booleans())
def test_a_profile_takes_any_value(name: str, value: Any, within: bool) -> None:
    """Issues, never an exception, whatever stands where the profile looks."""
    profiles = (names.PROFILE, names.ENGINE_PROFILE, names.DEPLOYED_PROFILE, names.DOCUMENT_PROFILE)
    listed = MODEL[name]
    for resource in ({**MODEL, name: value}, {**MODEL, name: [*listed, value] if isinstance(listed, list) else value}):
        if within and isinstance(listed, list) and isinstance(listed[0], dict):
            resource = {**MODEL, name: [{**listed[0], key: value} for key in listed[0]]}
        validate(resource)
        for url in profiles:
            compiled = profile(url)
            assert compiled is not None
            check_profile({**resource, "resourceType": compiled.type}, compiled, "X", resource)


def test_claims_of_other_profiles() -> None:
    def of(*urls: str) -> list[tuple[str, str]]:
        return [(i.severity, i.expression) for i in validate(changed("meta.profile", list(urls)))]

    core = "http://hl7.org/fhir/StructureDefinition/"
    assert of("https://e.org/p") == of(f"{names.PROFILE}|9.9") == [("warning", "DeviceDefinition.meta.profile")]
    assert of(f"{names.PROFILE}|1.0.0", f"{core}DeviceDefinition", f"{core}DomainResource") == []
    assert of(f"{core}Patient") == [("error", "DeviceDefinition")]
    assert of(names.DOCUMENT_PROFILE) == [("error", "DeviceDefinition")]


def test_a_profile_holds_wherever_the_resource_lies() -> None:
    inside = {**changed("modelNumber", None), "id": "m"}
    bundle = {
        "resourceType": "Bundle",
        "type": "collection",
        "entry": [{"fullUrl": "https://e.org/DeviceDefinition/m", "resource": inside}],
    }
    assert [i.expression for i in validate(bundle)] == ["Bundle.entry[0].resource.modelNumber"]


# ---- kinds of slicing that our own profiles do not use

BASE = {"resourceType": "StructureDefinition", "url": "https://e.org/p", "derivation": "constraint", "version": "1"}


def made(kind: str, *elements: dict[str, Any]) -> Any:
    return compile_profile(
        {
            **BASE,
            "type": kind,
            "baseDefinition": f"http://hl7.org/fhir/StructureDefinition/{kind}",
            "differential": {"element": [{"path": e["id"], **e} for e in elements]},
        }
    )


def sliced(rules: str, kind: str = "value", path: str = "system", ordered: bool = False) -> dict[str, Any]:
    return {
        "id": "Patient.identifier",
        "slicing": {"discriminator": [{"type": kind, "path": path}], "rules": rules, "ordered": ordered},
    }


A = [
    {"id": "Patient.identifier:a", "max": "1"},
    {"id": "Patient.identifier:a.system", "fixedUri": "https://e.org/a"},
    {"id": "Patient.identifier:b", "min": 1},
    {"id": "Patient.identifier:b.system", "fixedUri": "https://e.org/b"},
]


def found(compiled: Any, *systems: str, **more: Any) -> list[Issue]:
    listed = [{"system": f"https://e.org/{s}", "value": s, **more} for s in systems]
    resource = {"resourceType": "Patient", "identifier": listed}
    return check_profile(resource, compiled, "Patient", resource)


def test_rules_of_slicing() -> None:
    opened, closed, end = (made("Patient", sliced(rule), *A) for rule in ("open", "closed", "openAtEnd"))
    assert found(opened, "c", "b", "a", "c") == []
    (issue,) = found(closed, "b", "c")
    assert issue.expression == "Patient.identifier[1]" and "identifier is closed" in issue.text
    assert found(end, "a", "b", "c") == []
    (issue,) = found(end, "c", "b")
    assert issue.expression == "Patient.identifier[1]" and "identifier:b stands before what belongs to no" in issue.text
    ordered = made("Patient", sliced("open", ordered=True), *A)
    assert found(ordered, "a", "c", "b", "b") == []
    (issue,) = found(ordered, "b", "a")
    assert issue.text == "p: identifier:a stands before identifier:b"
    assert [i.code for i in found(opened, "a", "a")] == ["structure", "required"]


def test_discriminators() -> None:
    exists = made(
        "Patient",
        sliced("closed", "exists", "period"),
        {"id": "Patient.identifier:past", "max": "1"},
        {"id": "Patient.identifier:past.period", "min": 1},
        {"id": "Patient.identifier:now"},
        {"id": "Patient.identifier:now.period", "max": "0"},
    )
    assert found(exists, "x", "y") == [] and found(exists, "x", period={"end": "2020"}) == []
    assert "identifier:past is allowed once" in found(exists, "x", "y", period={"end": "2020"})[0].text
    by_set = made(
        "Patient",
        sliced("closed", "value", "use"),
        {"id": "Patient.identifier:any"},
        {
            "id": "Patient.identifier:any.use",
            "binding": {"strength": "required", "valueSet": "http://hl7.org/fhir/ValueSet/identifier-use"},
        },
    )
    assert found(by_set, "x", use="official") == [] and len(found(by_set, "x")) == 1
    whole = made(
        "Patient",
        sliced("closed", "pattern", "$this"),
        {"id": "Patient.identifier:a", "patternIdentifier": {"system": "https://e.org/a"}},
    )
    assert found(whole, "a") == [] and len(found(whole, "b")) == 1
    entries = made(
        "Bundle",
        {
            "id": "Bundle.entry",
            "slicing": {"discriminator": [{"type": "type", "path": "resource"}], "rules": "closed"},
        },
        {"id": "Bundle.entry:model", "min": 1},
        {"id": "Bundle.entry:model.resource", "type": [{"code": "DeviceDefinition"}]},
    )
    bundle = {"resourceType": "Bundle", "entry": [{"resource": {"resourceType": "Patient"}}]}
    assert [i.code for i in check_profile(bundle, entries, "Bundle", bundle)] == ["structure", "required"]
    profiles = made(
        "Bundle",
        {
            "id": "Bundle.entry",
            "slicing": {"discriminator": [{"type": "profile", "path": "resource"}], "rules": "open"},
        },
        {"id": "Bundle.entry:model", "min": 1},
        {
            "id": "Bundle.entry:model.resource",
            "type": [{"code": "DeviceDefinition", "profile": [names.PROFILE]}],
        },
    )
    bundle = {"resourceType": "Bundle", "entry": [{"resource": MODEL}]}
    assert check_profile(bundle, profiles, "Bundle", bundle) == []
    bundle = {"resourceType": "Bundle", "entry": [{"resource": changed("modelNumber", None)}]}
    assert [i.code for i in check_profile(bundle, profiles, "Bundle", bundle)] == ["required"]


def test_fixed_is_exact_and_a_pattern_is_part() -> None:
    exact = made("Patient", {"id": "Patient.maritalStatus", "fixedCodeableConcept": {"text": "x"}})
    part = made("Patient", {"id": "Patient.maritalStatus", "patternCodeableConcept": {"text": "x"}})
    given = {"resourceType": "Patient", "maritalStatus": {"text": "x", "id": "1"}}
    assert [i.code for i in check_profile(given, exact, "Patient", given)] == ["value"]
    assert check_profile(given, part, "Patient", given) == []
    forbidden = made("Patient", {"id": "Patient.maritalStatus", "max": "0"})
    assert "maritalStatus is not allowed" in check_profile(given, forbidden, "Patient", given)[0].text
    bound = made(
        "Patient",
        {
            "id": "Patient.maritalStatus",
            "binding": {"strength": "extensible", "valueSet": "http://hl7.org/fhir/ValueSet/identifier-use"},
        },
    )
    assert check_profile(given, bound, "Patient", given) == []
    given["maritalStatus"] = {"coding": [{"code": "x"}]}
    assert [i.severity for i in check_profile(given, bound, "Patient", given)] == ["warning"]


def test_slices_of_a_choice_and_of_extensions() -> None:
    def of(compiled: Any, **members: Any) -> list[str]:
        given = {"resourceType": "Patient", **members}
        return [i.text for i in check_profile(given, compiled, "Patient", given)]

    for name in ("deceased[x]:deceasedDateTime", "deceasedDateTime"):
        compiled = made("Patient", {"id": f"Patient.{name}", "max": "0"})
        assert of(compiled, deceasedBoolean=True) == []
        assert "deceased[x]:deceasedDateTime is not allowed" in of(compiled, deceasedDateTime="2026")[0]
    only = made("Patient", {"id": "Patient.deceasedDateTime", "min": 1})
    assert of(only, deceasedDateTime="2026") == []
    assert any("deceased[x] is needed once" in text for text in of(only))
    assert any("not a Boolean" in text for text in of(only, deceasedBoolean=True))
    extended = made(
        "Patient",
        {"id": "Patient.extension:status", "min": 1, "type": [{"code": "Extension", "profile": [names.STATUS]}]},
    )
    assert of(extended, extension=[{"url": names.STATUS, "valueCode": "active"}]) == []
    assert "extension:status is needed once" in of(extended, extension=[{"url": "x:y", "valueCode": "active"}])[0]


def test_targets_of_references() -> None:
    compiled = profile(names.PROVENANCE_PROFILE)
    assert compiled is not None
    given: dict[str, Any] = {"resourceType": "Provenance", "target": [{"reference": "Device/1/_history/2"}, {}]}
    wanted = "target refers to DeviceDefinition, not to a Device"
    issues = check_profile(given, compiled, "Provenance", given)
    assert any(i.expression == "Provenance.target[0].reference" and wanted in i.text for i in issues)


@pytest.mark.parametrize(
    "elements",
    [
        [sliced("open", "value", "system.resolve()")],
        [{"id": "Patient.identifier:a"}],
        [sliced("open"), {"id": "Patient.identifier:a/b"}],
    ],
)
def test_what_is_not_compiled_is_said(elements: list[dict[str, Any]]) -> None:
    with pytest.raises(ProfileError, match=r"https://e\.org/p: "):
        made("Patient", *elements)


# ---- $validate


def issues_of(registry: Client, path: str, body: Any = None) -> list[tuple[str, str, str]]:
    method = "GET" if body is None else "POST"
    status, _, found = registry.call(method, path, body)
    assert status == 200, found
    return [(i["severity"], i["code"], i["details"]["text"]) for i in found["issue"]]


def test_validate_against_a_profile(registry: Client) -> None:
    plain = {k: v for k, v in MODEL.items() if k != "meta"}
    poor = {k: v for k, v in plain.items() if k != "modelNumber"}
    path = f"DeviceDefinition/$validate?profile={names.PROFILE}"
    assert issues_of(registry, path, plain) == [("information", "informational", "the resource is valid")]
    assert [i[1] for i in issues_of(registry, "DeviceDefinition/$validate", poor)] == ["informational"]
    ((severity, code, text),) = issues_of(registry, path, poor)
    assert (severity, code) == ("error", "required") and "modelNumber" in text
    parts = [{"name": "resource", "resource": poor}, {"name": "profile", "valueCanonical": names.PROFILE}]
    parameters = {"resourceType": "Parameters", "parameter": parts}
    assert issues_of(registry, "DeviceDefinition/$validate", parameters) == [(severity, code, text)]
    found = issues_of(registry, "DeviceDefinition/$validate?profile=https://e.org/p", plain)
    assert [i[:2] for i in found] == [("information", "informational"), ("warning", "not-found")]
    assert registry.call("POST", "DeviceDefinition", {**poor, "meta": MODEL["meta"]})[0] == 422
    assert registry.call("POST", "DeviceDefinition", MODEL)[0] == 201


def test_modes_of_validate(registry: Client) -> None:
    made_ = registry.created({"resourceType": "Organization", "name": "x"})
    here = f"Organization/{made_['id']}/$validate"
    assert issues_of(registry, here)[0][0] == "information"
    assert issues_of(registry, f"{here}?mode=delete")[0][2] == f"Organization/{made_['id']} may be deleted"
    assert issues_of(registry, f"{here}?mode=update", made_)[0][0] == "information"
    other = {"resourceType": "Organization", "id": "y", "name": "x"}
    assert "the address says" in issues_of(registry, f"{here}?mode=update", other)[0][2]
    unnamed = {"resourceType": "Organization", "name": "x"}
    assert "needs the resource's id" in issues_of(registry, "Organization/$validate?mode=update", unnamed)[0][2]
    patient = {"resourceType": "Patient", "active": True}
    assert [i[1] for i in issues_of(registry, "$validate?mode=create", patient)] == ["not-supported"]
    assert issues_of(registry, "$validate", patient)[0][0] == "information"
    assert [i[1] for i in issues_of(registry, "Organization/$validate", patient)] == ["invalid"]
    assert (
        "written by the registry itself"
        in issues_of(registry, "ValueSet/$validate?mode=create", {"resourceType": "ValueSet", "status": "active"})[0][2]
    )


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("$validate?mode=other", {"resourceType": "Patient"}, 400),
        ("$validate?mode=create&mode=create", {"resourceType": "Patient"}, 400),
        ("$validate?mode=profile", {"resourceType": "Patient"}, 400),
        ("$validate?profile=", {"resourceType": "Patient"}, 400),
        ("$validate?profiles=x", {"resourceType": "Patient"}, 400),
        ("Organization/$validate?mode=delete", {"resourceType": "Organization", "name": "x"}, 400),
        ("Organization/none/$validate", {"resourceType": "Organization", "name": "x"}, 404),
        ("$validate", b"{", 400),
        ("$validate", b"", 400),
        ("$validate", {"resourceType": "Parameters"}, 400),
        ("$validate", {"resourceType": "Parameters", "parameter": 3}, 400),
        ("$validate", {"resourceType": "Parameters", "parameter": [{"name": "resource", "resource": 3}, 4]}, 400),
        ("$validate", {"resourceType": "Parameters", "parameter": [{"name": "x", "valueString": "y"}]}, 400),
        ("$validate", {"resourceType": "Parameters", "parameter": [{"name": "profile", "valueInteger": 1}]}, 400),
    ],
)
def test_validate_that_cannot_be_read(registry: Client, path: str, body: Any, status: int) -> None:
    assert registry.call("POST", path, body)[0] == status
