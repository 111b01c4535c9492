"""Whether a resource that passed its base definition meets a profile; issues name the element and the slice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fhir_registry.definitions.types import r5
from fhir_registry.validation.codings import pairs_of
from fhir_registry.validation.invariants import check_invariants
from fhir_registry.validation.issues import ERROR, WARNING, Issue
from fhir_registry.validation.profile import CORE, Profile, Rule, codes_of, profile


@dataclass(frozen=True)
class _Item:
    """One value with its place; ``kind``: of a choice, the type that its name states (``String``)."""

    value: Any
    place: str
    kind: str = ""


def check_claim(resource: dict[str, Any], url: str, place: str, root: Any) -> list[Issue]:
    """Issues against the profile at ``url``, perhaps with ``|VERSION``; a warning when it is not known here."""
    address, _, version = url.partition("|")
    if address.startswith(CORE) and r5().structure(address.removeprefix(CORE)) is not None:
        kind = address.removeprefix(CORE)
        fits = kind in (resource.get("resourceType"), "Resource", "DomainResource")
        text = f"the profile is of {kind}, and this is a {resource.get('resourceType')}"
        return [] if fits else [Issue(ERROR, "structure", place, text)]
    found = profile(address)
    if found is None or version not in ("", found.version):
        text = f"the profile {url[:200]} is not known here, so the resource was not held to it"
        return [Issue(WARNING, "not-found", f"{place}.meta.profile", text)]
    return check_profile(resource, found, place, root)


def check_profile(resource: dict[str, Any], found: Profile, place: str, root: Any) -> list[Issue]:
    """Issues of ``resource`` against ``found`` and the profiles below it. ``root``: %rootResource of invariants."""
    check = _Check(found, root, resource)
    if found.base and (below := profile(found.base)) is not None:
        check.issues += check_profile(resource, below, place, root)
    if resource.get("resourceType", found.type) != found.type:
        check.say(place, "structure", f"the profile is of {found.type}, not of {resource.get('resourceType')}")
        return check.issues
    check.members(resource, found.root, place)
    return check.issues


class _Check:
    def __init__(self, found: Profile, root: Any, resource: Any) -> None:
        self.profile = found
        self.root = root
        self.resource = resource
        self.issues: list[Issue] = []

    def say(self, place: str, code: str, text: str, severity: str = ERROR) -> None:
        self.issues.append(Issue(severity, code, place, f"{self.profile.name}: {text}"))

    def members(self, value: dict[str, Any], rule: Rule, place: str) -> None:
        """The children that the profile speaks of."""
        for child in rule.children.values():
            items = list(_items(value, child, place))
            self.count(items, child, f"{place}.{child.name}")
            for item in items:
                self.item(item, child)
            if child.slicing is not None:
                self.sliced(items, child, f"{place}.{child.name}")

    def count(self, items: list[_Item], rule: Rule, place: str) -> None:
        if len(items) < rule.low:
            hint = f" ({rule.short})" if rule.short else ""
            self.say(place, "required", f"{rule.label} is needed {_times(rule.low)}, and there are {len(items)}{hint}")
        elif len(items) > rule.high:
            allowed = f"is allowed {_times(rule.high)}" if rule.high else "is not allowed"
            self.say(place, "structure", f"{rule.label} {allowed}, and there are {len(items)}")

    def sliced(self, items: list[_Item], rule: Rule, place: str) -> None:
        """Each item to the first slice it belongs to (R5: it may belong to one at most)."""
        assert rule.slicing is not None
        slices = list(rule.slices.values())
        groups: list[list[_Item]] = [[] for _ in slices]
        last, outside = 0, False
        for item in items:
            at = next((n for n, part in enumerate(slices) if self.belongs(item, part, rule)), None)
            if at is None:
                outside = True
                if rule.slicing.rules == "closed":
                    self.say(item.place, "structure", f"{rule.label} is closed, and this belongs to none of its slices")
                continue
            if outside and rule.slicing.rules == "openAtEnd":
                self.say(item.place, "structure", f"{slices[at].label} stands before what belongs to no slice")
            if rule.slicing.ordered and at < last:
                self.say(item.place, "structure", f"{slices[at].label} stands before {slices[last].label}")
            last = max(last, at)
            groups[at].append(item)
        for part, group in zip(slices, groups, strict=True):
            self.count(group, part, place)
            for item in group:
                self.item(item, part)

    def belongs(self, item: _Item, part: Rule, rule: Rule) -> bool:
        assert rule.slicing is not None
        return all(self.discriminated(item, part, kind, path) for kind, path in rule.slicing.discriminators)

    def discriminated(self, item: _Item, part: Rule, kind: str, path: str) -> bool:
        if path == "url" and part.profiles:  # an extension's own profile fixes its address
            return isinstance(item.value, dict) and item.value.get("url") in part.profiles
        wanted: Rule | None = part
        found = [item]
        for step in () if path == "$this" else path.split("."):
            wanted = wanted.children.get(step) if wanted is not None else None
            reader = wanted or Rule(step, step, choice=True)
            found = [i for f in found if isinstance(f.value, dict) for i in _items(f.value, reader, f.place)]
            if wanted is not None and wanted.value is not None:
                break  # fixed here, and all below with it
        if kind == "exists":
            return bool(found) is (wanted is None or wanted.high > 0)
        if wanted is None:
            return False
        if kind == "type":
            return any(_is_kind(f, wanted.kinds) for f in found)
        if kind == "profile":
            return any(self.meets(f, address) for f in found for address in wanted.profiles)
        if wanted.value is not None:
            return any(_fits(f.value, wanted) for f in found)
        codes = codes_of(wanted.value_set) if wanted.strength == "required" else None
        return codes is not None and any(_coded(f.value, codes) for f in found)

    def meets(self, item: _Item, address: str) -> bool:
        found = profile(address)
        if found is None or not isinstance(item.value, dict):
            return False
        return not any(i.severity == ERROR for i in check_profile(item.value, found, item.place, self.root))

    def item(self, item: _Item, rule: Rule) -> None:
        """What is demanded of one value itself, and of its children."""
        value, place = item.value, item.place
        if rule.kinds and item.kind and not _is_kind(item, rule.kinds):
            self.say(place, "structure", f"{rule.label} is a {' or '.join(sorted(rule.kinds))}, not a {item.kind}")
            return
        if rule.value is not None and not _fits(value, rule):
            demand = "is exactly" if rule.exact else "has at least"
            self.say(place, "value", f"{rule.label} {demand} {_shown(rule.value)}")
        if rule.value_set and rule.strength in ("required", "extensible"):
            self.binding(value, rule, place)
        if rule.targets:
            self.target(value, rule, place)
        if rule.constraints:
            for issue in check_invariants(value, rule.constraints, place, self.root, self.resource):
                self.issues.append(Issue(issue.severity, issue.code, place, self._named(rule, issue.text)))
        for address in rule.profiles:
            found = profile(address)
            if found is not None and isinstance(value, dict):
                self.issues += check_profile(value, found, place, self.root)
        if rule.children and isinstance(value, dict):
            self.members(value, rule, place)

    def _named(self, rule: Rule, text: str) -> str:
        return f"{self.profile.name}: {rule.label}: {text}"

    def binding(self, value: Any, rule: Rule, place: str) -> None:
        codes = codes_of(rule.value_set)
        if codes is None or _coded(value, codes):
            return
        if rule.strength == "required":
            self.say(place, "code-invalid", f"{rule.label} has no code of the value set {rule.value_set}")
        elif not (isinstance(value, dict) and "text" in value and "coding" not in value):
            text = f"{rule.label} should have a code of the value set {rule.value_set}, where one fits"
            self.say(place, "code-invalid", text, WARNING)

    def target(self, value: Any, rule: Rule, place: str) -> None:
        reference = value.get("reference") if isinstance(value, dict) else None
        if isinstance(reference, dict):  # CodeableReference
            reference, place = reference.get("reference"), f"{place}.reference"
        if not isinstance(reference, str) or reference.startswith(("#", "urn:")):
            return
        parts = reference.partition("/_history/")[0].split("/")
        if len(parts) > 1 and parts[-2] not in rule.targets and parts[-2][:1].isupper():
            allowed = ", ".join(sorted(rule.targets))
            self.say(f"{place}.reference", "structure", f"{rule.label} refers to {allowed}, not to a {parts[-2]}")


def _items(value: dict[str, Any], rule: Rule, place: str) -> Iterator[_Item]:
    """The values of a member, those with extensions alone included; of a choice, of every type."""
    names = [rule.name]
    if rule.choice and rule.name not in value and f"_{rule.name}" not in value:
        size = len(rule.name)
        names = [n for n in {name.lstrip("_") for name in value} if n.startswith(rule.name) and n[size:][:1].isupper()]
    for name in names:
        kind = name[len(rule.name) :]
        found = value.get(name, value.get(f"_{name}"))
        where = f"{place}.{rule.name}"
        if isinstance(found, list):
            beside = value.get(f"_{name}")
            for number, item in enumerate(found):
                if item is not None or (isinstance(beside, list) and number < len(beside)):
                    yield _Item(item, f"{where}[{number}]", kind)
        elif found is not None:
            yield _Item(found, where, kind)


def _is_kind(item: _Item, kinds: frozenset[str]) -> bool:
    if item.kind:
        return any(item.kind == kind[0].upper() + kind[1:] for kind in kinds)
    return isinstance(item.value, dict) and item.value.get("resourceType") in kinds


def _fits(value: Any, rule: Rule) -> bool:
    return _equal(value, rule.value) if rule.exact else _holds(value, rule.value)


def _equal(value: Any, wanted: Any) -> bool:
    """Equal in all, ids and digits of numbers included (ElementDefinition.fixed[x])."""
    if isinstance(value, Decimal) or isinstance(wanted, Decimal):
        return str(value) == str(wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _holds(value: Any, wanted: Any) -> bool:
    """Whether ``value`` has everything that ``wanted`` has (ElementDefinition.pattern[x])."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(n in value and _holds(value[n], item) for n, item in wanted.items())
    if isinstance(wanted, list):
        return isinstance(value, list) and all(any(_holds(v, item) for v in value) for item in wanted)
    return _equal(value, wanted)


def _coded(value: Any, codes: frozenset[tuple[str, str]]) -> bool:
    if isinstance(value, str):
        return any(code == value for _, code in codes)
    return isinstance(value, dict) and not codes.isdisjoint(pairs_of(value))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and value.get("coding"):
        return " and ".join(f"{c.get('system', '')}#{c.get('code', '')}" for c in value["coding"])
    return f"{value!r}"[:200]
