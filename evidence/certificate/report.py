"""A certificate of one inference: bounds per output, decisions, and if asked the bound of every layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from compiler_kernels.errors import VerificationFailed
from compiler_kernels.policy.logic_tree import Logic
from compiler_kernels.stage import Json, as_json, sha3_512_hex
from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic, bound_of, distance
from evidence.certificate.clinical import Judge
from evidence.certificate.decisions import CERTIFIED, Threshold, judge_largest, judge_threshold, output_of
from evidence.certificate.evaluate import Evaluation, evaluate_balls, exact_value, recentred
from evidence.certificate.fixed import Array, raised
from evidence.certificate.selection import Value
from evidence.reference.graph import RefGraph, RefNode
from evidence.reference.interpreter import run
from evidence.reference.typed import from_bfloat16

FORMAT: Final = "cuvil-certificate/1"
PRECISIONS: Final = (7, 13, 25, 41)
"""Words of 20 bits tried in turn, until the radius is small beside the rounding; the first may hold one bit only."""
_SMALL: Final = 2.0**-10
_TINY: Final = 2.0**-44
Step = Callable[[str, int, int], None]


@dataclass
class Certificate:
    """What :func:`certify` found; ``bounds`` by output name, binary64, of the output's shape."""

    words: int
    bounds: dict[str, Array]
    outputs: list[dict[str, Json]]
    decisions: list[dict[str, Json]]
    layers: list[dict[str, Json]] | None
    doubts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def certified(self) -> bool:
        """Whether every decision asked about is certified."""
        return all(d["status"] == CERTIFIED for d in self.decisions)

    def document(self, identity: Mapping[str, Json]) -> dict[str, Json]:
        """The ``cuvil-certificate/1`` object (docs/certificate.md); ``identity`` names engine, graph and inputs."""
        return {
            "format": FORMAT,
            **identity,
            "bits": (self.words - 1) * fixed.WORD,
            "outputs": as_json(self.outputs),
            "decisions": as_json(self.decisions),
            "certified": self.certified,
            "doubts": as_json([{"node": node, "reason": reason} for node, reason in self.doubts]),
            **({} if self.layers is None else {"layers": as_json(self.layers)}),
        }


@np.errstate(all="ignore")
def certify(
    graph: RefGraph,
    inputs: Mapping[str, Array],
    engine: Mapping[str, Array],
    thresholds: Sequence[Threshold] = (),
    largest: Sequence[str] = (),
    layers: bool = False,
    step: Step | None = None,
    logic: Logic | None = None,
) -> Certificate:
    """Bounds of ``engine`` (outputs by name, as the engine wrote them) against exact real arithmetic on ``graph``.

    ``layers`` also runs the reference for every intermediate tensor and requires its outputs to have the engine's bits.
    ``logic``: the policy's decisions and guards are certified too.
    ``UsageError`` for a decision about an output or index that does not exist, ``UnsupportedError`` for an operator
    without certificate, ``VerificationFailed`` (check ``certificate-reference``) where reference and engine differ.
    """
    for name in [*(t.output for t in thresholds), *largest]:
        output_of(engine, name, "--threshold" if name not in largest else "--argmax")
    tell = step or (lambda phase, done, total: None)
    actual = _reference(graph, inputs, engine) if layers else {}
    words, found, rows = _evaluated(graph, inputs, engine, actual, tell)
    ar = BallArithmetic(words)
    exact = {name: found.values[value_id] for value_id, name in graph.outputs}
    bounds = {name: _bound(ar, value, engine[name]) for name, value in exact.items()}
    decisions = [judge_threshold(ar, t, engine[t.output], exact[t.output]) for t in thresholds]
    decisions += [judge_largest(ar, name, engine[name], exact[name]) for name in largest]
    if logic is not None and logic.any():
        numbers = {("outputs", n): v for n, v in engine.items()} | {("inputs", n): v for n, v in inputs.items()}
        known: dict[tuple[str, str], Value] = {("inputs", n): exact_value(ar, v) for n, v in inputs.items()}
        decisions += Judge(ar, logic, numbers, known | {("outputs", n): v for n, v in exact.items()}).entries()
    if layers:
        _forward(graph, inputs, actual, words, rows, tell)
    return Certificate(
        words,
        bounds,
        [_output(name, engine[name], exact[name], bounds[name]) for name in exact],
        decisions,
        [rows[node.output] for node in graph.nodes if node.output in rows] if layers else None,
        found.reasons,
    )


def _evaluated(
    graph: RefGraph, inputs: Mapping[str, Array], engine: Mapping[str, Array], actual: Mapping[str, Array], tell: Step
) -> tuple[int, Evaluation, dict[str, dict[str, Json]]]:
    """Balls at the first precision whose radii are small beside the bounds."""
    previous = None
    for words in PRECISIONS:
        rows: dict[str, dict[str, Json]] = {}
        ar = BallArithmetic(words)

        def visit(node: RefNode, value: Value, ar: BallArithmetic = ar, rows: dict[str, Any] = rows) -> None:
            if node.output in actual and isinstance(value, Ball):
                rows[node.output] = _layer(ar, node, value, actual[node.output])

        def count(done: int, total: int, words: int = words) -> None:
            tell(f"{(words - 1) * fixed.WORD}-bit balls", done, total)

        found = evaluate_balls(graph, inputs, words, visit, count)
        wide = sum(_too_wide(ar, found.values[value_id], engine[name]) for value_id, name in graph.outputs)
        # What a finer centre does not change (a step in doubt, a division by 0) is no ground to go on.
        if wide in (0, previous):
            break
        previous = wide
    return words, found, rows


def _too_wide(ar: BallArithmetic, exact: Value, engine: Array) -> int:
    """Elements whose radius is not small beside the largest rounding in the tensor."""
    if not isinstance(exact, Ball):
        return 0
    finite = np.isfinite(exact.radius)
    away = distance(ar, Ball(exact.centre, np.zeros(exact.shape)), _numbers(engine))
    allowed = _SMALL * np.max(np.where(np.isfinite(away), away, 0.0), initial=0.0) + _TINY * bound_of(exact)
    return int(np.count_nonzero(~finite | (exact.radius > allowed)))


def _reference(graph: RefGraph, inputs: Mapping[str, Array], engine: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor as the reference computes it, which must be the engine's where the engine shows it."""
    values = run(graph, inputs, "ca1", keep="all")
    for value_id, name in graph.outputs:
        ours = np.ascontiguousarray(values[value_id])
        if ours.tobytes() != np.ascontiguousarray(engine[name]).tobytes():
            raise VerificationFailed(
                "certificate-reference",
                f"output {name!r}: engine and reference differ in their bits on this input; report it, and use `cuvil "
                "bisect` to find the node",
            )
    return values


def _numbers(values: Array) -> Array:
    return from_bfloat16(values) if values.dtype.kind == "V" else values


def _bound(ar: BallArithmetic, exact: Value, engine: Array) -> Array:
    if isinstance(exact, Ball):
        return distance(ar, exact, _numbers(engine))
    # Integers and truth values that are exactly known.
    return np.where(exact == engine, 0.0, np.abs(exact.astype(np.float64) - engine.astype(np.float64)))


def _output(name: str, engine: Array, exact: Value, bound: Array) -> dict[str, Json]:
    finite = bound[np.isfinite(bound)]
    numbers = np.abs(_numbers(engine).astype(np.float64))
    radius = exact.radius[np.isfinite(exact.radius)] if isinstance(exact, Ball) else np.zeros(1)
    return {
        "name": name,
        "shape": as_json(list(engine.shape)),
        "dtype": "bfloat16" if engine.dtype.kind == "V" else engine.dtype.name,
        "sha3_512": sha3_512_hex(np.ascontiguousarray(engine).tobytes()),
        "largest": float(np.max(numbers[np.isfinite(numbers)], initial=0.0)),
        "bound": float(np.max(finite, initial=0.0)),
        "radius": float(np.max(radius, initial=0.0)),
        "unknown": int(bound.size - finite.size),
    }


def _layer(ar: BallArithmetic, node: RefNode, value: Ball, actual: Array) -> dict[str, Json]:
    """True error (up to the radius, given beside it) and bound of a tensor, both the largest over elements."""
    numbers = _numbers(actual)
    error = distance(ar, Ball(value.centre, np.zeros(value.shape)), numbers)
    bound = distance(ar, value, numbers)
    known = np.isfinite(bound)
    return {
        "node": node.node or node.tensor,
        "op": node.op,
        "elements": int(bound.size),
        "scale": float(np.sqrt(np.mean(np.square(np.where(np.isfinite(numbers), numbers, 0).astype(np.float64)))))
        if numbers.size
        else 0.0,
        "error": float(np.max(error[known], initial=0.0)),
        "radius": float(np.max(value.radius[known], initial=0.0)),
        "bound": float(np.max(bound[known], initial=0.0)),
        "unknown": int(np.count_nonzero(~known)),
    }


def _forward(
    graph: RefGraph,
    inputs: Mapping[str, Array],
    actual: Mapping[str, Array],
    words: int,
    rows: dict[str, dict[str, Json]],
    tell: Step,
) -> None:
    """The plain forward bound of every layer beside the certificate's: what running the bound along would give."""
    make = recentred(PRECISIONS[0], actual)

    def visit(node: RefNode, value: Value) -> Value:
        ball = make(node, value)
        if isinstance(ball, Ball) and node.output in rows:
            known = np.isfinite(ball.radius)
            largest = float(np.max(ball.radius[known], initial=0.0))
            rows[node.output]["forward_bound"] = largest if known.all() else None
        return ball

    evaluate_balls(graph, inputs, PRECISIONS[0], visit, lambda i, n: tell("forward bound", i, n))


__all__ = ["FORMAT", "PRECISIONS", "Certificate", "certify", "raised"]
