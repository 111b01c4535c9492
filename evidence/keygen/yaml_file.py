"""Canonical form of YAML: the data of every document, as far as readers of YAML 1.1 and 1.2 agree on it.

They do not agree on plain scalars such as ``no``, ``1:30`` or ``0o7``. A plain scalar that some reader takes for
something else than text is therefore kept as it is written and told from a quoted one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import yaml

from evidence.keygen.text import Literal, Named, Unreadable, Value, quoted, value_text

_IS_TEXT: Final = re.compile(r"[A-Za-z_/$\u0080-\U0010ffff]")
_WORDS: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_NODE_LIMIT: Final = 2_000_000
"""Nodes after aliases are replaced by what they stand for: a short text can stand for more than a memory holds."""


def canonical(data: bytes) -> bytes:
    """The canonical form. Raises ``Unreadable``, also for a key given twice and an alias to what encloses it."""
    try:
        return value_text(_Reader(data).documents()).encode()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = ", ".join(part for part in (error.context, error.problem) if part)
        raise Unreadable(f"is not valid YAML ({why})", mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:
        raise Unreadable(f"is not valid YAML ({' '.join(str(error).split())})") from None
    except UnicodeDecodeError as error:
        raise Unreadable("is not UTF-8 text", data[: error.start].count(b"\n") + 1) from None
    except RecursionError:
        raise Unreadable("is nested too deeply") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(data.decode("utf-8"), Loader=yaml.SafeLoader))
        self._anchors: dict[str, tuple[Value, int]] = {}
        self._nodes = 0

    def documents(self) -> list[Value]:
        found: list[Value] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                value, _ = self._node(next(self._events))
                found.append(_with_directives(value, event))
        return found

    def _node(self, event: yaml.Event) -> tuple[Value, int]:
        """The value that begins with ``event``, and how many nodes it has."""
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise Unreadable(f"uses the alias *{event.anchor} outside of what it names", line)
            value, size = self._anchors[event.anchor]
            self._count(size, line)
            return value, size
        before = self._nodes
        self._count(1, line)
        value = self._content(event)
        tag = getattr(event, "tag", None)
        if tag is not None:
            value = Named(f"!{quoted(str(tag))} ", {"value": value})
        size = self._nodes - before
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[str(anchor)] = (value, size)
        return value, size

    def _content(self, event: yaml.Event) -> Value:
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Value] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(inner)[0])
            return items
        assert isinstance(event, yaml.MappingStartEvent)
        pairs: dict[str, Value] = {}
        while not isinstance(inner := next(self._events), yaml.MappingEndEvent):
            line = _line(inner)
            key = _key(self._node(inner)[0])
            if key in pairs:
                raise Unreadable(f"gives the key {quoted(key)[:60]} twice in one map", line)
            pairs[key] = self._node(next(self._events))[0]
        return pairs

    def _count(self, size: int, line: int) -> None:
        self._nodes += size
        if self._nodes > _NODE_LIMIT:
            raise Unreadable(f"stands for more than {_NODE_LIMIT:,} values", line)


def _scalar(event: yaml.ScalarEvent) -> Value:
    text = str(event.value)
    if event.style in (None, "") and (not _IS_TEXT.match(text) or text.lower() in _WORDS):
        return Literal(f"plain {quoted(text)}")
    return text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _key(value: Value) -> str:
    """Text as it is; what is no text (a number, a list) behind U+0000, so that the two differ."""
    if isinstance(value, str) and not value.startswith("\0"):
        return value
    return "\0" + value_text(value).removesuffix("\n")


def _with_directives(value: Value, event: yaml.DocumentStartEvent) -> Value:
    if not event.version:
        return value
    return Named("document ", {"version": ".".join(map(str, event.version)), "value": value})
