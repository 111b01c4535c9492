"""Random clinical policies over one small model: what differential and coverage tests feed to the policy compiler."""

from __future__ import annotations

import random

from compiler_kernels.policy.load import load_policy
from compiler_kernels.policy.logic import resolve
from compiler_kernels.policy.logic_tree import Logic, Tensor
from compiler_kernels.policy.schema import Policy

INPUTS = (Tensor("inputs", 0, "image", "float32", (1, 1, 6, 8), (True,) * 4),)
OUTPUTS = (
    Tensor("outputs", 0, "prob", "float32", (1, 3), (True,) * 2),
    Tensor("outputs", 1, "mask", "float32", (1, 1, 6, 8), (True,) * 4),
)
_ELEMENTS = ("prob[0, 0]", "prob[0, 1]", "prob[0, 2]")
_IMAGE = ("image", "image[0, 0, 0:3, :]", "image[0, 0, :, 2:7]")
_MASK = ("mask", "mask[0, 0, 1:5, 1:5]", "mask[0, 0, :, 0:4]")


def random_policy(seed: int) -> str:
    """The YAML text of a policy that resolves against ``INPUTS`` and ``OUTPUTS``; the same for the same seed."""
    draw = random.Random(seed)
    lines = ["version: 1", f'model: {{name: random-{seed}, version: "1"}}']
    # image and prob are guarded as a rule, mask at times: NaN then reaches the quantities
    lines += ["inputs:", "  image: {finite: true, range: [0.0, 1.0]}"]
    lines += ["outputs:", "  prob: {finite: true, range: [0.0, 1.0]}"]
    if draw.random() < 0.6:
        lines.append("  mask: {finite: true, range: [0.0, 1.0]}")
    thresholds = [f"t{n}" for n in range(draw.randint(1, 3))]
    lines += ["thresholds:", *(f"  {name}: {{value: {_level(draw)}, source: drawn}}" for name in thresholds)]
    quantities = [(f"q{n}", *_number(draw, thresholds)) for n in range(draw.randint(2, 6))]
    lines += ["quantities:", *(f'  {name}: "{text}"' for name, text, _ in quantities)]
    pure = [q for q in quantities if "prob" not in q[1] and "mask" not in q[1]]
    lines.append("decisions:")
    decisions: list[str] = []
    for number in range(draw.randint(1, 4)):
        lines.append(f'  d{number}: "{_condition(draw, quantities, thresholds, decisions, draw.randint(1, 6))}"')
        decisions.append(f"d{number}")
    guards = []
    if pure and draw.random() < 0.5:
        guards.append(f'    g_in: "{_condition(draw, pure, thresholds, [], draw.randint(1, 2))}"')
    if draw.random() < 0.5:
        guards.append(f'    g_out: "{_condition(draw, quantities, thresholds, decisions, draw.randint(1, 3))}"')
    lines += ["safety:", "  guards:", *guards] if guards else []
    if draw.random() < 0.5:
        answers = ", ".join(f"{name}: {draw.choice(('true', 'false'))}" for name in decisions)
        lines += ["fallbacks:", "  default: refuse"]
        lines.append(f"  not_a_number: {{action: answer, decisions: {{{answers}}}, message: refer}}")
    return "\n".join([*lines, "coverage: {}", ""])


def random_logic(seed: int) -> tuple[Policy, Logic]:
    """The policy of ``seed`` and its logic."""
    policy = load_policy(random_policy(seed), f"random-{seed}.yaml")
    return policy, resolve(policy, INPUTS, OUTPUTS)


def _level(draw: random.Random) -> float:
    return draw.choice((0.5, 0.25, 0.1, 0.9, round(draw.random(), 3)))


def _number(draw: random.Random, thresholds: list[str]) -> tuple[str, str]:
    """A quantity's text, and what its values are like: a level from 0 to 1, a count, a place, or rounded."""
    region = draw.choice(_IMAGE if draw.random() < 0.5 else _MASK)
    bound = draw.choice((draw.choice(thresholds), str(_level(draw))))
    level = [
        draw.choice(_ELEMENTS),
        f"mean({region})",
        f"max({region})",
        f"min({region})",
        f"percentile({region}, {draw.choice((5, 50, 95))})",
        f"fraction({region} {draw.choice(('>', '>=', '<', '<='))} {bound})",
    ]
    kind = draw.random()
    if kind < 0.6:
        text = draw.choice(level)
        return text, "rounded" if text.startswith("mean") else "level"
    if kind < 0.75:
        return f"area({region} {draw.choice(('>', '>=', '<='))} {bound})", "count"
    if kind < 0.8:
        return "argmax(prob)", "place"
    if kind < 0.85:
        return f"{draw.choice(level)} / {draw.choice(level)}", "rounded"
    return f"{draw.choice(level)} {draw.choice('+-')} {draw.choice(level)}", "rounded"


def _comparison(draw: random.Random, quantities: list[tuple[str, str, str]], thresholds: list[str]) -> str:
    name, _, kind = draw.choice(quantities)
    sign = draw.choice(("<", "<=", ">", ">="))
    if kind == "count":
        return f"{name} {sign} {draw.randint(1, 12)}"
    if kind == "place":
        return f"{name} {draw.choice(('==', '!='))} {draw.randint(0, 2)}"
    if draw.random() < 0.1:
        return f"{draw.choice(_ELEMENTS)} {sign} {draw.choice(_ELEMENTS)}"
    if kind == "rounded":  # a limit of its own: whether a rounded number can equal a decimal is left to tests of that
        return f"{name} {sign} {round(draw.random(), 4)}"
    return f"{name} {sign} {draw.choice((*thresholds, str(_level(draw))))}"


def _condition(
    draw: random.Random,
    quantities: list[tuple[str, str, str]],
    thresholds: list[str],
    decisions: list[str],
    count: int,
) -> str:
    if count == 1:
        text = draw.choice(decisions) if decisions and draw.random() < 0.25 else ""
        text = text or _comparison(draw, quantities, thresholds)
        return f"not ({text})" if draw.random() < 0.2 else text
    if count >= 3 and draw.random() < 0.15:
        operands = ", ".join(_condition(draw, quantities, thresholds, decisions, 1) for _ in range(count))
        return f"at_least({draw.randint(1, count)}, {operands})"
    left = draw.randint(1, count - 1)
    parts = [_condition(draw, quantities, thresholds, decisions, n) for n in (left, count - left)]
    text = f"({parts[0]}) {draw.choice(('and', 'or'))} ({parts[1]})"
    return f"not ({text})" if draw.random() < 0.1 else text
