"""YAML text to plain data with the position of every key and value.

The accepted language is small on purpose: YAML 1.2 core scalars (so ``no`` is text and ``1e-3`` a number), one
document, no anchors, aliases or tags, no key twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import yaml

from compiler_kernels.errors import UsageError

Path = tuple[str | int, ...]
Data = None | bool | int | float | str | tuple["Data", ...] | dict[str, "Data"]

_SCALARS: Final[tuple[tuple[re.Pattern[str], Callable[[str], Data]], ...]] = (
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    (re.compile(r"true|True|TRUE|false|False|FALSE"), lambda t: t.lower() == "true"),
    (re.compile(r"[-+]?[0-9]{1,400}"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"), lambda t: float(t.replace(".", ""))),
)
_TEXT_TAGS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass
class Document:
    """``data`` is the parsed text; ``keys`` and ``values`` give line and column (from 1) by path."""

    filename: str
    data: Data = None
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def error(self, path: Path, why: str, *, at_key: bool = False) -> UsageError:
        """``file:line:column: field why``, at the nearest position known for ``path``."""
        table = self.keys if at_key else self.values
        near = path
        while near and near not in table:
            near = near[:-1]
        line, column = table.get(near, (1, 1))
        where = ".".join(str(p) for p in path) or "the policy"
        return UsageError(f"{self.filename}:{line}:{column}: {where} {why}")


class _Loader(yaml.BaseLoader):
    """Composer without implicit types and without aliases, which could multiply a small text without bound."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def read_yaml(text: str, filename: str) -> Document:
    """Parse ``text``. ``UsageError`` with file, line and column for anything outside the accepted language."""
    document = Document(filename)
    try:
        node = yaml.compose(text.removeprefix("\ufeff"), Loader=_Loader)
        if node is None:
            raise UsageError(f"{filename}:1:1: the file is empty; a policy needs at least version and model")
        document.data = _convert(node, (), document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise UsageError(f"{filename}:{line}:{column}: not valid YAML: {_reason(error)}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{filename}:1:1: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UsageError(f"{filename}:1:1: the file is nested too deeply") from None
    return document


def _reason(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.context, error.problem) if part)


def _convert(node: yaml.Node, path: Path, document: Document) -> Data:
    document.values[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if node.tag not in _TEXT_TAGS:
        raise document.error(path, f"has the tag {node.tag}; tags are not allowed")
    if isinstance(node, yaml.ScalarNode):
        _check_unicode(node, path, document)
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return tuple(_convert(item, (*path, i), document) for i, item in enumerate(node.value))
    assert isinstance(node, yaml.MappingNode)
    result: dict[str, Data] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise document.error(path, "has a key that is not plain text")
        here = (*path, str(key_node.value))
        _check_unicode(key_node, path, document)
        position = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if here in document.keys:
            first = document.keys[here]
            document.keys[here] = position
            raise document.error(here, f"is given twice, first in line {first[0]}; keep one", at_key=True)
        document.keys[here] = position
        result[str(key_node.value)] = _convert(value_node, here, document)
    return result


def _check_unicode(node: yaml.ScalarNode, path: Path, document: Document) -> None:
    """Escapes can spell half of a surrogate pair, which is no text and has no UTF-8 form."""
    if any(0xD800 <= ord(c) <= 0xDFFF for c in str(node.value)):
        document.values[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        raise document.error(path, "holds an escape that is no Unicode character; write the character itself")


def _scalar(node: yaml.ScalarNode) -> Data:
    text = str(node.value)
    if node.style is None:  # plain, not quoted
        for pattern, convert in _SCALARS:
            if pattern.fullmatch(text):
                return convert(text)
    return text
