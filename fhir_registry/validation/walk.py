"""One pass over a resource: names, cardinalities, types, formats, bindings, targets of references, invariants."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from fhir_registry.definitions.types import Definitions, Element, Kind, Structure, r5
from fhir_registry.validation.codings import pairs_of
from fhir_registry.validation.conform import check_claim
from fhir_registry.validation.invariants import check_invariants
from fhir_registry.validation.issues import ERROR, Issue
from fhir_registry.validation.moments import is_day

MOST_SECONDS: Final = 5.0
LONGEST_STRING: Final = 1 << 20
_NUMBERS: Final = {"integer": int, "unsignedInt": int, "positiveInt": int, "decimal": (int, Decimal)}
_LIMITS: Final = {"integer": (-(2**31), 2**31 - 1), "unsignedInt": (0, 2**31 - 1), "positiveInt": (1, 2**31 - 1)}
_NESTED: Final = ("BackboneElement", "Element")
_DATES: Final = frozenset({"date", "dateTime", "instant"})
_ABOUT: Final = frozenset({"resourceType", "id", "meta", "implicitRules", "language"})
_REFERENCE: Final = re.compile(
    r"^(?:https?://\S+/)?([A-Z][A-Za-z]+)/[A-Za-z0-9.-]{1,64}(?:/_history/[A-Za-z0-9.-]{1,64})?$"
)
# Formats that the regular expressions of the definitions leave open, or state so loosely that they refuse nothing.
_FORMATS: Final[dict[str, re.Pattern[str]]] = {
    "id": re.compile(r"[A-Za-z0-9.-]{1,64}"),
    "uri": re.compile(r"\S+"),
    "url": re.compile(r"\S+"),
    "canonical": re.compile(r"\S+"),
    "code": re.compile(r"\S+( \S+)*"),
    "integer64": re.compile(r"0|[-+]?[1-9][0-9]{0,18}"),
    "base64Binary": re.compile(r"(?:\s*[0-9A-Za-z+/]){0,}\s*(?:=\s*){0,2}"),
}


def validate(
    resource: Any, definitions: Definitions | None = None, *, invariants: bool = True, profiles: Sequence[str] = ()
) -> list[Issue]:
    """Everything that is wrong with ``resource`` (as ``read_json`` gives it), in document order; empty when valid.

    It is held to its type, to the profiles it claims in ``meta.profile``, and to ``profiles``; one that is not known
    here is a warning. A resource whose invariants take more than ``MOST_SECONDS`` of CPU time is not valid: some are
    quadratic in it.
    """
    walk = _Walk(definitions or r5(), invariants)
    walk.top, walk.asked = resource, tuple(profiles)
    kind = resource.get("resourceType") if isinstance(resource, dict) else None
    if not isinstance(kind, str):
        return [Issue(ERROR, "structure", "", "a resource is a JSON object with a resourceType")]
    walk.resource(resource, kind, resource)
    return list(dict.fromkeys(walk.issues))  # a rule may stand on the element and on its type


class _Walk:
    def __init__(self, definitions: Definitions, invariants: bool) -> None:
        self.definitions = definitions
        self.invariants = invariants
        self.issues: list[Issue] = []
        self.root: Any = None
        self.until = time.thread_time() + MOST_SECONDS
        self.top: Any = None
        self.within: tuple[Any, dict[str, str]] | None = None
        self.asked: tuple[str, ...] = ()

    def say(self, place: str, code: str, text: str, severity: str = ERROR) -> None:
        self.issues.append(Issue(severity, code, place, text))

    def resource(self, value: Any, place: str, root: Any) -> None:
        kind = value.get("resourceType") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            self.say(place, "structure", "a resource is a JSON object with a resourceType")
            return
        if not self.definitions.is_resource(kind):
            self.say(place, "not-supported", f"{kind} is no resource type of FHIR R5")
            return
        structure = self.definitions.structure(kind)
        assert structure is not None
        before, self.root = self.root, root
        self.element(value, structure, structure.name, place)
        # a contained resource may say no more than that it is one (official examples do)
        if value is root and value.keys() <= _ABOUT and kind != "Parameters":
            self.say(place, "required", "a resource needs an element besides id, meta, implicitRules and language")
        if self.invariants and self.in_time(place):
            self.issues += check_invariants(value, structure.root.constraints, place, root, value)
        self.profiles(value, place, root)
        self.root = before

    def profiles(self, value: dict[str, Any], place: str, root: Any) -> None:
        """The profiles that the resource claims, and those that were asked for."""
        meta = value.get("meta")
        claimed = meta.get("profile") if isinstance(meta, dict) else None
        asked = self.asked if value is self.top else ()
        listed = [url for url in claimed if isinstance(url, str)] if isinstance(claimed, list) else []
        for url in dict.fromkeys((*listed, *asked)):
            self.issues += check_claim(value, url, place, root)

    def element(self, value: Any, structure: Structure, path: str, place: str) -> None:
        """A complex value whose children are those of ``path`` in ``structure``."""
        if not isinstance(value, dict):
            self.say(place, "structure", "a JSON object belongs here")
            return
        if not value:
            self.say(place, "structure", "an object may not be empty")
            return
        names = structure.children.get(path, {})
        present: dict[str, str] = {}
        for name, item in value.items():
            if name == "resourceType" and path == structure.name and structure.kind == "resource":
                continue
            plain = name[1:] if name.startswith("_") else name
            known = names.get(plain)
            where = f"{place}.{plain}"
            if known is None or (name != plain and not self.is_primitive(known[0], known[1])):
                self.say(f"{place}.{name}", "structure", f"{name} is no element of {path}")
                continue
            element, kind = known
            other = present.setdefault(element.path, plain)
            if other != plain:
                self.say(where, "structure", f"{other} and {plain} exclude each other: {element.name}[x] is one value")
                continue
            if name == plain:
                where = f"{place}.{element.name}" if element.choice else where
                self.values(item, value.get(f"_{name}"), structure, element, kind, where)
            else:
                self.siblings(item, value.get(plain), element, where)
        for element, _ in names.values():
            if element.low > 0 and element.path not in present:
                present[element.path] = ""  # a choice has many names, and is missing once
                shown = f"{element.name}[x]" if element.choice else element.name
                self.say(f"{place}.{element.name}", "required", f"{shown} is required and missing")

    def is_primitive(self, element: Element, kind: Kind | None) -> bool:
        kinds = (kind,) if kind is not None else element.kinds
        return len(kinds) == 1 and kinds[0].code[0].islower() and kinds[0].code != "xhtml"

    def values(
        self, item: Any, sibling: Any, structure: Structure, element: Element, kind: Kind | None, place: str
    ) -> None:
        """A member of an object: one value, or the list of them."""
        if isinstance(item, list) != element.many:
            self.say(
                place, "structure", "a list belongs here" if element.many else "one value belongs here, not a list"
            )
            return
        if not element.many:
            self.value(item, structure, element, kind, place)
            return
        if not item:
            self.say(place, "structure", "a list may not be empty; leave the element out")
        for number, one in enumerate(item):
            at = f"{place}[{number}]"
            if one is None:
                fills = isinstance(sibling, list) and number < len(sibling) and sibling[number] is not None
                if not fills or not self.is_primitive(element, kind):
                    self.say(at, "structure", "null stands only where an extension takes the value's place")
                continue
            self.value(one, structure, element, kind, at)
        if not element.low <= len(item) <= element.high:
            self.say(place, "structure", f"{len(item)} values, and {element.low} to {element.high} are allowed")

    def siblings(self, item: Any, values: Any, element: Element, place: str) -> None:
        """The id and extensions of primitive values, under the name with an underscore."""
        if isinstance(item, list) != element.many or (element.many and not item):
            self.say(place, "structure", "the member with an underscore has the form of the values it extends")
            return
        if element.many and isinstance(values, list) and len(item) > len(values):
            self.say(place, "structure", "there are more extensions than values; write null for an absent value")
        base = self.definitions.structure("Element")
        assert base is not None
        for number, one in enumerate(item if element.many else (item,)):
            if one is not None or not element.many:
                self.element(one, base, "Element", f"{place}[{number}]" if element.many else place)

    def value(self, item: Any, structure: Structure, element: Element, kind: Kind | None, place: str) -> None:
        """One value of ``element``."""
        if element.same_as:
            self.element(item, structure, element.same_as, place)
            self.rules(item, structure.elements[element.same_as], place)
            return
        kind = kind or element.kinds[0]
        if kind.code[0].islower():
            self.primitive(item, kind, place)
        elif kind.code in _NESTED:
            self.element(item, structure, element.path, place)
        elif self.definitions.is_resource(kind.code) or kind.code in ("Resource", "DomainResource"):
            inner = item.get("resourceType") if isinstance(item, dict) else None
            if self.definitions.is_resource(kind.code) and inner != kind.code:
                self.say(place, "structure", f"a {kind.code} belongs here")
                return
            contained = element.path.endswith(".contained")
            self.resource(item, place, self.root if contained else item)
        else:
            inner_structure = self.definitions.structure(kind.code)
            if inner_structure is None:
                self.say(place, "not-supported", f"the type {kind.code} is not known")
                return
            self.element(item, inner_structure, kind.code, place)
            self.rules(item, inner_structure.root, place)
            if kind.code == "Reference":
                self.reference(item, kind, place)
        self.rules(item, element, place)
        if element.strength == "required":
            self.binding(item, element, place)

    def in_time(self, place: str) -> bool:
        if time.thread_time() > self.until:
            self.invariants = False
            self.say(
                place, "too-costly", f"the invariants from here on need more than {MOST_SECONDS:.0f} s to evaluate"
            )
        return self.invariants

    def rules(self, item: Any, element: Element, place: str) -> None:
        if self.invariants and element.constraints and self.in_time(place):
            self.issues += check_invariants(item, element.constraints, place, self.root, None)

    def primitive(self, item: Any, kind: Kind, place: str) -> None:
        code = kind.code
        if code == "boolean":
            if not isinstance(item, bool):
                self.say(place, "value", "true or false belongs here")
            return
        wanted = _NUMBERS.get(code)
        if wanted is not None:
            if isinstance(item, bool) or not isinstance(item, wanted):  # type: ignore[arg-type]
                self.say(place, "value", f"a JSON number belongs here ({code})")
            elif code in _LIMITS and not _LIMITS[code][0] <= item <= _LIMITS[code][1]:
                self.say(place, "value", f"{str(item)[:40]} is outside the range of {code}")
            return
        if not isinstance(item, str):
            self.say(place, "value", f"a JSON string belongs here ({code})")
        elif not item.strip():
            self.say(place, "value", "a string may not be empty or white space alone")
        elif len(item) > LONGEST_STRING and code != "base64Binary":
            self.say(place, "too-long", f"a string may have {LONGEST_STRING} characters")
        elif not self.fits(item, code):
            self.say(place, "value", f"{item[:60]!r} is not of the form of {code}")

    def fits(self, item: str, code: str) -> bool:
        own = _FORMATS.get(code)
        if own is not None:
            return own.fullmatch(item) is not None
        pattern = self.definitions.pattern(code)
        if pattern is not None and pattern.fullmatch(item) is None:
            return False
        return code not in _DATES or item[8:10] <= "28" or is_day(item[:10])

    def binding(self, item: Any, element: Element, place: str) -> None:
        """A required binding: the code of a code, of a Coding, or of one coding of a CodeableConcept."""
        known = self.definitions.value_set(element.value_set)
        if known is None:
            return
        codes, pairs = known
        if isinstance(item, str):
            if item not in codes:
                self.say(place, "code-invalid", _not_in(item, element, codes))
        elif isinstance(item, dict):
            found = pairs_of(item)
            if found and not any(pair in pairs for pair in found) and any(code for _, code in found):
                self.say(place, "code-invalid", _not_in(str(found[0][1]), element, codes))

    def contained_types(self) -> dict[str, str]:
        """Types of the resources within the root, by their ids."""
        if self.within is None or self.within[0] is not self.root:
            listed = self.root.get("contained") if isinstance(self.root, dict) else None
            items = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
            pairs = [(item.get("id"), item.get("resourceType")) for item in items]
            self.within = (self.root, {a: b for a, b in pairs if isinstance(a, str) and isinstance(b, str)})
        return self.within[1]

    def reference(self, item: Any, kind: Kind, place: str) -> None:
        text = item.get("reference") if isinstance(item, dict) else None
        if not isinstance(text, str):
            return
        target = self.contained_types().get(text[1:], "") if text.startswith("#") else ""
        if not target:
            match = _REFERENCE.match(text)
            if match is None:
                return
            target = match[1]
        if not self.definitions.is_resource(target):
            if not text.startswith("http"):
                self.say(f"{place}.reference", "value", f"{target} is no resource type of FHIR R5")
        elif kind.targets and not kind.targets & {target, "Resource", "DomainResource"}:
            allowed = ", ".join(sorted(kind.targets))
            self.say(f"{place}.reference", "structure", f"a {target} may not be referred to here; allowed: {allowed}")


def _not_in(code: str, element: Element, codes: frozenset[str]) -> str:
    listed = f": {', '.join(sorted(codes))}" if len(codes) <= 12 else ""
    return f"{code[:60]!r} is not in the value set {element.value_set}{listed}"
