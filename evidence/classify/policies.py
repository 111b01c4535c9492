"""Differences between two policies in canonical form, by section and direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from compiler_kernels.policy.clinical import Fallbacks, Safety
from evidence.classify.build import Build, documents
from evidence.classify.rules import Difference, difference

Path = tuple[str, ...]
_TEXTS: Final = frozenset(["description", "source", "requirements", "clauses", "unit"])
_TEXT_AT: Final = {"thresholds": 2, "quantities": 2, "decisions": 2, "fallbacks": 2, "safety": 3}
"""Fields for reports, and at which place of a path a field stands, so that a decision may be called `source`."""
_PROCESS: Final = frozenset(
    ["version", "numerics", "coverage", "budget", "signing", "release", "approvals", "timestamp", "sbom", "audit",
     "clauses", "source_date_epoch", "reproducibility", "recertification", "dataset", "registry", "gpu"]
)  # fmt: skip
_LOGIC: Final = frozenset(["thresholds", "quantities", "decisions", "fallbacks"])
_LOOSER, _TIGHTER = "policy.guard-loosened", "policy.guard-tightened"
# What changed numerics do shows in the frozen graph, which has rules of its own.


def compare_policies(a: Build, b: Build) -> list[Difference]:
    """What differs between the policies of two builds."""
    if a.statement.policy == b.statement.policy:
        return []
    found = documents(a, b, "source_model", "policy.json")
    if isinstance(found, str):
        return [difference("policy.untold", f"the policy of {found} is neither beside the engine nor in the store")]
    return compare_documents(*found)


def compare_documents(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Differences of two policies in canonical form (RFC 8785, defaults written out)."""
    found = []
    for path, before, after in _changes((), _with_defaults(a), _with_defaults(b)):
        rule = _rule(path, before, after)
        if rule:
            found.append(difference(rule, f"{'.'.join(path)}: {_shown(before)} became {_shown(after)}"))
    return found


def _with_defaults(policy: Mapping[str, Any]) -> dict[str, Any]:
    """With the sections written out that mean something when they are absent."""
    sections = {"fallbacks": Fallbacks(), "safety": Safety()}
    return {**{name: s.model_dump(mode="json", exclude_none=True) for name, s in sections.items()}, **policy}


def _changes(path: Path, before: Any, after: Any) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _changes((*path, key), before.get(key), after.get(key))
    elif isinstance(before or after, Mapping) and path[0] in ("inputs", "outputs", "shapes"):
        yield from _changes(path, before or {}, after or {})
    elif before != after:
        yield path, before, after


def _rule(path: Path, before: Any, after: Any) -> str:
    """Id of the rule for one changed field, or nothing for one that other rules see."""
    section = path[0]
    if section == "model":
        return "policy.version" if path[1:] == ("version",) else "policy.identity"
    if section in _PROCESS:
        return "policy.process"
    place = _TEXT_AT.get(section, len(path))
    if len(path) > place and path[place] in _TEXTS:
        return "policy.process"
    if section in _LOGIC:
        return "policy.logic"
    if section == "random_seed":
        return "policy.seed"
    if section in ("inputs", "outputs") and len(path) == 3:
        return _guard(path[2], before, after)
    if section == "shapes":
        return _sizes(path, before, after)
    if section == "safety":
        return _safety(path, before, after)
    return "policy.unknown"


def _guard(field: str, before: Any, after: Any) -> str:
    if field == "shape":
        return "model.interface"
    if field == "dtype":
        return "policy.process"  # a demand on the model, met in both builds
    if field == "finite":
        return _switch(before, after)
    if field == "range":
        return _narrower(before, after, lambda old, new: new[0] >= old[0] and new[1] <= old[1])
    return "policy.unknown"


def _sizes(path: Path, before: Any, after: Any) -> str:
    if len(path) < 3:
        return "policy.unknown"
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "min": lambda old, new: new >= old,
        "max": lambda old, new: new <= old,
        "multiple": lambda old, new: new % old == 0,
    }
    test = tests.get(path[2])
    # A symbol that is new or gone also shows in the model's interface.
    return "policy.unknown" if test is None else _narrower(before, after, test)


def _safety(path: Path, before: Any, after: Any) -> str:
    if path[1:] == ("lockstep",):
        return _switch(before, after)
    if path[1] == "guards":
        if before is None or after is None:
            return _TIGHTER if before is None else _LOOSER
        return "policy.logic"
    return "policy.unknown"


def _switch(before: Any, after: Any) -> str:
    return "" if bool(before) == bool(after) else _TIGHTER if after else _LOOSER


def _narrower(before: Any, after: Any, test: Callable[[Any, Any], bool]) -> str:
    if before is None:
        return _TIGHTER
    return _TIGHTER if after is not None and test(before, after) else _LOOSER


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
