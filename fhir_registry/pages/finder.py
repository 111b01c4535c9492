"""What the forms ask for: a search among model versions, and whose engine a digest belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from fhir_registry.fields import objects, text
from fhir_registry.json_text import read_json
from fhir_registry.mapping import names
from fhir_registry.mapping.reading import status_of
from fhir_registry.pages.model_view import Engine, Summary, engine_of, is_model, literal, summary_of
from fhir_registry.search.query import SearchError, read_query
from fhir_registry.store.base import Store

PAGE: Final = 20
FIELDS: Final = ("q", "purpose", "input", "status", "manufacturer", "identifier")
STATUSES: Final = ("active", "unknown", "retired")
LONGEST: Final = 300
_BETWEEN: Final = re.compile(r"(?<=[0-9?])(?: ?[x×*] ?|, )(?=[0-9?])")
_DIGEST: Final = re.compile(r"(?:sha-?256[:=]|sha3[-_]?512[:=])?([0-9a-f]{64}|[0-9a-f]{128})")


@dataclass(frozen=True)
class Found:
    """A page of results. ``following``: the query of the next page, ``first``: that of the first; ``fault``: why there
    are none; ``digest``: the one given as identifier, if it is one.
    """

    models: tuple[Summary, ...]
    following: str
    first: str
    fault: str
    digest: str = ""


def form_of(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The fields of the search form, cut to what a person types; unknown ones are left out."""
    given = {name: " ".join(value.split())[:LONGEST] for name, value in pairs if name in FIELDS}
    return {name: given.get(name, "") for name in FIELDS}


def find(store: Store, form: Mapping[str, str], cursor: str) -> Found:
    """Model versions that meet every field, the last changed first."""
    asked = {name: value for name, value in form.items() if value}
    pairs = [("_profile", names.PROFILE), *_conditions(asked), ("_sort", "-_lastUpdated"), ("_count", str(PAGE))]
    first = urlencode(asked)
    try:
        page = store.search(read_query("DeviceDefinition", [*pairs, *([("_cursor", cursor)] if cursor else [])]))
    except SearchError as error:
        return Found((), "", first, str(error))
    models = []
    for item in page.matches:
        body = read_json(item.body)
        if isinstance(body, dict):
            models.append(summary_of(item, body))
    following = urlencode([*asked.items(), ("cursor", page.following)]) if page.following else ""
    return Found(tuple(models), following, first, "", digest_in(asked.get("identifier", "")))


def _conditions(asked: Mapping[str, str]) -> list[tuple[str, str]]:
    found = [("model-text:contains", literal(word)) for word in asked.get("q", "").split()[:8]]
    if "purpose" in asked:
        found.append(("model-purpose:contains", literal(asked["purpose"])))
    if "input" in asked:
        # As the resource writes a shape: 1,1,28,28 and neither "1, 1, 28, 28" nor 1x1x28x28.
        shape = _BETWEEN.sub(",", asked["input"])
        found.append(("input-profile:contains", literal(shape)))
    if asked.get("status") in STATUSES:
        found.append(("artifact-status", asked["status"]))
    if "manufacturer" in asked:
        found.append(("manufacturer.name:contains", literal(asked["manufacturer"])))
    if "identifier" in asked:
        found.append(("identifier", literal(digest_in(asked["identifier"]) or asked["identifier"]).replace("|", "\\|")))
    return found


def digest_in(value: str) -> str:
    """A SHA-256 or SHA3-512 in hexadecimal, as tools print it, in its one form; empty for anything else."""
    match = _DIGEST.fullmatch("".join(value.split()).lower())
    return match[1] if match else ""


@dataclass(frozen=True)
class Match:
    """One thing with the digest asked for. ``kind``: ``engine``, ``model``, ``release`` or ``document``."""

    kind: str
    title: str
    status: str
    engine: Engine | None
    models: tuple[Summary, ...]


def matches(store: Store, digest: str) -> list[Match]:
    """Everything registered under ``digest`` (lower-case hexadecimal)."""
    found: list[Match] = []
    for item in store.search(read_query("DeviceDefinition", [("identifier", digest), ("_count", "50")])).matches:
        body = read_json(item.body)
        if not isinstance(body, dict):
            continue
        if is_model(body):
            release = any(
                text(i, "system") == names.RELEASE and text(i, "value") == digest for i in objects(body, "identifier")
            )
            summary = summary_of(item, body)
            found.append(Match("release" if release else "model", summary.name, summary.status, None, (summary,)))
        else:
            engine = engine_of(item.id, body)
            found.append(Match("engine", engine.name, status_of(body), engine, tuple(_models_of(store, item.id))))
    for item in store.search(read_query("DocumentReference", [("identifier", digest), ("_count", "20")])).matches:
        body = read_json(item.body)
        model = _model(store, text(body, "subject", "reference"))
        title = text(body, "content", 0, "attachment", "title")
        found.append(Match("document", title, "", None, (model,) if model else ()))
    return found


def _models_of(store: Store, engine: str) -> list[Summary]:
    """Models that an engine is part of: the targets of its Provenance beside it."""
    found: dict[str, Summary] = {}
    query = read_query("Provenance", [("target", f"DeviceDefinition/{engine}"), ("_count", "50")])
    for item in store.search(query).matches:
        for target in objects(read_json(item.body), "target"):
            model = _model(store, text(target, "reference"))
            if model is not None:
                found[model.id] = model
    return list(found.values())


def _model(store: Store, reference: str) -> Summary | None:
    kind, _, rest = reference.partition("/")
    stored = store.read(kind, rest.partition("/")[0]) if kind == "DeviceDefinition" else None
    body: Any = read_json(stored.body) if stored is not None and not stored.deleted else None
    return summary_of(stored, body) if stored is not None and isinstance(body, dict) and is_model(body) else None
