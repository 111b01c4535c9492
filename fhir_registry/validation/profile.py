"""A profile compiled: what it demands beyond its base, as a tree along the elements of a resource.

The base was checked before (walk.py), so only elements of the differential appear here. Of FHIR R5, profiling.html,
these are compiled: cardinality, ``fixed[x]`` and ``pattern[x]``, types, type profiles, targets, bindings, constraints,
slices with discriminators value, pattern, type, exists and profile, of extensions by their address, of a choice by its
type. ``mustSupport`` demands nothing of a resource. Slices of slices and discriminators through ``resolve()`` and
``extension()`` are refused when a profile is compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from fhir_registry.definitions.conformance import definition
from fhir_registry.definitions.types import UNBOUNDED, Constraint, r5

CORE: Final = "http://hl7.org/fhir/StructureDefinition/"
_DISCRIMINATORS: Final = frozenset({"value", "pattern", "type", "exists", "profile"})
_PATH: Final = re.compile(r"\$this|[A-Za-z0-9]+(\.[A-Za-z0-9]+)*")


class ProfileError(ValueError):
    """A profile that asks for what is not compiled here; names profile and element."""


@dataclass
class Rule:
    """What a profile demands of one element or slice; ``None`` and empty values demand nothing.

    ``name``: of the member in JSON, a choice without ``[x]``. ``value``: fixed where ``exact``, else a pattern.
    ``label``: how issues name it, ``property:inputProfile.value[x]``.
    """

    name: str
    label: str
    choice: bool = False
    low: int = 0
    high: int = UNBOUNDED
    kinds: frozenset[str] = frozenset()
    profiles: tuple[str, ...] = ()
    targets: frozenset[str] = frozenset()
    value: Any = None
    exact: bool = False
    strength: str = ""
    value_set: str = ""
    short: str = ""
    constraints: tuple[Constraint, ...] = ()
    children: dict[str, Rule] = field(default_factory=dict)
    slicing: Slicing | None = None
    slices: dict[str, Rule] = field(default_factory=dict)


@dataclass(frozen=True)
class Slicing:
    """``discriminators``: pairs of type and path; ``rules``: open, closed or openAtEnd."""

    discriminators: tuple[tuple[str, str], ...]
    rules: str
    ordered: bool


@dataclass(frozen=True)
class Profile:
    """``type``: what it constrains; ``base``: the profile below it, which holds too."""

    url: str
    name: str
    version: str
    type: str
    root: Rule
    base: str


@lru_cache(maxsize=64)
def profile(url: str) -> Profile | None:
    """The profile at ``url`` (without version), or ``None`` when it is not known here."""
    found = definition(url)
    return None if found is None or found["derivation"] != "constraint" else compile_profile(found)


def compile_profile(found: dict[str, Any]) -> Profile:
    """``ProfileError`` for what is not compiled here."""
    url, root = str(found["url"]), Rule(found["type"], found["type"])
    for item in found["differential"]["element"]:
        parts = _written_out(found["type"], item["id"])
        rule = _place(root, parts[1:], url)
        _fill(rule, item, url)
        if parts[-1] != item["id"].rpartition(".")[2] and rule.low:  # valueQuantity that is required: the only type
            choice = _place(root, [*parts[1:-1], parts[-1].partition(":")[0]], url)
            choice.low, choice.kinds = 1, rule.kinds
    base = "" if found["baseDefinition"].startswith(CORE) else found["baseDefinition"]
    compiled = Profile(url, url.rsplit("/", 1)[-1], found.get("version", ""), found["type"], root, base)
    _check_slices(root, url)
    return compiled


def _written_out(kind: str, identifier: str) -> list[str]:
    """The parts of an id, with ``value[x]:valueQuantity`` for ``valueQuantity``."""
    structure = r5().structure(kind)
    parts = identifier.split(".")
    path = kind
    for number, part in enumerate(parts[1:], 1):
        known = structure.children.get(path, {}).get(part) if structure is not None else None
        if known is not None and known[1] is not None:
            parts[number] = f"{known[0].name}[x]:{part}"
        path = f"{path}.{part.partition(':')[0]}"
    return parts


def _place(root: Rule, parts: list[str], url: str) -> Rule:
    """The rule at the end of ``parts``, made on the way."""
    at, label = root, ""
    for part in parts:
        name, _, piece = part.partition(":")
        label = f"{label}.{part}" if label else part
        plain = name.removesuffix("[x]")
        if plain not in at.children:
            at.children[plain] = Rule(plain, label.partition(":")[0] if piece else label, name.endswith("[x]"))
        at = at.children[plain]
        if piece:
            if "/" in piece:
                raise ProfileError(f"{url}: {label}: slices of slices are not compiled")
            part_rule = Rule(plain, label, name.endswith("[x]"))
            if part_rule.choice and piece.startswith(plain):
                part_rule.kinds = frozenset({piece[len(plain) :]})
            at = at.slices.setdefault(piece, part_rule)
    return at


def _fill(rule: Rule, item: dict[str, Any], url: str) -> None:
    rule.low = item.get("min", 0)
    if item.get("max", "*") != "*":
        rule.high = int(item["max"])
    kinds = item.get("type", ())
    rule.kinds = frozenset(kind["code"] for kind in kinds) or rule.kinds
    rule.profiles = tuple(address for kind in kinds for address in kind.get("profile", ()))
    targets = {_type_of(address) for kind in kinds for address in kind.get("targetProfile", ())}
    rule.targets = frozenset(targets) if None not in targets else frozenset()  # type: ignore[arg-type]
    for name, value in item.items():
        if name.startswith(("fixed", "pattern")):
            rule.value, rule.exact = value, name.startswith("fixed")
    if "valueSet" in item.get("binding", ()):
        rule.strength, rule.value_set = item["binding"]["strength"], item["binding"]["valueSet"].partition("|")[0]
    rule.short = item.get("short", "")
    rule.constraints = tuple(
        Constraint(c["key"], c["severity"], c["human"], c["expression"])
        for c in item.get("constraint", ())
        if c.get("expression")
    )
    if "slicing" in item:
        slicing = item["slicing"]
        pairs = tuple((d["type"], d["path"]) for d in slicing.get("discriminator", ()))
        for kind, path in pairs:
            if kind not in _DISCRIMINATORS or _PATH.fullmatch(path) is None:
                raise ProfileError(f"{url}: {item['id']}: the discriminator {kind} {path} is not compiled")
        rule.slicing = Slicing(pairs, slicing["rules"], bool(slicing.get("ordered")))


def _check_slices(rule: Rule, url: str) -> None:
    for child in rule.children.values():
        if child.slices and child.slicing is None:
            if child.name in ("extension", "modifierExtension"):
                child.slicing = Slicing((("value", "url"),), "open", False)
            elif child.choice:
                child.slicing = Slicing((("type", "$this"),), "open", False)
        if child.slices and (child.slicing is None or not child.slicing.discriminators):
            raise ProfileError(f"{url}: {child.label} is sliced without a discriminator")
        for part in (child, *child.slices.values()):
            _check_slices(part, url)


def _type_of(address: str) -> str | None:
    """The resource type that a profile is of; ``None`` where the profile is not known."""
    found = definition(address)
    if found is not None:
        return str(found["type"])
    name = address.removeprefix(CORE)
    return name if r5().structure(name) is not None else None


@lru_cache(maxsize=256)
def codes_of(url: str) -> frozenset[tuple[str, str]] | None:
    """Pairs of system and code in a value set: of R5, or all codes of our own systems; ``None`` when neither."""
    from fhir_registry.definitions.conformance import generated

    known = r5().value_set(url)
    if known is not None:
        return known[1]
    own = generated().get(url)
    if own is None or own["resourceType"] != "ValueSet":
        return None
    pairs = set()
    for include in own["compose"]["include"]:
        systems = (
            s for s in generated().values() if s["resourceType"] == "CodeSystem" and s["url"] == include["system"]
        )
        listed = include.get("concept") or next(systems)["concept"]
        pairs |= {(include["system"], concept["code"]) for concept in listed}
    return frozenset(pairs)
