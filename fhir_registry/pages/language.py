"""The two languages of the pages: which one a request gets, and every message in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from fhir_registry.server.http import Request

LANGUAGES: Final = {"en": "English", "zh": "中文"}
TAGS: Final = {"en": "en", "zh": "zh-Hans"}
"""Language tags of the html element (BCP 47)."""
COOKIE: Final = "cuvil_lang"


@cache
def words(language: str) -> Mapping[str, str]:
    """All messages of ``language`` by their key."""
    table = json.loads(files(__package__).joinpath("words.json").read_text("utf-8"))
    return {key: pair[language] for key, pair in table.items()}


class Words:
    """``words(key, name=value)``: the message with its values put in. ``KeyError`` for a key that is not there."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._table = words(language)

    def __call__(self, key: str, **values: object) -> str:
        text = self._table[key]
        return text.format(**values) if values else text

    def has(self, key: str) -> bool:
        return key in self._table


def chosen(request: Request) -> str:
    """The language asked for in the address, else that of the cookie, else the first known of Accept-Language."""
    wanted = next((value for name, value in request.pairs if name == "lang"), "")
    return (
        _known(wanted)
        or _known(_cookie(request.headers.get("cookie", "")))
        or _accepted(request.headers.get("accept-language", ""))
    )


def _known(text: str) -> str:
    return text if text in LANGUAGES else ""


def _cookie(header: str) -> str:
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def _accepted(header: str) -> str:
    """By weight, then by order (RFC 9110, 12.5.4); English where none is known."""
    found: list[tuple[float, int, str]] = []
    for at, part in enumerate(header.split(",")[:20]):
        tag, _, weight = part.strip().lower().partition(";q=")
        language = _known(tag.partition("-")[0])
        try:
            quality = float(weight or 1)
        except ValueError:
            continue
        if language and quality > 0:
            found.append((-quality, at, language))
    return min(found)[2] if found else "en"
