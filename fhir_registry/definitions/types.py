"""The compact definitions as immutable tables; loaded once, on first use."""

from __future__ import annotations

import json
import lzma
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from fhir_registry.definitions.compact import FORMAT

DATA: Final = Path(__file__).parents[1] / "data" / "r5.json.xz"
UNBOUNDED: Final = 1 << 30


@dataclass(frozen=True)
class Kind:
    """One type an element may have; ``targets`` are the types a Reference or canonical may point to."""

    code: str
    pattern: re.Pattern[str] | None
    targets: frozenset[str]


@dataclass(frozen=True)
class Constraint:
    """An invariant; ``severity`` is "error" or "warning"."""

    key: str
    severity: str
    human: str
    expression: str


@dataclass(frozen=True)
class Element:
    """One element of a type: ``name`` in JSON (a choice without ``[x]``), cardinality, types, binding, invariants."""

    path: str
    name: str
    choice: bool
    low: int
    high: int
    kinds: tuple[Kind, ...]
    same_as: str
    strength: str
    value_set: str
    constraints: tuple[Constraint, ...]
    modifier: bool
    summary: bool

    @property
    def many(self) -> bool:
        return self.high > 1


@dataclass(frozen=True)
class Structure:
    """A type: its elements by path, and the children of every path by JSON name (of a choice: of every type)."""

    name: str
    kind: str
    abstract: bool
    base: str
    elements: dict[str, Element]

    @cached_property
    def children(self) -> dict[str, dict[str, tuple[Element, Kind | None]]]:
        found: dict[str, dict[str, tuple[Element, Kind | None]]] = {}
        for path, element in self.elements.items():
            parent = path.rpartition(".")[0]
            if not parent:
                continue
            names = found.setdefault(parent, {})
            if element.choice:
                for kind in element.kinds:
                    names[element.name + kind.code[0].upper() + kind.code[1:]] = (element, kind)
            else:
                names[element.name] = (element, None)
        return found

    @property
    def root(self) -> Element:
        return self.elements[self.name]


@dataclass(frozen=True)
class SearchParameter:
    code: str
    url: str
    type: str
    base: frozenset[str]
    expression: str
    target: frozenset[str]


class Definitions:
    """FHIR R5: ``structures`` by type name, ``value_sets`` by canonical address (pairs of system and code)."""

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("format") != FORMAT:
            raise ValueError("not a file of FHIR definitions")
        self._raw = document
        self._structures: dict[str, Structure] = {}
        self._patterns: dict[str, re.Pattern[str] | None] = {}
        self._codes: dict[str, tuple[frozenset[str], frozenset[tuple[str, str]]]] = {}

    def structure(self, name: str) -> Structure | None:
        """The type called ``name``, or ``None``."""
        found = self._structures.get(name)
        if found is None and name in self._raw["structures"]:
            raw = self._raw["structures"][name]
            elements = {e["path"]: _element(e) for e in raw["elements"]}
            found = Structure(name, raw["kind"], raw["abstract"], raw["base"], elements)
            self._structures[name] = found
        return found

    def pattern(self, primitive: str) -> re.Pattern[str] | None:
        """The form of a primitive type's values in JSON, where the definitions state one."""
        if primitive not in self._patterns:
            structure = self.structure(primitive)
            value = structure.elements.get(f"{primitive}.value") if structure is not None else None
            self._patterns[primitive] = value.kinds[0].pattern if value is not None and value.kinds else None
        return self._patterns[primitive]

    def is_resource(self, name: str) -> bool:
        raw = self._raw["structures"].get(name)
        return raw is not None and raw["kind"] == "resource" and not raw["abstract"]

    def value_set(self, url: str) -> tuple[frozenset[str], frozenset[tuple[str, str]]] | None:
        """The codes of a value set, and its pairs of system and code; ``None`` when R5 alone cannot tell."""
        found = self._codes.get(url)
        if found is None and url in self._raw["value_sets"]:
            pairs = frozenset((system, code) for system, code in self._raw["value_sets"][url])
            found = self._codes[url] = (frozenset(code for _, code in pairs), pairs)
        return found

    @cached_property
    def choices(self) -> dict[str, frozenset[str]]:
        """Of each choice, as ``value``, the names it has in JSON: ``valueString``, ``valueCode``..."""
        found: dict[str, set[str]] = {}
        for structure in self._raw["structures"].values():
            for element in structure["elements"]:
                if element["path"].endswith("[x]"):
                    name = element["path"].rpartition(".")[2].removesuffix("[x]")
                    names = found.setdefault(name, set())
                    names.update(f"{name}{code[0].upper()}{code[1:]}" for code, _, _ in element["types"])
        return {name: frozenset(names) for name, names in found.items()}

    @cached_property
    def search_parameters(self) -> tuple[SearchParameter, ...]:
        return tuple(
            SearchParameter(
                p["code"], p["url"], p["type"], frozenset(p["base"]), p["expression"], frozenset(p["target"])
            )
            for p in self._raw["search"]
        )


def _element(raw: dict[str, Any]) -> Element:
    name = raw["path"].rsplit(".", 1)[-1]
    strength, value_set = raw.get("binding", ("", ""))
    return Element(
        raw["path"],
        name.removesuffix("[x]"),
        name.endswith("[x]"),
        raw["min"],
        UNBOUNDED if raw["max"] == "*" else int(raw["max"]),
        tuple(_kind(*kind) for kind in raw.get("types", ())),
        raw.get("same_as", ""),
        strength,
        value_set,
        tuple(Constraint(*c) for c in raw.get("constraints", ())),
        bool(raw.get("modifier")),
        bool(raw.get("summary")),
    )


def _kind(code: str, pattern: str, targets: list[str]) -> Kind:
    return Kind(code, _compiled(pattern) if pattern else None, frozenset(targets))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1)
def r5() -> Definitions:
    """FHIR R5 5.0.0 as shipped."""
    return Definitions(json.loads(lzma.decompress(DATA.read_bytes())))
