"""Policies whose coverage is tested, and the guards of a policy in the form the search takes."""

from __future__ import annotations

from functools import cache

from random_policies import INPUTS, OUTPUTS, random_logic

from compiler_kernels.policy.load import load_policy
from compiler_kernels.policy.logic import resolve
from compiler_kernels.policy.logic_tree import Logic
from compiler_kernels.policy.schema import Policy
from evidence.coverage.finder import Finder
from evidence.coverage.grids import policy_bounds

TWELVE = """\
version: 1
model: {name: twelve, version: "1"}
inputs:
  image: {finite: true, range: [0.0, 1.0]}
outputs:
  prob: {finite: true, range: [0.0, 1.0]}
  mask: {finite: true, range: [0.0, 1.0]}
thresholds:
  cutoff: {value: 0.7, source: "tuning report", requirements: [REQ-1]}
quantities:
  exposure: mean(image)
  spread: "percentile(image, 95) - percentile(image, 5)"
  lesion: area(mask > cutoff)
  core: "max(mask[0, 0, 1:5, 1:5])"
decisions:
  refer:
    when: >-
      (prob[0, 0] >= cutoff and not (prob[0, 1] > 0.2 or prob[0, 2] > 0.3) and lesion >= 5)
      or (core > 0.9 and (lesion < 30 or exposure > 0.5) and spread >= 0.25)
      or (argmax(prob) == 2 and (min(mask) <= 0.05 or max(image) < 0.9) and not exposure < 0.1 and prob[0, 2] >= 0.4)
    requirements: [REQ-2]
coverage: {}
"""
COUPLED = """\
version: 1
model: {name: coupled, version: "1"}
inputs:
  image: {finite: true, range: [0.0, 1.0]}
outputs:
  prob: {finite: true, range: [0.0, 1.0]}
decisions:
  either: "(prob[0, 0] > 0.5 and prob[0, 1] > 0.5) or (prob[0, 0] > 0.5 and prob[0, 2] > 0.5)"
  never: "prob[0, 0] > 0.75 and prob[0, 0] < 0.25"
  off_grid: "prob[0, 1] == 0.3"
coverage: {}
"""


SEEDS = (0, 2, 5, 6, 36, 42, 55)
"""Random policies of the normal suite; each was hard once."""


def logic_of(text: str) -> tuple[Policy, Logic]:
    policy = load_policy(text, "policy.yaml")
    return policy, resolve(policy, INPUTS, OUTPUTS)


@cache
def searched(name: str | int) -> Finder:
    """The search over "TWELVE", "COUPLED" or the random policy of a seed, made once per session."""
    texts = {"TWELVE": TWELVE, "COUPLED": COUPLED}
    policy, logic = random_logic(name) if isinstance(name, int) else logic_of(texts[name])
    finder = Finder(logic, policy_bounds(policy))
    finder.search()
    return finder
