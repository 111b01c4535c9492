"""$validate (FHIR R5, resource-operation-validate.html): would this resource be accepted, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fhir_registry.json_text import read_json
from fhir_registry.search.parameters import SERVED
from fhir_registry.server.http import HttpError, Request, Response, outcome_response, parsed_body
from fhir_registry.store.base import Store
from fhir_registry.validation.issues import ERROR, INFORMATION, Issue
from fhir_registry.validation.walk import validate

MODES: Final = ("create", "update", "delete", "profile")
_TAKEN: Final = ("profile", "mode", "resource")
_ADDRESSES: Final = ("valueCanonical", "valueUri", "valueUrl", "valueString")


@dataclass(frozen=True)
class _Asked:
    """``resource``: ``None`` when there is none; ``issue``: why its text cannot be taken."""

    resource: Any
    profiles: tuple[str, ...]
    mode: str
    issue: Issue | None = None


def validate_operation(
    store: Store, read_only: frozenset[str], request: Request, kind: str, identifier: str
) -> Response:
    """Every issue, or one that says all is well; the status is 200 either way.

    ``kind`` and ``identifier`` are those of the address, empty where it has none. The resource is the body, or the part
    ``resource`` of Parameters; profile and mode come from the address or from Parameters. Without a body the stored
    resource is validated. 400 for what cannot be read as that, 404 for a resource that is not there.
    """
    asked = _read(request)
    if asked.issue is not None:
        return outcome_response(200, [asked.issue])
    stored = store.read(kind, identifier) if identifier else None
    if identifier and (stored is None or stored.deleted) and asked.mode != "create":
        raise HttpError(404, "not-found", f"there is no {kind}/{identifier[:64]}")
    issues: list[Issue] = []
    if asked.mode in MODES[:3] and kind in read_only:
        issues.append(Issue(ERROR, "not-supported", "", f"{kind} is written by the registry itself"))
    if asked.mode == "delete":
        if not identifier:
            raise HttpError(400, "invalid", "mode delete is asked of one resource: [type]/[id]/$validate?mode=delete")
        return _answer(issues, f"{kind}/{identifier} may be deleted")
    resource = asked.resource
    if resource is None and stored is not None:
        resource = read_json(stored.body)
    if resource is None:
        raise HttpError(400, "required", "a resource belongs in the body, or in Parameters as the part resource")
    issues += validate(resource, profiles=asked.profiles)
    given = resource if isinstance(resource, dict) else {}
    if kind and given.get("resourceType") != kind:
        text = f"this is a {str(given.get('resourceType'))[:60]}, and {kind} was asked for"
        issues.append(Issue(ERROR, "invalid", "", text))
    if asked.mode in ("create", "update") and given.get("resourceType") not in SERVED:
        issues.append(Issue(ERROR, "not-supported", "", "this server keeps no resources of this type; see metadata"))
    if asked.mode == "update":
        if "id" not in given:
            issues.append(Issue(ERROR, "required", f"{kind}.id" if kind else "", "an update needs the resource's id"))
        elif identifier and given["id"] != identifier:
            text = f"the resource's id is {str(given['id'])[:64]!r}, and the address says {identifier!r}"
            issues.append(Issue(ERROR, "invalid", f"{kind}.id", text))
    return _answer(issues, "the resource is valid")


def _answer(issues: list[Issue], well: str) -> Response:
    clean = not any(issue.severity == ERROR for issue in issues)
    return outcome_response(200, [*([Issue(INFORMATION, "informational", "", well)] if clean else []), *issues])


def _read(request: Request) -> _Asked:
    given: dict[str, list[str]] = {"profile": [], "mode": []}
    for name, value in request.pairs:
        if name in given:
            given[name].append(value)
        elif name not in ("_format", "_pretty"):
            raise HttpError(400, "invalid", f"$validate has no parameter {name[:40]!r}; it takes profile and mode")
    try:
        resource: Any = parsed_body(request.body) if request.body.strip() else None
    except HttpError as error:
        if error.status != 422:
            raise
        return _Asked(None, (), "", Issue(ERROR, error.issue, error.expression, error.text))
    if isinstance(resource, dict) and resource.get("resourceType") == "Parameters":
        resource = _parameters(resource, given)
    if len(given["mode"]) > 1:
        raise HttpError(400, "invalid", "mode is given twice; give it once")
    mode = given["mode"][0] if given["mode"] else ""
    if mode and mode not in MODES:
        raise HttpError(400, "value", f"mode is one of {', '.join(MODES)}, not {mode[:40]!r}")
    if mode == "profile" and not given["profile"]:
        raise HttpError(400, "required", "mode profile needs the parameter profile")
    if any(not url.strip() for url in given["profile"]):
        raise HttpError(400, "value", "profile is the address of a profile, and was empty")
    return _Asked(resource, tuple(given["profile"]), mode)


def _parameters(resource: dict[str, Any], given: dict[str, list[str]]) -> Any:
    """The part ``resource`` of Parameters; profile and mode are added to ``given``."""
    outer = {**resource, "parameter": _without_resources(resource)}
    wrong = [issue for issue in validate(outer) if issue.severity == ERROR]
    if wrong:
        raise HttpError(400, "structure", f"the Parameters cannot be read: {wrong[0].expression}: {wrong[0].text}")
    found: Any = None
    for part in resource.get("parameter", ()):
        name = part["name"]
        if name not in _TAKEN:
            raise HttpError(400, "invalid", f"$validate has no parameter {name[:40]!r}; it takes {', '.join(_TAKEN)}")
        if name == "resource":
            found = part.get("resource")
        elif name == "mode":
            given["mode"].append(str(part.get("valueCode", part.get("valueString", ""))))
        else:
            given["profile"] += [str(part[member]) for member in _ADDRESSES if member in part] or [""]
    return found


def _without_resources(resource: dict[str, Any]) -> Any:
    """The parts with a stand-in for what is to be validated by itself."""
    listed = resource.get("parameter")
    if not isinstance(listed, list):
        return listed
    stand_in = {"resourceType": "Basic", "code": {"text": "stand-in"}}
    return [
        {**part, "resource": stand_in} if isinstance(part, dict) and "resource" in part else part for part in listed
    ]
