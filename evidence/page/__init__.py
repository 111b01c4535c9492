"""``proof.html``: one offline file that draws the chain of a build and verifies a folder in the browser."""

from __future__ import annotations

import html
import json
from functools import cache
from importlib.resources import files

from evidence.verifier.dsse import read_envelope
from evidence.verifier.statement import read_statement

SCRIPTS = ("hashes.js", "signatures.js", "certificates.js", "verify.js", "view.js")
PAGE_NAME = "proof.html"


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _embedded(text: str) -> str:
    """JSON as the content of a script element: nothing in it may end the element."""
    return text.replace("<", "\\u003c")


def proof_page(proof: bytes, title: str = "") -> bytes:
    """The page of the build whose proof envelope is ``proof``; the same proof gives the same bytes.

    It shows what the proof says and verifies whatever folder and trust root its reader gives it. ``MalformedError``
    when ``proof`` is no build proof.
    """
    payload = read_envelope(proof).payload
    statement = read_statement(payload)
    name = title or f"{statement.subject} {statement.model_version}"
    words = json.dumps(json.loads(_part("words.json")), ensure_ascii=False, separators=(",", ":"))
    page = _part("template.html")
    for mark, text in (
        ("@STYLE@", _part("style.css")),
        ("@TITLE@", html.escape(name)),
        ("@WORDS@", _embedded(words)),
        ("@SCRIPT@", "\n".join(_part(script) for script in SCRIPTS)),
        ("@BUILD@", _embedded(payload.decode("utf-8"))),
    ):
        page = page.replace(mark, text)
    return page.encode("utf-8")
