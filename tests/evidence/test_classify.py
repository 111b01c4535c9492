"""Change classification: each kind of difference, what is told and what is not, and the signed confirmation."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from classify_case import POLICY, Made, build_report, classify, graph, make_build, read, rules_of
from hypothesis import given
from hypothesis import strategies as st
from release_case import Case
from release_people import Organisation
from tiny_models import POLICY as REAL_POLICY
from tiny_models import ModelMaker

import evidence
from compiler_kernels.errors import UsageError
from cuvil_assets.cli import main
from evidence.classify.build import read_build
from evidence.classify.compare import propose
from evidence.classify.models import compare_graphs
from evidence.classify.policies import compare_documents
from evidence.classify.rules import FIELDS, RULES, most_serious
from evidence.classify.statement import check_statement, confirm
from evidence.keys import KeySet
from evidence.signing_keys import load_signing_keys
from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import load_trust_root

Maker = Callable[..., Made]
DOCS = Path(evidence.__file__).parents[1] / "docs" / "classification.md"


@pytest.fixture
def make(tmp_path: Path, keys: KeySet) -> Maker:
    count = iter(range(100))
    return lambda **changes: make_build(tmp_path / str(next(count)), keys, **changes)


@pytest.fixture
def root(key_home: Path, keys: KeySet) -> Path:
    return key_home / "keys" / "trust-root.json"


def other(**changes: Any) -> dict[str, Any]:
    """The graph with changes in its first node."""
    whole = copy.deepcopy(graph())
    whole["nodes"][0] |= changes
    return whole


def weights(digest: str) -> dict[str, Any]:
    return graph(weights=[{**graph()["weights"][0], "sha3_512": digest}])


CASES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "nothing": ({}, [], "none"),
    "weights": ({"model": weights("bb")}, ["model.weights"], "major"),
    "attribute": ({"model": other(attrs={"group": 2})}, ["model.operators"], "major"),
    "input": ({"model": graph(inputs=[{**graph()["inputs"][0], "name": "x"}])}, ["model.interface"], "major"),
    "node names": ({"model": other(node="/other", tensor="u")}, ["model.names"], "build"),
    "model file": ({"model_file": b"again"}, ["model.file"], "build"),
    "target": ({"target": "aarch64-linux-musl"}, ["target"], "major"),
    "arithmetic": ({"frozen": b"winograd"}, ["arithmetic.measured"], "minor"),
    "unmeasured": ({"frozen": b"winograd", "errors": {}}, ["arithmetic.unmeasured"], "major"),
    "compiler code": ({"code": "2"}, ["compiler.cuvil"], "corrective"),
    "zig": ({"report": build_report(compiler={"name": "zig"})}, ["compiler.toolchain"], "corrective"),
    "flags": ({"report": build_report(commands=[["cc", "-O3"]])}, ["compiler.toolchain"], "corrective"),
    "runtime": ({"report": build_report(files={"cuvil_main.c": "3"})}, ["compiler.cuvil"], "corrective"),
    "engine.c": (
        {"report": build_report(files={"engine.c": "3", "cuvil_main.c": "2"})}, ["engine.unexplained"], "major",
    ),
    "library": (
        {"report": build_report(linked=[{"origin": "musl"}, {"origin": "libm"}])}, ["sbom.added"], "minor",
    ),
    "library gone": ({"report": build_report(linked=[])}, ["sbom.changed"], "corrective"),
    "file name": ({"filename": "other.onnx"}, ["configuration"], "build"),
    "more inputs": ({"inputs": 9}, ["evidence"], "build"),
    "comparison": (
        {"verdict": "not executed", "code": "2"}, ["comparison.untold", "compiler.cuvil", "evidence"], "major",
    ),
    "version": ({"policy": POLICY.replace("1.2.3.4", "1.2.3.5")}, ["policy.version"], "build"),
    "threshold": ({"policy": POLICY.replace("0.5", "0.4")}, ["policy.logic"], "major"),
    "engine bytes": ({"content": b"\x7fELG"}, ["engine.unexplained"], "major"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_difference_has_its_rule_and_nothing_else(name: str, make: Maker, root: Path) -> None:
    changes, rules, field = CASES[name]
    proposal = classify(make(), make(**changes), root)
    assert rules_of(proposal) == rules
    assert proposal.field == field
    untold = {item.rule.id for item in proposal.differences if not item.told}
    assert untold <= {"arithmetic.unmeasured", "comparison.untold"}


def test_the_most_serious_difference_decides(make: Maker, root: Path) -> None:
    proposal = classify(make(), make(code="2", model=weights("bb"), filename="x.onnx"), root)
    assert rules_of(proposal) == ["model.weights", "compiler.cuvil", "configuration"]
    assert proposal.field == "major"


UNTOLD: dict[str, tuple[dict[str, Any], set[str], str]] = {
    "attribute": ({"model": other(attrs={"group": 2})}, {"model.untold", "compiler.untold", "sbom.untold"}, "major"),
    "operator": ({"model": other(op="gemm")}, {"model.operators", "compiler.untold", "sbom.untold"}, "major"),
    "weights": ({"model": weights("bb")}, {"model.weights", "model.untold", "compiler.untold", "sbom.untold"}, "major"),
    "policy": ({"policy": POLICY.replace("words", "x")}, {"policy.untold", "compiler.untold", "sbom.untold"}, "major"),
    "evidence": ({"inputs": 9}, {"evidence"}, "build"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTOLD)
def test_what_the_delivered_files_do_not_tell_counts_as_the_more_serious(name: str, make: Maker, root: Path) -> None:
    changes, rules, field = UNTOLD[name]
    one, two = make(), make(**changes)
    proposal = classify(one, two, root, store=False)
    assert set(rules_of(proposal)) == rules
    assert proposal.field == field
    assert {i.rule.id for i in proposal.differences if not i.told} == {r for r in rules if r.endswith(".untold")}
    told = classify(one, two, root)
    assert FIELDS.index(told.field) <= FIELDS.index(proposal.field)


def policy(text: str) -> Any:
    from compiler_kernels.policy import load_policy

    return json.loads(load_policy(text.encode(), "p.yaml").canonical_json())


LOOSER, TIGHTER = "policy.guard-loosened", "policy.guard-tightened"
ANSWER = "{action: answer, decisions: {positive: true}}"
POLICIES = [
    ("purpose: demonstration", "purpose: diagnosis", ["policy.identity"]),
    ("name: cxr", "name: ct", ["policy.identity"]),
    ("range: [0, 1]", "range: [0, 2]", [LOOSER]),
    ("range: [0, 1]", "range: [0.5, 2]", [LOOSER]),
    ("range: [0, 1]", "range: [0, 0.5]", [TIGHTER]),
    (", range: [0, 1]", "", [LOOSER]),
    ("finite: true", "finite: false", [LOOSER]),
    ("{finite: true, range: [0, 1]}", "{finite: true, range: [0, 1], shape: [1, 1]}", ["model.interface"]),
    ("inputs: {image: {finite: true, range: [0, 1]}}\n", "", [LOOSER, LOOSER]),
    ("max(prob) > cut", "max(prob) >= cut", ["policy.logic"]),
    ("description: words", "description: others", ["policy.process"]),
    ("source: study", "source: report", ["policy.process"]),
    ("thresholds: {", "thresholds: {new: 1, ", ["policy.logic"]),
    ("decisions: {", "decisions: {source: 'max(prob) > 1', ", ["policy.logic"]),
    ("version: 1\n", "version: 1\nbudget: {latency_ms: 5}\n", ["policy.process"]),
    ("version: 1\n", "version: 1\nrelease: {demand: [sbom]}\n", ["policy.process"]),
    ("version: 1\n", "version: 1\nrandom_seed: 3\n", ["policy.seed"]),
    ("version: 1\n", "version: 1\nsafety: {lockstep: true}\n", [TIGHTER]),
    ("version: 1\n", "version: 1\nsafety: {lockstep: false}\n", []),
    ("version: 1\n", "version: 1\nsafety: {guards: {g: 'max(prob) < 2'}}\n", [TIGHTER]),
    ("version: 1\n", "version: 1\nfallbacks: {default: refuse}\n", []),
    ("version: 1\n", f"version: 1\nfallbacks: {{default: {ANSWER}}}\n", ["policy.logic"] * 2),
    ("version: 1\n", "version: 1\nshapes: {N: {min: 2, max: 4}}\n", [TIGHTER] * 3),
    ("version: 1\n", "version: 1\noutputs: {prob: {finite: true}}\n", [TIGHTER]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "rules"), POLICIES)
def test_policies(old: str, new: str, rules: list[str]) -> None:
    assert old in POLICY
    found = compare_documents(policy(POLICY), policy(POLICY.replace(old, new)))
    assert [item.rule.id for item in found] == rules


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ({"min": 2, "max": 4, "multiple": 1}, {"min": 1, "max": 4, "multiple": 1}, LOOSER),
        ({"min": 2, "max": 4, "multiple": 1}, {"min": 2, "max": 3, "multiple": 1}, TIGHTER),
        ({"min": 2, "max": 8, "multiple": 2}, {"min": 2, "max": 8, "multiple": 4}, TIGHTER),
        ({"min": 2, "max": 8, "multiple": 4}, {"min": 2, "max": 8, "multiple": 2}, LOOSER),
    ],
)
def test_sizes(before: dict[str, int], after: dict[str, int], rule: str) -> None:
    (found,) = compare_documents({"shapes": {"N": before}}, {"shapes": {"N": after}})
    assert found.rule.id == rule


def test_a_section_no_rule_knows_is_major() -> None:
    (found,) = compare_documents({}, {"new_section": {"x": 1}})
    assert (found.rule.id, found.rule.field) == ("policy.unknown", "major")


@given(st.permutations(["v0", "v1", "image", "w0"]), st.text(max_size=5))
def test_names_of_values_never_count(names: list[str], label: str) -> None:
    text = json.dumps(graph())
    renamed = re.sub(r'"(v0|v1|image|w0)"', lambda m: f'"${names[["v0", "v1", "image", "w0"].index(m[1])]}"', text)
    other_graph = json.loads(renamed)
    other_graph["inputs"][0]["name"] = "image"
    other_graph["nodes"][0]["node"] = label
    assert compare_graphs(graph(), other_graph) == []


@given(st.lists(st.sampled_from([rule.id for rule in RULES])))
def test_classes_have_an_order(ids: list[str]) -> None:
    from evidence.classify.rules import difference

    found = [difference(i, "x") for i in ids]
    assert all(FIELDS.index(most_serious(found)) >= FIELDS.index(item.rule.field) for item in found)
    assert most_serious(found) in {"none", *(item.rule.field for item in found)}


def test_the_page_shows_the_rules() -> None:
    rows = re.findall(r"^\| `([a-z.-]+)` \| (\w+) \| (.*) \| (.*) \|$", DOCS.read_text(), flags=re.MULTILINE)
    assert rows == [(rule.id, rule.field, rule.difference, rule.why) for rule in RULES]


def test_stated_versions_are_compared_with_the_proposal(make: Maker, root: Path) -> None:
    def fits(version: str, **changes: Any) -> bool | None:
        return classify(make(), make(policy=POLICY.replace("1.2.3.4", version), **changes), root).version_fits

    assert fits("2.0.0.1", model=weights("bb")) is True
    assert fits("1.3.0.1", model=weights("bb")) is False
    assert fits("1.2.4.1", code="2") is True
    assert fits("1.2.3.5", code="2") is False
    assert fits("five", code="2") is None


def test_components_are_those_of_the_bills(make: Maker, root: Path) -> None:
    made = [make(), make(inputs=9)]
    for item, version in zip(made, ("1.2.4", "1.2.5"), strict=True):
        digest = read(item, root).statement.subject_digests["sha3_512"]
        hashes = [{"alg": "SHA3-512", "content": digest}]
        parts = [{"type": "library", "name": "musl", "version": version}, {"type": "file", "name": version}]
        bill = {"metadata": {"component": {"hashes": hashes}}, "components": parts}
        item.engine.with_name("inference-engine.cdx.json").write_text(json.dumps(bill))
    assert "sbom.changed" in rules_of(classify(*made, root))
    for text, why in (('{"metadata": {}}', "no bill"), (json.dumps(bill).replace(digest, "00"), "another engine")):
        made[1].engine.with_name("inference-engine.cdx.json").write_text(text)
        with pytest.raises(UsageError, match=why):
            classify(*made, root)


def test_only_verified_builds_are_classified(make: Maker, root: Path, tmp_path: Path) -> None:
    made = make()
    made.engine.write_bytes(b"other")
    with pytest.raises(VerificationFailed):
        read(made, root)
    made.engine.unlink()
    with pytest.raises(UsageError, match="lacks the engine"):
        read_build(made.engine.parent, root, made.store.get)
    with pytest.raises(UsageError, match="proof"):
        read_build(tmp_path, root, {}.get)
    (tmp_path / "alone.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"alone\.proof\.json"):
        read_build(tmp_path / "alone.bin", root, {}.get)


def test_a_release_is_verified_as_one(
    full_release: Case,
    key_home: Path,
    keys: KeySet,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(key_home))
    made = read_build(full_release.folder, full_release.trust_root, {}.get)
    assert made.document("source_model", "policy.json")["model"]["name"] == "cxr"
    assert propose(made, made).field == "none"
    place, trust = str(full_release.folder), str(full_release.trust_root)
    assert main(["classify", place, place, "--trust-root", trust, "--confirm", "--person", "Ada"]) == 2
    assert "--output" in capsys.readouterr().err


def test_a_person_confirms_and_anyone_checks(make: Maker, root: Path, tmp_path: Path) -> None:
    org = Organisation(tmp_path)
    builder, quality = org.person("Berta", "builder"), org.person("Quentin", "quality")
    both = replace(load_trust_root(org.trust_root()), keys=load_trust_root(root).keys)
    trust = tmp_path / "both.json"
    trust.write_bytes(both.encode())
    one, two = make(), make(model=weights("bb"))
    proposal = classify(one, two, trust)
    data = confirm(proposal, "Quentin", quality, environment={})
    choice, remarks = check_statement(data, proposal, both)
    assert (choice.field, choice.person) == ("major", "Quentin")
    assert "the keyring says that the keys are Quentin's" in remarks
    with pytest.raises(VerificationFailed, match="Quentin's, not Tess's"):
        check_statement(confirm(proposal, "Tess", quality, environment={}), proposal, both)
    with pytest.raises(VerificationFailed):  # a builder's certificate is not for signing documents
        check_statement(confirm(proposal, "Berta", builder, environment={}), proposal, both)
    with pytest.raises(VerificationFailed, match="other files"):
        check_statement(data, classify(two, one, trust), both)
    lower = confirm(proposal, "Quentin", quality, field="minor", reason="AUC unchanged, study 7", environment={})
    assert check_statement(lower, proposal, both)[0].reason == "AUC unchanged, study 7"
    changed = data.replace(b'"payload": "ey', b'"payload": "eY')
    assert changed != data
    with pytest.raises((VerificationFailed, MalformedError)):
        check_statement(changed, proposal, both)
    without = classify(one, two, trust, store=False)
    assert "do not tell everything" in check_statement(data, without, both)[1][0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"person": " "}, "--person"),
        ({"person": "A", "field": "minor"}, "--reason"),
        ({"person": "A", "field": "huge", "reason": "x"}, "--field"),
    ],
)
def test_what_cannot_be_confirmed(arguments: dict[str, str], why: str, make: Maker, root: Path, key_home: Path) -> None:
    proposal = classify(make(), make(model=weights("bb")), root)
    person = arguments.pop("person")
    with pytest.raises(UsageError, match=why):
        confirm(proposal, person, load_signing_keys(key_home), environment={}, **arguments)


def test_command(
    make: Maker, root: Path, key_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(key_home))
    one, two = make(), make(model=weights("bb"))
    places = [str(one.engine), str(two.engine.parent)]
    assert main(["classify", *places, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["field"] == "major" and document["b"]["model_version"] == "cxr-1.2.3.4"
    assert main(["classify", *places]) == 0
    assert "proposal: major (X of X.Y.Z.B)" in capsys.readouterr().out
    assert main(["classify", *places, "--person", "Ada"]) == 2
    assert main(["classify", *places, "--confirm", "--person", "Ada", "--json"]) == 0
    written = Path(json.loads(capsys.readouterr().out)["statement"])
    assert written.parent == two.engine.parent
    assert main(["classify", *places, "--check", str(written), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["person"] == "Ada"
    assert main(["classify", *places[::-1], "--check", str(written)]) == 1
    assert "[classification]" in capsys.readouterr().err


def test_identity(make: Maker, root: Path) -> None:
    made = read(make(), root)
    assert propose(made, made).to_json()["differences"] == []


@pytest.mark.slow
def test_two_real_builds(
    home_maker: Callable[[], Path],
    tiny_model: ModelMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A retrained network with a narrower guard: the store tells everything, the files alone do not."""
    homes = [home_maker(), home_maker()]
    monkeypatch.setenv("CUVIL_HOME", str(homes[0]))
    places = []
    for seed, version, most in ((0, "1.0.0.1", "1.0"), (1, "2.0.0.1", "0.5")):
        policy = tmp_path / f"{seed}.yaml"
        assert "[0.0, 1.0]" in REAL_POLICY
        policy.write_text(REAL_POLICY.replace('"1.0"', f'"{version}"').replace("[0.0, 1.0]", f"[0.0, {most}]"))
        places.append(tmp_path / str(seed) / "inference-engine.bin")
        words = ["build", "--model", tiny_model(seed), "--policy", policy, "--target", "x86_64-linux-musl"]
        assert main([str(w) for w in [*words, "--output", places[-1], "--equivalence-inputs", 2]]) == 0
    capsys.readouterr()
    assert main(["classify", *map(str, places), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [d["rule"] for d in told["differences"]][:2] == ["model.weights", TIGHTER]
    assert told["field"] == "major" and told["versions"]["fits"] is True
    assert all(d["told"] for d in told["differences"])
    monkeypatch.setenv("CUVIL_HOME", str(homes[1]))
    trust = homes[0] / "keys" / "trust-root.json"
    assert main(["classify", *map(str, places), "--trust-root", str(trust), "--json"]) == 0
    untold = json.loads(capsys.readouterr().out)
    assert untold["field"] == "major"
    assert {"policy.untold", "sbom.untold"} <= {d["rule"] for d in untold["differences"] if not d["told"]}
