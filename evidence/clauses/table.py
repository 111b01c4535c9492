"""The clause table: documents, clauses in our own words, older ids as aliases with what was found about them."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from compiler_kernels.errors import UsageError

FORMAT = "cuvil-clauses/1"
VERIFIED, ALIAS, NOT_FOUND = "verified-text", "alias", "not-found"
STATUSES = (VERIFIED, ALIAS, NOT_FOUND)
SEEN = ("read", "secondary", "knowledge")


@dataclass(frozen=True)
class Answer:
    """A place that answers: an artefact of a release and a pointer into it (``evidence.clauses.pointer``)."""

    artefact: str
    pointer: str

    def __str__(self) -> str:
        return f"{self.artefact}{self.pointer and '#'}{self.pointer}"


@dataclass(frozen=True)
class Clause:
    """One clause. ``zh`` and ``en`` summarise it in our own words; ``seen`` says what the summary rests on.

    All ``answers`` are needed. ``applies`` names the field whose absence makes the clause not applicable.
    """

    id: str
    document: str
    clause: str
    zh: str
    en: str
    seen: str
    status: str
    answers: tuple[Answer, ...]
    applies: Answer | None
    note: str


@dataclass(frozen=True)
class Alias:
    """An older id, the clauses that stand behind it, and the truth about it in both languages."""

    id: str
    zh: str
    en: str
    maps_to: tuple[str, ...]
    truth_zh: str
    truth_en: str


@dataclass(frozen=True)
class Table:
    """The whole table; ``sha3_512`` is of its file."""

    documents: dict[str, dict[str, str]]
    clauses: dict[str, Clause]
    aliases: dict[str, Alias]
    sha3_512: str

    def resolve(self, name: str) -> tuple[str, ...]:
        """Ids of the clauses behind ``name``, itself or those of an alias; ``UsageError`` with near ids for another."""
        if name in self.clauses:
            return (name,)
        if name in self.aliases:
            return self.aliases[name].maps_to
        near = difflib.get_close_matches(name, [*self.clauses, *self.aliases], 3)
        hint = f"did you mean {', '.join(near)}?" if near else "`cuvil gap` lists them"
        raise UsageError(f"clauses.required: there is no clause {name!r}; {hint}")


@lru_cache(maxsize=1)
def clause_table() -> Table:
    """The table that comes with this version of Cuvil."""
    data = (files("evidence") / "data" / "clauses.json").read_bytes()
    found: dict[str, Any] = json.loads(data)
    clauses = {item["id"]: _clause(item) for item in found["clauses"]}
    aliases = {
        item["id"]: Alias(
            item["id"], item["zh"], item["en"], tuple(item["maps_to"]), item["truth"]["zh"], item["truth"]["en"]
        )
        for item in found["aliases"]
    }
    return Table(found["documents"], clauses, aliases, hashlib.sha3_512(data).hexdigest())


def _clause(item: dict[str, Any]) -> Clause:
    applies = item.get("applies")
    return Clause(
        item["id"],
        item["document"],
        item["clause"],
        item["zh"],
        item["en"],
        item["seen"],
        item["status"],
        tuple(Answer(answer["artefact"], answer["pointer"]) for answer in item["answers"]),
        Answer(applies["artefact"], applies["pointer"]) if applies else None,
        item.get("note", ""),
    )
