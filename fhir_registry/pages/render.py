"""From a template to an answer: everything escaped, nothing loaded from elsewhere, nothing framed."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evidence import page
from fhir_registry.pages.language import COOKIE, LANGUAGES, TAGS, Words
from fhir_registry.server.http import Response

LONGEST: Final = 4000
"""Characters of one text on a page; what is longer ends with a mark, and is whole in the FHIR resource."""
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
    "Vary": "Accept-Language, Cookie",
}
_STATIC: Final = {
    "registry.css": ("text/css", "fhir_registry.pages", "static/registry.css"),
    "registry.js": ("text/javascript", "fhir_registry.pages", "static/registry.js"),
    "icon.svg": ("image/svg+xml", "fhir_registry.pages", "static/icon.svg"),
    # The style and the digests of proof.html: the same here as there.
    "page.css": ("text/css", page.__name__, "style.css"),
    "hashes.js": ("text/javascript", page.__name__, "hashes.js"),
}
# Characters that reorder or hide the text around them (Unicode Standard Annex 9, 2.7), and invisible ones.
_HIDING: Final = frozenset(
    map(chr, [0x61C, 0x200B, 0x200E, 0x200F, 0xFEFF, *range(0x202A, 0x202F), *range(0x2060, 0x2070)])
)


def visible(value: object) -> object:
    """``value`` as a page shows it: a text cut to ``LONGEST``, what could disguise it written as its code point."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    text = value if len(value) <= LONGEST else value[:LONGEST] + "…"
    return "".join(f"[U+{ord(c):04X}]" if c in _HIDING or (c < " " and c not in "\t\n") or "\ud800" <= c <= "\udfff"
                   else c for c in text)  # fmt: skip


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("fhir_registry.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["short"] = lambda text, count=16: text if len(text) <= count else f"{text[:count]}…"
    found.filters["size"] = _size
    return found


def _size(count: int) -> str:
    """Bytes as people read them: ``12.3 kB``."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def render(template: str, language: str, status: int = 200, remember: bool = False, **values: Any) -> Response:
    """The page; ``remember``: the language was chosen in the address, and a cookie keeps it."""
    text = (
        _environment()
        .get_template(template)
        .render(
            t=Words(language), language=language, languages=LANGUAGES, tag=TAGS[language], static=static_tag(), **values
        )
    )
    secure = "; Secure" if str(values.get("base", "")).startswith("https:") else ""
    cookie = {"Set-Cookie": f"{COOKIE}={language}; Path=/; Max-Age=31536000; SameSite=Lax; HttpOnly{secure}"}
    return Response(status, text.encode("utf-8", "replace"), {**HEADERS, **(cookie if remember else {})}, "text/html")


@cache
def _file(name: str) -> tuple[str, bytes]:
    form, package, path = _STATIC[name]
    return form, files(package).joinpath(path).read_bytes()


@cache
def static_tag() -> str:
    """Part of the address of style and scripts, another one when any of them changes: browsers may keep them."""
    return hashlib.sha256(b"\0".join(_file(name)[1] for name in sorted(_STATIC))).hexdigest()[:12]


def static_file(name: str) -> Response | None:
    if name not in _STATIC:
        return None
    form, data = _file(name)
    return Response(200, data, {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}, form)
