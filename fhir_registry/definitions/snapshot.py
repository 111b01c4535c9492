"""From the differential of a profile or logical model to its snapshot (FHIR R5, profiling.html, section 5.1.0.17).

A snapshot says everything about every element, so that a reader needs no other definition. Here it is made of the
published elements of the base: a differential element changes the one of the same id; one that the base does not list
is unfolded from its type, or copied for a slice from the element that is sliced. ``valueQuantity`` is short for the
slice ``value[x]:valueQuantity``, and where it is required, for the only type. Constraints and conditions add up, all
else replaces what the base says. Mappings are not carried over. `scripts/r5_profiles.py` compares with HL7's snapshots.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

Element = dict[str, Any]
Lookup = Callable[[str], list[Element] | None]
"""Snapshot elements of the definition at an address, or ``None``."""

TYPE: Final = "http://hl7.org/fhir/StructureDefinition/"
_ADDED: Final = ("constraint", "condition", "alias")


class SnapshotError(ValueError):
    """A differential that its base does not allow; names the element."""


def snapshot(definition: dict[str, Any], lookup: Lookup) -> list[Element]:
    """Elements of the StructureDefinition ``definition``; ``SnapshotError`` for what its base does not have."""
    base = lookup(definition["baseDefinition"])
    if base is None:
        raise SnapshotError(f"{definition['url']}: its base {definition['baseDefinition']} is not known")
    root = definition["type"].rsplit("/", 1)[-1]
    found = [_moved(item, base[0]["id"], root) for item in base]
    short: dict[str, str] = {}
    for change in definition["differential"]["element"]:
        _apply(found, _written_out(found, change, short), lookup, definition)
    for item in found:
        item.setdefault("base", {"path": item["path"], "min": item["min"], "max": item["max"]})
    return found


def _apply(found: list[Element], change: Element, lookup: Lookup, definition: dict[str, Any]) -> None:
    at = _find(found, change["id"])
    if at is None and definition["derivation"] == "specialization":
        found.append({"min": 0, "max": "1", "isModifier": False, **copy.deepcopy(change)})
        return
    if at is None:
        at = _make(found, change["id"], lookup, definition["url"])
    target = found[at]
    if change.get("min", target["min"]) < target["min"] and ":" not in change["id"].rsplit(".", 1)[-1]:
        raise SnapshotError(f"{definition['url']}: {change['id']} allows fewer values than its base")
    if _most(change.get("max", target["max"])) > _most(target["max"]):
        raise SnapshotError(f"{definition['url']}: {change['id']} allows more values than its base")
    for name, value in change.items():
        if name in _ADDED:
            target[name] = [*target.get(name, ()), *(copy.deepcopy(v) for v in value if v not in target.get(name, ()))]
        elif name not in ("id", "path"):
            target[name] = copy.deepcopy(value)


def _written_out(found: list[Element], change: Element, short: dict[str, str]) -> Element:
    """``change`` with the id of the slice that ``valueQuantity`` is short for; ``short``: those met before."""
    wanted = change["id"]
    for begin, full in short.items():
        if wanted.startswith(f"{begin}."):
            return {**change, "id": full + wanted[len(begin) :]}
    parent, _, name = wanted.rpartition(".")
    if _find(found, wanted) is not None or not name.isalnum():
        return change
    for item in found:
        above, _, choice = item["id"].rpartition(".")
        if above != parent or not choice.endswith("[x]") or not name.startswith(choice[:-3]):
            continue
        code = name[len(choice) - 3 :]
        kinds = [kind for kind in item["type"] if kind["code"][0].upper() + kind["code"][1:] == code]
        if kinds:
            short[wanted] = f"{item['id']}:{name}"
            only = change.get("min", 0) > 0
            item["slicing"] = {
                "discriminator": [{"type": "type", "path": "$this"}],
                "ordered": False,
                "rules": "closed" if only else "open",
            }
            if only:
                item["min"], item["type"] = 1, kinds
            return {"type": kinds, **change, "id": short[wanted]}
    return change


def _make(found: list[Element], wanted: str, lookup: Lookup, url: str) -> int:
    """The place of the element ``wanted``, which is added as a slice or a child of what is there."""
    parent, _, last = wanted.rpartition(".")
    if not parent:
        raise SnapshotError(f"{url}: {wanted} is no element of its base")
    name, _, part = last.partition(":")
    if part:
        sliced = f"{parent}.{name}"
        at = _find(found, sliced)
        if at is None:
            at = _make(found, sliced, lookup, url)
        return _slice(found, at, wanted, part)
    above = _find(found, parent)
    if above is None:
        above = _make(found, parent, lookup, url)
    _unfold(found, above, lookup, url)
    at = _find(found, wanted)
    if at is None:
        raise SnapshotError(f"{url}: {wanted} is no element of its base")
    return at


def _slice(found: list[Element], at: int, wanted: str, name: str) -> int:
    """A copy of the sliced element and of its children, after all that belongs to it."""
    source = found[at]["id"]
    inside = [item for item in found if item["id"] == source or item["id"].startswith(f"{source}.")]
    copies = [_moved(item, source, wanted, path=False) for item in inside]
    copies[0]["sliceName"] = name
    copies[0]["min"] = 0
    copies[0].pop("slicing", None)
    end = at + 1
    while end < len(found) and found[end]["id"].startswith((f"{source}.", f"{source}:")):
        end += 1
    found[end:end] = copies
    return end


def _unfold(found: list[Element], at: int, lookup: Lookup, url: str) -> None:
    """The children of a value of a data type, from the type's own definition."""
    item = found[at]
    if any(other["id"].startswith(f"{item['id']}.") for other in found):
        return
    kinds = item.get("type", ())
    children = lookup(TYPE + kinds[0]["code"]) if len(kinds) == 1 else None
    if children is None:
        raise SnapshotError(f"{url}: the children of {item['id']} are not known")
    root = children[0]["id"]
    moved = [_moved(child, root, item["id"]) for child in children[1:]]
    for child, origin in zip(moved, children[1:], strict=True):
        child["path"] = item["path"] + origin["path"][len(root) :]
    found[at + 1 : at + 1] = moved


def _moved(item: Element, before: str, after: str, path: bool = True) -> Element:
    """A copy of ``item`` whose id begins with ``after`` where it began with ``before``."""
    moved = copy.deepcopy(item)
    moved["id"] = after + item["id"][len(before) :]
    if path:
        moved["path"] = after + item["path"][len(before) :]
    return moved


def _find(found: list[Element], wanted: str) -> int | None:
    return next((at for at, item in enumerate(found) if item["id"] == wanted), None)


def _most(text: Any) -> float:
    return float("inf") if text == "*" else int(text)
