"""JSON pointers (RFC 6901) with two more kinds of segment, for "every component has a version".

``*`` stands for every element of a list or value of an object; ``[key=value]`` and ``[key^=value]`` for the elements of
a list whose ``key`` equals, or begins with, ``value``. A segment must find something from every place it starts at.
"""

from __future__ import annotations

import re
from typing import Any

_FILTER = re.compile(r"\[([^=^\]]+)(\^?=)([^\]]*)\]")
_EMPTY = ("", "unknown", "not stated", "none", "not executed", "failed")


def select(document: Any, pointer: str) -> list[Any]:
    """The values ``pointer`` leads to; empty when any place lacks what a segment asks for."""
    places = [document]
    for segment in pointer.split("/")[1:] if pointer else []:
        following: list[Any] = []
        for place in places:
            found = _step(place, segment.replace("~1", "/").replace("~0", "~"))
            if not found:
                return []
            following += found
        places = following
    return places


def answered(document: Any, pointer: str) -> bool:
    """Whether the pointer leads to something, and nothing it leads to is empty or says that it is unknown."""
    values = select(document, pointer)
    return bool(values) and not any(_says_nothing(value) for value in values)


def _step(place: Any, segment: str) -> list[Any]:
    if segment == "*":
        return list(place) if isinstance(place, list) else list(place.values()) if isinstance(place, dict) else []
    match = _FILTER.fullmatch(segment)
    if match is not None:
        key, sign, wanted = match.groups()
        items = [item for item in place if isinstance(item, dict)] if isinstance(place, list) else []
        if sign == "=":
            return [item for item in items if item.get(key) == wanted]
        return [item for item in items if str(item.get(key, "")).startswith(wanted)]
    if isinstance(place, dict):
        return [place[segment]] if segment in place else []
    if isinstance(place, list) and segment.isdigit() and int(segment) < len(place):
        return [place[int(segment)]]
    return []


def _says_nothing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _EMPTY or value.startswith("not stated")
    return value is None or value == [] or value == {}
