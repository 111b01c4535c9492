"""The invariants of the definitions: the common ones in Python, all others by their own FHIRPath expression.

What ``paths`` cannot parse or evaluate is not checked, and tests name those. Written by hand are the rules that stand
on every element or resource (a path engine would spend most of its time on them) and those it lacks functions for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from xml.etree import ElementTree

from fhir_registry.definitions.types import Constraint
from fhir_registry.validation.definition_rules import (
    binding_of_coded,
    binding_on_codeable_reference,
    targets_on_codeable_reference,
)
from fhir_registry.validation.issues import Issue
from fhir_registry.validation.paths import evaluate
from fhir_registry.validation.value_rules import (
    age_in_time,
    count_is_whole,
    document_dated,
    expression_named,
    not_for_oneself,
    range_ordered,
    ratio_range_ordered,
)

NOT_EVALUATED: Final = frozenset(
    "apd-1 ctm-1 dgr-1 docRef-1 docRef-2 enc-2 obs-9 prc-1 prov-2 prov-3 exs-1 opd-3".split()
)
"""Rules that need another resource (``resolve``) or an expansion (``memberOf``): nothing is refused for them."""
XHTML: Final = "{http://www.w3.org/1999/xhtml}"
# FHIR R5, narrative.html: a subset of HTML 4 chapters 7 to 11 and 15, without anything that acts or loads.
_TAGS: Final = frozenset(
    (
        "a abbr acronym address b big blockquote br caption cite code col colgroup dd del dfn div dl dt em h1 h2 h3 h4 "
        "h5 h6 hr i img ins kbd li ol p pre q samp small span strong sub sup table tbody td tfoot th thead tr tt ul var"
    ).split()
)
_ATTRIBUTES: Final = frozenset(
    (
        "abbr accesskey align alt axis bgcolor border cellhalign cellpadding cellspacing cellvalign char charoff "
        "charset cite class colspan compact coords dir frame headers height href hreflang hspace id lang longdesc name "
        "nowrap rel rev rowspan rules scope shape span src start style summary tabindex title type valign value vspace "
        "width"
    ).split()
)
_LOCAL: Final = re.compile(r"#|https?:|mailto:|tel:|data:image/|[^:]*$", re.IGNORECASE)
NARRATIVE_LIMIT: Final = 1 << 20


def check_invariants(
    value: Any, constraints: Iterable[Constraint], place: str, root: Any, resource: Any
) -> Iterator[Issue]:
    """Those of ``constraints`` that ``value`` breaks. ``root``: %rootResource; ``resource``: value, if it is one."""
    for rule in constraints:
        holds: bool | None
        if rule.key in BY_HAND:
            holds = BY_HAND[rule.key](value, root)
        else:
            holds = _evaluate(rule, value, root, resource if resource is not None else root)
        if holds is False:
            severity = "error" if rule.severity == "error" else "warning"
            yield Issue(severity, "invariant", place, f"{rule.key}: {rule.human}")


def _evaluate(rule: Constraint, value: Any, root: Any, resource: Any) -> bool | None:
    """Whether the rule holds; ``None`` when the engine cannot tell."""
    found = evaluate(rule.expression, value, {"resource": resource, "rootResource": root})
    if found is None:
        return None
    if len(found) == 1 and isinstance(found[0], bool):
        return found[0]
    return True if found else None


def _has_content(value: Any, root: Any) -> bool:
    """ele-1: an element has a value or children."""
    return not isinstance(value, dict) or any(name != "id" for name in value)


def _one_of_value_and_extensions(value: Any, root: Any) -> bool:
    """ext-1."""
    if not isinstance(value, dict):
        return True
    valued = any(name.lstrip("_").startswith("value") for name in value)
    return valued != ("extension" in value)


def _contained(value: Any) -> list[dict[str, Any]]:
    listed = value.get("contained", ()) if isinstance(value, dict) else ()
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _no_nested(value: Any, root: Any) -> bool:
    """dom-2."""
    return not any("contained" in item for item in _contained(value))


def _all_referred_to(value: Any, root: Any) -> bool:
    """dom-3: every contained resource is referred to from the resource, or refers to it (``#``)."""
    inside = _contained(value)
    if not inside:
        return True
    outer = set(_texts({name: item for name, item in value.items() if name != "contained"}))
    within = [set(_texts(item)) for item in inside]
    holders = Counter(text for texts in within for text in texts)
    for item, texts in zip(inside, within, strict=True):
        mine = f"#{item.get('id')}"
        if mine not in outer and holders[mine] == (mine in texts) and "#" not in texts:
            return False
    return True


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _target_within(value: Any, root: Any) -> bool:
    """ref-1: ``#id`` names a contained resource (``#`` alone: the one that contains it)."""
    text = value.get("reference") if isinstance(value, dict) else None
    if not isinstance(text, str) or not text.startswith("#") or text == "#":
        return True
    return any(item.get("id") == text[1:] for item in _contained(root))


def _no_version(value: Any, root: Any) -> bool:
    """dom-4."""
    return not any({"versionId", "lastUpdated"} & _meta(item).keys() for item in _contained(value))


def _no_security(value: Any, root: Any) -> bool:
    """dom-5."""
    return not any("security" in _meta(item) for item in _contained(value))


def _meta(item: dict[str, Any]) -> dict[str, Any]:
    found = item.get("meta")
    return found if isinstance(found, dict) else {}


def _passes(value: Any, root: Any) -> bool:
    """dom-6 is advice: a resource should have a narrative. Those here are for machines, and people have pages."""
    return True


def _period_ordered(value: Any, root: Any) -> bool | None:
    """per-1: compared as far as both are precise."""
    if not isinstance(value, dict):
        return True
    start, end = value.get("start"), value.get("end")
    if not isinstance(start, str) or not isinstance(end, str):
        return True
    from fhir_registry.validation.moments import interval

    low, high = interval(start), interval(end)
    return None if low is None or high is None else low[0] < high[1]


def narrative_problem(text: str) -> str:
    """Why ``text`` is no narrative (txt-1), or the empty string."""
    if len(text) > NARRATIVE_LIMIT:
        return "it is too long"
    if "<!" in text or "<?" in text:
        return "it holds a declaration, comment or processing instruction"
    try:
        top = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return f"it is not well-formed ({error})"
    if top.tag != f"{XHTML}div":
        return "it is no div of XHTML"
    for node in top.iter():
        tag = str(node.tag).removeprefix(XHTML)
        if tag not in _TAGS:
            return f"it holds <{tag}>"
        for name, value in node.attrib.items():
            if name.rpartition("}")[2] not in _ATTRIBUTES:
                return f"it holds the attribute {name}"
            if name in ("href", "src") and not _LOCAL.match(value.strip()):
                return f"it refers to {value[:40]!r}"
    return ""


def _narrative(value: Any, root: Any) -> bool:
    return not isinstance(value, str) or not narrative_problem(value)


def _narrative_says_something(value: Any, root: Any) -> bool:
    """txt-2."""
    if not isinstance(value, str):
        return True
    try:
        top = ElementTree.fromstring(value)
    except ElementTree.ParseError:
        return False
    return bool("".join(top.itertext()).strip()) or any(str(n.tag).endswith("}img") for n in top.iter())


BY_HAND: Final[dict[str, Callable[[Any, Any], bool | None]]] = {
    "ele-1": _has_content,
    "ext-1": _one_of_value_and_extensions,
    "dom-2": _no_nested,
    "dom-3": _all_referred_to,
    "dom-4": _no_version,
    "dom-5": _no_security,
    "dom-6": _passes,
    "age-1": age_in_time,
    "bdl-10": document_dated,
    "cnt-3": count_is_whole,
    "eld-11": binding_of_coded,
    "exp-2": expression_named,
    "per-1": _period_ordered,
    "prov-1": not_for_oneself,
    "ratrng-2": ratio_range_ordered,
    "rng-2": range_ordered,
    "ref-1": _target_within,
    "sdf-24": targets_on_codeable_reference,
    "sdf-25": binding_on_codeable_reference,
    "txt-1": _narrative,
    "txt-2": _narrative_says_something,
}
