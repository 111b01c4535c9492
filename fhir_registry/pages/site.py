"""The pages and their addresses: each a function of a request, as the FHIR interface is."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from evidence.verifier.report import VerifyReport
from fhir_registry.json_text import read_json
from fhir_registry.mapping.reading import properties, status_of
from fhir_registry.pages import finder
from fhir_registry.pages.chain_picture import NARROW, WIDE, picture
from fhir_registry.pages.language import LANGUAGES, chosen
from fhir_registry.pages.model_view import Model, read_model
from fhir_registry.pages.render import render, static_file
from fhir_registry.server.http import HttpError, Request, Response
from fhir_registry.server.operations import checked_releases
from fhir_registry.store.base import Store

_REMEMBERED: Final = 1000
_VERSIONS: Final = 50
_ID: Final = re.compile(r"[A-Za-z0-9.-]{1,64}")


@dataclass(frozen=True)
class Verified:
    """When this server last verified the release of a model version, and with what result."""

    version: int
    moment: str
    ok: bool


class Pages:
    """``trust_root``: whom a verification trusts; this machine's own keys if absent."""

    def __init__(self, store: Store, trust_root: Path | None = None) -> None:
        self.store = store
        self.trust_root = trust_root
        self._verified: OrderedDict[str, Verified] = OrderedDict()

    def static(self, request: Request) -> Response | None:
        """Style, script or icon, if ``request`` asks for one: they wait for nothing."""
        match request.parts:
            case ["static", _, name] if request.method in ("GET", "HEAD"):
                return static_file(name)
        return None

    def answer(self, request: Request) -> tuple[Request, Response]:
        """The page, and the request as the audit trail records it: as an access to the resource the page shows."""
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "not-supported", "pages are read with GET", {"Allow": "GET, HEAD"})
        resource, page = self._routed(request)
        audited = replace(request, path=resource)
        try:
            return audited, page()
        except HttpError as error:
            return audited, self.fault(request, error)

    def _routed(self, request: Request) -> tuple[str, Callable[[], Response]]:
        """The FHIR address of what is shown, and what makes the page."""
        match request.parts:
            case []:
                return "DeviceDefinition", lambda: self._search(request)
            case ["engines"]:
                return "DeviceDefinition", lambda: self._engines(request)
            case ["models", identifier] if _ID.fullmatch(identifier):
                return f"DeviceDefinition/{identifier}", lambda: self._model(request, identifier)
            case ["models", identifier, "history"] if _ID.fullmatch(identifier):
                return f"DeviceDefinition/{identifier}/_history", lambda: self._history(request, identifier)
            case ["models", identifier, "verify"] if _ID.fullmatch(identifier):
                return f"DeviceDefinition/{identifier}/$verify", lambda: self._verify(request, identifier)
        raise HttpError(404, "not-found", "there is no such page")

    def fault(self, request: Request, error: HttpError) -> Response:
        """The page that says why there is no other one."""
        try:
            language = chosen(request)
        except ValueError:  # too many fields in the address
            language = "en"
        values = self._frame(request, with_query=False)
        key = f"fault-{error.status}"
        response = render("fault.html", language, error.status, key=key, said=error.text, **values)
        return replace(response, headers={**response.headers, **error.headers})

    # ---- pages

    def _search(self, request: Request) -> Response:
        given = dict(request.pairs)
        form = finder.form_of(request.pairs)
        found = finder.find(self.store, form, given.get("cursor", ""))
        status = 400 if found.fault else 200
        more = any(form[name] for name in finder.FIELDS if name != "q")
        return self._page("search.html", request, status, form=form, found=found, more=more, later="cursor" in given)

    def _model(self, request: Request, identifier: str) -> Response:
        model = self._known(identifier)
        verified = self._verified.get(identifier)
        if verified is not None and verified.version != model.summary.version:
            verified = None
        pictures = [(r, [picture(r.steps, WIDE), picture(r.steps, NARROW)]) for r in model.releases]
        return self._page("model.html", request, model=model, pictures=pictures, verified=verified)

    def _history(self, request: Request, identifier: str) -> Response:
        model = self._known(identifier)
        before = dict(request.pairs).get("before", "")
        number = int(before) if before.isascii() and before.isdigit() and len(before) < 18 else None
        listed, total = self.store.history("DeviceDefinition", identifier, _VERSIONS, number)
        rows = []
        for _, item in listed:
            body: Any = {} if item.deleted else read_json(item.body)
            rows.append((item, status_of(body), next(iter(properties(body, "withdrawn")), "")))
        following = str(listed[-1][0]) if len(listed) == _VERSIONS else ""
        return self._page("history.html", request, model=model, rows=rows, total=total, following=following)

    def _verify(self, request: Request, identifier: str) -> Response:
        model = self._known(identifier)
        reports: dict[str, VerifyReport] = {}
        said = ""
        try:
            reports = checked_releases(self.store, identifier, self.trust_root)[1]
        except HttpError as error:
            said = error.text
        moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if reports:
            fine = all(report.ok for report in reports.values())
            self._verified[identifier] = Verified(model.summary.version, moment, fine)
            self._verified.move_to_end(identifier)
            while len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return self._page("verify.html", request, model=model, reports=reports, said=said, moment=moment)

    def _engines(self, request: Request) -> Response:
        given = " ".join(dict(request.pairs).get("digest", "").split())[:400]
        digest = finder.digest_in(given)
        matches = finder.matches(self.store, digest) if digest else []
        status = 400 if given and not digest else 200
        return self._page("engines.html", request, status, given=given, digest=digest, matches=matches)

    # ---- what they share

    def _known(self, identifier: str) -> Model:
        model = read_model(self.store, identifier)
        if model is None:
            raise HttpError(404, "not-found", f"there is no model {identifier}")
        return model

    def _page(self, template: str, request: Request, status: int = 200, **values: Any) -> Response:
        remember = dict(request.pairs).get("lang", "") in LANGUAGES
        return render(template, chosen(request), status, remember, **self._frame(request), **values)

    def _frame(self, request: Request, with_query: bool = True) -> dict[str, Any]:
        """``base``: of the FHIR interface; ``root``: path before every page's; ``switch``: this page in a language."""
        root = urlsplit(request.base).path.rstrip("/").removesuffix("/fhir")
        kept = [(name, value) for name, value in request.pairs if name != "lang"] if with_query else []
        path = "/".join(part for part in request.path.split("/"))
        switch: Callable[[str], str] = lambda code: f"{root}/{path}?{urlencode([*kept, ('lang', code)])}"  # noqa: E731
        return {"base": request.base, "root": root, "switch": switch}
