"""Two sides on every item of a test set: bits, decisions, and how well each agrees with the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UsageError
from compiler_kernels.policy.recertification import Recertification
from compiler_kernels.stage import Json
from evidence.decisions import statistics
from evidence.decisions.data import TestSet, prepare
from evidence.decisions.sides import Answer, EngineSide, Side, score_of
from evidence.verifier.canonical import canonical_bytes
from evidence.verifier.decisions import FORMAT, SECTION, findings
from evidence.verifier.waiver import FAILED, PASSED

Array = NDArray[Any]
LISTED: Final = 200
"""So many items whose decisions differ are listed; all are counted."""
Progress = Callable[[int], None]
"""Called after each item with how many decisions differ so far."""


@dataclass
class Column:
    """One side's answers without their outputs, its scores (``None`` without) and whether it called positive
    (``None``: it did not say)."""

    answers: list[Answer] = field(default_factory=list)
    scores: list[float | None] = field(default_factory=list)
    calls: list[bool | None] = field(default_factory=list)

    def add(self, answer: Answer, rule: Recertification, side: str) -> None:
        """One item; ``UsageError`` where the score or the decision is not there."""
        score = score_of(answer, rule.score, rule.positive)
        self.answers.append(replace(answer, outputs={}))
        self.scores.append(score)
        self.calls.append(_call(answer, score, rule, side))

    def ranks(self, positive: Array) -> Array:
        """Scores, binary64; an item without one stands on the wrong end, where all of the other class beat it."""
        worst = np.where(positive, -np.inf, np.inf)
        return np.array([w if s is None else s for s, w in zip(self.scores, worst, strict=True)], np.float64)

    def right(self, positive: Array) -> list[bool]:
        """Whether each call is that of the label; no call is wrong."""
        return [call is not None and call == bool(label) for call, label in zip(self.calls, positive, strict=True)]


@dataclass
class Bits:
    """Differences of outputs that both sides have, over items that both answered."""

    items: int = 0
    elements: int = 0
    elements_differing: int = 0
    largest: float = 0.0

    def add(self, a: Mapping[str, Array], b: Mapping[str, Array]) -> None:
        """One item."""
        differing = 0
        for name in sorted(set(a) & set(b)):
            one, other = a[name], b[name]
            if one.shape != other.shape or one.dtype != other.dtype:
                self.elements += other.size
                differing += max(1, other.size)
                continue
            words = [np.ascontiguousarray(v).reshape(-1).view(np.uint8).reshape(one.size, -1) for v in (one, other)]
            changed = (words[0] != words[1]).any(axis=1) if one.size else np.zeros(0, bool)
            self.elements += one.size
            differing += int(changed.sum())
            if changed.any():
                with np.errstate(invalid="ignore"):
                    gap = np.abs(one.reshape(-1).astype(np.float64) - other.reshape(-1).astype(np.float64))[changed]
                self.largest = max(self.largest, float(np.nanmax(np.append(gap, 0.0))))
        self.items += differing > 0
        self.elements_differing += differing


@dataclass(frozen=True)
class Comparison:
    """What two sides said about a test set. ``section``: ``recertification`` as the report states it."""

    before: Mapping[str, Json]
    after: Mapping[str, Json]
    data: TestSet
    section: Mapping[str, Json]
    columns: tuple[Column, Column]
    positive: Array
    bits: Bits = field(default_factory=Bits)

    @cached_property
    def flipped(self) -> list[int]:
        """The items for which :meth:`is_flipped`, by number."""
        return [index for index in range(len(self.positive)) if self.is_flipped(index)]

    def is_flipped(self, index: int) -> bool:
        """Whether call, status or any decision that both sides know differs for an item."""
        a, b = self.columns
        return a.calls[index] != b.calls[index] or _differs(a.answers[index], b.answers[index])

    @cached_property
    def rocs(self) -> tuple[statistics.Roc, statistics.Roc]:
        """Before and after."""
        a, b = (statistics.roc(column.ranks(self.positive), self.positive) for column in self.columns)
        return a, b

    @property
    def verdict(self) -> str:
        return FAILED if self.report["findings"] else PASSED

    @cached_property
    def report(self) -> dict[str, Json]:
        """The report: no path, no time; equal engines and data give equal bytes."""
        flips: dict[str, Json] = {
            "items": len(self.flipped),
            "listed": [self._flip(index) for index in self.flipped[:LISTED]],
            "by_decision": _by_decision(*self.columns),
        }
        right = [column.right(self.positive) for column in self.columns]
        only = [sum(x and not y for x, y in zip(*pair, strict=True)) for pair in (right, right[::-1])]
        paired: dict[str, Json] = {
            "auc_difference": {**statistics.difference(*self.rocs).to_json()},
            "only_before_right": only[0],
            "only_after_right": only[1],
            "mcnemar_p": f"{statistics.mcnemar(*only):.6g}",
        }
        made: dict[str, Json] = {
            "format": FORMAT,
            SECTION: dict(self.section),
            "data": {
                "manifest_sha256": self.data.manifest_sha256,
                "labels_sha256": self.data.labels_sha256,
                "items": len(self.positive),
                "positive": int(self.positive.sum()),
            },
            "before": {**self.before, **self._side(0)},
            "after": {**self.after, **self._side(1)},
            "outputs": {
                "items_differing": self.bits.items,
                "elements": self.bits.elements,
                "elements_differing": self.bits.elements_differing,
                "largest_difference": repr(self.bits.largest),
            },
            "flips": flips,
            "paired": paired,
        }
        broken: list[Json] = [*findings(made)]
        return {**made, "findings": broken, "verdict": FAILED if broken else PASSED}

    def encode(self) -> bytes:
        """RFC 8785 bytes of the report."""
        return canonical_bytes(self.report)

    def counts(self, side: int) -> Counter[tuple[bool, bool]]:
        """How many items are (positive, called positive); one without a call counts as called the wrong way."""
        calls = self.columns[side].calls
        return Counter(
            (bool(label), (not label) if call is None else call)
            for label, call in zip(self.positive, calls, strict=True)
        )

    def _side(self, side: int) -> dict[str, Json]:
        counts, found = self.counts(side), self.rocs[side]
        tp, fn, fp, tn = (counts[key] for key in ((True, True), (True, False), (False, True), (False, False)))
        column = self.columns[side]
        return {
            "without_score": sum(score is None for score in column.scores),
            "without_decision": sum(call is None for call in column.calls),
            "true_positive": tp,
            "false_negative": fn,
            "false_positive": fp,
            "true_negative": tn,
            "sensitivity": {**statistics.proportion(tp, tp + fn).to_json()},
            "specificity": {**statistics.proportion(tn, tn + fp).to_json()},
            "auc": {"twice_wins": found.wins, "pairs": found.pairs, **statistics.area(found).to_json()},
        }

    def _flip(self, index: int) -> Json:
        said: list[Json] = []
        for column in self.columns:
            answer, score = column.answers[index], column.scores[index]
            decisions: dict[str, Json] = {**answer.decisions}
            said.append(
                {
                    "status": answer.status,
                    "score": None if score is None else repr(score),
                    "positive": column.calls[index],
                    "decisions": decisions,
                }
            )
        return {"item": f"row {index}", "label": int(self.data.labels[index]), "before": said[0], "after": said[1]}


def _differs(one: Answer, other: Answer) -> bool:
    """Whether status or a decision that both know differs; a side without clinical logic has no status to compare."""
    logic = "computed" not in (one.status, other.status)
    shared = set(one.decisions) & set(other.decisions)
    gone = (one.status == "refused") != (other.status == "refused")
    return gone or (logic and one.status != other.status) or any(one.decisions[n] != other.decisions[n] for n in shared)


def _by_decision(a: Column, b: Column) -> dict[str, Json]:
    """Per decision that both sides know: how many items turned true, and how many false."""
    found: dict[str, list[int]] = {}
    for one, other in zip(a.answers, b.answers, strict=True):
        for name in sorted(set(one.decisions) & set(other.decisions)):
            turned = found.setdefault(name, [0, 0])
            if one.decisions[name] != other.decisions[name]:
                turned[0 if other.decisions[name] else 1] += 1
    return {name: {"turned_true": up, "turned_false": down} for name, (up, down) in sorted(found.items())}


def compare(
    before: Side,
    after: EngineSide,
    data: TestSet,
    recertification: Recertification,
    section: Mapping[str, Json],
    *,
    jobs: int = 1,
    progress: Progress = lambda flips: None,
) -> Comparison:
    """Run both sides on every item, ``jobs`` items at a time; the result does not depend on ``jobs``.

    ``section``: the same section as the report states it (``evidence.verifier.decisions.section_json``). Raises
    ``UsageError`` for items, outputs or decisions that are not there, ``UnsupportedError`` for what cannot run here.
    """
    rule = recertification
    positive = data.labels == rule.positive

    def one(index: int) -> tuple[Answer, Answer]:
        spec = after.input
        item = prepare(data.items[index], spec.get("axes", spec["shape"]), spec["dtype"], rule.divide_by, rule.layout)
        b = after.answer(item)
        a = before.answer(item)
        if after.decides and not before.decides and a.outputs:
            # the same clinical logic on both sides: what differs is what the outputs changed
            a = after.decide_on(item, a.outputs)
        return a, b

    done = Comparison(_described(before), _described(after), data, section, (Column(), Column()), positive)
    flips = 0
    pool = ThreadPoolExecutor(jobs)
    try:
        for index, pair in enumerate(pool.map(one, range(len(data.items)))):
            done.bits.add(pair[0].outputs, pair[1].outputs)
            for column, answer, side in zip(done.columns, pair, "AB", strict=True):
                column.add(answer, rule, side)
            flips += done.is_flipped(index)
            progress(flips)
    finally:
        pool.shutdown(cancel_futures=True)
    return done


def _call(answer: Answer, score: float | None, rule: Recertification, side: str) -> bool | None:
    if rule.decision is None:
        assert rule.threshold is not None
        return None if score is None else score >= rule.threshold
    if answer.status == "refused":
        return None
    if rule.decision not in answer.decisions:
        known = ", ".join(answer.decisions) or "none"
        raise UsageError(f"{side} has no decision {rule.decision!r} (it has {known}); name one that both sides have")
    return answer.decisions[rule.decision]


def _described(side: Side) -> dict[str, Json]:
    return {"sha3_512": side.sha3_512, "target": side.target, "model_version": side.model_version}
