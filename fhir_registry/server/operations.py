"""Operations on a model: the flat view of it, and its evidence verified again where it lies."""

from __future__ import annotations

import base64
import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from evidence.verifier.errors import VerifierError
from evidence.verifier.release import verify_release
from evidence.verifier.report import OK, VerifyReport
from evidence.verifier.trust import default_trust_root, load_trust_root
from fhir_registry.fields import objects, text
from fhir_registry.json_text import read_json, write_json
from fhir_registry.mapping import names
from fhir_registry.mapping.reading import properties, status_of
from fhir_registry.search.query import read_query
from fhir_registry.server.http import HttpError, Request, Response, outcome_response
from fhir_registry.store.base import Store, Stored
from fhir_registry.validation.issues import ERROR, INFORMATION, WARNING, Issue

LOG: Final = logging.getLogger("cuvil.registry")
_NO_TRUST: Final = (
    "this server trusts nobody yet, so it can verify nothing: its operator gives it a trust root with "
    "`cuvil registry serve --trust-root`, or makes keys with `cuvil keys init`"
)

_NOT_ACTIVE: Final = {
    "retired": "this model version was withdrawn",
    "unknown": "a recertification of this model version failed; whether its certification holds is open",
}


def model_resource(store: Store, request: Request, identifier: str) -> Response:
    """``$model-resource``: what a reader who knows no FHIR wants of a model version, in one flat object."""
    stored, found = _model(store, identifier)
    view = {
        "id": stored.id,
        "versionId": str(stored.version),
        "lastUpdated": stored.updated,
        "status": status_of(found) or "unknown",
        "name": text(found, "deviceName", 0, "name"),
        "version": text(found, "modelNumber"),
        "modelPurpose": text(found, "guideline", "intendedUse"),
        "inputProfile": properties(found, "inputProfile"),
        "outputProfile": properties(found, "outputProfile"),
        "outputConfidence": next(iter(properties(found, "outputConfidence")), None),
        "arithmetic": next(iter(properties(found, "arithmetic")), ""),
        "equivalence": next(iter(properties(found, "equivalence")), ""),
        "manufacturer": text(found, "manufacturer", "display"),
        "identifier": [f"{text(item, 'system')}|{text(item, 'value')}" for item in objects(found, "identifier")],
        "engine": [f"{request.base}/{text(part, 'reference', 'reference')}" for part in objects(found, "hasPart")],
        "evidence": [f"{request.base}/{item.type}/{item.id}" for item in _documents(store, identifier)],
        "withdrawn": next(iter(properties(found, "withdrawn")), None),
    }
    return Response(200, write_json(view), {"ETag": stored.etag}, "application/json")


def verify(store: Store, identifier: str, trust_root: Path | None) -> Response:
    """``$verify``: the checks of `cuvil verify` on every release kept here, one issue for each.

    The status is 200 whatever the verdict, as for $validate; the first issue says it in one sentence.
    """
    found, reports = checked_releases(store, identifier, trust_root)
    issues = [
        Issue(
            INFORMATION if item.status == OK else (ERROR if item.status == "failed" else WARNING),
            "informational" if item.status == OK else "processing",
            "",
            f"{item.name}: {item.sentence}",
        )
        for report in reports.values()
        for item in report.checks
    ]
    status = status_of(found)
    said = "" if status == "active" else _NOT_ACTIVE.get(status, "this model version is not active")
    fine, several = all(report.ok for report in reports.values()), len(reports) > 1
    holds = f"all {len(issues)} checks of the {f'{len(reports)} releases' if several else 'release'} hold"
    verdict = holds if fine else f"{'a' if several else 'the'} release does not verify"
    head = Issue(INFORMATION if fine else ERROR, "informational" if fine else "processing", "", verdict)
    warning = [Issue(WARNING, "business-rule", "", said)] if said else []
    return outcome_response(200, [head, *warning, *issues])


def checked_releases(
    store: Store, identifier: str, trust_root: Path | None
) -> tuple[dict[str, Any], dict[str, VerifyReport]]:
    """The model ``identifier``, and the report on each of its releases kept here, by the DocumentReference's id.

    ``HttpError`` where there is no release, or one cannot be verified at all.
    """
    _, found = _model(store, identifier)
    bundles = _current(found, _documents(store, identifier, ("type", "bundle")))
    if not bundles:
        raise HttpError(422, "not-found", "this model has no release in the registry to verify")
    return found, {item.id: _report(document_bytes(store, read_json(item.body)), trust_root) for item in bundles}


def _current(found: dict[str, Any], documents: list[Stored]) -> list[Stored]:
    """Those of the releases that the model names; all, where it names none of them. Others have been replaced."""
    releases = [text(i, "value") for i in objects(found, "identifier") if text(i, "system") == names.RELEASE]
    titles = {item.id: text(read_json(item.body), "content", 0, "attachment", "title") for item in documents}
    kept = [item for item in documents if item.id in {names.stable_id("doc", r, titles[item.id]) for r in releases}]
    return kept or documents


def _report(data: bytes | None, trust_root: Path | None) -> VerifyReport:
    if data is None:
        raise HttpError(422, "not-found", "the release of this model is gone from the registry")
    try:
        load_trust_root(trust_root or default_trust_root())
    except VerifierError as error:
        LOG.warning("nothing can be verified: %s", error)
        raise HttpError(422, "processing", _NO_TRUST) from None
    with tempfile.TemporaryDirectory(prefix="cuvil-registry-") as folder:
        path = Path(folder) / "release.zip"
        path.write_bytes(data)
        # Where a server keeps its files is nobody's business.
        try:
            report = verify_release(path, trust_root)
        except VerifierError as error:
            said = str(error).replace(f"{folder}/", "")
            raise HttpError(422, "processing", f"the release cannot be verified here: {said}") from None
    checks = (replace(item, sentence=item.sentence.replace(f"{folder}/", "")) for item in report.checks)
    return replace(report, checks=tuple(checks))


def document_bytes(store: Store, document: Any) -> bytes | None:
    """What a DocumentReference refers to, where that is a Binary of this registry with data in it."""
    try:
        kind, _, identifier = document["content"][0]["attachment"]["url"].partition("/")
        binary = store.read("Binary", identifier) if kind == "Binary" else None
        found: Any = read_json(binary.body) if binary is not None and not binary.deleted else {}
        return base64.b64decode(found["data"], validate=True)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError):
        return None


def _model(store: Store, identifier: str) -> tuple[Stored, dict[str, Any]]:
    stored = store.read("DeviceDefinition", identifier)
    if stored is None or stored.deleted:
        raise HttpError(404 if stored is None else 410, "not-found", f"there is no DeviceDefinition/{identifier[:64]}")
    found = read_json(stored.body)
    if not isinstance(found, dict) or names.PROFILE not in found.get("meta", {}).get("profile", ()):
        raise HttpError(422, "not-supported", f"DeviceDefinition/{identifier[:64]} is no model of this registry")
    return stored, found


def _documents(store: Store, identifier: str, *more: tuple[str, str]) -> list[Stored]:
    pairs = [("subject", f"DeviceDefinition/{identifier}"), *more, ("_count", "200")]
    query = read_query("DocumentReference", pairs)
    return list(store.search(query).matches)
