"""Reading a policy: the example, the published schema, and every kind of mistake with its position."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from compiler_kernels.errors import UsageError
from compiler_kernels.policy import Policy, load_policy, policy_from_json, published_schema
from compiler_kernels.policy.approvals import Approvals
from compiler_kernels.policy.audit import Audit, Sessions
from compiler_kernels.policy.budget import Budget
from compiler_kernels.policy.clauses import Clauses
from compiler_kernels.policy.clinical import Coverage, Decision, Fallback, Fallbacks, Quantity, SafetyGuard, Threshold
from compiler_kernels.policy.dataset import Dataset, Split
from compiler_kernels.policy.gpu import GpuSection
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.policy.numerics import Numerics
from compiler_kernels.policy.recertification import Recertification
from compiler_kernels.policy.registry import RegistryStatements
from compiler_kernels.policy.release import Release
from compiler_kernels.policy.reproducibility import Reproducibility
from compiler_kernels.policy.sbom import Sbom
from compiler_kernels.policy.shapes import SymbolBound
from compiler_kernels.policy.signing import Signing
from compiler_kernels.policy.tensors import TensorGuard
from compiler_kernels.policy.timestamp import TimestampAuthority

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = (DOCS / "examples" / "clinical-trust-policy.yaml").read_text(encoding="utf-8")
CLINICAL = {"thresholds", "quantities", "decisions", "safety", "fallbacks", "coverage"}
SECTIONS = {"audit", "sbom", "clauses", "release", "approvals", "dataset", "reproducibility", "timestamp"} | CLINICAL
SECTIONS |= {"recertification", "registry"}
SMALL = 'version: 1\nmodel: {name: m, version: "1"}\n'


def test_the_example_reads() -> None:
    policy = load_policy(EXAMPLE, "example.yaml")
    assert policy.input_shapes() == {"image": (1, 1, 28, 28)}
    assert policy.inputs["image"].finite and policy.inputs["image"].range == (0.0, 1.0)
    assert policy.signing.build == ("p384", "sm2")


def test_the_published_schema_is_current() -> None:
    """Regenerate with ``python -m compiler_kernels.policy > docs/examples/policy.schema.json``."""
    assert (DOCS / "examples" / "policy.schema.json").read_text(encoding="utf-8") == published_schema()


def test_every_key_is_documented() -> None:
    rows = [r for r in (DOCS / "policy.md").read_text(encoding="utf-8").splitlines() if r.startswith("| `")]
    named = {re.findall(r"`([^`]+)`", row)[0] for row in rows}

    def keys(section: type[BaseModel], prefix: str) -> set[str]:
        return {prefix + k for k in section.model_fields}

    expected = (
        keys(Policy, "") - {"model", "inputs", "outputs", "signing", "numerics", "budget", "gpu", "shapes"} - SECTIONS
    )
    expected |= keys(Numerics, "numerics.") | keys(Budget, "budget.") | keys(GpuSection, "gpu.")
    expected |= keys(Sbom, "sbom.") | keys(Clauses, "clauses.")
    expected |= (keys(Audit, "audit.") - {"audit.sessions"}) | keys(Sessions, "audit.sessions.")
    expected |= keys(TimestampAuthority, "timestamp.")
    expected |= keys(Release, "release.") | keys(Approvals, "approvals.")
    expected |= (keys(Dataset, "dataset.") - {"dataset.splits"}) | keys(Split, "dataset.splits.NAME.")
    expected |= keys(Recertification, "recertification.") | keys(RegistryStatements, "registry.")
    expected |= keys(Reproducibility, "reproducibility.") | keys(SymbolBound, "shapes.SYMBOL.")
    expected |= keys(Threshold, "thresholds.NAME.") | keys(Quantity, "quantities.NAME.") | keys(Coverage, "coverage.")
    expected |= keys(Decision, "decisions.NAME.") | keys(SafetyGuard, "safety.guards.NAME.") | {"safety.lockstep"}
    expected |= keys(Fallbacks, "fallbacks.") | keys(Fallback, "fallbacks.FAILURE.")
    expected |= keys(ModelIdentity, "model.") | keys(Signing, "signing.") | keys(TensorGuard, "inputs.NAME.")
    assert named == expected | {"inputs.NAME", "outputs.NAME..."}


def test_canonical_form_has_defaults_and_no_order() -> None:
    first = load_policy(SMALL, "p").canonical_json()
    assert first == load_policy('model: {version: "1", name: m}\nversion: 1', "p").canonical_json()
    assert json.loads(first) == {
        "version": 1,
        "model": {"name": "m", "version": "1", "purpose": ""},
        "inputs": {},
        "outputs": {},
        "numerics": {"prefer": "speed", "winograd": "allow", "max_error_ratio": 1.1},
        "shapes": {},
        "signing": {"build": ["p384", "sm2"]},
        "thresholds": {},
        "quantities": {},
        "decisions": {},
    }


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = SMALL + "inputs:\n  no: {range: [-1e-3, .5]}\n  'true': {finite: True}\nsource_date_epoch: 0\n"
    policy = load_policy(text, "p")
    assert policy.inputs["no"].range == (-0.001, 0.5) and policy.inputs["true"].finite
    assert policy.source_date_epoch == 0


MISTAKES = [
    ("finite: true", "finit: true", "16:5: inputs.image.finit is not a known key; did you mean finite?"),
    ("signing:", "signin:", "25:1: signin is not a known key; did you mean signing?"),
    (
        "  purpose",
        "  zzz: 1\n  purpose",
        "8:3: model.zzz is not a known key; the known keys are name, version, purpose",
    ),
    ('"0.1.0"', "0.1", "7:12: model.version must be text; put it in quotes"),
    ('"0.1.0"', '"a b"', "7:12: model.version string must match pattern"),
    ("version: 1\n", "version: 2\n", "3:10: version must be 1"),
    ("version: 1\n", "", "4:1: version is missing"),
    ("version: 1\n", "version: 1\nversion: 1\n", "4:1: version is given twice, first in line 3; keep one"),
    ("[0.0, 1.0] ", "[1, 0] ", "17:12: inputs.image.range must be two binary32 numbers, the lower one first"),
    ("[0.0, 1.0] ", "[0, 1e39] ", "17:12: inputs.image.range must be two binary32 numbers, the lower one first"),
    ("[0.0, 1.0] ", "[1, .inf] ", "17:16: inputs.image.range.1 must be a finite number"),
    ("[0.0, 1.0] ", "[.nan, 1] ", "17:13: inputs.image.range.0 must be a finite number"),
    ("[0.0, 1.0] ", "[1] ", "17:12: inputs.image.range.1 is missing"),
    ("finite: true", "finite: yes", "16:13: inputs.image.finite must be true or false"),
    ("[1, 1, 28, 28]", '[1, "1"]', "14:16: inputs.image.shape.1 must be a whole number"),
    ("[1, 1, 28, 28]", "[1, 0]", "14:16: inputs.image.shape.1 must be greater than or equal to 1"),
    ("[1, 1, 28, 28]", "28", "14:12: inputs.image.shape must be a list"),
    ("float32", "float16", "15:12: inputs.image.dtype must be 'float32'"),
    ("[sm2, p384]", "[sm2, rsa]", "26:16: signing.build.1 must be 'sm2' or 'p384'"),
    ("[sm2, p384]", "[sm2, sm2]", "26:10: signing.build must not name an algorithm twice"),
    ("[sm2, p384]", "[]", "26:10: signing.build must not be empty"),
    ("finite: true", "finite: !!bool true", "16:13: inputs.image.finite has the tag tag:yaml.org,2002:bool"),
    ("  image:", "  image: &a", "13:10: not valid YAML: anchors and aliases are not allowed"),
    ("signing:", "---\nsigning:", "expected a single document in the stream"),
    ("signing:", "signing: [", "not valid YAML"),
    ("signing:", "\tsigning:", "not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), MISTAKES)
def test_mistakes(old: str, new: str, sentence: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(UsageError) as caught:
        load_policy(EXAMPLE.replace(old, new, 1), "dir/p.yaml")
    message = str(caught.value)
    assert message.startswith("dir/p.yaml:") and sentence in message and "\n" not in message


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("{latency_ms: 0}", "budget.latency_ms must be greater than 0"),
        ("{memory_mb: .inf}", "budget.memory_mb must be a finite number"),
        ("{memory_mb: '12'}", "budget.memory_mb must be a number"),
        ("{latency_ms: 5, threads: 17}", "budget.threads must be less than or equal to 16"),
        ("{threads: 2}", "budget must hold latency_ms or memory_mb"),
        ("{}", "budget must hold latency_ms or memory_mb"),
        ("5", "budget must be a mapping of keys to values"),
        ("{latency: 5}", "budget.latency is not a known key; did you mean latency_ms?"),
    ],
)
def test_mistakes_in_the_budget(section: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        load_policy(f"{SMALL}budget: {section}\n", "p.yaml")


def test_the_budget_has_defaults_and_is_absent_unless_given() -> None:
    policy = load_policy(SMALL + "budget: {latency_ms: 15, memory_mb: 1.5}\n", "p.yaml")
    assert policy.budget == Budget(latency_ms=15.0, memory_mb=1.5, threads=1, machine="")
    assert b"budget" not in load_policy(SMALL, "p.yaml").canonical_json()
    assert policy_from_json(policy.canonical_json()) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "[1]",
        "text",
        "[" * 3000,
        "a: \x01",
        "'\\ud800': 1",
        '"\\ud800": 1',
        "? [a]\n: 1",
        b"\xff\xfe",
    ],
)
def test_files_that_are_no_policies(text: str | bytes) -> None:
    with pytest.raises(UsageError, match=r"^p\.yaml"):
        load_policy(text, "p.yaml")


PIECES = st.sampled_from(
    ["version: 1\n", "model:\n", "  name: m\n", '  version: "1"\n', "inputs:\n", "  x:\n", "    finite: true\n", "- ",
     "    shape: [1, 2]\n", "    range: [0, 1]\n", "{", "}", "[", "]", ":", ",", '"', "'", "#", "&a", "*a", "!!str ",
     "\n", "  ", "\t", "|", ">", "%", "@", "~", "0x1F", "1_000", "é",
     '"\\ud800"', '"\\0"', "<<: ", "2026-01-01", ".nan", "9" * 30, "1e400"]
)  # fmt: skip


def read(text: str) -> None:
    """Either a policy with a canonical form that is itself a policy, or one sentence."""
    try:
        policy = load_policy(text, "p.yaml")
    except UsageError as error:
        assert str(error).startswith("p.yaml") and "\n" not in str(error)
        return
    canonical = policy.canonical_json()
    assert load_policy(canonical, "p.json").canonical_json() == canonical


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join), st.booleans())
def test_arbitrary_pieces(text: str, with_head: bool) -> None:
    read(SMALL + text if with_head else text)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(EXAMPLE)), st.integers(0, 6), st.text(max_size=3))
def test_damaged_example(start: int, length: int, extra: str) -> None:
    read(EXAMPLE[:start] + extra + EXAMPLE[start + length :])


# what YAML lets a file hold: no surrogates, control characters or non-characters
letters = st.characters(exclude_categories=("Cs", "Cc", "Cn"))
finite32 = st.floats(-(2.0**100), 2.0**100, width=32)
guards = st.fixed_dictionaries(
    {},
    optional={
        "shape": st.lists(st.integers(1, 2**31 - 1), max_size=8),
        "dtype": st.just("float32"),
        "finite": st.booleans(),
        "range": st.tuples(finite32, finite32).filter(lambda r: r[0] < r[1]).map(list),
    },
)
tensors = st.dictionaries(st.text(letters, max_size=8), guards, max_size=3)


@settings(max_examples=200, deadline=None)
@given(inputs=tensors, outputs=tensors, purpose=st.text(letters, max_size=40))
def test_any_valid_policy_reads_back(inputs: object, outputs: object, purpose: str) -> None:
    """JSON is YAML: what the schema allows is read, with the same content."""
    plain = {
        "version": 1,
        "model": {"name": "m", "version": "1", "purpose": purpose},
        "inputs": inputs,
        "outputs": outputs,
    }
    policy = load_policy(json.dumps(plain, ensure_ascii=False), "p.json")
    shown = policy.model_dump(mode="json", exclude_unset=True)
    assert shown == plain
    canonical = policy.canonical_json()
    assert load_policy(canonical, "p.json").canonical_json() == canonical
