"""The pages for people, over the application: what they say, in both languages, about resources of any kind."""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
import sys
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from registry_client import Client

from cuvil_assets.cli import main
from evidence.verifier.release_statement import ROLES
from evidence.verifier.report import RELEASE_CHECKS
from evidence.verifier.statement import VERDICTS
from fhir_registry.mapping import names, resources
from fhir_registry.pages.language import LANGUAGES, words
from fhir_registry.pages.render import visible
from fhir_registry.search.extract import index_rows
from fhir_registry.server.app import FhirApp
from fhir_registry.server.http import HttpError, Request
from fhir_registry.server.service import Service
from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.base import Write

VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"}


class Reader(HTMLParser):
    """Elements of a page; an element that is not closed, or closes another, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is there twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> ends {self._open[-3:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def put(client: Client, resource: dict[str, Any]) -> None:
    client.store.commit([Write("PUT", resource["resourceType"], resource["id"], resource, tuple(index_rows(resource)))])


def model(identifier: str = "m1", name: str = "chest", status: str = "active", **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "DeviceDefinition",
        "id": identifier,
        "meta": {"profile": [names.PROFILE]},
        "modifierExtension": [{"url": names.STATUS, "valueCode": status}],
        "identifier": [{"system": names.MODEL_VERSION, "value": f"{name}|1.0"}],
        "deviceName": [{"name": name, "type": "registered-name"}],
        "modelNumber": "1.0",
        **more,
    }


def prop(code: str, text: str) -> dict[str, Any]:
    return {"type": names.coded(names.PROPERTY, code), "valueString": text}


def page(
    client: Client, path: str, headers: dict[str, str] | None = None, status: int = 200
) -> tuple[Reader, dict[str, str]]:
    """The page at ``path`` (below the root), whose HTML is well formed and whose headers keep everything else out."""
    root = client.base.removesuffix("/fhir")
    answered, found, body = client.raw("GET", f"{root}/{path}", headers=headers)
    assert answered == status, body.decode()[-2000:]
    assert found["content-type"] == "text/html; charset=utf-8" and found["x-content-type-options"] == "nosniff"
    policy = found["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    text = body.decode("utf-8")
    assert text.lstrip().startswith("<!doctype html>")
    read = Reader(text)
    check_page(read, root)
    return read, found


def check_page(read: Reader, root: str) -> None:
    """What holds for every page: landmarks, one h1, headings without gaps, labels, own addresses, no inline code."""
    tags = [tag for tag, _ in read.elements]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1, landmark
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    after = levels[levels.index(1) :]
    assert all(b - a <= 1 for a, b in pairwise(after)), levels
    labels = {item.get("for") for item in read.all("label")}
    for tag in ("input", "select"):
        assert all(item.get("id") in labels for item in read.all(tag))
    ids = [attrs["id"] for _, attrs in read.elements if "id" in attrs]
    assert len(ids) == len(set(ids)), sorted(i for i in ids if ids.count(i) > 1)
    for tag, attrs in read.elements:
        assert "style" not in attrs and tag != "style" and not any(name.startswith("on") for name in attrs)
        assert tag != "script" or attrs.get("src")
        for name in ("aria-labelledby", "aria-describedby"):
            assert all(part in ids for part in (attrs.get(name) or "").split()), attrs
        for name in ("href", "src", "action"):
            address = attrs.get(name)
            assert address is None or address.startswith(("/", "#", "?", root)), attrs


# ---- languages


def table() -> dict[str, dict[str, str]]:
    found = json.loads(files("fhir_registry.pages").joinpath("words.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def test_both_languages_have_every_message_with_the_same_values() -> None:
    for key, pair in table().items():
        assert set(pair) == set(LANGUAGES) and all(text.strip() for text in pair.values()), key
        assert len({tuple(sorted(re.findall(r"\{\w+\}", text))) for text in pair.values()}) == 1, key
        assert re.search("[\u4e00-\u9fff]", pair["zh"]), key
        assert not re.search("[\u4e00-\u9fff]", pair["en"]), key
    assert words("en").keys() == words("zh").keys()


def test_every_message_is_used_and_every_used_one_is_there() -> None:
    folder = files("fhir_registry.pages").joinpath("templates")
    text = "\n".join(item.read_text("utf-8") for item in folder.iterdir())
    whole = set(re.findall(r'\bt\(["\']([\w-]+)["\']', text)) | set(
        re.findall(r'"(check-(?:ok|failed|skipped))"', text)
    )
    starts = tuple(re.findall(r'(?:\bt\(|t\.has\(|parts\.known\()["\']([\w-]+-)["\']', text))
    keys = set(table())
    made = {key for key in keys if key.startswith((*starts, "fault-"))}
    assert whole - keys - {s for s in whole if s.endswith("-")} == set()
    assert keys - whole - made == set()


def test_every_check_and_every_kind_of_file_has_its_words() -> None:
    keys = table().keys()
    assert {f"check-{name}" for name in RELEASE_CHECKS} <= keys
    assert {f"doc-{kind}" for kind in resources._TITLES} <= keys
    assert {f"role-{role}" for role in ROLES} <= keys
    assert {f"verdict-{verdict.replace(' ', '-')}" for verdict in VERDICTS} <= keys


@pytest.mark.parametrize(
    ("path", "headers", "language"),
    [
        ("", {}, "en"),
        ("", {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}, "zh-Hans"),
        ("", {"Accept-Language": "fr, en;q=0.2, zh;q=0.7"}, "zh-Hans"),
        ("", {"Accept-Language": "fr;q=x, de"}, "en"),
        ("", {"Accept-Language": "en", "Cookie": "a=b; cuvil_lang=zh"}, "zh-Hans"),
        ("?lang=en", {"Cookie": "cuvil_lang=zh"}, "en"),
        ("?lang=zh", {"Accept-Language": "en"}, "zh-Hans"),
        ("?lang=xx", {"Cookie": "cuvil_lang=<script>"}, "en"),
    ],
)
def test_the_language_is_that_of_the_address_then_the_cookie_then_the_browser(
    registry: Client, path: str, headers: dict[str, str], language: str
) -> None:
    read, found = page(registry, path, headers)
    assert read.all("html")[0]["lang"] == language
    assert ("set-cookie" in found) == (path in ("?lang=en", "?lang=zh"))
    assert ("查找模型" in read.text) == (language == "zh-Hans")


# ---- search


def test_search_finds_by_every_field_and_pages(registry: Client) -> None:
    organisation = {"resourceType": "Organization", "id": "o", "name": "Example Devices"}
    put(registry, organisation)
    owner = {"manufacturer": {"reference": "Organization/o", "display": "Example Devices"}}
    for number in range(45):
        put(registry, model(f"m{number:02}", f"plain{number:02}"))
    put(
        registry,
        model(
            "lung",
            "lung",
            description="Finds nodules, 100%_sure.",
            **owner,
            property=[prop("inputProfile", "ct: tensor(float32)[1,1,64,64]")],
        ),
    )
    put(registry, model("old", "old", "retired", property=[prop("withdrawn", "2026-11-30: recalled, see notice 7")]))
    put(
        registry,
        {
            "resourceType": "DeviceDefinition",
            "id": "engine",
            "deviceName": [{"name": "lung for x", "type": "registered-name"}],
        },
    )

    def names_of(read: Reader) -> list[str]:
        return [str(a["href"]).rpartition("/")[2] for a in read.all("a") if "/models/" in str(a.get("href"))]

    for query in (
        "q=lung",
        "q=nodules+example",
        "purpose=100%25_sure",
        "input=float32)[1,+1,64,64",
        "input=1x1x64x64",
        "input=1+%C3%97+1+x+64",
        "manufacturer=example",
        "identifier=lung|1.0",
        "q=nodules,",
    ):
        assert names_of(page(registry, f"?{query}&status=active")[0]) == ["lung"], query
    read, _ = page(registry, "?status=retired")
    assert names_of(read) == ["old"]
    assert "Withdrawn" in read.text and "2026-11-30" in read.text and "recalled, see notice 7" in read.text
    read, _ = page(registry, "?q=nothing+like+that")
    assert names_of(read) == [] and "No registered model version meets" in read.text
    read, _ = page(registry, f"?identifier=SHA256:{'AB' * 32}")
    assert f"/engines?digest={'ab' * 32}" in [a.get("href") for a in read.all("a")]
    seen: list[str] = []
    path: str | None = "?q=plain"
    pages = 0
    while path is not None:
        read, _ = page(registry, path)
        seen += names_of(read)
        path = next((str(a["href"])[1:] for a in read.all("a") if a.get("rel") == "next"), None)
        assert path is None or "q=plain" in path
        pages += 1
    assert pages == 3 and sorted(seen) == [f"m{n:02}" for n in range(45)]
    read, _ = page(registry, "?q=plain&cursor=AAAA", status=400)
    assert "cannot be made" in read.text
    page(registry, "?" + "&".join(f"a{n}=1" for n in range(300)), status=400)


def test_an_empty_registry_says_so(registry: Client) -> None:
    assert "No model is registered here yet" in page(registry, "")[0].text


# ---- hostile resources

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)" x="',
    "quotes": "'><img src=x onerror=alert(1)>",
    "template": "{{ 7 * 7 }}{% raw %}",
    "bidi": "safe\u202egnp.exe\u2066",
    "zero": "a\u200bb\ufeffc",
    "long": "word" * 2500,
    "lines": "a\r\nSet-Cookie: x=1\r\n\r\n<b>",
    "entities": "&lt;b&gt;&#x3c;",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_in_a_resource_becomes_code(registry: Client, text: str) -> None:
    item = model(
        "bad",
        text,
        "retired",
        modelNumber=text,
        description=text,
        manufacturer={"display": text},
        classification=[{"type": {"text": text, "coding": [{"system": text, "code": text}]}}],
        regulatoryIdentifier=[{"type": "basic", "deviceIdentifier": text, "issuer": text, "jurisdiction": text}],
        conformsTo=[{"specification": {"text": text}, "version": [text]}],
        version=[{"type": {"text": text}, "value": text}],
        property=[
            prop("inputProfile", f"{text}: {text}"),
            prop("withdrawn", text),
            prop(text or "x", text),
            {"type": {"text": text}, "valueQuantity": {"value": 1, "unit": text}},
        ],
    )
    put(registry, item)
    digests = [{"system": names.SHA3_512, "value": text}, {"system": names.SHA_256, "value": text}]
    put(
        registry,
        {
            "resourceType": "DocumentReference",
            "id": "d",
            "status": "current",
            "identifier": digests,
            "type": names.coded(names.DOCUMENT, text or "x", text),
            "subject": {"reference": "DeviceDefinition/bad"},
            "content": [{"attachment": {"url": "javascript:alert(1)", "title": text, "size": text}}],
        },
    )
    put(
        registry,
        {
            "resourceType": "Provenance",
            "id": "p",
            "target": [{"reference": "DeviceDefinition/bad"}],
            "signature": [{"sigFormat": text, "who": {"display": text, "identifier": {"value": text}}}],
        },
    )
    for path in ("", "models/bad", "models/bad/history", "models/bad/verify"):
        read, _ = page(registry, path)
        scripts = [s["src"] for s in read.all("script")]
        assert len(scripts) == 2 and not read.all("img")
        assert not set("\u202e\u2066\u200b\ufeff") & set(read.text)
        assert "Withdrawn" in read.text
        assert len(read.text) < 120_000
    read, _ = page(registry, f"?q={html.escape('%3Cscript%3E')}&identifier=%22%3E%3Cb%3E")
    assert read.all("input")[0]["value"] == "<script>"


def test_resources_of_any_form_are_shown_as_far_as_they_go(registry: Client) -> None:
    odd = {"resourceType": "DeviceDefinition", "id": "odd", "meta": {"profile": [names.PROFILE]}}
    forms: list[dict[str, Any]] = [
        {},
        {
            "deviceName": [],
            "identifier": [{}],
            "property": [{}],
            "hasPart": [{"reference": {"reference": "DeviceDefinition/x"}}],
        },
        {
            "deviceName": [{"name": 5}],
            "version": [{"value": None}],
            "property": [{"type": {"coding": [{}]}, "valueBoolean": True}],
        },
        {
            "identifier": "x",
            "property": "y",
            "manufacturer": [],
            "guideline": 3,
            "meta": {"profile": [names.PROFILE], "tag": 3},
            "classification": [1, {"type": 2}],
            "conformsTo": [{"version": 3}, 4],
        },
    ]
    for form in forms:
        put(registry, {**odd, **form})
        for path in ("models/odd", "models/odd/history", "models/odd/verify", ""):
            page(registry, path)
    assert "Status not stated" in page(registry, "models/odd")[0].text


@pytest.mark.parametrize(
    "path",
    [
        "models/none",
        "models/none/verify",
        "models/none/history",
        "nothing",
        "metadata",
        "static/x/../../etc/passwd",
        "static/x/registry.py",
        "models/%3Cscript%3E",
        "models",
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(registry: Client, path: str) -> None:
    read, _ = page(registry, path, status=404)
    assert "There is no such page or model here" in read.text
    assert "此处没有" in page(registry, f"{path}?lang=zh", status=404)[0].text


def test_pages_are_only_read_and_other_types_are_no_models(registry: Client) -> None:
    root = registry.base.removesuffix("/fhir")
    status, headers, body = registry.raw("POST", f"{root}/", b"q=x")
    assert status == 405 and headers["allow"] == "GET, HEAD" and b"only read" in body
    put(registry, {"resourceType": "DeviceDefinition", "id": "engine", "deviceName": [{"name": "e"}]})
    page(registry, "models/engine", status=404)
    status, headers, body = registry.raw("HEAD", f"{root}/")
    assert status == 200 and body == b"" and int(headers["content-length"]) > 1000


def test_every_access_to_a_page_is_in_the_audit_trail(registry: Client) -> None:
    put(registry, model())
    for path in ("", "models/m1?lang=zh", "models/m1/verify", "engines?digest=00", "nothing", "models/gone"):
        registry.raw("GET", f"{registry.base.removesuffix('/fhir')}/{path}")
    events = [json.loads(entry.body) for entry in registry.outbox.entries()]
    assert len(events) == 6
    assert events[5]["entity"][0]["what"]["reference"] == "DeviceDefinition/gone"
    assert events[1]["entity"][0]["what"]["reference"] == "DeviceDefinition/m1"
    sent = base64.b64decode(events[1]["entity"][1]["query"]).decode()
    assert sent == "DeviceDefinition/m1?lang=zh"
    assert events[2]["entity"][0]["what"]["reference"] == "DeviceDefinition/m1"
    assert [e["outcome"]["detail"][0]["text"] for e in events] == ["HTTP 200"] * 3 + [
        "HTTP 400",
        "HTTP 404",
        "HTTP 404",
    ]


# ---- colours


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_text_has_a_contrast_of_at_least_four_and_a_half() -> None:
    styles = [
        files("evidence.page").joinpath("style.css"),
        files("fhir_registry.pages").joinpath("static/registry.css"),
    ]
    text = "\n".join(item.read_text("utf-8") for item in styles)
    palette = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))
    ground = "#f3f6f8"
    assert f"background: {ground}" in text
    on = {
        "paper": ("ink", "soft", "good", "bad", "accent", "other"),
        "warn-paper": ("ink", "bad", "soft", "other"),
        "good-paper": ("ink", "good", "other"),
        "other-paper": ("other",),
        "ink": ("paper",),
        "accent": ("paper",),
    }
    pairs = [(palette[a], palette[b]) for a, many in on.items() for b in many]
    pairs += [(ground, palette[name]) for name in ("ink", "soft", "good", "bad", "accent")]
    for one, two in pairs:
        low, high = sorted((luminance(one), luminance(two)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (one, two)
    # no colour is used that is not in the palette
    used = set(re.findall(r"#[0-9a-f]{3,6}\b", text)) - set(palette.values()) - {ground}
    assert used <= {"#fbfcfd"}, used  # boxes of proof.html


def test_what_cannot_be_seen_is_written_as_its_code_point() -> None:
    assert visible("a\u202eb") == "a[U+202E]b"
    assert visible("线\n") == "线\n"
    assert len(str(visible("x" * 10_000))) == 4001


def ask(registry: Client, path: str, query: bytes = b"", **options: Any) -> list[Any]:
    """The messages of an application over the same store, made with ``options``, to a GET of ``path``."""
    app = FhirApp(Service(registry.store, GroupCommit(registry.store.commit_each, "writer")), version="1", **options)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(b"host", b"h"), (b"accept-language", b"en")],
        "scheme": "http",
    }
    asyncio.run(app(scope, receive, send))
    app.service.writer.close()
    return sent


def test_behind_a_proxy_addresses_are_those_clients_see(registry: Client) -> None:
    put(registry, model("m"))
    sent = ask(registry, "/models/m", b"lang=zh", base="https://hospital.example/registry/fhir")
    assert b"; Secure" in dict(sent[0]["headers"])[b"set-cookie"]
    read = Reader(sent[1]["body"].decode())
    addresses = [
        str(a.get(name))
        for tag in ("a", "link", "script", "form")
        for a in read.all(tag)
        for name in ("href", "src", "action")
        if name in a
    ]
    assert all(a.startswith(("/registry/", "#", "https://hospital.example/registry/fhir/")) for a in addresses), (
        addresses
    )
    assert "/registry/models/m?lang=en" in addresses


@pytest.mark.parametrize(
    ("status", "said"), [(401, "Please sign in"), (403, "You may not see"), (429, "Too many requests")]
)
def test_who_is_not_admitted_gets_a_page_that_says_so(registry: Client, status: int, said: str) -> None:
    async def admit(request: Request) -> Request:
        raise HttpError(status, "throttled", "the reason of the server", {"Retry-After": "7"})

    sent = ask(registry, "/models/x", admit=admit)
    headers = dict(sent[0]["headers"])
    assert sent[0]["status"] == status and headers[b"retry-after"] == b"7"
    assert headers[b"content-type"] == b"text/html; charset=utf-8"
    text = sent[1]["body"].decode()
    assert said in text and "the reason of the server" in text
    Reader(text)


def test_a_registry_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["registry", "list"]) == 2
    assert "run pip install 'cuvil[registry]'" in capsys.readouterr().err


def test_what_the_manufacturer_states_and_where_an_engine_was_deployed(registry: Client) -> None:
    put(
        registry,
        model(
            "m",
            "chest",
            "retired",
            classification=[{"type": {"text": "Class III", "coding": [{"system": "https://c", "code": "III"}]}}],
            regulatoryIdentifier=[
                {
                    "type": "license",
                    "deviceIdentifier": "国械注准1",
                    "issuer": "https://nmpa",
                    "jurisdiction": "urn:iso:std:iso:3166#CN",
                }
            ],
            conformsTo=[
                {"category": {"text": "life cycle"}, "specification": {"text": "IEC 62304"}, "version": ["2006"]}
            ],
            hasPart=[{"reference": {"reference": "DeviceDefinition/e"}, "count": 1}],
        ),
    )
    put(
        registry,
        {
            "resourceType": "DeviceDefinition",
            "id": "e",
            "property": [prop("target", "aarch64-linux-musl")],
            "modifierExtension": [{"url": names.STATUS, "valueCode": "retired"}],
        },
    )
    for number in range(2):
        versions = [
            ("model-version", "chest-1.0", {"installDate": "2026-11-30T08:00:00Z"}),
            ("hardware-fingerprint", f"f{number}" * 64, {}),
        ]
        put(
            registry,
            {
                "resourceType": "Device",
                "id": f"d{number}",
                "serialNumber": f"SN-{number}",
                "definition": {"reference": {"reference": "DeviceDefinition/e"}},
                "version": [
                    {"type": names.coded(names.VERSION_KIND, k), "value": v, **more} for k, v, more in versions
                ],
            },
        )
    read, _ = page(registry, "models/m")
    for expected in (
        "国械注准1",
        "license, https://nmpa, urn:iso:std:iso:3166#CN",
        "Class III",
        "IEC 62304 2006",
        "life cycle",
        "the registry has not checked them",
        "Registered machines that have it: 2",
        "SN-0",
        "SN-1",
        "2026-11-30T08:00:00Z",
        "aarch64-linux-musl",
        "f1f1f1f1f1f1f1f1…",
    ):
        assert expected in read.text, expected
    assert "#devices" in [a.get("href") for a in read.all("a")]


def test_a_trust_root_that_cannot_be_read_is_said_before_anything_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "root.json")
    assert main(["registry", "serve", "--port", "0", "--data", str(tmp_path / "data"), "--trust-root", missing]) == 2
    answered = capsys.readouterr()
    assert missing in answered.err and answered.out == "" and not (tmp_path / "data").exists()


FORM = st.dictionaries(
    st.sampled_from(
        ("q", "purpose", "input", "status", "manufacturer", "identifier", "cursor", "digest", "lang", "before")
    ),
    st.text(max_size=40)
    | st.sampled_from(("\\", ",", "|", "%", "_", "!", "a|b|c", "\x00", "W10", "WyIxIl0", "0" * 64, "'", "--")),
    max_size=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(form=FORM, path=st.sampled_from(("", "engines", "models/m", "models/m/history")))
def test_whatever_stands_in_the_address_is_answered_with_a_page(
    registry: Client, form: dict[str, str], path: str
) -> None:
    put(registry, model("m", "a|b,c\\d 100%_!"))
    address = f"{registry.base.removesuffix('/fhir')}/{path}?{urlencode(form, errors='surrogatepass')}"
    status, _, body = registry.raw("GET", address)
    assert status in (200, 400), (status, form)
    Reader(body.decode())


def test_a_version_names_the_others_of_the_same_model(registry: Client) -> None:
    put(registry, model("m1", "a,b\\c", "retired"))
    put(registry, model("m2", "a,b\\c", modelNumber="2.0"))
    put(registry, model("m3", "a,b\\c", modelNumber="3.0", manufacturer={"display": "Somebody else"}))
    put(registry, model("m4", "a"))
    read, _ = page(registry, "models/m1")
    others = [a["href"] for a in read.all("a") if "/models/" in str(a.get("href")) and "/m1" not in str(a.get("href"))]
    assert others == ["/models/m2"] and "Other versions:" in read.text
    assert "Other versions" not in page(registry, "models/m4")[0].text
