"""Expressions of the policy: what is read, what is refused and where, and that text and tree say the same."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wild_policies import INPUTS, OUTPUTS, wild_policy

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.policy import PolicyMisfit, check_against, load_policy, published_schema
from compiler_kernels.policy.expressions import (
    Binary,
    Comparison,
    ExpressionError,
    Junction,
    Negation,
    parse_expression,
)
from compiler_kernels.policy.logic import resolve
from compiler_kernels.policy.logic_text import condition_text, number_text
from compiler_kernels.policy.schema import Policy

HEAD = 'version: 1\nmodel: {name: m, version: "1"}\n'
MODULE = parse_module(
    """cuvil.ir level=l0 version=1
graph @g(%image: float32[1, 1, 4, 4], %x: float32[2]) {
  %v0 = op.relu(%image) : float32[1, 1, 4, 4]
  %v1 = op.exp(%x) : float32[2]
  return %v0 "mask", %v1 "x"
}
"""
)
WORDS = [
    "max",
    "(",
    ")",
    "mask",
    "[",
    "]",
    ":",
    ",",
    "0",
    "1.5",
    "and",
    "or",
    "not",
    "<",
    ">=",
    "==",
    "-",
    "+",
    "*",
    "/",
]
WORDS += ["at_least", "area", "percentile", "inputs", ".", "`a b`", "x", "q", "1e999", "é", "\n", "  ", "99999999999"]


def test_precedence_is_pythons() -> None:
    assert parse_expression("a + b * c < 1 or not d and e") == parse_expression("((a+(b*c))<1) or ((not d) and e)")
    assert parse_expression("a - b - c") == parse_expression("(a - b) - c") != parse_expression("a - (b - c)")
    assert isinstance(parse_expression("not a < b"), Negation)
    tree = parse_expression("a and b and c")
    assert isinstance(tree, Junction) and len(tree.operands) == 3
    minus = parse_expression("-a * b")
    assert isinstance(minus, Binary) and minus.sign == "*"
    assert isinstance(parse_expression("area(m > 1) > 2"), Comparison)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        parse_expression(text)
    except ExpressionError as error:
        assert str(error) and "\n" not in str(error).replace(repr(text), "")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=10).map(" ".join),
    st.sampled_from(["decisions", "quantities"]),
)
def test_a_policy_with_any_expression_is_read_or_refused_with_its_place(text: str, section: str) -> None:
    document = f"{HEAD}{section}:\n  first: {text!r}\n" if "'" not in text else HEAD
    try:
        policy = load_policy(document.replace("\\n", " "), "p.yaml")
        check_against(policy, MODULE)
    except PolicyMisfit as error:
        assert str(error.placed(document, "p.yaml")).startswith("p.yaml:4:10: ")
    except UsageError as error:
        assert str(error).startswith("p.yaml:4:"), error


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_text_of_a_tree_means_the_same(seed: int) -> None:
    policy = Policy.model_validate(wild_policy(random.Random(seed)))
    logic = resolve(policy, INPUTS, OUTPUTS)
    again = policy.model_copy(
        update={
            "quantities": {
                q.name: policy.quantities[q.name].model_copy(update={"value": number_text(q.value)})
                for q in logic.quantities
            },
            "decisions": {
                d.name: policy.decisions[d.name].model_copy(update={"when": condition_text(d.when)})
                for d in logic.decisions
            },
        }
    )
    found = resolve(again, INPUTS, OUTPUTS)
    assert [condition_text(d.when) for d in found.decisions] == [condition_text(d.when) for d in logic.decisions]
    assert [d.when for d in found.decisions] == [d.when for d in logic.decisions]
    assert [q.value for q in found.quantities] == [q.value for q in logic.quantities]


READING = [
    (
        "decisions: {a: 'p >= '}",
        "3:16: decisions.a.when has its end at character 5 where a number, a name or '(' belongs",
    ),
    ("decisions: {a: p $ 1}", "3:16: decisions.a.when holds '$' at character 3, which no expression has"),
    (
        "decisions: {a: p < 1 < 2}",
        "3:16: decisions.a.when compares three values at character 7; write the two comparisons",
    ),
    ("decisions: {a: 'p[1:1] < 2'}", "has the empty range 1:1; a range is START:STOP with STOP excluded"),
    ("decisions: {a: 'p[1.5] < 2'}", "has '1.5' at character 3 where a position (a whole number) belongs"),
    ("decisions: {a: 1e999 < 2}", "has the number 1e999 at character 1, which is past the largest binary64"),
    ("decisions: {a: '1 2'}", "has '2' at character 3 where an operator or the end belongs"),
    (
        "decisions:\n  a:\n    when: max(p)",
        "5:11: decisions.a.when needs a condition, and max(...) is a number; compare it",
    ),
    ("decisions: {a: a}", "3:16: decisions.a is defined by itself: a -> a"),
    ("decisions: {a: b, b: not a}", "is defined by itself: a -> b -> a"),
    ("quantities: {a: b + 1, b: a}", "quantities.a is defined by itself: a -> b -> a"),
    ("quantities: {a: p < 1}", "quantities.a.value needs a number, and '... < ...' is a condition"),
    ("quantities: {a: max(p + 1)}", "needs a tensor, and '... + ...' is none; reduce tensors one by one"),
    ("quantities: {a: 'percentile(p, 101)'}", "has a percentile that is no number from 0 to 100"),
    ("quantities: {a: 'max(p, p)'}", "gives max 2 arguments, and it takes 1"),
    ("quantities: {a: area(p)}", "needs a comparison in area, such as area(mask > 0.5)"),
    ("quantities: {a: area(p > max(p))}", "compares with a tensor in area; the right side is a number, threshold or"),
    ("decisions: {a: 'at_least(3, p < 1)'}", "has an at_least whose first argument is no whole number from 1 to the"),
    ("decisions: {a: 'at_least(1, at_least(1, p < 1))'}", "has an at_least within an at_least; name the inner one"),
    ("decisions: {a: '" + " or ".join(["p < 1"] * 33) + "'}", "has 33 conditions and may have 32; name parts of it"),
    ("decisions: {max: p < 1}", "3:13: decisions.max is a word of the expression language; choose another name"),
    (
        "decisions: {a-b: p < 1}",
        "3:13: decisions.a-b is no name: letters, digits and _, not beginning with a digit",
    ),
    (
        "thresholds: {a: 1}\ndecisions: {a: p < 1}",
        "decisions.a has the name of one of the thresholds; names are shared by both",
    ),
    ("thresholds: {a: 1}\nquantities: {b: max(a)}", "uses a as a tensor, and it is one of the thresholds"),
    ("thresholds: {a: .inf}", "3:17: thresholds.a.value must be a finite number"),
    (
        "decisions: {a: p < 1}\nfallbacks: {default: {action: answer}}",
        "4:22: fallbacks.default.decisions does not give the decision a; a fallback answers all of them",
    ),
    (
        "decisions: {a: p < 1}\nfallbacks: {refusal: {action: answer, decisions: {a: true, z: true}}}",
        "fallbacks.refusal.decisions.z is no decision of the policy",
    ),
    (
        "decisions: {a: p < 1}\nfallbacks: {refusal: {action: refuse, decisions: {a: true}}}",
        "fallbacks.refusal has decisions although its action is refuse",
    ),
    ("fallbacks: {refusal: ignore}", "3:22: fallbacks.refusal.action must be 'refuse' or 'answer'"),
    ("safety: {guards: {g: p}}", "safety.guards.g.require needs a condition"),
    ("decisions: {a: {when: p < 1, wen: 1}}", "3:30: decisions.a.wen is not a known key; did you mean when?"),
]


@pytest.mark.parametrize(("text", "sentence"), READING)
def test_what_is_wrong_with_an_expression(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_policy(HEAD + text, "p.yaml")
    assert str(caught.value).startswith("p.yaml:") and sentence in str(caught.value)


FITTING = [
    (
        "quantities: {a: maks}",
        "3:17: quantities.a.value names 'maks', which is nothing the policy or the model defines; known",
    ),
    ("quantities: {a: max(x)}", "names 'x', which is an input and an output; write inputs.x or outputs.x"),
    ("quantities: {a: mask}", "uses mask as a number, and it is 16 elements of 'mask' with the shape [1, 1, 4, 4]"),
    (
        "quantities: {a: 'max(mask[0, 0])'}",
        "gives 2 positions for 'mask', whose shape is [1, 1, 4, 4]; give one for each",
    ),
    (
        "quantities: {a: 'max(mask[0, 0, 4, :])'}",
        "goes past 'mask', whose shape is [1, 1, 4, 4]; positions count from 0",
    ),
    ("quantities: {a: 'max(mask[0, 0, 0:5, :])'}", "goes past 'mask'"),
    ("safety:\n  guards:\n    g:\n      require: y > 1", "6:16: safety.guards.g.require names 'y'"),
]


@pytest.mark.parametrize(("text", "sentence"), FITTING)
def test_what_does_not_fit_the_model(text: str, sentence: str) -> None:
    with pytest.raises(PolicyMisfit) as caught:
        check_against(load_policy(HEAD + text, "p.yaml"), MODULE)
    placed = caught.value.placed(HEAD + text, "p.yaml")
    assert str(placed).startswith("p.yaml:") and sentence in str(placed)
    assert sentence.partition(": ")[2] in str(placed)


def test_the_schema_takes_short_and_long_forms() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(json.loads(published_schema())).is_valid
    head = {"version": 1, "model": {"name": "m", "version": "1"}}
    short = {
        "thresholds": {"t": 0.5},
        "quantities": {"q": "max(p)"},
        "decisions": {"d": "q > t"},
        "safety": {"guards": {"g": "q < 9"}},
        "fallbacks": {"default": "refuse"},
    }
    long = {
        "thresholds": {"t": {"value": 0.5, "source": "s"}},
        "quantities": {"q": {"value": "max(p)"}},
        "decisions": {"d": {"when": "q > t", "requirements": ["R-1"]}},
        "safety": {"guards": {"g": {"require": "q < 9", "fallback": "refuse"}}},
        "fallbacks": {"default": {"action": "answer", "decisions": {"d": False}}},
    }
    assert check(head | short) and check(head | long)
    assert not check(head | {"thresholds": {"t": "x"}}) and not check(head | {"fallbacks": {"default": "ignore"}})
